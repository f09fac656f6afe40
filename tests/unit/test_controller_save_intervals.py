"""A running gang saves more or less often once interruptions or the time of its saves are not as planned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.risk import GangRisk
from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history.heartbeats import take_snapshot
from router.controller.history.run_records import EarlierRuns
from router.controller.supervise.replanner import TICK, Replanner
from router.controller.supervise.save_intervals import (
    INTERVAL,
    LEAST_CHANGE,
    SaveIntervals,
    best_interval_s,
    is_worth_changing,
)
from router.jobs.goodput import best_interval_hours
from router.jobs.job_json import job_json
from router.jobs.spec import Job
from router.planning.find.checkpoint_times import measured_write_hours, write_hours
from router.state.records import Attempt, Phase
from tests.bench.storm import site_of
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import simple_job
from tests.support.narrowed import present
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt, node

SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "20", interruptions=0.05)
BOOK = book([SPOT])
#: The same without a statement: a prior that falls with age.
UNKNOWN = book([offer("aws/north-1", "p9.48xlarge", "spot", "20")])
WRITE_S = 200.0  # 200 GiB at 1 GiB a second
#: As planned: .05 interruptions an hour (and hardware), saves of 200 seconds.
MACHINE = present(BOOK.machine("aws", "p9.48xlarge"))
RATE = BOOK.risk.gang(SPOT, MACHINE, 1).per_hour_at(0.0)
PLANNED_S = 3600 * best_interval_hours(RATE, WRITE_S / 3600, 0.0)


def a_job(**checkpoint: Any) -> Job:
    how = {"size_gib": 200, "write_gib_per_s": 1, **checkpoint}
    return simple_job("llama", ("H100", 8), steps=50_000, steps_per_hour=100, checkpoint=how)


@dataclass
class Gang:
    """One gang that runs, and whoever looks after it."""

    site: ControllerContext
    job: Job
    moment: list[datetime]
    book: PriceBook = BOOK
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.site = replace(self.site, clock=lambda: self.moment[0], tell=lambda _, text: self.told.append(text))
        self.site.store.plans.put_jobs({self.job.digest: job_json(self.job)}, NOW)
        self.add("runs", NOW, phase=Phase.RUNNING)
        replanner = Replanner(self.site, lambda: self.book, earlier=EarlierRuns(self.site.store, self.site.clock))
        self.intervals = SaveIntervals(self.site, replanner)
        self.look()

    def add(self, name: str, made: datetime, hours: float | None = None, **more: Any) -> Attempt:
        gone = None if hours is None else made + hours * HOUR
        ends = {} if hours is None else {"phase": Phase.FAILED, "reason": "interrupted", "gone_at": gone}
        fields = {"job_digest": self.job.digest, "machines": 1, "region": "north-1", "made_at": made, "met_at": made}
        record = attempt(name, **{**fields, **ends, **more})
        machine = node(name, instance_type="p9.48xlarge", made_at=made, gone_at=gone, heard_at=gone)
        self.site.store.attempts.add(record, [machine])
        return record

    def saves(self, *seconds: float, manifest: str = "/b/1.json") -> None:
        for step, each in enumerate(seconds):
            about = {"rank": 0, "id": "", "seconds": each, "saved_step": step, "saved_manifest": manifest}
            self.site.store.journal.note("runs", "saved", self.moment[0], **about)

    def look(self, after: timedelta = timedelta(0)) -> float | None:
        """Look once more after so long, and return the gang's interval in seconds."""
        self.moment[0] += after
        now = take_snapshot(self.site.store)
        self.intervals.adapt(now.alive, now.nodes)
        found = present(self.site.store.attempts.get("runs"))
        return found.checkpoint_seconds

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [dict(entry.details) for entry in self.site.store.journal.entries("runs", what=(INTERVAL,))]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with open_state(tmp_path / "state.db", NOW) as store:
        yield site_of(store, tmp_path)


def lose_many(gang: Gang) -> None:
    """Ten gangs were interrupted after an hour each, where the book expects half of one."""
    for number in range(10):
        gang.add(f"lost-{number}", NOW - (number + 1) * 5 * HOUR, 1.0, job="other", job_digest="unknown")


