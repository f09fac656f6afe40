"""Checkpoints: their manifests, and those of a store: listing, finding complete ones, removing old ones."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from router.checkpoints.object_store import CheckpointStore

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSION = 1
LARGEST_BYTES = 64 * 2**20
LONGEST_PATH = 1024
_NAME = re.compile(r"step-(\d{8,18})\.manifest\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The number of characters of a digest that make a unique name.
_DIGEST_CHARACTERS = 12


def manifest_name(step: int) -> str:
    return f"step-{step:08d}.manifest.json"


def parse_step(name: str) -> int | None:
    """Return the step of a file name; None if it is not a manifest's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class CheckpointFile:
    """One file of a checkpoint; ``path`` is relative to the manifest, with slashes."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class CheckpointManifest:
    """The manifest of a checkpoint; ``text`` is its content as written."""

    step: int
    attempt: str
    created: str
    files: tuple[CheckpointFile, ...]
    text: bytes = field(repr=False)

    @property
    def name(self) -> str:
        return manifest_name(self.step)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def said(self) -> Any:
        return json.loads(self.text)

    def is_same(self, other: CheckpointManifest) -> bool:
        """Return whether the other manifest is of this checkpoint, wherever its files lie."""
        mine, its = (sorted((file.sha256, file.bytes) for file in m.files) for m in (self, other))
        return (self.step, self.attempt, self.created, mine) == (other.step, other.attempt, other.created, its)

    def beside(self, taken: Mapping[str, str]) -> CheckpointManifest:
        """Return this checkpoint with paths that no other checkpoint uses for other content.

        ``taken``: paths of other checkpoints, with the digests that they have there.
        """
        moved = {
            file.path: f"step-{self.step:08d}/moved-{file.sha256[:_DIGEST_CHARACTERS]}/{file.path.rpartition('/')[2]}"
            for file in self.files
            if taken.get(file.path, file.sha256) != file.sha256
        }
        if not moved:
            return self
        content = self.said()
        for entry in content["files"]:
            entry["path"] = moved.get(entry["path"], entry["path"])
        return parse_manifest(self.name, json.dumps(content).encode())


def parse_manifest(name: str, text: bytes) -> CheckpointManifest:
    """Return the manifest in a file of that name. ValueError for anything that breaks the contract.

    That is another step than its name says, paths that lead out of the folder or to a manifest, or a missing digest.
    """
    try:
        content = json.loads(text)
        if (content["version"], content["step"]) != (VERSION, parse_step(name)) or isinstance(content["step"], bool):
            raise ValueError("not of this version, or of another step")
        files = {entry["path"]: _file(entry) for entry in content["files"]}
        if len(files) != len(content["files"]):
            raise ValueError("a file twice")
        attempt, created = content["attempt"], content.get("created", "")
        if not isinstance(attempt, str) or not isinstance(created, str):
            raise ValueError("attempt or created: no text")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} cannot be read as a manifest: {type(error).__name__} {error}") from None
    return CheckpointManifest(content["step"], attempt, created, tuple(files.values()), text)


def _file(entry: Any) -> CheckpointFile:
    path, size, digest = entry["path"], entry["bytes"], entry["sha256"]
    if leads_outside(path) or ("/" not in path and parse_step(path) is not None):
        raise ValueError("a path that leads outside the folder")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not _SHA256.fullmatch(digest):
        raise ValueError("a file without size or digest")
    return CheckpointFile(path, size, digest)


def leads_outside(path: str) -> bool:
    """Return whether a path is not one of a file below its folder, on every kind of store."""
    odd = any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path
    return odd or len(path) > LONGEST_PATH


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


F = TypeVar("F", bound="DataclassInstance")
_FOLDER = re.compile(r"step-(\d{8,18})")


def read_manifest(store: CheckpointStore, step: int) -> CheckpointManifest | None:
    """Return the manifest of a step; None if there is none, or it cannot be read as one. OSError."""
    try:
        return parse_manifest(manifest_name(step), store.read(manifest_name(step), LARGEST_BYTES))
    except (FileNotFoundError, ValueError):
        return None


def list_steps(store: CheckpointStore) -> list[int]:
    """Return the steps that have a manifest, the newest first. OSError."""
    return sorted({step for name in store.names() if (step := parse_step(name)) is not None}, reverse=True)


def has_expected_sizes(store: CheckpointStore, manifest: CheckpointManifest) -> bool:
    """Return whether every file exists with its size. OSError."""
    sizes = store.sizes([file.path for file in manifest.files])
    return sizes == [file.bytes for file in manifest.files]


def find_complete_checkpoints(
    store: CheckpointStore, passed: Callable[[int, str], None] = lambda *_: None
) -> Iterator[CheckpointManifest]:
    """Yield checkpoints whose files have their sizes, the newest first. OSError.

    Digests are left to those who read the files. ``passed`` is called for other checkpoints, with the reason.
    """
    for step in list_steps(store):
        manifest = read_manifest(store, step)
        if manifest is None:
            passed(step, "its manifest cannot be read")
        elif not has_expected_sizes(store, manifest):
            passed(step, "files are missing or of another size")
        else:
            yield manifest


def list_other_paths(store: CheckpointStore, manifest: CheckpointManifest) -> dict[str, str]:
    """Return the paths of the other checkpoints of a store, with their digests. OSError."""
    found = [read_manifest(store, step) for step in list_steps(store)]
    others = [other for other in found if other is not None and not other.is_same(manifest)]
    return {file.path: file.sha256 for other in others for file in other.files}


def remove_old_checkpoints(store: CheckpointStore, keep: int, step: int) -> list[int]:
    """Remove old checkpoints and return the steps that were removed. OSError.

    Those are the ones older than the newest ``keep`` complete ones, of which ``step`` is one, and incomplete ones older
    than it. Later steps stay. A manifest is removed before its files.
    """
    older = {at: read_manifest(store, at) for at in list_steps(store) if at < step}
    complete = [at for at, manifest in older.items() if manifest is not None and has_expected_sizes(store, manifest)]
    kept = {*complete[: max(1, keep) - 1], *(at for at in list_steps(store) if at >= step)}
    staying_manifests = [read_manifest(store, at) if at >= step else older[at] for at in kept]
    needed = frozenset(file.path for manifest in staying_manifests if manifest is not None for file in manifest.files)
    removed = [at for at in older if at not in kept]
    oldest = min([step, *kept])
    for at in removed:
        store.remove(manifest_name(at))
        manifest = older[at]
        for file in manifest.files if manifest is not None else ():
            match = _FOLDER.fullmatch(file.path.partition("/")[0])
            if file.path not in needed and not (match and int(match[1]) < oldest):
                store.remove(file.path)
    for folder in store.folders():
        match = _FOLDER.fullmatch(folder)
        if match and int(match[1]) < oldest:
            store.remove_below(folder, needed)
    return removed


class FileJournal(Generic[F]):
    """A journal of files that were copied completely, a line of JSON each, so that none is copied twice.

    Losing it costs only time. Shared by threads. ``kind`` is the record of a file; those without ``is_kept`` are
    forgotten.
    """

    def __init__(self, file: Path, kind: type[F], is_kept: Callable[[F], bool] = lambda _: True) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._known: set[F] = set()
        with suppress(OSError, ValueError):
            for line in self._file.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, TypeError):
                    self._known.add(kind(*json.loads(line)))
        self._known = {each for each in self._known if is_kept(each)}
        with suppress(OSError):
            self._file.write_text("".join(_line(each) for each in self._known), encoding="utf-8")

    @property
    def files(self) -> frozenset[F]:
        return frozenset(self._known)

    def knows(self, file: F) -> bool:
        return file in self._known

    def add(self, file: F) -> None:
        """Record that the file was copied. If the disk does not take the line, the line is lost."""
        with self._lock, suppress(OSError):
            self._known.add(file)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(_line(file))


class CopyJournal(FileJournal[CheckpointFile]):
    """The journal of files copied from a folder to a store; it is a file of that folder."""

    def __init__(self, folder: Path, url: str) -> None:
        name = f".uploaded-{sha256_hex(url.encode())[:12]}.jsonl"
        # Files that are no longer in the folder will not be copied again.
        super().__init__(folder / name, CheckpointFile, lambda file: (folder / file.path).exists())


def _line(file: DataclassInstance) -> str:
    return json.dumps(astuple(file)) + "\n"
