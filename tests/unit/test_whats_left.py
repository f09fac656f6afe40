"""What is left of a job that ran, and what machines that go on take of the limits."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from pricing.money import Usd
from pricing.places import Market, RegionId
from router.jobs.spec import Job
from router.planning.problem.current_use import PromisedMachines, RunningMachines, peak_use, running_use
from router.planning.problem.remaining_work import (
    interval_at,
    remaining_job,
    remaining_usd,
)
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import HOUR, NORTH, NORTH_SPOT, NOW, SOUTH, a_job, found_for

HOME = RegionId("aws", "north-1")


def test_what_is_done_stays_done_and_times_stay_where_they_were() -> None:
    job = a_job(deadline="+10h", earliest_start="+1h")
    left = remaining_job(job, 120, HOME, NOW)
    assert left.steps_left == 180
    assert left.status is not None
    assert (left.status.running, left.status.checkpoint_in) == (None, HOME)
    assert left.deadline is not None
    assert left.deadline.at(NOW + 3 * HOUR) == NOW + 10 * HOUR
    assert left.earliest_start is not None
    assert left.earliest_start.at(NOW + 3 * HOUR) == NOW + HOUR


def test_a_job_without_times_gets_none() -> None:
    left = remaining_job(a_job(), 0, None, NOW)
    assert (left.deadline, left.earliest_start) == (None, None)


def test_at_least_a_step_is_left() -> None:
    assert remaining_job(a_job(), 300, HOME, NOW).steps_left == 1
    assert remaining_job(a_job(), 999, HOME, NOW).steps_left == 1
    kept, _ = found_for(remaining_job(a_job(), 300, HOME, NOW), [NORTH])
    assert len(kept) == 1


def test_data_that_were_brought_along_are_not_moved_again() -> None:
    job = a_job(data={"uri": "s3://a/b", "at": "aws/north-1", "gib": 100}, status={"data_in": ["aws/alps-1"]})
    south = RegionId("aws", "south-1")
    left = remaining_job(job, 10, south, NOW, data_in=[south])
    assert left.status is not None
    assert left.status.data_in == (RegionId("aws", "alps-1"), south)
    kept, _ = found_for(left, [SOUTH])
    assert next(iter(kept.values())).transfers == ()


def test_the_checkpoint_moves_and_is_paid_for() -> None:
    job = a_job(checkpoint={"size_gib": 100})
    here, _ = found_for(remaining_job(job, 100, HOME, NOW), [NORTH])
    there, _ = found_for(remaining_job(job, 100, HOME, NOW), [SOUTH])
    home, away = next(iter(here.values())), next(iter(there.values()))
    limits = make_limits({})
    left = remaining_job(job, 100, HOME, NOW)
    moved = sum(t.dearest.dollars() for t in away.transfers)
    assert moved > 0
    hours = 0.2 + 200 * away.billed_share / away.steps_per_hour
    assert remaining_usd(left, away, limits).dollars() == pytest.approx(50 * hours + moved, abs=1e-3)
    assert remaining_usd(left, home, limits).dollars() == pytest.approx(
        60 * (0.2 + 200 * home.billed_share / home.steps_per_hour), abs=1e-3
    )


def test_moves_are_priced_where_the_month_stands() -> None:
    far = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "40")
    left = remaining_job(a_job(checkpoint={"size_gib": 1000}), 100, HOME, NOW)
    there = next(iter(found_for(left, [far])[0].values()))
    early = remaining_usd(left, there, make_limits({}))
    later = remaining_usd(left, there, make_limits({"egress_month_to_date_gb": {"aws": 200_000}}))
    assert later < early
    assert later > Usd(0)


def hours_between(job: Job, per_hour: float, *, lost: int = 0) -> float:
    found = interval_at(job, per_hour, lost=lost)
    assert found is not None
    return found / HOUR


def test_the_interval_of_a_candidate_is_that_at_the_rate_of_a_typical_life() -> None:
    """To the next half of a doubling of the rate, so that gangs which hardly differ save alike."""
    job = a_job(steps=3000, checkpoint={"size_gib": 200})
    spot = next(iter(found_for(job, [NORTH_SPOT])[0].values()))
    young, typical, old = (
        spot.gang_risk.per_hour_at(0.0),
        spot.gang_risk.per_hour_over(8.0),
        spot.gang_risk.per_hour_at(24.0),
    )
    few, many = hours_between(job, typical * 2**-0.26), hours_between(job, typical * 2**0.26)
    assert many < spot.risk.interval_hours < few
    # What has just begun is saved more often, what is old less often.
    assert hours_between(job, young) < many < few < hours_between(job, old)
    assert spot.risk.interval_hours == pytest.approx(hours_between(job, 2 ** (round(2 * math.log2(typical)) / 2)))


def test_the_interval_is_shorter_after_each_loss() -> None:
    job = a_job(steps=3000, checkpoint={"size_gib": 200})
    spot = next(iter(found_for(job, [NORTH_SPOT])[0].values()))
    rate = spot.gang_risk.per_hour_at(0.0)
    shrinking = [hours_between(job, rate, lost=n) for n in range(4)]
    assert shrinking == sorted(set(shrinking), reverse=True)
    assert shrinking[3] == pytest.approx(hours_between(job, 4 * rate))


def test_a_stated_interval_stays_and_no_checkpoint_has_none() -> None:
    stated = a_job(checkpoint={"size_gib": 200, "interval": "30m"})
    assert interval_at(stated, 0.1, lost=5) == timedelta(minutes=30)
    assert interval_at(a_job(checkpoint=None), 0.1) is None


def test_held_machines_take_of_quotas_capacity_and_stock() -> None:
    zoned = offer("aws/north-1", "p9.48xlarge", "spot", "20", zone="north-1a", cap=3)
    limits: dict[str, Any] = {
        "limits": [
            {"name": "all", "cloud": "aws", "amount": 64, "unit": "accelerators"},
            {"name": "spot", "cloud": "aws", "market": "spot", "amount": 9, "unit": "machines"},
        ]
    }
    held = [
        RunningMachines("aws", "north-1", "north-1a", "p9.48xlarge", Market.SPOT, 2, "ml"),
        RunningMachines("aws", "south-1", None, "p9.48xlarge", Market.ON_DEMAND, 1, "ml"),
        RunningMachines("aws", "nowhere-1", None, "p9.48xlarge", Market.SPOT, 1, "ml"),
        RunningMachines("aws", "north-1", None, "x1.unknown", Market.SPOT, 1, "ml"),
    ]
    use = running_use(held, book([zoned, NORTH]), make_limits(limits))
    assert use == {"capacity aws/north-1/north-1a/p9.48xlarge/spot": 2, "all": 24, "spot": 2}


def test_a_reservation_that_is_in_use_is_held() -> None:
    limits = {
        "reservations": [
            {"name": "r", "cloud": "aws", "region": "north-1", "instance_type": "p9.48xlarge", "machines": 4}
        ]
    }
    held = [RunningMachines("aws", "north-1", "north-1b", "p9.48xlarge", Market.RESERVED, 3, "ml")]
    (name,) = running_use(held, book([NORTH]), make_limits(limits))
    assert name.startswith("capacity ")
    assert running_use(held, book([NORTH]), make_limits(limits))[name] == 3


def test_promised_machines_count_where_they_overlap_and_their_fallback_where_it_is_larger() -> None:
    limits = make_limits(
        {
            "limits": [
                {"name": "aws", "cloud": "aws", "amount": 9, "unit": "machines"},
                {"name": "spot", "cloud": "aws", "market": "spot", "amount": 9, "unit": "machines"},
            ]
        }
    )
    known = book([NORTH, NORTH_SPOT])
    region, machine = ("aws", "north-1", None), NORTH.instance_type

    def promised(
        job: str, first: int, last: int, machines: int, market: Market = Market.ON_DEMAND, behind: int = 0
    ) -> PromisedMachines:
        fallback = RunningMachines(*region, machine, Market.ON_DEMAND, behind, "ml") if behind else None
        held = RunningMachines(*region, machine, market, machines, "ml")
        return PromisedMachines(job, held, NOW + first * HOUR, NOW + last * HOUR, fallback)

    def peak(*found: PromisedMachines, first: int = 0, last: int = 24) -> Any:
        return peak_use(found, NOW + first * HOUR, NOW + last * HOUR, known, limits)

    one, two = promised("a", 0, 4, 2), promised("b", 4, 8, 3)
    assert peak(one, two) == {"aws": 3}
    assert peak(one, promised("b", 3, 8, 3)) == {"aws": 5}
    assert peak(one, two, last=4) == {"aws": 2}
    assert peak(one, two, first=8) == {}
    assert peak(promised("c", 0, 4, 2, Market.SPOT, behind=3)) == {"aws": 3, "spot": 2}
    assert peak(promised("c", 0, 4, 2, Market.SPOT, behind=1), one) == {"aws": 4, "spot": 2}
