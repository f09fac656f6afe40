"""Files appear whole or not at all, whatever fails on the way."""

from __future__ import annotations

import ast
import errno
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pricing.atomic_file import (
    make_private_folder,
    open_atomic,
    publish_file,
    publish_folder,
    sync_folder,
    write_atomic,
)
from tests.support.repository import ROOT


def test_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    write_atomic(file, "one\n")
    write_atomic(file, b"two\n")
    assert file.read_bytes() == b"two\n"
    assert list(tmp_path.iterdir()) == [file]


def test_permissions_are_those_asked_for_less_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "open", "")
        write_atomic(tmp_path / "private", "", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_an_error_in_the_block_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "book"
    write_atomic(file, "old")

    def write_half() -> None:
        with open_atomic(file) as stream:
            stream.write(b"half")
            raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        write_half()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "book"
    write_atomic(file, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_finds_old_or_new_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "state"
    write_atomic(file, "0" * 100_000)
    code = (
        "import sys, itertools; from pathlib import Path; from pricing.atomic_file import write_atomic\n"
        "for n in itertools.count(1):\n"
        "    write_atomic(Path(sys.argv[1]), str(n % 10) * 100_000)\n"
        "    print(n, flush=True)"
    )
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        text = file.read_text()
        assert len(text) == 100_000
        assert len(set(text)) == 1


def test_publishing_moves_a_finished_file(tmp_path: Path) -> None:
    part, path = tmp_path / "part", tmp_path / "whole"
    part.write_text("rows")
    publish_file(part, path)
    assert path.read_text() == "rows"
    assert not part.exists()


def test_publishing_moves_a_folder_whose_every_file_and_folder_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, folder = tmp_path / "part", tmp_path / "whole"
    (part / "inner").mkdir(parents=True)
    (part / "main.tf").write_text("module")
    (part / "inner" / "start.sh").write_text("script")
    files = {part, part / "main.tf", part / "inner", part / "inner" / "start.sh"}
    expected = {file.stat().st_ino for file in files} | {tmp_path.stat().st_ino}
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    publish_folder(part, folder)
    assert (sorted(synced), synced[-1]) == (sorted(expected), tmp_path.stat().st_ino)
    assert not part.exists()
    assert (folder / "inner" / "start.sh").read_text() == "script"


def test_a_folder_that_the_disk_does_not_take_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "part"
    part.mkdir()
    (part / "main.tf").write_text("module")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        publish_folder(part, tmp_path / "whole")
    assert list(tmp_path.iterdir()) == [part]


def test_what_need_not_be_durable_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write_atomic(tmp_path / "stock", "closed zone", durable=False)
    assert (synced, [file.name for file in tmp_path.iterdir()]) == ([], ["stock"])
    assert (tmp_path / "stock").read_text() == "closed zone"


def test_a_disk_that_loses_folders_is_said_and_one_that_cannot_flush_them_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(number: int) -> None:
        def fsync(_: int) -> None:
            raise OSError(number, "planted")

        monkeypatch.setattr(os, "fsync", fsync)

    fails(errno.EINVAL)
    sync_folder(tmp_path)
    fails(errno.EIO)
    with pytest.raises(OSError, match="planted"):
        sync_folder(tmp_path)


def test_a_private_folder_is_so_with_all_that_is_made_above_it(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mode
    folder = tmp_path / "home" / "books" / "sandbox"
    for _ in range(2):
        make_private_folder(folder)
    made = (folder, folder.parent, folder.parent.parent)
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}
    assert tmp_path.stat().st_mode == before


# These make folders of the user's, of a machine that trains, or of a checkpoint store: none lies in STEPFARE_HOME.
ELSEWHERE = (
    "router/agent",
    "router/demo",
    "router/app/starter_folder.py",
    "router/checkpoints/object_store.py",
    "router/cli/demo.py",
    "router/cli/import_jobs.py",
)


def makes_open_folder(call: ast.Call) -> bool:
    """Whether the call makes a folder that others may read, or folders above it that they may."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = {each.arg for each in call.keywords}
    return name == "makedirs" or (name == "mkdir" and ("parents" in given or "mode" not in given))


def test_only_the_helper_makes_folders_above_others_in_a_home() -> None:
    """``mkdir(mode=0o700, parents=True)`` made a home that others could read."""
    files = {
        str(path.relative_to(ROOT)): path
        for package in ("pricing", "providers", "terraform", "router")
        for path in (ROOT / package).rglob("*.py")
    }
    found = [
        f"{name}:{call.lineno}"
        for name, path in files.items()
        if not name.startswith(ELSEWHERE) and re.search("mkdir|makedirs", text := path.read_text(encoding="utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and makes_open_folder(call)
    ]
    assert found == [], "use pricing.atomic_file.make_private_folder"
