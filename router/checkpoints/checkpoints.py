"""The checkpoints of a store: listing, finding complete ones, and removing old ones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from router.checkpoints.manifest import LARGEST_BYTES, File, Manifest, digest, name_of, parse, step_of
from router.checkpoints.object_store import Depot

_FOLDER = re.compile(r"step-(\d{8,18})")


def manifest_at(store: Depot, step: int) -> Manifest | None:
    """Return the manifest of a step; None if there is none, or it cannot be read as one. OSError."""
    try:
        return parse(name_of(step), store.read(name_of(step), LARGEST_BYTES))
    except (FileNotFoundError, ValueError):
        return None


def steps(store: Depot) -> list[int]:
    """Return the steps that have a manifest, the newest first. OSError."""
    return sorted({step for name in store.names() if (step := step_of(name)) is not None}, reverse=True)


def is_sized(store: Depot, manifest: Manifest) -> bool:
    """Return whether every file exists with its size. OSError."""
    sizes = store.sizes([file.path for file in manifest.files])
    return sizes == [file.bytes for file in manifest.files]


def good(store: Depot, passed: Callable[[int, str], None] = lambda *_: None) -> Iterator[Manifest]:
    """Yield checkpoints whose files have their sizes, the newest first. OSError.

    Digests are left to those who read the files. ``passed`` is called for other checkpoints, with the reason.
    """
    for step in steps(store):
        manifest = manifest_at(store, step)
        if manifest is None:
            passed(step, "its manifest cannot be read")
        elif not is_sized(store, manifest):
            passed(step, "files are missing or of another size")
        else:
            yield manifest


def taken(store: Depot, manifest: Manifest) -> dict[str, str]:
    """Return the paths of the other checkpoints of a store, with their digests. OSError."""
    found = [manifest_at(store, step) for step in steps(store)]
    others = [other for other in found if other is not None and not other.is_same(manifest)]
    return {file.path: file.sha256 for other in others for file in other.files}


def retire(store: Depot, keep: int, step: int) -> list[int]:
    """Remove old checkpoints and return the steps that were removed. OSError.

    Those are the ones older than the newest ``keep`` complete ones, of which ``step`` is one, and incomplete ones older
    than it. Later steps stay. A manifest is removed before its files.
    """
    older = {at: manifest_at(store, at) for at in steps(store) if at < step}
    complete = [at for at, manifest in older.items() if manifest is not None and is_sized(store, manifest)]
    kept = {*complete[: max(1, keep) - 1], *(at for at in steps(store) if at >= step)}
    staying_manifests = [manifest_at(store, at) if at >= step else older[at] for at in kept]
    needed = frozenset(file.path for manifest in staying_manifests if manifest is not None for file in manifest.files)
    removed = [at for at in older if at not in kept]
    oldest = min([step, *kept])
    for at in removed:
        store.remove(name_of(at))
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


class Journal:
    """A journal of files copied completely from a folder to a store, so that they need not be read back.

    It is a file of that folder, and losing it costs only time. Shared by threads.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._file = folder / f".uploaded-{digest(url.encode())[:12]}.jsonl"
        self._lock = threading.Lock()
        self._known: set[File] = set()
        with suppress(OSError, ValueError):
            for line in self._file.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, TypeError):
                    self._known.add(File(*json.loads(line)))
        # Files that are no longer in the folder will not be copied again.
        self._known = {file for file in self._known if (folder / file.path).exists()}
        with suppress(OSError):
            self._file.write_text("".join(_line(file) for file in self._known), encoding="utf-8")

    def knows(self, file: File) -> bool:
        """Return whether the file was copied."""
        return file in self._known

    def add(self, file: File) -> None:
        """Record that the file was copied. If the disk does not take the line, the line is lost."""
        with self._lock, suppress(OSError):
            self._known.add(file)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(_line(file))


def _line(file: File) -> str:
    return json.dumps([file.path, file.bytes, file.sha256]) + "\n"
