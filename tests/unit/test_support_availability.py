"""Availability that is played on the sandbox: zones go down and up as their traces say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.sandbox.machines import SandboxMachine
from providers.sandbox.stock import StockFile
from router.controller.drills import DrillOutcome
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.availability_player import TRACES, Availability, Trace, play_availability, read_trace
from tests.support.drilled import Hand, Ticks
from tests.support.new_state import open_state
from tests.support.state_values import NOW, attempt, node


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as store:
        gang = attempt("walk-1", job="walk", cloud="sandbox", region="r", phase=Phase.RUNNING)
        store.attempts.add(gang, [node("walk-1", 0, zone="r-a"), node("walk-1", 1, zone="r-b")])
        yield store


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(*[SandboxMachine(f"walk-1-{rank}", "walk-1", rank, tmp_path) for rank in range(2)])


def _down(stock: StockFile) -> set[str]:
    return {one.place for one in stock.closed(time.time())}


def test_a_zone_goes_down_with_its_machines_and_comes_up_again(store: StateStore, hand: Hand, tmp_path: Path) -> None:
    stock, ticks = StockFile(tmp_path / "cloud"), Ticks()
    traces = {"r-a": Trace(300, (3, 1, 1, 3)), "r-b": Trace(300, (3, 3, 3, 3))}
    availability = Availability(store, hand, stock, traces, ticks, needs=2, notice_s=30)
    availability.turn(0)
    availability.look()
    assert (_down(stock), hand.told) == (set(), {})
    availability.turn(1)
    assert (_down(stock), set(hand.told), availability.outages) == ({"r-a"}, {"walk-1-0"}, 1)
    availability.turn(2)
    availability.look()
    assert (availability.outages, hand.taken) == (1, [])
    # Whoever was told is taken back before the zone is up again.
    availability.turn(3)
    assert _down(stock) == {"r-a"}
    ticks.now += 30
    availability.look()
    availability.look()
    assert [(zone, one.outcome) for zone, one in availability.done] == [("r-a", DrillOutcome.KILLED)]
    availability.turn(3)
    assert _down(stock) == set()
    # A trace begins again at its end.
    availability.turn(5)
    assert (_down(stock), availability.outages) == ({"r-a"}, 2)
    availability.clear_up()
    assert _down(stock) == set()
    assert [machine.rank for machine in hand.up()] == [1]


@pytest.mark.skipif(not TRACES.exists(), reason="the traces are not here")
def test_a_real_trace_is_played_faster_than_life(store: StateStore, hand: Hand, tmp_path: Path) -> None:
    stock = StockFile(tmp_path / "cloud")
    trace = read_trace(next(iter(sorted((TRACES / "availability" / "16-node" / "aws-08-27-2023").glob("*.json")))))
    assert trace.seconds == 300
    needs = max(trace.machines)
    first = next(tick for tick in range(len(trace.machines)) if trace.up(tick, needs) and not trace.up(tick + 1, needs))
    availability = Availability(store, hand, stock, {"r-a": trace}, time.monotonic, needs=needs)
    with play_availability(availability, 0.3, first):
        ends = time.monotonic() + 20
        while not availability.done and time.monotonic() < ends:
            time.sleep(0.05)
        assert _down(stock) == {"r-a"}
    assert [(one.target.machine.id, one.outcome) for _, one in availability.done] == [("walk-1-0", DrillOutcome.KILLED)]
    assert _down(stock) == set()
