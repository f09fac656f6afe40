"""What goes wrong with a state in a file is said clearly, and leaves it as it was."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.state import database
from router.state.errors import BusyError, StateError
from router.state.ledger_rows import NAMES
from router.state.store import StateStore
from tests.support import books_steps
from tests.support.repository import ROOT
from tests.support.state_values import NOW, attempt, entry, node

_NOBODY = 65534
_FILLS = """
import resource, sys
from router.state.store import StateStore
from tests.integration.test_state_sqlite_faults import _fill
from tests.support.state_values import NOW
with StateStore.open(sys.argv[1], now=NOW) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    written, error = _fill(store)
    print(written, type(error).__name__, error.what, error.remedy)
"""
_BACKS_UP = """
import resource, sys
from pathlib import Path
from router.state.errors import StateError
from router.state.store import StateStore
from tests.support.state_values import NOW
with StateStore.open(sys.argv[1], now=NOW) as store:
    store.ledger.head()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        store.backups.write(Path(sys.argv[1].removeprefix("sqlite:///")).with_name("backup.gz"))
    except StateError as error:
        print(error.what, "|", error.remedy)
"""
_OPENS = """
import sys
from router.state.errors import StateError
from router.state.store import StateStore
from tests.support.state_values import NOW
try:
    with StateStore.open(sys.argv[1], now=NOW) as store:
        store.values.set("a", "b")
    print("opened")
except StateError as error:
    print(type(error).__name__, error.what, "|", error.remedy)
"""
# The interpreter may lie where only root can read: everything is imported first.
_OPENS_AS_NOBODY = f"""
import os, sys, tempfile
from router.state.store import StateStore
from tests.support.state_values import NOW
with tempfile.TemporaryDirectory() as scratch:
    StateStore.open(f"sqlite:///{{scratch}}/state.db", now=NOW).close()
os.setgroups([])
os.setgid({_NOBODY})
os.setuid({_NOBODY})
{_OPENS}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{path}", now=NOW) as store:
        yield store


def _open(path: Path) -> StateStore:
    return StateStore.open(f"sqlite:///{path}", now=NOW)


def _fill(store: StateStore) -> tuple[int, StateError]:
    """Appends 50 entries at a time until it fails: how often it did not, and how it did."""
    written = 0
    while True:
        try:
            store.ledger.append([entry(f"{written}-{i}") for i in range(50)], after=written * 50)
        except StateError as error:
            return written, error
        written += 1


def _child(code: str, path: Path) -> str:
    """What a process wrote that runs this on the state at `path`."""
    command = [sys.executable, "-c", code, f"sqlite:///{path}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    return done.stdout


class TestTheFile:
    def test_it_is_for_its_owner_alone(self, path: Path) -> None:
        before = os.umask(0)
        try:
            with _open(path) as store:
                store.journal.note("a1", "applying", NOW)
                modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("state.db*")}
        finally:
            os.umask(before)
        modes.pop("state.db.lock")
        assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_a_commit_is_on_the_disk_when_it_returns(self, store: StateStore) -> None:
        """Its log is waited for (tests/unit/test_state_group_commit.py)."""
        with store._database.read() as connection:
            for pragma, value in (("journal_mode", "wal"), ("synchronous", 1), ("foreign_keys", 1), ("fullfsync", 1)):
                assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value

    def test_money_and_time_are_readable_by_other_tools(self, store: StateStore, path: Path) -> None:
        store.ledger.add([entry()])
        with sqlite3.connect(path) as other:
            row = other.execute("SELECT usd_nanos, start_at, end_at, quantity FROM ledger").fetchone()
        other.close()
        assert row == (27_520_000_000, "2026-11-21T18:00:00.123456Z", "2026-11-21T19:00:00.123456Z", "1/1")

    @pytest.mark.parametrize("name", ["a b%41.db", "what?mode=memory", "s#1.db", "ü.db", "file:x.db", "%s.db"])
    def test_the_path_is_taken_as_it_is_written(self, tmp_path: Path, name: str) -> None:
        with _open(tmp_path / name) as store:
            store.values.set("a", "b")
        assert (tmp_path / name).is_file()
        with _open(tmp_path / name) as again:
            assert again.values.get("a") == "b"

    def test_a_path_below_the_current_folder_and_a_link(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with StateStore.open("sqlite:///here/state.db", now=NOW) as store:
            (tmp_path / "link.db").symlink_to("here/state.db")
            with _open(tmp_path / "link.db") as same:
                assert same.id == store.id
        assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "link.db"]

    def test_replacing_a_row_of_the_ledger_does_not_go_around_the_triggers(self, store: StateStore) -> None:
        store.ledger.add([entry("k1"), entry("k2")])
        columns = ", ".join((*NAMES, "previous", "hash"))
        for seq in (1, 3):
            statement = (
                f"INSERT OR REPLACE INTO ledger (seq, {columns}) SELECT {seq}, {columns} FROM ledger WHERE seq = 1"
            )
            with pytest.raises(StateError, match="after its last row"), store._database.write() as connection:
                connection.exec_driver_sql(statement)
        assert store.ledger.entries() == (entry("k1"), entry("k2"))

    def test_what_a_killed_process_left_beside_it_is_no_hindrance(self, path: Path) -> None:
        path.parent.mkdir()
        for name in ("state.db.new", "state.db.new-wal", "state.db.new-shm"):
            (path.parent / name).write_bytes(b"half a database")
        with _open(path) as store:
            assert store.ledger.head() == 0
        assert not list(path.parent.glob("*.new*"))


