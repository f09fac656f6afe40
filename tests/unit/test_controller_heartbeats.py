"""Who has been silent for too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from router.agent import protocol
from router.controller.history.heartbeats import SLOW_OBSERVATIONS, HeartbeatMonitor, StragglerMonitor
from router.controller.release.release import release
from router.ledger.entry import LedgerEntryKind, MachineUse
from router.state.records import Attempt, NodeRecord, Phase
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt, node

LIMIT = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that Silence goes by, to be moved."""
    now = [1000.0]
    monkeypatch.setattr("router.controller.history.heartbeats.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


class Looking(HeartbeatMonitor):
    """Somebody who looks often."""

    def after(self, clock: list[float], seconds: float, one: Attempt, nodes: list[NodeRecord]) -> list[int]:
        """What there is to see so many seconds later."""
        ends = clock[0] + seconds
        while clock[0] + LIMIT / 4 < ends:
            clock[0] += LIMIT / 4
            self.lost(one, nodes)
        clock[0] = ends
        return self.lost(one, nodes)


def gang(*agents: str, heard: int = 0) -> list[NodeRecord]:
    at = NOW + timedelta(seconds=heard)
    return [node(rank=rank, agent=agent, heard_at=at) for rank, agent in enumerate(agents)]


def test_silence_begins_when_it_is_first_looked_at(clock: list[float]) -> None:
    """Whoever begins to watch does not know how long it has been quiet before."""
    silence, one = Looking(LIMIT), attempt()
    old = gang(protocol.RUNNING, heard=-100_000)
    assert silence.lost(one, old) == []
    assert silence.after(clock, LIMIT, one, old) == []
    assert silence.after(clock, 0.001, one, old) == [0]
    assert silence.lost(one, old) == [0]


def test_whoever_calls_is_not_lost(clock: list[float]) -> None:
    silence, one = Looking(LIMIT), attempt()
    for second in range(0, 600, 50):
        assert silence.after(clock, 50, one, gang(protocol.RUNNING, heard=second)) == []
    assert silence.after(clock, 61, one, gang(protocol.RUNNING, heard=550)) == [0]
    assert silence.lost(one, gang(protocol.RUNNING, heard=551)) == []


def test_the_times_that_were_written_down_do_not_matter_only_that_they_change(clock: list[float]) -> None:
    """A sandbox's clock runs sixty times as fast, and a clock may be set back."""
    silence, one = Looking(LIMIT), attempt()
    assert silence.lost(one, gang(protocol.RUNNING)) == []
    assert silence.after(clock, 50, one, gang(protocol.RUNNING, heard=-3600)) == []
    assert silence.after(clock, 50, one, gang(protocol.RUNNING, heard=-3600 + 10**6)) == []
    assert silence.after(clock, 61, one, gang(protocol.RUNNING, heard=-3600 + 10**6)) == [0]


def test_a_rank_that_ended_is_not_lost(clock: list[float]) -> None:
    silence, one = Looking(LIMIT), attempt()
    nodes = gang(protocol.RUNNING, protocol.ENDED, protocol.FAILED, protocol.WAITING, protocol.STARTING, "")
    assert silence.lost(one, nodes) == []
    assert silence.after(clock, 2 * LIMIT, one, nodes) == [0, 3, 4, 5]


def test_a_rank_that_never_called_is_lost_too(clock: list[float]) -> None:
    silence, one = Looking(LIMIT), attempt()
    nodes = [replace(nod, heard_at=None) for nod in gang("", protocol.RUNNING)]
    assert silence.lost(one, nodes) == []
    assert silence.after(clock, 2 * LIMIT, one, nodes) == [0, 1]


def test_gangs_and_ranks_are_silent_on_their_own(clock: list[float]) -> None:
    silence = Looking(LIMIT)
    first, second = gang(protocol.RUNNING, protocol.RUNNING), gang(protocol.RUNNING)
    assert silence.lost(attempt("a1"), first) == []
    assert silence.after(clock, 40, attempt("a1"), first) == []
    assert silence.lost(attempt("a2"), second) == []
    clock[0] += 25
    spoke = [first[0], replace(first[1], heard_at=NOW + timedelta(seconds=9))]
    assert silence.lost(attempt("a1"), spoke) == [0]
    assert silence.lost(attempt("a2"), second) == []


def test_of_a_time_in_which_nobody_looked_only_half_the_limit_counts(clock: list[float]) -> None:
    """The watcher was stopped, or the computer slept: nobody could call, either."""
    silence, one = Looking(LIMIT), attempt()
    nodes = gang(protocol.RUNNING, protocol.RUNNING)
    assert silence.lost(one, nodes) == []
    clock[0] += 3600
    assert silence.lost(one, nodes) == []
    spoke = [nodes[0], replace(nodes[1], heard_at=NOW + timedelta(seconds=3601))]
    assert silence.after(clock, LIMIT / 2, one, spoke) == []
    assert silence.after(clock, 1, one, spoke) == [0]


def test_looks_that_are_far_apart_find_who_is_silent_all_the_same(clock: list[float]) -> None:
    silence, one = HeartbeatMonitor(LIMIT), attempt()
    nodes = gang(protocol.RUNNING)
    found = []
    for _ in range(4):
        found.append(silence.lost(one, nodes))
        clock[0] += 10 * LIMIT
    assert found == [[], [], [], [0]]


MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("made", "heard", "now", "ends"),
    [
        (NOW, NOW + 4 * MINUTE, NOW + 5 * MINUTE, NOW + 5 * MINUTE),
        (NOW, NOW + 4 * MINUTE, NOW + MINUTE, NOW + 4 * MINUTE),
        (NOW, NOW + 4 * MINUTE, NOW - 9 * MINUTE, NOW + 4 * MINUTE),
        (NOW, None, NOW - 9 * MINUTE, NOW + SECOND),
    ],
    ids=["not set back", "a little", "behind its beginning", "never heard of"],
)
def test_a_machine_is_metered_until_it_was_last_heard_of(
    made: datetime, heard: datetime | None, now: datetime, ends: datetime, tmp_path: Path
) -> None:
    with bare_site(tmp_path, []) as site:
        one = attempt("a1", phase=Phase.RUNNING)
        site.store.attempts.add(one, [node("a1", made_at=made, heard_at=heard)])
        release(replace(site, clock=lambda: now), one, "lost", "")
        (entry,) = site.store.ledger.entries(kind=LedgerEntryKind.METERED)
        assert entry.use is MachineUse.FAILED_LAUNCH
        assert (entry.start, entry.end, entry.usd) == (made, ends, node("a1").usd_per_hour.over(ends - made))


