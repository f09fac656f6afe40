"""States that are killed at any statement, opened at once or leased, on every database."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from router.state import versions
from router.state.audit import verify_chain
from router.state.errors import LeaseHeldError, LeaseLostError, TooNewError
from router.state.lease import Leases
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from router.state.tables import METADATA
from tests.support.repository import ROOT
from tests.support.state_crashes import STEPS, crash, seen, seen_after_each
from tests.support.state_values import NOW, NewUrl, entry, together

ELSEWHERE = LockOwner("another-host", 4711, "123456", "another-boot")
_HOLDS = """
import sys, time
from datetime import UTC, datetime
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
def clock(): return datetime.now(UTC)
store = StateStore.open(sys.argv[1], now=clock())
with store.lease("apply", LockOwner.of_this_process(), clock, seconds=600):
    print("held", flush=True)
    time.sleep(600)
"""


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def real() -> datetime:
    return datetime.now(UTC)


@contextlib.contextmanager
def another_process_that_holds(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that took the lease "apply" for ten minutes."""
    command = [sys.executable, "-c", _HOLDS, url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


class TestLease:
    """Leases."""

    def test_one_at_a_time(self, store: StateStore) -> None:
        me = LockOwner.of_this_process()
        with store.lease("apply", me, real) as lease:
            lease.check()
            with pytest.raises(LeaseHeldError, match=f"process {me.pid} on") as caught, store.lease("apply", me, real):
                pytest.fail("two at once")
            assert caught.value.holder == me
            assert caught.value.since <= real()
            assert caught.value.remedy
            with store.lease("another", me, real):
                pass
        with store.lease("apply", me, real):
            pass

    def test_who_holds_leases_is_known_by_the_beginning_of_their_names(self, store: StateStore, url: str) -> None:
        me, clock = LockOwner.of_this_process(), Clock()
        with (
            store.lease("copying %", me, clock),
            store.lease("copying_x", ELSEWHERE, clock),
            store.lease("copying a", ELSEWHERE, clock),
        ):
            assert store.lease_holders("copying ", clock) == {"copying %": me, "copying a": ELSEWHERE}
            assert store.lease_holders("copying_", clock) == {"copying_x": ELSEWHERE}
            clock.forward(61)
            assert store.lease_holders("copying", clock) == {}
        assert store.lease_holders("", clock) == {}
        with another_process_that_holds(url) as process:
            assert [holder.pid for holder in store.lease_holders("apply", real).values()] == [process.pid]
            process.kill()
            process.wait()
            assert store.lease_holders("apply", real) == {}

    def test_it_is_given_back_when_the_block_fails(self, store: StateStore) -> None:
        me = LockOwner.of_this_process()
        with pytest.raises(ZeroDivisionError), store.lease("apply", me, real):
            raise ZeroDivisionError
        with store.lease("apply", me, real):
            pass

    def test_of_many_exactly_one_gets_it(self, store: StateStore, url: str) -> None:
        me = LockOwner.of_this_process()
        done, winners = threading.Barrier(6), []
        with StateStore.open(url, now=NOW) as other:

            def try_it(index: int) -> None:
                with contextlib.ExitStack() as stack:
                    with contextlib.suppress(LeaseHeldError):
                        stack.enter_context((store, other)[index % 2].lease("apply", me, real))
                        winners.append(index)
                    done.wait()

            together(6, try_it)
        assert len(winners) == 1

    def test_a_holder_elsewhere_keeps_it_until_it_expires(self, store: StateStore) -> None:
        clock = Clock()
        me = LockOwner.of_this_process()
        with store.lease("apply", ELSEWHERE, clock, seconds=60) as lease:
            clock.forward(59)
            with pytest.raises(LeaseHeldError, match="another-host"), store.lease("apply", me, clock):
                pytest.fail("not expired")
            clock.forward(1)
            with store.lease("apply", me, clock) as mine:
                with pytest.raises(LeaseLostError):
                    lease.check()
                mine.check()
            with pytest.raises(LeaseLostError):
                lease.check()

    def test_who_lost_it_does_not_give_back_what_another_has(self, store: StateStore) -> None:
        clock = Clock()
        with contextlib.ExitStack() as stack:
            with store.lease("apply", ELSEWHERE, clock, seconds=60):
                clock.forward(61)
                mine = stack.enter_context(store.lease("apply", LockOwner.of_this_process(), clock))
            mine.check()

    def test_late_is_not_lost(self, store: StateStore) -> None:
        clock = Clock()
        with store.lease("apply", ELSEWHERE, clock, seconds=60) as lease:
            clock.forward(3600)
            lease.check()
            with pytest.raises(LeaseHeldError), store.lease("apply", LockOwner.of_this_process(), clock):
                pytest.fail("just renewed")

    def test_a_thread_renews_it(self, store: StateStore) -> None:
        renewed = threading.Event()
        keep = Leases.renew

        class Watched(Leases):
            def renew(self, name: str, token: str) -> bool:
                done = keep(self, name, token)
                renewed.set()
                return done

        clock = Clock()
        with Watched(store._database, clock, 0.03).held("apply", ELSEWHERE):
            clock.forward(1)
            renewed.clear()
            assert renewed.wait(20)
            # Whichever renewal that was, the one after it began when the clock stood where it stands.
            renewed.clear()
            assert renewed.wait(20)
            with pytest.raises(LeaseHeldError), store.lease("apply", LockOwner.of_this_process(), clock):
                pytest.fail("renewed until after now")

    def test_a_killed_holder_on_this_machine_loses_it_at_once(self, store: StateStore, url: str) -> None:
        me = LockOwner.of_this_process()
        with another_process_that_holds(url) as process:
            with pytest.raises(LeaseHeldError, match=f"process {process.pid} on"), store.lease("apply", me, real):
                pytest.fail("it lives")
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(LeaseHeldError), store.lease("apply", me, real):
                pytest.fail("it hangs, but it lives")
            process.kill()
            # Dead, but nobody has taken note: a process of that number is still listed.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with store.lease("apply", me, real) as lease:
                lease.check()

    def test_a_later_process_of_the_same_number_does_not_hold_it(self, store: StateStore) -> None:
        me = LockOwner.of_this_process()
        with store.lease("apply", replace(me, started="1"), real) as before, store.lease("apply", me, real) as lease:
            lease.check()
            with pytest.raises(LeaseLostError):
                before.check()


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


class TestCrash:
    """Killed processes. `ready_url` gives the URL of a state in which nothing was written."""

    @pytest.mark.slow
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


class TestVersions:
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
