"""A file with books in it: a backup, or what was archived. Compressed lines of JSON, the same for the same books.

::

    {"format": "stepfare-ledger", "version": 1, "holds": "backup" | "archive", "state": "s...", "before": "2025-01"}
    ["closed", period, closed_at, who, head, hash(, seal, its hash)]   months that are closed, in order
    ["archive", seq, before, at, who, file, sha256, entries, totals]   what was archived before, in order
    ["entry", seq, ..., previous, hash]                                as router.state.ledger_rows writes them ...
    ["archived", seq, key, previous, hash]                             ... and those archived, by number
    ["end", lines, sha256]                                             over all bytes before this line

It has no secrets and no time of its own making. A file appears under its name when it is complete, on the disk, and was
read again.
"""

from __future__ import annotations

import contextlib
import filecmp
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from router.state.errors import ExistsError, StateError
from router.state.folders import settle_folder

FORMAT, VERSION = "stepfare-ledger", 1
_END = "end"
_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_LEVEL = 6
# No line of ours is near it; a file of another kind may be one long line.
_LONGEST = 16_000_000
_DAMAGE = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError)


class Holds(StrEnum):
    """What a file is."""

    BACKUP = "backup"
    ARCHIVE = "archive"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Title:
    """The first line: of which state (its id); ``before``: of an archive, the month before which its entries stand."""

    holds: Holds
    state: str
    before: str = ""


class DamagedError(StateError):
    """The file is not what was written, or none of ours."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}", "take another copy of it")


def write_file(
    path: Path, title: Title, lines: Iterable[list[Any]], *, same_is_fine: bool = False, mode: int = 0o666
) -> str:
    """Writes a file, whole or not at all, and reads it again; its SHA-256 as the last line has it. ExistsError where
    there is one already (with ``same_is_fine`` unless it holds just this); StateError where it cannot be written.
    ``mode``: who may read it, less what the process leaves out."""
    if path.exists() and not same_is_fine:
        raise _there_already(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as stream:
            digest = _write(stream, title, lines)
            stream.flush()
            os.fsync(stream.fileno())
        if sum_of(part) != digest:
            raise DamagedError(path, "what was written is not what the disk gave back")
        if path.exists():
            if not filecmp.cmp(part, path, shallow=False):
                raise _there_already(path)
        else:
            part.replace(path)
            settle_folder(path.parent)
    except OSError as error:
        raise StateError(
            f"{path}: cannot be written: {error.strerror or type(error).__name__}", "make room, or name another file"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return digest


def read_title(path: Path) -> Title:
    """Its first line. DamagedError; StateError for one that is not there, or of a later version."""
    with _opened(path) as lines:
        return _title(path, _first(path, lines)[0])


def read_lines(path: Path) -> Iterator[list[Any]]:
    """All lines but the first and the last. DamagedError, at the end for one that was cut off or changed: nothing that
    was read is to be used before."""
    with _opened(path) as lines:
        first, before = _first(path, lines)
        _title(path, first)
        count, hashed = 1, hashlib.sha256(before)
        for line, text in lines:
            if line[0] == _END:
                if line[1:] != [count, hashed.hexdigest()] or next(lines, None) is not None:
                    raise DamagedError(path, "was changed: its lines and their sum do not agree")
                return
            count += 1
            hashed.update(text)
            yield line
    raise DamagedError(path, "was cut off")


def sum_of(path: Path) -> str:
    """The SHA-256 over its lines, as the last one has it. DamagedError."""
    for _ in read_lines(path):
        pass
    last = ""
    with _opened(path) as lines:
        for line, _ in lines:
            last = str(line[-1]) if isinstance(line, list) else last
    return last


def _write(stream: BinaryIO, title: Title, lines: Iterable[list[Any]]) -> str:
    head = {"format": FORMAT, "version": VERSION, "holds": title.holds.value, "state": title.state}
    if title.before:
        head["before"] = title.before
    hashed, count = hashlib.sha256(), 0
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0) as packed:
        for line in _with_title(head, lines):
            text = (_JSON.encode(line) + "\n").encode("ascii")
            hashed.update(text)
            count += 1
            packed.write(text)
        packed.write((_JSON.encode([_END, count, hashed.hexdigest()]) + "\n").encode("ascii"))
    return hashed.hexdigest()


def _with_title(head: dict[str, Any], lines: Iterable[list[Any]]) -> Iterator[Any]:
    yield head
    yield from lines


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Iterator[tuple[Any, bytes]]]:
    try:
        with gzip.open(path, "rb") as stream:
            yield _parsed(path, stream)
    except FileNotFoundError:
        raise StateError(f"{path}: no such file") from None
    except StateError:
        raise
    except _DAMAGE as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "is damaged"
        raise DamagedError(path, f"is no file of books, or {why}") from None


def _parsed(path: Path, stream: Any) -> Iterator[tuple[Any, bytes]]:
    while text := stream.readline(_LONGEST):
        if not text.endswith(b"\n"):
            raise DamagedError(path, "was cut off")
        yield json.loads(text), text


def _first(path: Path, lines: Iterator[tuple[Any, bytes]]) -> tuple[Any, bytes]:
    found = next(lines, None)
    if found is None:
        raise DamagedError(path, "is empty")
    return found


def _title(path: Path, line: Any) -> Title:
    if not isinstance(line, dict) or line.get("format") != FORMAT:
        raise DamagedError(path, "is no file of books")
    if line["version"] != VERSION:
        raise StateError(f"{path}: of a later version ({line['version']})", "install that version of stepfare")
    return Title(Holds(line["holds"]), str(line["state"]), str(line.get("before", "")))


def _there_already(path: Path) -> ExistsError:
    return ExistsError(f"{path} is there already", "name another file, or move it away")