class TestDamage:
    def test_an_empty_file_is_not_taken_for_a_new_state(self, path: Path) -> None:
        path.parent.mkdir()
        path.touch()
        with pytest.raises(StateError, match="is empty") as caught:
            _open(path)
        assert "stepfare sweep" in caught.value.remedy
        assert path.read_bytes() == b""

    def test_something_else(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_bytes(b"PK\x03\x04 not a database at all" * 400)
        with pytest.raises(StateError, match="is not a database, or is damaged") as caught:
            _open(path)
        assert "backup" in caught.value.remedy

    def test_the_database_of_another_program(self, path: Path) -> None:
        path.parent.mkdir()
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE prices (at text)")
        other.close()
        with pytest.raises(StateError, match="not one of stepfare"):
            _open(path)
        other = sqlite3.connect(path)
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("prices",)]
        other.close()

    @pytest.mark.parametrize("kept", [100, 4096, 30_000])
    def test_a_file_that_was_cut_off(self, store: StateStore, path: Path, kept: int) -> None:
        store.ledger.add([entry(f"k{i}") for i in range(200)])
        store.close()
        os.truncate(path, kept)
        with pytest.raises(StateError, match=r"damaged|disk"), _open(path) as again:
            again.ledger.entries()

    def test_a_file_with_pages_of_noise(self, store: StateStore, path: Path) -> None:
        store.ledger.add([entry(f"k{i}") for i in range(200)])
        store.close()
        content = bytearray(path.read_bytes())
        content[4096:] = random.Random(7).randbytes(len(content) - 4096)
        path.write_bytes(content)
        with pytest.raises(StateError, match="damaged"), _open(path) as again:
            again.ledger.entries()

    def test_a_folder_in_its_place(self, path: Path) -> None:
        path.mkdir(parents=True)
        with pytest.raises(StateError, match=r"state\.db"):
            _open(path)

    def test_a_file_in_the_place_of_its_folder(self, path: Path) -> None:
        path.parent.write_text("")
        with pytest.raises(StateError, match=r"state\.db") as caught:
            _open(path)
        assert "folder" in caught.value.remedy

    def test_a_file_that_goes_away_is_not_made_again(self, store: StateStore, path: Path) -> None:
        store.close()
        shutil.rmtree(path.parent)
        opened = database.Database(store._database.place)
        with pytest.raises(StateError, match="cannot be opened"), opened.read():
            pytest.fail("made again")
        opened.close()
        assert not path.exists()


