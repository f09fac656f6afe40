"""Write files so that after a crash a reader finds the old content or the new, never a part of it.

A file is written beside its place, flushed to the disk and renamed; the folder is then flushed, so that the rename
lasts through a power cut. It stands in the lowest package because all others write files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: Permissions of a new file unless the caller says otherwise, less the umask of the process.
DEFAULT_MODE = 0o666
_CANNOT_SYNC_FOLDERS = {errno.EBADF, errno.EINVAL, errno.ENOTSUP}


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone. Raises OSError.

    ``Path.mkdir`` gives its mode to the last one only: whatever came first made a home that others could read.
    """
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def open_atomic(path: Path, mode: int = DEFAULT_MODE, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a stream whose content replaces ``path`` when the block ends without an error.

    On an error ``path`` stays as it was and the temporary file is removed. ``mode`` gives the permissions of the file,
    less the umask. Without ``durable`` nothing is flushed: other processes see the whole file, but a power cut may
    damage it. Raises OSError where the folder is missing or the disk is full.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as stream:
            yield stream
            if durable:
                sync_stream(stream)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def write_atomic(path: Path, content: bytes | str, mode: int = DEFAULT_MODE, *, durable: bool = True) -> None:
    """Replace the content of ``path``; text is written as UTF-8 with LF. Raises OSError."""
    with open_atomic(path, mode, durable=durable) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def publish_file(part: Path, path: Path) -> None:
    """Give a finished file its name: flush it, rename it over ``path``, flush the folder. Raises OSError.

    Both must lie on one file system. If it fails before the rename, ``path`` is as it was and ``part`` remains.
    """
    with part.open("rb+") as stream:
        os.fsync(stream.fileno())
    part.replace(path)
    sync_folder(path.parent)


def publish_folder(part: Path, folder: Path) -> None:
    """Give a finished folder its name: flush all that is in it, rename it, flush the folder above. Raises OSError.

    ``folder`` is missing or empty. If it fails before the rename, ``folder`` is as it was and ``part`` remains.
    """
    for place, _, files in os.walk(part, topdown=False):
        for name in files:
            with Path(place, name).open("rb") as stream:
                os.fsync(stream.fileno())
        sync_folder(Path(place))
    part.replace(folder)
    sync_folder(folder.parent)


def sync_stream(stream: IO[bytes] | IO[str]) -> None:
    """Flush a stream to the disk. Raises OSError."""
    stream.flush()
    os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, where the system and the file system can. Raises OSError."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders.
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise
    finally:
        os.close(handle)