def stepping_gang(*seconds: float | None) -> list[NodeRecord]:
    return [node(rank=rank, step_seconds=one) for rank, one in enumerate(seconds)]


def test_a_gang_that_stays_slow_is_noticed_once() -> None:
    paces = StragglerMonitor()
    assert paces.slower("a", stepping_gang(1.2, 1.0)) is None
    assert paces.slower("a", stepping_gang(1.0, 0.9)) is None
    found = [paces.slower("a", stepping_gang(0.8, 3.0)) for _ in range(SLOW_OBSERVATIONS)]
    assert found == [*[None] * (SLOW_OBSERVATIONS - 1), 3.0]
    # What is slow from then on is how it is.
    assert [paces.slower("a", stepping_gang(3.0, 3.0)) for _ in range(2 * SLOW_OBSERVATIONS)] == [
        None
    ] * 2 * SLOW_OBSERVATIONS


def test_a_hiccup_is_none() -> None:
    paces = StragglerMonitor()
    for seconds in (1.0, 9.0, 1.0, 9.0, 9.0, 1.9, 9.0, 9.0):
        assert paces.slower("a", stepping_gang(seconds)) is None


def test_gangs_are_compared_with_themselves() -> None:
    paces = StragglerMonitor()
    for _ in range(2 * SLOW_OBSERVATIONS):
        assert paces.slower("fast", stepping_gang(1.0)) is None
        assert paces.slower("slow", stepping_gang(60.0)) is None


def test_who_says_nothing_is_not_slow() -> None:
    assert StragglerMonitor().slower("a", stepping_gang(None, None)) is None
    assert StragglerMonitor().slower("a", stepping_gang(None, 0.0)) is None