class TestFull:
    def test_a_disk_that_is_full(self, store: StateStore) -> None:
        with store._database.read() as connection:
            pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar() or 0)
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 20}")
        written, error = _fill(store)
        assert "the disk is full" in error.what
        assert "make room" in error.remedy
        assert written > 0
        assert store.ledger.head() == written * 50
        # Room was made: the next one goes through.
        with store._database.read() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 100000")
        assert store.ledger.add([entry("after")]) == written * 50 + 1

    def test_a_disk_that_is_full_while_books_are_closed_and_archived(self, store: StateStore, tmp_path: Path) -> None:
        many = [books_steps.of(9, f"x{number}", team="x" * 500) for number in range(300)]
        store.ledger.add([*many, *books_steps.FIRST])
        store.periods.close(books_steps.SEPTEMBER, who="anna", at=NOW)
        before = books_steps.seen(store)

        def room(pages: int) -> None:
            with store._database.read() as connection:
                connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        # No less than there are.
        room(1)
        for _ in range(2):
            with pytest.raises(StateError, match="the disk is full"):
                store.archives.archive(books_steps.OCTOBER, tmp_path / "a.gz", who="anna", at=NOW)
            assert books_steps.seen(store) == before
        with pytest.raises(StateError, match="the disk is full"):
            store.periods.close(books_steps.OCTOBER, who="b" * 100_000, at=NOW)
        room(100_000)
        done = store.archives.archive(books_steps.OCTOBER, tmp_path / "a.gz", who="anna", at=NOW)
        assert store.archives.check(tmp_path / "a.gz") == done
        assert store.ledger.verify().problems == ()

    def test_a_system_that_lets_no_backup_grow(self, store: StateStore, path: Path, tmp_path: Path) -> None:
        store.ledger.add([entry(f"k{number}", job=os.urandom(200).hex()) for number in range(300)])
        store.close()
        said = _child(_BACKS_UP, path)
        assert "cannot be written: File too large | make room" in said
        assert not list(path.parent.glob("*.gz*"))

    def test_a_system_that_lets_no_file_grow(self, store: StateStore, path: Path) -> None:
        assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
        store.close()
        number, kind, message = _child(_FILLS, path).split(maxsplit=2)
        assert kind == "StateError"
        assert "the disk fails, or is full" in message
        with _open(path) as again:
            assert again.ledger.head() == int(number) * 50
            assert again.ledger.add([entry("after")]) == int(number) * 50 + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
class TestOfAnotherUser:
    """Root may write anywhere: a process of a user without rights looks at it."""

    @pytest.fixture
    def open_to_all(self) -> Iterator[Path]:
        # Not pytest's folder: its owner alone may enter that one.
        with tempfile.TemporaryDirectory(prefix="stepfare-state-") as folder:
            Path(folder).chmod(0o755)
            yield Path(folder) / "state.db"

    def test_a_folder_that_cannot_be_written(self, open_to_all: Path) -> None:
        said = _child(_OPENS_AS_NOBODY, open_to_all)
        assert said.startswith(f"StateError {open_to_all}")
        assert "Permission denied | give the user that runs stepfare a folder to write to" in said

    def test_a_file_that_cannot_be_read(self, open_to_all: Path) -> None:
        _open(open_to_all).close()
        said = _child(_OPENS_AS_NOBODY, open_to_all)
        assert "cannot be opened" in said
        assert "| give the user that runs stepfare the right" in said

    def test_a_file_that_can_only_be_read(self, open_to_all: Path) -> None:
        _open(open_to_all).close()
        open_to_all.chmod(0o644)
        said = _child(_OPENS_AS_NOBODY, open_to_all)
        assert said.startswith("StateError")
        assert "opened\n" not in said
        assert "| give the user that runs stepfare the right" in said


class TestLocked:
    def test_by_another_program_for_too_long(
        self, store: StateStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.close()
        monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
        with _open(path) as mine, _open(path) as other:
            with other._database.write() as connection:
                connection.exec_driver_sql("SELECT 1")
                with pytest.raises(BusyError, match="locked by another process") as caught:
                    mine.attempts.add(attempt(), [node()])
                assert caught.value.remedy
                # Who reads does not wait for who writes.
                assert mine.attempts.find() == ()
            mine.attempts.add(attempt(), [node()])

    def test_by_a_thread_for_too_long(self, store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(database, "BUSY_SECONDS", 0.02)
        with store._database.write(), pytest.raises(BusyError, match="another thread"):
            store.values.set("a", "b")

    def test_a_process_that_was_stopped_in_the_middle_and_killed(self, store: StateStore, path: Path) -> None:
        code = _OPENS.replace('store.values.set("a", "b")', "hang(store)").replace(
            "try:",
            "def hang(store):\n"
            "    with store._database.write() as connection:\n"
            "        connection.exec_driver_sql(\"INSERT INTO facts VALUES ('a', 'b')\")\n"
            "        print('inside', flush=True)\n"
            "        sys.stdin.read()\n"
            "try:",
            1,
        )
        command = [sys.executable, "-c", code, f"sqlite:///{path}"]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "inside\n"
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            assert store.values.get("a") is None
            store.values.set("a", "c")
        assert store.values.get("a") == "c"
