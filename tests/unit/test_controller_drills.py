"""Drills without processes: which machines are meant, what is refused, and what becomes of whom when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pricing.problems import InvalidInputError
from providers.sandbox.machines import SandboxMachine
from providers.sandbox.stock import StockFile
from router.controller import drills
from router.controller.drills import DrillOutcome, DrillResult, DrillTarget, PreemptionDrill
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.drilled import Hand, Ticks
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt, node


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """Two gangs of the sandbox in two zones, an earlier one that is being released, one elsewhere, one that is over."""
    with open_state(tmp_path / "state.db", NOW) as store:
        here = {"cloud": "sandbox", "region": "r", "phase": Phase.RUNNING}
        store.attempts.add(
            attempt("walk-0", job="walk", cloud="sandbox", region="r", phase=Phase.RELEASING),
            [node("walk-0", 0, zone="r-a")],
        )
        later = NOW + HOUR
        store.attempts.add(
            attempt("walk-1", job="walk", **{**here, "number": 2, "created_at": later}),
            [node("walk-1", 0, zone="r-a"), node("walk-1", 1, zone="r-b")],
        )
        store.attempts.add(attempt("run-1", job="run", **here), [node("run-1", 0, zone="r-b")])
        store.attempts.add(attempt("any-1", job="any", **here), [node("any-1", 0)])
        store.attempts.add(attempt("far-1", job="far", phase=Phase.RUNNING), [node("far-1", 0)])
        store.attempts.add(attempt("odd-1", job="odd", cloud="nebius", phase=Phase.RUNNING), [node("odd-1", 0)])
        store.attempts.add(attempt("old-1", job="old", cloud="sandbox", phase=Phase.FINISHED), [node("old-1", 0)])
        yield store


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    names = ["any-1-0", "run-1-0", "walk-0-0", "walk-1-0", "walk-1-1", "stranger-1-0"]
    return Hand(*[SandboxMachine(name, name[:-2], int(name[-1]), tmp_path) for name in names])


def _ids(found: Sequence[DrillTarget]) -> list[str]:
    return [target.machine.id for target in found]


def _ends(done: Sequence[DrillResult]) -> dict[str, DrillOutcome]:
    return {one.target.machine.id: one.outcome for one in done}


def test_machines_of_a_job_are_those_of_its_newest_gang_that_has_any(store: StateStore, hand: Hand) -> None:
    assert _ids(drills.find_targets(store, hand)) == ["any-1-0", "run-1-0", "walk-0-0", "walk-1-0", "walk-1-1"]
    assert _ids(drills.choose_targets(store, hand, "walk")) == ["walk-1-0"]
    assert _ids(drills.choose_targets(store, hand, "walk", [1])) == ["walk-1-1"]
    assert _ids(drills.choose_targets(store, hand, "walk", [1, 0, 1])) == ["walk-1-0", "walk-1-1"]
    assert _ids(drills.choose_targets(store, hand, "walk", everything=True)) == ["walk-1-0", "walk-1-1"]
    assert _ids(drills.choose_targets(store, hand, "walk-0")) == ["walk-0-0"]
    (target,) = drills.choose_targets(store, hand, "walk", [1])
    assert (target.job, target.attempt, target.rank, target.place) == ("walk", "walk-1", 1, "r-b")
    hand.switch_off(hand.machines[3:5], "gone")
    assert _ids(drills.choose_targets(store, hand, "walk")) == ["walk-0-0"]


@pytest.mark.parametrize(
    ("wanted", "ranks", "what"),
    [
        ("wlak", (), "no job or attempt has the name wlak"),
        ("old", (), "old has no running attempt"),
        ("far", (), "far-1 runs on aws: a drill can interrupt only machines of the sandbox"),
        ("odd-1", (), "odd-1 runs on nebius: a drill can interrupt only machines of the sandbox"),
        ("walk", (2,), "--rank: rank 2 of walk is not up; ranks 0, 1 are"),
    ],
)
def test_what_is_refused(store: StateStore, hand: Hand, wanted: str, ranks: tuple[int, ...], what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        drills.choose_targets(store, hand, wanted, ranks)
    assert hand.taken == []


def test_a_gang_without_machines_is_said_with_its_phase(store: StateStore) -> None:
    with pytest.raises(InvalidInputError, match="no machine of run is up: run-1 is running"):
        drills.choose_targets(store, Hand(), "run")


def test_places_are_zones_regions_and_those_of_a_job(store: StateStore, hand: Hand) -> None:
    assert drills.find_places(store, hand, "r-a") == ("r-a",)
    assert drills.find_places(store, hand, "r") == ("r",)
    assert drills.find_places(store, hand, "walk") == ("r-a", "r-b")
    # A machine without a zone may be anywhere in its region.
    assert drills.find_places(store, hand, "any") == ("r",)
    assert drills.find_places(store, hand, "q-z", ["q-z"]) == ("q-z",)
    with pytest.raises(InvalidInputError, match=r"the name r-c \(zones and regions: q-z, r, r-a, r-b\)"):
        drills.find_places(store, hand, "r-c", ["q-z"])
    with pytest.raises(InvalidInputError, match="runs on aws"):
        drills.find_places(store, hand, "far")
    everybody = drills.find_targets(store, hand)
    assert _ids(drills.targets_in(everybody, ["r-b"])) == ["run-1-0", "walk-1-1"]
    assert len(drills.targets_in(everybody, ["r"])) == 5


def test_a_machine_is_told_and_switched_off_when_its_time_is_over(store: StateStore, hand: Hand) -> None:
    ticks = Ticks()
    taking = PreemptionDrill(hand, drills.choose_targets(store, hand, "walk"), "drill-1", seconds=30, ticks=ticks)
    said = hand.told["walk-1-0"]
    assert (said.id, said.kind, said.seconds) == ("drill-1-0", "interruption", 30.0)
    assert set(hand.told) == {"walk-1-0"}
    ticks.now += 29.5
    assert taking.look() == ()
    assert (taking.over, taking.seconds, _ids(taking.waiting)) == (False, 0.5, ["walk-1-0"])
    ticks.now += 0.5
    assert _ends(taking.look()) == {"walk-1-0": DrillOutcome.KILLED}
    assert hand.taken == [("walk-1-0", "drill-1")]
    assert taking.over
    assert (taking.look(), taking.waiting) == ((), ())


def test_without_seconds_nobody_is_told(store: StateStore, hand: Hand) -> None:
    taking = PreemptionDrill(hand, drills.choose_targets(store, hand, "walk"), "drill-1", seconds=0, ticks=Ticks())
    assert _ends(taking.look()) == {"walk-1-0": DrillOutcome.KILLED}
    assert hand.told == {}


def test_one_that_is_gone_before_is_released_and_nobody_waits_for_it(store: StateStore, hand: Hand) -> None:
    ticks = Ticks()
    taking = PreemptionDrill(
        hand, drills.choose_targets(store, hand, "walk", everything=True), "drill-1", seconds=30, ticks=ticks
    )
    hand.machines = [machine for machine in hand.machines if machine.id != "walk-1-0"]
    assert (_ends(taking.look()), taking.over) == ({"walk-1-0": DrillOutcome.RELEASED}, False)
    hand.machines = []
    assert _ends(taking.look()) == {"walk-1-1": DrillOutcome.RELEASED}
    assert taking.over
    assert hand.taken == []


def test_one_that_is_let_go_runs_on(store: StateStore, hand: Hand) -> None:
    ticks = Ticks()
    taking = PreemptionDrill(hand, drills.choose_targets(store, hand, "walk"), "drill-1", seconds=30, ticks=ticks)
    assert _ends(taking.let_go()) == {"walk-1-0": DrillOutcome.LEFT}
    assert hand.told == {}
    ticks.now += 60
    assert taking.look() == ()
    assert (taking.over, hand.taken) == (True, [])


def test_one_that_cannot_be_ended_is_said_and_not_tried_for_ever(store: StateStore, hand: Hand, tmp_path: Path) -> None:
    hand.stubborn = {"walk-1-0"}
    everything = drills.choose_targets(store, hand, "walk", everything=True)
    assert _ends(drills.kill_machines(hand, everything, "drill-1")) == {
        "walk-1-0": DrillOutcome.STUCK,
        "walk-1-1": DrillOutcome.KILLED,
    }
    assert drills.kill_machines(hand, (), "drill-2") == ()
    stock = StockFile(tmp_path / "cloud")
    taking = drills.close_zones(store, hand, stock, ["r-a"], "drill-3", seconds=0, until=None, ticks=Ticks())
    assert _ends(taking.look())["walk-1-0"] is DrillOutcome.STUCK
    assert taking.over


def test_a_zone_is_closed_first_and_who_comes_up_late_goes_too(store: StateStore, hand: Hand, tmp_path: Path) -> None:
    stock, ticks = StockFile(tmp_path / "cloud"), Ticks()
    late = hand.machines.pop(1)
    taking = drills.close_zones(store, hand, stock, ["r-b"], "drill-1", seconds=30, until=None, ticks=ticks)
    assert [one.place for one in stock.closed(0)] == ["r-b"]
    assert _ids(taking.waiting) == ["walk-1-1"]
    ticks.now += 10
    hand.machines.append(late)
    assert taking.look() == ()
    assert hand.told["run-1-0"].seconds == 20.0
    ticks.now += 20
    ended = {"walk-1-1": DrillOutcome.KILLED, "run-1-0": DrillOutcome.KILLED}
    assert (_ends(taking.look()), taking.over) == (ended, False)
    assert (taking.look(), taking.over) == ((), True)
    assert {name for name, _ in hand.taken} == {"walk-1-1", "run-1-0"}
    # What others closed stays closed.
    stock.close("r-b", None, "drill-0")
    assert drills.open_zones(stock, ["r-a", "r-b"], "drill-1") == ("r-b",)
    assert [one.by for one in stock.closed(0)] == ["drill-0"]


def test_a_zone_without_machines_is_closed_and_that_is_all(store: StateStore, hand: Hand, tmp_path: Path) -> None:
    stock = StockFile(tmp_path / "cloud")
    taking = drills.close_zones(store, hand, stock, ["r-z"], "drill-1", seconds=30, until=5e9, ticks=Ticks())
    assert (taking.look(), taking.over) == ((), True)
    assert [one.until for one in stock.closed(0)] == [5_000_000_000]


def test_a_hint_is_no_end_and_one_that_is_just_gone_is_no_error(store: StateStore, hand: Hand, tmp_path: Path) -> None:
    here, gone = drills.choose_targets(store, hand, "walk", everything=True)
    away = DrillTarget("walk", "walk-1", 1, "r", "r-b", SandboxMachine("walk-1-1", "walk-1", 1, tmp_path / "none"))
    assert gone.machine.id == away.machine.id
    drills.announce_to(hand, [here, away], "drill-1", seconds=None)
    assert [(one.id, one.kind, one.seconds) for one in hand.told.values()] == [("drill-1-0", "rebalance", None)]
    assert hand.taken == []
