"""Stores of checkpoints: the interface that a transfer needs, a local folder as a store, and their errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from pricing.atomic_file import open_atomic, sync_folder


class StorageError(Exception):
    """An operation on durable storage failed; ``remedy`` says what would help."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class IncompleteCheckpointError(StorageError):
    """A checkpoint is torn, was changed, or is gone: use another one."""


class OutOfTimeError(StorageError):
    """The time was over. Files that were copied stay and need not be copied again."""


class CancelledError(StorageError):
    """The transfer was cancelled because something else is to be done first."""


@dataclass(frozen=True)
class ListedFile:
    """One file of a listing; ``modified`` is when it was last written, in nanoseconds since 1970."""

    path: str
    bytes: int
    modified: int


class StoreReader(Protocol):
    """An open file; any thread may read, several at once."""

    def read_at(self, count: int, offset: int) -> bytes:
        """Return at most ``count`` bytes from ``offset``. OSError."""


class StoreSink(Protocol):
    """A file that one thread is writing."""

    def write(self, data: bytes, /) -> object:
        """Write data. OSError."""

    def flush(self) -> None:
        """Wait until the written data is no longer in the memory of this process. OSError."""


class CheckpointStore(Protocol):
    """A folder with checkpoints, local or in an object store. Paths are relative to it, with slashes.

    All methods raise OSError; FileNotFoundError if there is no such file.
    """

    url: str
    largest_file: int | None

    def names(self) -> list[str]:
        """Return the names of the files directly in the folder; none if there is no folder."""

    def files(self) -> list[ListedFile]:
        """Return all files below the folder, by path; none if there is no folder."""

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Return the size of each file; None for one that does not exist."""

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a small file."""

    def open(self, path: str) -> AbstractContextManager[StoreReader]:
        """Open a file for reading."""

    def create(self, path: str) -> AbstractContextManager[StoreSink]:
        """Open a file for writing; it exists, and is durable, when the block ends without an error.

        After an error, half of it may exist; in a local folder nothing does.
        """

    def put(self, path: str, data: bytes) -> None:
        """Write a small file, completely or not at all."""
        with self.create(path) as sink:
            sink.write(data)

    def remove(self, path: str) -> None:
        """Remove a file; repeating it is harmless."""

    def remove_below(self, folder: str, kept: frozenset[str]) -> None:
        """Remove all files below a folder, except those in ``kept``."""

    def folders(self) -> list[str]:
        """Return the names of the folders directly in it."""

    def where(self, path: str) -> str:
        """Return the public name of a file: a local path, or a URL without secrets."""


class _FileReader:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_at(self, count: int, offset: int) -> bytes:
        return os.pread(self._descriptor, count, offset)


class FolderStore(CheckpointStore):
    """A local folder as a store: files are written under another name, synced and renamed."""

    largest_file: int | None = None

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.url = str(self.path)

    def names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [entry.name for entry in os.scandir(self.path) if entry.is_file()]
        return []

    def folders(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [entry.name for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
        return []

    def files(self) -> list[ListedFile]:
        found = []
        for place, _, names in os.walk(self.path):
            for file in (Path(place, name) for name in names):
                with suppress(FileNotFoundError):
                    state = file.stat()
                    found.append(ListedFile(file.relative_to(self.path).as_posix(), state.st_size, state.st_mtime_ns))
        return sorted(found, key=lambda file: file.path)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [_file_size(self.path / path) for path in paths]

    def read(self, path: str, max_bytes: int) -> bytes:
        with (self.path / path).open("rb") as stream:
            return stream.read(max_bytes)

    @contextmanager
    def open(self, path: str) -> Iterator[StoreReader]:
        descriptor = os.open(self.path / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield _FileReader(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def create(self, path: str) -> Iterator[StoreSink]:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(file) as stream:
            yield stream
        # The folders between this one and the file may be new.
        for folder, above in pairwise(file.parents):
            if folder == self.path:
                break
            sync_folder(above)

    def remove(self, path: str) -> None:
        (self.path / path).unlink(missing_ok=True)

    def remove_below(self, folder: str, kept: frozenset[str]) -> None:
        for place, folders, files in os.walk(self.path / folder, topdown=False):
            for name in files:
                file = Path(place, name)
                if file.relative_to(self.path).as_posix() not in kept:
                    file.unlink(missing_ok=True)
            for name in folders:
                with suppress(OSError):
                    Path(place, name).rmdir()
        with suppress(OSError):
            (self.path / folder).rmdir()

    def where(self, path: str) -> str:
        return str(self.path / path)


def open_checkpoint_store(url: str, arrow: Callable[[str], CheckpointStore]) -> CheckpointStore:
    """Open the store at a URL or a path; ``arrow`` opens those that are no folders.

    StorageError if it cannot be one.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return FolderStore(Path(url))
    if scheme == "file":
        if not rest.startswith("/"):
            raise StorageError(f"{url}: no path of this machine", "write file:///PATH")
        return FolderStore(Path(rest))
    return arrow(url)


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except NotADirectoryError:
        return None
