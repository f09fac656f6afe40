"""Thousands of offers, each with a cap of its own, as a refreshed book has them; and a clock that runs out early."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import Market
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Cut
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import Found, find_for_plan
from router.planning.planner import PlanRequest, make_plan
from router.planning.program.planning_input import NOT_LOOKED_AT, PARTLY_LOOKED_AT
from router.prices.books import load_book
from tests.support.checker import check_plan
from tests.support.made_up_jobs import make_job

CLOUDS = ("aws", "azure", "gcp")
CAP = 4


def zoned_book(book: PriceBook, rows: int) -> PriceBook:
    """Return the book with each spot row of three clouds split over zones of its region, ``rows`` rows in all."""
    spot = [o for o in book.offers if o.cloud in CLOUDS and o.market is Market.SPOT and o.zone is None]
    rest = [o for o in book.offers if not any(o is other for other in spot)]
    zones, more = divmod(rows - len(rest), len(spot))
    split = [
        replace(offer, zone=f"{offer.region}-{zone:02d}", machines_cap=CAP)
        for number, offer in enumerate(spot)
        for zone in range(zones + (number < more))
    ]
    return replace(book, offers=tuple(sorted((*rest, *split), key=lambda o: o.key)))


_SPEEDS = {"T4": 65.0, "V100-16GB": 125.0, "A10G": 125.0, "L4": 121.0, "L40S": 362.0, "A100-40GB": 312.0, "H100": 989.0}
_COUNTS = (1, 2, 4, 8)


def flexible_jobs(count: int, now: datetime) -> tuple[Job, ...]:
    """Return ``count`` jobs of 10 to 48 h of work on the slowest gang, due in one to two days."""
    return tuple(
        make_job(
            {
                "name": f"job-{number:02d}",
                "steps": 100 * (10 + 2 * (number % 20)),
                "deadline": now + timedelta(hours=24 + number % 24),
                "checkpoint": {"size_gib": 10},
                "options": [(accelerator, gpus) for accelerator in _SPEEDS for gpus in _COUNTS],
                "profile": [
                    {"accelerator": accelerator, "count": gpus, "steps_per_hour": 1.6 * speed * gpus**0.95}
                    for accelerator, speed in _SPEEDS.items()
                    for gpus in _COUNTS
                ],
            }
        )
        for number in range(count)
    )


NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
JOBS = flexible_jobs(20, NOW)


class StoppedClock:
    """A clock that stands still until somebody stops it at another moment."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
def test_a_plan_over_ten_thousand_offers_is_proven() -> None:
    """A dense comparison for each cap took too long; an hour's limit leaves the end to the counts."""
    book = zoned_book(load_book("embedded"), 10_000)
    assert len(book.offers) == 10_000
    request = PlanRequest(JOBS, book, Limits.none(), NOW, time_limit=timedelta(hours=1))
    plan = make_plan(request)
    assert (plan.status, plan.unplaced, plan.cuts) == ("optimal", (), ())
    assert check_plan(plan, JOBS, book, Limits.none()) == []


@pytest.mark.slow
def test_jobs_whose_offers_were_not_looked_at_in_time_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the limit is over few spot offers are looked at, and after four limits none at all."""
    clock, looked = StoppedClock(), list[tuple[str, int | None]]()
    ends = {2: 61.0, 3: 241.0}  # when the look at so many jobs ends

    def watched(finder: CandidateFinder, job: Job, *, most_spot: int | None = None) -> Found:
        looked.append((job.name, most_spot))
        clock.now = ends.get(len(looked), clock.now)
        return find_for_plan(finder, job, most_spot=most_spot)

    monkeypatch.setattr("router.planning.planner.find_for_plan", watched)
    urgent = JOBS[3].model_copy(update={"priority": 5})
    book = load_book("embedded")
    request = PlanRequest((*JOBS[:3], urgent), book, Limits.none(), NOW, time_limit=timedelta(seconds=60))
    plan = make_plan(request, clock=clock)
    assert looked == [(urgent.name, None), (JOBS[0].name, None), (JOBS[1].name, 4)]
    notes = {job.job for job in plan.jobs if PARTLY_LOOKED_AT in job.notes}
    assert notes == {JOBS[1].name}
    assert [(left.job, left.reason) for left in plan.unplaced] == [(JOBS[2].name, NOT_LOOKED_AT)]
    assert (plan.status, plan.stage_one_proven) == ("feasible", False)
    assert Cut("offers", "time") in plan.cuts
    known = (JOBS[0], urgent)
    alone = make_plan(PlanRequest(known, book, Limits.none(), NOW, time_limit=timedelta(hours=1), gap=0.0))
    assert Usd(0) < plan.bound_usd <= alone.cost_usd
