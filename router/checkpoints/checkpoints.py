"""The checkpoints of a store: listing, finding complete ones, and removing old ones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from router.checkpoints.manifest import (
    LARGEST_BYTES,
    CheckpointFile,
    CheckpointManifest,
    manifest_name,
    parse_manifest,
    parse_step,
    sha256_hex,
)
from router.checkpoints.object_store import CheckpointStore

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
