"""Files of books: whole, the same for the same, and never believed when they are not."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.state.errors import ExistsError, StateError
from router.state.ledger_file import (
    DamagedError,
    LedgerFileKind,
    LedgerFileTitle,
    read_checksum,
    read_lines,
    read_title,
    write_file,
)

TITLE = LedgerFileTitle(LedgerFileKind.ARCHIVE, "s0123456789", "2025-01")
LINES: list[list[Any]] = [["entry", number, "ü\n", None, 1 << 60] for number in range(50)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_file(tmp_path / "books.gz", TITLE, LINES)
    return tmp_path / "books.gz"


def test_it_comes_back_and_is_the_same_again(file: Path, tmp_path: Path) -> None:
    assert read_title(file) == TITLE
    assert list(read_lines(file)) == LINES
    digest = write_file(tmp_path / "again.gz", TITLE, LINES)
    assert (tmp_path / "again.gz").read_bytes() == file.read_bytes()
    assert digest == read_checksum(file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.gz", "books.gz"]


def test_no_file_is_written_over_unless_it_is_just_the_same(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(ExistsError):
        write_file(file, TITLE, LINES)
    assert write_file(file, TITLE, LINES, same_is_fine=True) == read_checksum(file)
    with pytest.raises(ExistsError):
        write_file(file, TITLE, LINES[1:], same_is_fine=True)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["books.gz"]


@pytest.mark.parametrize("kept", [0, 1, 10, 50, -9, -1])
def test_one_that_was_cut_off(file: Path, kept: int) -> None:
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DamagedError, match=r"books\.gz"):
        list(read_lines(file))


def test_any_byte_that_was_changed_shows(file: Path) -> None:
    content = file.read_bytes()
    for at in range(10, len(content)):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            assert list(read_lines(file)) == LINES
        except DamagedError:
            continue


@pytest.mark.parametrize("number", [0, 1, 25, 50, 51])
@pytest.mark.parametrize("how", ["gone", "twice", "other"])
def test_a_line_that_is_gone_twice_or_another_shows(file: Path, number: int, how: str) -> None:
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    other = {"gone": [], "twice": [lines[number]] * 2, "other": [lines[number].replace(b"1", b"2", 1) + b" "]}[how]
    file.write_bytes(gzip.compress(b"".join([*lines[:number], *other, *lines[number + 1 :]])))
    with pytest.raises(StateError):
        list(read_lines(file))


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", *(gzip.compress(text, mtime=0) for text in (b"", b"text\n", b"{}\n", b"[]\n"))],
)
def test_what_is_no_file_of_books(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DamagedError):
        read_title(tmp_path / "x")


def test_one_that_is_not_there_and_one_of_a_later_version(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no such file"):
        read_title(tmp_path / "x")
    later = json.dumps({"format": "stepfare-ledger", "version": 2, "holds": "backup", "state": "s"}) + "\n"
    (tmp_path / "x").write_bytes(gzip.compress(later.encode()))
    with pytest.raises(StateError, match=r"later version \(2\)"):
        read_title(tmp_path / "x")


def test_what_goes_wrong_meanwhile_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> Iterator[list[Any]]:
        yield from LINES
        raise StateError("the ledger is not what was written")

    with pytest.raises(StateError, match="not what was written"):
        write_file(tmp_path / "a.gz", TITLE, wrong())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=r"a\.gz: cannot be written: No space left") as caught:
        write_file(tmp_path / "a.gz", TITLE, LINES)
    assert "room" in caught.value.remedy
    with pytest.raises(StateError, match="cannot be written"):
        write_file(tmp_path / "no folder" / "a.gz", TITLE, LINES)
    assert list(tmp_path.iterdir()) == []
