"""Parts of the price history on disk: ``HISTORY/month=2026-11/part-000000012-1f2e3d4c.parquet``.

A part is never changed. It is written as ``*.part`` beside its place, flushed and renamed, so that a process killed at
any moment leaves the whole part or none. The number in its name is that of the latest write it holds; among points with
the same key the one with the highest number counts (column ``batch``). Writers hold one lock; readers hold none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from pricing.atomic_file import publish_file, sync_folder

LOCK_WAIT_S = 120.0
_LOCK = ".lock"
_MONTH = re.compile(r"month=(\d{4}-\d{2})")
_PART = re.compile(r"part-(\d{9,})-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class HistoryPart:
    """One file: its month (``2026-11``, UTC), the number of the latest write in it, its size in bytes."""

    month: str
    number: int
    path: Path
    size: int


def month_of(at: datetime) -> str:
    """Return the month a point belongs to, in UTC: ``2026-11``."""
    at = at.astimezone(UTC)
    return f"{at.year:04d}-{at.month:02d}"


def list_parts(folder: Path, since: datetime | None = None, until: datetime | None = None) -> tuple[HistoryPart, ...]:
    """Return the parts of the months that touch ``since`` <= at < ``until``, sorted; none where there is no folder.

    The folder is listed until two listings agree: one that runs while parts are merged might see neither the old nor
    the new.
    """
    first = "" if since is None else month_of(since)
    last = "9999-99" if until is None else month_of(until)
    parts = _scan(folder, first, last)
    while (again := _scan(folder, first, last)) != parts:
        parts = again
    return parts


def _scan(folder: Path, first: str, last: str) -> tuple[HistoryPart, ...]:
    parts = []
    for month, place in _months(folder):
        if not first <= month <= last:
            continue
        for entry in os.scandir(place):
            name = _PART.fullmatch(entry.name)
            if name is not None:
                with contextlib.suppress(FileNotFoundError):  # The part was merged into another since it was listed.
                    parts.append(HistoryPart(month, int(name[1]), Path(entry.path), entry.stat().st_size))
    return tuple(sorted(parts))


def _months(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        name = _MONTH.fullmatch(entry.name)
        if name is not None and entry.is_dir():
            yield name[1], Path(entry.path)


@contextmanager
def lock_for_writing(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while anything in it changes; the folder is made if missing.

    TimeoutError when another writer holds the lock. Files that a killed writer left unfinished are removed first: no
    other process can be writing them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=LOCK_WAIT_S)
    except Timeout:
        what = f"another process has been writing price history for over {LOCK_WAIT_S:.0f} s"
        raise TimeoutError(errno.ETIMEDOUT, what, str(folder)) from None
    try:
        for _, place in _months(folder):
            for leftover in place.glob(".*.part"):
                leftover.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def publish_part(folder: Path, month: str, number: int, write: Callable[[Path], None]) -> Path:
    """Have ``write`` fill a temporary file and move it to its place, flushed to the disk.

    Nothing stays if it fails.
    """
    place = folder / f"month={month}"
    place.mkdir(exist_ok=True)
    path = place / f"part-{number:09d}-{uuid.uuid4().hex[:8]}.parquet"
    temporary = place / f".{path.name}.part"
    try:
        write(temporary)
        publish_file(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)  # The month may be new.
    return path


def remove_parts(parts: tuple[HistoryPart, ...]) -> None:
    """Delete parts whose content lies in another one now. One that a reader holds open may stay (Windows)."""
    for part in parts:
        with contextlib.suppress(PermissionError):
            part.path.unlink(missing_ok=True)