def risk_of(of: PriceBook) -> GangRisk:
    return of.risk.gang(of.offers[0], MACHINE, 1)


def best_s(rate: float) -> float:
    return 3600 * best_interval_hours(rate, WRITE_S / 3600, 0.0)


def test_counted_interruptions_make_it_save_more_often_once(site: ControllerContext) -> None:
    gang = Gang(site, a_job(), [NOW + 4 * HOUR], UNKNOWN)
    first = gang.look() or 0.0
    assert first == pytest.approx(best_s(risk_of(UNKNOWN).per_hour_at(4.0)), abs=0.1)
    lose_many(gang)
    assert gang.look(TICK / 2) == first  # it was looked at a moment ago
    gang.moment[0] += HOUR  # what was lost is read once an hour
    told = present(gang.look())
    note = gang.notes[-1]
    assert note["interruptions_per_hour"] > 2 * risk_of(UNKNOWN).per_hour_at(5.0)
    assert told == pytest.approx(best_s(note["interruptions_per_hour"]), abs=0.1)
    assert told < first / LEAST_CHANGE
    assert (note["before_seconds"], note["checkpoint_seconds"]) == (first, told)
    assert note["save_seconds"] is None
    assert gang.told[-1] == f"runs is to save every {told / 60:,.0f} min instead of {first / 60:,.0f}"
    assert gang.look(TICK) == told
    assert len(gang.notes) == 2


def test_a_first_gang_is_told_at_once_how_often_to_save(site: ControllerContext) -> None:
    """Its training would not save before somebody says how often, and its first hour is the most dangerous."""
    gang = Gang(site, a_job(), [NOW], UNKNOWN)
    best = best_s(risk_of(UNKNOWN).per_hour_at(0.0))
    assert gang.look() == pytest.approx(best, abs=0.1)
    (note,) = gang.notes
    assert note["before_seconds"] is None
    assert gang.told == [f"runs is to save every {best / 60:,.0f} min"]


def test_a_rate_that_the_job_file_states_goes_before_the_pools_own(site: ControllerContext) -> None:
    job = Job.model_validate({**a_job().model_dump(mode="json"), "interruptions": {"per_hour": 0.7}})
    gang = Gang(site, job, [NOW], UNKNOWN)
    assert gang.look() == pytest.approx(best_s(0.7), abs=0.1)
    assert gang.look(24 * HOUR) == pytest.approx(best_s(0.7), abs=0.1)


def test_a_life_is_as_old_as_its_first_machine(site: ControllerContext) -> None:
    gang = Gang(site, a_job(), [NOW], UNKNOWN)
    found = present(site.store.attempts.get("runs"))
    site.store.attempts.change(found, met_at=NOW + 3 * HOUR)
    assert gang.look(4 * HOUR) == pytest.approx(best_s(risk_of(UNKNOWN).per_hour_at(4.0)), abs=0.1)


def test_a_young_gang_saves_often_and_an_old_one_seldom(site: ControllerContext) -> None:
    """The rate falls with age: at the start, and after one hour, six, and a day."""
    gang = Gang(site, a_job(), [NOW], UNKNOWN)
    ages = (0.0, 1.0, 6.0, 24.0)
    found = [gang.look(), *(gang.look(timedelta(hours=hours)) for hours in (1.0, 5.0, 18.0))]
    assert [note["checkpoint_seconds"] for note in gang.notes] == [
        pytest.approx(best_s(risk_of(UNKNOWN).per_hour_at(age)), rel=0.01) for age in ages
    ]
    assert found == [note["checkpoint_seconds"] for note in gang.notes]
    assert found[0] is not None
    assert found[3] is not None
    assert found[3] > 4 * found[0]


def test_saves_that_take_much_longer_make_it_save_less_often_and_back(site: ControllerContext) -> None:
    gang = Gang(site, a_job(), [NOW])
    gang.saves(2000.0)
    assert gang.look(TICK) == pytest.approx(PLANNED_S, abs=0.1)  # one save may be an exception
    gang.saves(2000.0, 1990.0, 0.0)  # 0: it was saved already, for another request
    told = gang.look(TICK)
    assert told == pytest.approx(3600 * best_interval_hours(RATE, 1995 / 3600, 0.0), rel=0.02)
    assert (told or 0) > PLANNED_S * LEAST_CHANGE
    gang.saves(*[190.0] * 12)
    assert gang.look(TICK) == pytest.approx(PLANNED_S, rel=0.05)
    assert [note["save_seconds"] for note in gang.notes[1:]] == [pytest.approx(1995.0), 190.0]


