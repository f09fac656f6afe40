"""Gangs that become slow."""

from __future__ import annotations

from router.controller.history.heartbeats import SLOW_OBSERVATIONS, StragglerMonitor
from router.state.records import NodeRecord
from tests.support.state_values import node


def gang(*seconds: float | None) -> list[NodeRecord]:
    return [node(rank=rank, step_seconds=one) for rank, one in enumerate(seconds)]


def test_a_gang_that_stays_slow_is_noticed_once() -> None:
    paces = StragglerMonitor()
    assert paces.slower("a", gang(1.2, 1.0)) is None
    assert paces.slower("a", gang(1.0, 0.9)) is None
    found = [paces.slower("a", gang(0.8, 3.0)) for _ in range(SLOW_OBSERVATIONS)]
    assert found == [*[None] * (SLOW_OBSERVATIONS - 1), 3.0]
    # What is slow from then on is how it is.
    assert [paces.slower("a", gang(3.0, 3.0)) for _ in range(2 * SLOW_OBSERVATIONS)] == [None] * 2 * SLOW_OBSERVATIONS


def test_a_hiccup_is_none() -> None:
    paces = StragglerMonitor()
    for seconds in (1.0, 9.0, 1.0, 9.0, 9.0, 1.9, 9.0, 9.0):
        assert paces.slower("a", gang(seconds)) is None


def test_gangs_are_compared_with_themselves() -> None:
    paces = StragglerMonitor()
    for _ in range(2 * SLOW_OBSERVATIONS):
        assert paces.slower("fast", gang(1.0)) is None
        assert paces.slower("slow", gang(60.0)) is None


def test_who_says_nothing_is_not_slow() -> None:
    assert StragglerMonitor().slower("a", gang(None, None)) is None
    assert StragglerMonitor().slower("a", gang(None, 0.0)) is None
