"""Where checkpoints lie: what a transfer asks of a place, and a folder of this machine as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from router.checkpoints.errors import StorageError


class Reader(Protocol):
    """An open file; any thread may read, several at once."""

    def read_at(self, count: int, offset: int) -> bytes:
        """At most so many bytes from there. OSError."""


class Sink(Protocol):
    """A file that is being written, by one thread."""

    def write(self, data: bytes) -> None:
        """OSError."""

    def settle(self) -> None:
        """Waits until what was written is no longer in memory. OSError."""


class Depot(Protocol):
    """A folder with checkpoints, here or in an object store. Paths are relative to it, with slashes. All raise
    OSError; FileNotFoundError where there is no such file."""

    url: str
    largest_file: int | None

    def names(self) -> list[str]:
        """The files right in the folder; none where there is no folder."""

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Of each file; None where there is none."""

    def read(self, path: str, most: int) -> bytes:
        """A small file."""

    def open(self, path: str) -> AbstractContextManager[Reader]:
        """A file for reading."""

    def create(self, path: str) -> AbstractContextManager[Sink]:
        """A file that is there, and durable, when the block ends without an error. After one, half of it may be there;
        in a folder of this machine nothing is."""

    def put(self, path: str, data: bytes) -> None:
        """A small file, whole or not at all."""

    def remove(self, path: str) -> None:
        """A file; again is harmless."""

    def remove_below(self, folder: str, kept: frozenset[str]) -> None:
        """All files below a folder but those."""

    def folders(self) -> list[str]:
        """The names of the folders right in it."""

    def where(self, path: str) -> str:
        """What others may call a file by: a path of this machine, or a URL without secrets."""


class _Pread:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_at(self, count: int, offset: int) -> bytes:
        return os.pread(self._descriptor, count, offset)


class _File:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def settle(self) -> None:
        """The kernel bounds what it holds."""


class Folder:
    """A folder of this machine: files are written aside, synced and renamed."""

    largest_file: int | None = None

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.url = str(self.path)

    def names(self) -> list[str]:
        """Of the Depot."""
        with suppress(FileNotFoundError):
            return [entry.name for entry in os.scandir(self.path) if entry.is_file()]
        return []

    def folders(self) -> list[str]:
        """Of the Depot."""
        with suppress(FileNotFoundError):
            return [entry.name for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
        return []

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Of the Depot."""
        return [_size(self.path / path) for path in paths]

    def read(self, path: str, most: int) -> bytes:
        """Of the Depot."""
        with (self.path / path).open("rb") as stream:
            return stream.read(most)

    @contextmanager
    def open(self, path: str) -> Iterator[Reader]:
        """Of the Depot."""
        descriptor = os.open(self.path / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield _Pread(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        """Of the Depot."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as stream:
                yield _File(stream)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(file)
        finally:
            with suppress(OSError):
                part.unlink()
        for folder in file.parents:
            _settle(folder)
            if folder == self.path:
                break

    def put(self, path: str, data: bytes) -> None:
        """Of the Depot."""
        with self.create(path) as sink:
            sink.write(data)

    def remove(self, path: str) -> None:
        """Of the Depot."""
        (self.path / path).unlink(missing_ok=True)

    def remove_below(self, folder: str, kept: frozenset[str]) -> None:
        """Of the Depot."""
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
        """Of the Depot."""
        return str(self.path / path)


def opened(url: str, arrow: Callable[[str], Depot]) -> Depot:
    """The place that a URL or a path names; ``arrow`` opens what no folder is. StorageError for what cannot be one."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return Folder(Path(url))
    if scheme == "file":
        if not rest.startswith("/"):
            raise StorageError(f"{url}: no path of this machine", "write file:///PATH")
        return Folder(Path(rest))
    return arrow(url)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except NotADirectoryError:
        return None


def _settle(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
