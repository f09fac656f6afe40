"""The file format of backups and archives of the ledger: compressed lines of JSON, the same for the same books.

::

    {"format": "stepfare-ledger", "version": 1, "holds": "backup" | "archive", "state": "s...", "before": "2025-01"}
    ["closed", period, closed_at, who, head, hash(, seal, its hash)]   months that are closed, in order
    ["archive", seq, before, at, who, file, sha256, entries, totals]   what was archived before, in order
    ["entry", seq, ..., previous, hash]                                as router.state.ledger_rows writes them ...
    ["archived", seq, key, previous, hash]                             ... and those archived, by number
    ["end", lines, sha256]                                             over all bytes before this line

It contains no secrets and no time of its own creation. A file appears under its name when it is complete, on the disk,
and was read again.
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
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from pricing.atomic_file import publish_file, sync_stream
from router.state.errors import ExistsError, StateError

FORMAT, VERSION = "stepfare-ledger", 1
_END = "end"
_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_COMPRESSION_LEVEL = 6
# No line of this format is near this length; a file of another kind may be one long line.
_LONGEST_LINE = 16_000_000
_DAMAGE = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError)


class LedgerFileKind(StrEnum):
    """The kind of a file."""

    BACKUP = "backup"
    ARCHIVE = "archive"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class LedgerFileTitle:
    """The first line of a file.

    ``state`` is the id of its state; ``before``: the month before which the entries of an archive stand.
    """

    holds: LedgerFileKind
    state: str
    before: str = ""


class DamagedError(StateError):
    """The file is not as it was written, or is no file of this format."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}", "take another copy of it")


def write_file(
    path: Path, title: LedgerFileTitle, lines: Iterable[list[Any]], *, same_is_fine: bool = False, mode: int = 0o666
) -> str:
    """Write a file, completely or not at all, read it again and return the SHA-256 in its last line.

    ExistsError if there is one already (with ``same_is_fine`` unless its content is the same); StateError if it cannot
    be written. ``mode``: its permissions, less those that the process masks.
    """
    if path.exists() and not same_is_fine:
        raise _exists_error(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as stream:
            digest = _write(stream, title, lines)
            sync_stream(stream)
        if read_checksum(part) != digest:
            raise DamagedError(path, "the disk returned other content than was written")
        if path.exists():
            if not filecmp.cmp(part, path, shallow=False):
                raise _exists_error(path)
        else:
            publish_file(part, path)
    except OSError as error:
        raise StateError(
            f"{path}: cannot be written: {error.strerror or type(error).__name__}", "make room, or name another file"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return digest


def read_title(path: Path) -> LedgerFileTitle:
    """Return the first line of a file. DamagedError; StateError for a missing file, or one of a later version."""
    with _open_lines(path) as lines:
        return _parse_title(path, _first_line(path, lines)[0])


def read_lines(path: Path) -> Iterator[list[Any]]:
    """Yield all lines but the first and the last. DamagedError at the end if the file was cut off or changed.

    The lines must not be used before the end was reached.
    """
    with _open_lines(path) as lines:
        first, before = _first_line(path, lines)
        _parse_title(path, first)
        count, checksum = 1, hashlib.sha256(before)
        for line, text in lines:
            if line[0] == _END:
                if line[1:] != [count, checksum.hexdigest()] or next(lines, None) is not None:
                    raise DamagedError(path, "was changed: its lines and their sum do not agree")
                return
            count += 1
            checksum.update(text)
            yield line
    raise DamagedError(path, "was cut off")


def read_checksum(path: Path) -> str:
    """Return the SHA-256 over the lines of a file, as its last line has it. DamagedError."""
    for _ in read_lines(path):
        pass
    last = ""
    with _open_lines(path) as lines:
        for line, _ in lines:
            last = str(line[-1]) if isinstance(line, list) else last
    return last


def _write(stream: BinaryIO, title: LedgerFileTitle, lines: Iterable[list[Any]]) -> str:
    head = {"format": FORMAT, "version": VERSION, "holds": title.holds.value, "state": title.state}
    if title.before:
        head["before"] = title.before
    checksum, count = hashlib.sha256(), 0
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION_LEVEL, fileobj=stream, mtime=0) as packed:
        for line in chain([head], lines):
            text = (_JSON.encode(line) + "\n").encode("ascii")
            checksum.update(text)
            count += 1
            packed.write(text)
        packed.write((_JSON.encode([_END, count, checksum.hexdigest()]) + "\n").encode("ascii"))
    return checksum.hexdigest()


@contextlib.contextmanager
def _open_lines(path: Path) -> Iterator[Iterator[tuple[Any, bytes]]]:
    try:
        with gzip.open(path, "rb") as stream:
            yield _parse_lines(path, stream)
    except FileNotFoundError:
        raise StateError(f"{path}: no such file") from None
    except StateError:
        raise
    except _DAMAGE as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "is damaged"
        raise DamagedError(path, f"is no backup or archive file, or {why}") from None


def _parse_lines(path: Path, stream: Any) -> Iterator[tuple[Any, bytes]]:
    while text := stream.readline(_LONGEST_LINE):
        if not text.endswith(b"\n"):
            raise DamagedError(path, "was cut off")
        yield json.loads(text), text


def _first_line(path: Path, lines: Iterator[tuple[Any, bytes]]) -> tuple[Any, bytes]:
    first = next(lines, None)
    if first is None:
        raise DamagedError(path, "is empty")
    return first


def _parse_title(path: Path, line: Any) -> LedgerFileTitle:
    if not isinstance(line, dict) or line.get("format") != FORMAT:
        raise DamagedError(path, "is no backup or archive file")
    if line["version"] != VERSION:
        raise StateError(f"{path}: of a later version ({line['version']})", "install that version of stepfare")
    return LedgerFileTitle(LedgerFileKind(line["holds"]), str(line["state"]), str(line.get("before", "")))


def _exists_error(path: Path) -> ExistsError:
    return ExistsError(f"{path} is there already", "name another file, or move it away")
