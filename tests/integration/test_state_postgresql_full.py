"""A PostgreSQL server whose disk is full: what was acknowledged is there, what was refused is not, and room is all it
takes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.state.errors import StateError
from router.state.store import StateStore
from tests.support.books_steps import FIRST, OCTOBER, SEPTEMBER, of, seen
from tests.support.postgres_here import USER, PostgresHere, postgres_here
from tests.support.state_values import NOW, entry

pytestmark = pytest.mark.slow

_SIZE = "24m"


@pytest.fixture
def disk() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="stepfare-full-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        folder.rmdir()
        pytest.skip("needs the right to mount a small file system")
    shutil.chown(folder, "nobody", pwd.getpwnam("nobody").pw_gid)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture
def server() -> Iterator[PostgresHere]:
    with postgres_here() as server:
        yield server


def test_nothing_is_lost_and_nothing_half_written(server: PostgresHere, disk: Path, tmp_path: Path) -> None:
    (disk / "space").mkdir()
    shutil.chown(disk / "space", "nobody")
    server.say(f"CREATE TABLESPACE small LOCATION '{disk / 'space'}'")
    server.say(f"CREATE DATABASE small OWNER {USER} TABLESPACE small")
    filler = disk / "filler"
    with StateStore.open(server.url("small"), now=NOW) as store:
        store.ledger.add([*FIRST, *(of(9, f"x{number}") for number in range(500))])
        store.periods.close(SEPTEMBER, who="anna", at=NOW)
        before = seen(store)
        _fill(filler)
        written = store.ledger.head()
        written, error = _append_until_refused(store, written)
        assert "could not extend" in error.what
        assert "make room" in error.remedy
        assert store.ledger.head() == written
        _fill(filler)
        with pytest.raises(StateError, match="could not extend"):
            store.archives.archive(OCTOBER, tmp_path / "a.gz", who="anna", at=NOW)
        assert (store.archives.all(), store.ledger.head()) == ((), written)
        assert store.ledger.verify().problems == ()
        assert seen(store)[0][: len(FIRST)] == before[0][: len(FIRST)]  # type: ignore[index]
        filler.unlink()
        done = store.archives.archive(OCTOBER, tmp_path / "a.gz", who="anna", at=NOW)
        assert store.archives.check(tmp_path / "a.gz") == done
        assert store.ledger.append([entry("after")], after=written) == written + 1
        checked = store.ledger.verify()
        assert (checked.archived, checked.problems) == (done.entries, ())
    server.say("DROP DATABASE small")


def _append_until_refused(store: StateStore, written: int) -> tuple[int, StateError]:
    """The head, as it was acknowledged last, and what was said then."""
    while True:
        try:
            store.ledger.append([entry(f"{written}-{number}") for number in range(200)], after=written)
        except StateError as error:
            return written, error
        written += 200


def _fill(file: Path) -> None:
    """Until there is no room."""
    with file.open("ab", buffering=0) as stream:
        size = 1 << 16
        while size:
            try:
                stream.write(b"\0" * size)
            except OSError:
                size //= 2
