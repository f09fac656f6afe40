"""Tests that every database passes: kill -9 at any statement, several processes at once, other versions."""

from __future__ import annotations

import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from router.state import versions
from router.state.audit import verify_chain
from router.state.errors import TooNewError
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from router.state.tables import METADATA
from tests.support.repository import ROOT
from tests.support.state_crashes import STEPS, crash, seen, seen_after_each
from tests.support.state_suite import NewUrl, StateSuite
from tests.support.state_suite_leases import real
from tests.support.state_values import NOW, entry

# Every point takes a while: a few of them always, all of them in the slow run.
_SLOW = pytest.param(1, marks=pytest.mark.slow)
_OPENS = """
import sys
from datetime import UTC, datetime
from router.state.store import StateStore
import alembic.command
print("here", flush=True)
sys.stdin.readline()
with StateStore.open(sys.argv[1], now=datetime.now(UTC)) as store:
    store.journal.note("", "opened", datetime.now(UTC))
    print(store.id)
"""


class CrashSuite(StateSuite):
    """Killed processes. `ready_url` gives the URL of a state in which nothing was written."""

    @pytest.mark.parametrize("stride", [19, _SLOW])
    def test_killed_at_any_statement(self, new_url: NewUrl, ready_url: NewUrl, stride: int) -> None:
        expected = seen_after_each(new_url())
        died_after = []
        for url, acknowledged, died in crash(ready_url, stride=stride):
            with StateStore.open(url, now=NOW) as store:
                found = seen(store)
                assert found in (expected[acknowledged], *expected[acknowledged + 1 :][:1])
                assert verify_chain(store.audit.entries()) is None
                store.ledger.add([entry("after")])
            died_after.append(acknowledged)
            assert died or found == expected[-1]
        # The last one came through; before it every step was cut off somewhere.
        assert stride > 1 or set(died_after) == set(range(len(STEPS) + 1))

    @pytest.mark.parametrize("stride", [19, _SLOW])
    def test_killed_while_it_is_made(self, new_url: NewUrl, stride: int) -> None:
        died_at = 0
        for url, _, died in crash(new_url, opening=True, stride=stride):
            with StateStore.open(url, now=NOW) as store:
                assert len(store.id) == 11
                assert store.ledger.add([entry()]) == 1
            died_at += died
        assert died_at >= 3


class VersionsSuite(StateSuite):
    """Opening."""

    def test_many_processes_open_a_new_one_at_once(self, url: str) -> None:
        command = [sys.executable, "-c", _OPENS, url]
        processes = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * 4
        with StateStore.open(url, now=NOW) as store:
            assert said == [f"{store.id}\n"] * 4
            assert len(store.journal.entries()) == 4

    def test_one_that_a_later_version_made(self, store: StateStore, url: str) -> None:
        with store._database.write() as connection:
            connection.execute(text("UPDATE stepfare_version SET version_num = '9999'"))
        with pytest.raises(TooNewError, match="later version") as caught:
            StateStore.open(url, now=NOW)
        assert "9999" in caught.value.what
        assert caught.value.remedy

    def test_the_steps_make_the_tables(self, store: StateStore) -> None:
        with store._database.read() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": "stepfare_version"})
            assert compare_metadata(context, METADATA) == []

    def test_the_versions_are_the_steps(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(versions._FOLDER))
        steps = ScriptDirectory.from_config(config).walk_revisions()
        assert tuple(step.revision for step in steps)[::-1] == versions.VERSIONS

    def test_the_lease_of_a_killed_process_does_not_stay(self, store: StateStore) -> None:
        me = LockOwner.of_this_process()
        gone = LockOwner(me.host, _a_dead_process(), "1", me.boot)
        with store.lease("apply", gone, real), store.lease("apply", me, real) as lease:
            lease.check()


def _a_dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(60)
    return process.pid
