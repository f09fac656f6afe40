"""Tests that every database passes: one at a time."""

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

from router.state.errors import LeaseHeldError, LeaseLostError
from router.state.lease import Leases
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from tests.support.repository import ROOT
from tests.support.state_suite import StateSuite, together
from tests.support.state_values import NOW

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
    """The time of day."""
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


class LeaseSuite(StateSuite):
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
