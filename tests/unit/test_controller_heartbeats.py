"""Who has been silent for too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from router.agent import protocol
from router.controller.history.heartbeats import HeartbeatMonitor
from router.state.records import Attempt, NodeRecord
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