def test_small_differences_change_nothing(site: ControllerContext) -> None:
    gang = Gang(site, a_job(), [NOW])
    gang.saves(*[WRITE_S * 1.9] * 4)  # the interval goes with the root
    assert gang.look(TICK) == pytest.approx(PLANNED_S, abs=0.1)
    assert len(gang.notes) == 1
    assert [is_worth_changing(100, best) for best in (149, 150, 67, 66)] == [False, True, False, True]


@pytest.mark.parametrize("checkpoint", [{"interval": "30m"}, None], ids=["stated", "cannot save"])
def test_a_stated_interval_stays(site: ControllerContext, checkpoint: dict[str, Any] | None) -> None:
    job = a_job(**checkpoint) if checkpoint else a_job().model_copy(update={"checkpoint": None})
    gang = Gang(site, job, [NOW])
    lose_many(gang)
    gang.saves(*[2000.0] * 4)
    assert gang.look(2 * HOUR) is None


def test_it_is_not_lengthened_after_a_notice_was_too_short(site: ControllerContext) -> None:
    gang = Gang(site, a_job(), [NOW])
    order = {"order_id": "n-1", "order_reason": protocol.INTERRUPTION, "ordered_at": NOW - HOUR}
    gang.add("before", NOW - 3 * HOUR, 2.0, number=0, **order)
    site.store.journal.note("before", "not_saved", NOW - HOUR, rank=0, id="n-1", failed="late")
    gang.saves(*[2000.0] * 4)
    assert gang.look(TICK) == pytest.approx(PLANNED_S, abs=0.1)
    site.store.journal.note(
        "before", "saved", NOW - HOUR, rank=0, id="n-1", seconds=9.0, saved_step=5, saved_manifest="/b/5.json"
    )
    assert (gang.look(TICK) or 0) > PLANNED_S * LEAST_CHANGE


def test_a_gang_that_is_not_running_any_more_keeps_what_it_has(site: ControllerContext) -> None:
    gang = Gang(site, a_job(), [NOW])
    gang.saves(*[2000.0] * 4)
    before = take_snapshot(site.store)
    found = present(site.store.attempts.get("runs"))
    site.store.attempts.change(found, phase=Phase.NOTICED)
    gang.moment[0] += TICK
    gang.intervals.adapt(before.alive, before.nodes)
    assert len(gang.notes) == 1


def test_an_upload_takes_long_and_stops_the_training_no_longer_than_stated() -> None:
    sync, apart = a_job().checkpoint, a_job(asynchronous=True).checkpoint
    assert sync is not None
    assert apart is not None
    assert measured_write_hours(sync, 3600, uploaded=False) == (1.0, 0.0)
    assert measured_write_hours(sync, 3600, uploaded=True) == (write_hours(sync)[0], 1 - write_hours(sync)[0])
    assert measured_write_hours(sync, 36, uploaded=True) == (0.01, 0.0)
    assert measured_write_hours(apart, 3600, uploaded=False) == (0.0, 1.0)
    # The next write begins once the last one has ended, however often the gang is interrupted.
    assert best_interval_s(apart, 5.0, (3600.0, False)) == 3600.0
    assert best_interval_s(sync, RATE, None) == pytest.approx(PLANNED_S, abs=0.1)


@pytest.mark.parametrize(("rate", "write_h"), [(0.01, 0.02), (0.05, 0.1), (0.5, 0.3)])
def test_below_the_threshold_less_than_a_tenth_more_is_lost(rate: float, write_h: float) -> None:
    """Time lost for each hour of useful compute, by the renewal formula."""

    def lost(hours: float) -> float:
        return math.expm1(rate * (hours + write_h)) / (rate * hours) - 1

    best = best_interval_hours(rate, write_h, 0.0)
    for own in (best / LEAST_CHANGE, best * LEAST_CHANGE):
        assert 1 < lost(own) / lost(best) < 1.1
