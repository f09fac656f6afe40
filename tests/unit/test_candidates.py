"""Candidates: what they cost, how fast they are, where the job runs; and why an offer is none."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from pricing.risk import RiskSignal
from router.planning.find.candidate import steps_to_do
from router.planning.find.candidates import CandidateFinder, candidates_for
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.scenes import ALPS, BAY, LAKE, NORTH, NORTH_SPOT, NOW, RUNNING_IN_NORTH, SOUTH, a_job, found_for

HERE = "aws/north-1/p9.48xlarge/on_demandx8"
SPOT = "aws/north-1/p9.48xlarge/spotx8"
HARDWARE = 8 / 30_000


def codes(*arguments: Any, **more: Any) -> dict[str, str]:
    """By code the first reason."""
    _, dropped = found_for(*arguments, **more)
    return {d.code: d.reason for d in reversed(dropped)}


def test_one_offer_makes_one_candidate() -> None:
    kept, dropped = found_for(a_job(), [NORTH])
    assert (list(kept), dropped) == ([HERE], [])
    c = kept[HERE]
    assert (c.machines, c.accelerators, c.accelerator, c.market) == (1, 8, "H100", Market.ON_DEMAND)
    assert (c.usd_per_hour, c.amortised_usd_per_hour) == (NORTH.usd_per_hour, NORTH.usd_per_hour)
    assert (c.startup_hours, c.running, c.provisionable, c.weak) == (0.2, False, True, "")
    # One failure in 30,000 accelerator-hours: a little slower than measured, and a little time not billed.
    assert 99.5 < c.steps_per_hour < 100
    assert 0.999 < c.billed_share < 1
    assert c.usd_per_step == pytest.approx(60 * c.billed_share / c.steps_per_hour)
    assert c.reserved_hours(300) == pytest.approx(0.2 + 300 / c.on_time_steps_per_hour)
    assert c.expected_usd(300) == pytest.approx(60 * 0.2 + 300 * c.usd_per_step)


def test_without_a_deadline_the_expected_speed_is_reserved_with_one_a_surer_one() -> None:
    loose = found_for(a_job(relative_error=0.1), [NORTH])[0][HERE]
    firm = found_for(a_job(relative_error=0.1, deadline="+8h"), [NORTH])[0][HERE]
    surer = found_for(a_job(relative_error=0.1, deadline="+8h", confidence=0.99), [NORTH])[0][HERE]
    assert loose.on_time_steps_per_hour == loose.steps_per_hour
    assert surer.on_time_steps_per_hour < firm.on_time_steps_per_hour < firm.steps_per_hour
    assert firm.billed_per_reserved < firm.billed_share
    assert firm.usd_per_reserved_hour == pytest.approx(60 * firm.billed_per_reserved)


def test_spot_is_cheaper_an_hour_and_slower_by_its_interruptions() -> None:
    kept, _ = found_for(a_job(), [NORTH, NORTH_SPOT])
    assert sorted(kept) == [HERE, SPOT]
    assert kept[SPOT].steps_per_hour < kept[HERE].steps_per_hour
    assert kept[SPOT].billed_share < kept[HERE].billed_share
    assert kept[SPOT].weak == "made up"


def test_a_gang_of_many_machines_pays_for_all() -> None:
    job = simple_job("b", ("H100", 16), steps=300, steps_per_hour=180)
    (c,) = found_for(job, [NORTH])[0].values()
    assert (c.machines, c.usd_per_hour) == (2, UsdPerHour.parse("120"))


def test_the_best_discount_applies_and_discounts_do_not_add() -> None:
    limits = {
        "discounts": [
            {"cloud": "aws", "percent": 50},
            {"cloud": "aws", "family": "p9", "percent": 10},
            {"cloud": "gcp", "percent": 25},
        ]
    }
    kept, _ = found_for(a_job(), [NORTH, LAKE], limits)
    assert kept[HERE].usd_per_hour == UsdPerHour.parse("54")
    assert kept["gcp/lake-1/a9-highgpu-8g/on_demandx8"].usd_per_hour == UsdPerHour.parse("30")


def test_a_reservation_costs_nothing_more_and_keeps_its_own_price_for_the_step() -> None:
    paid = {
        "name": "paid",
        "cloud": "aws",
        "region": "north-1",
        "instance_type": "p9.48xlarge",
        "machines": 1,
        "usd_per_hour": "33.02",
    }
    kept, _ = found_for(a_job(), [NORTH], {"reservations": [paid]})
    c = kept["aws/north-1/p9.48xlarge/reserved(paid)x8"]
    assert (c.usd_per_hour, c.amortised_usd_per_hour) == (UsdPerHour(0), UsdPerHour.parse("33.02"))
    assert (c.usd_per_step, c.parts[0].listing.cap) == (0, 1)


def test_an_on_demand_core_stands_beside_its_spot_rest() -> None:
    job = simple_job("b", ("H100", 32), steps=300, steps_per_hour=300, on_demand_share=0.3)
    kept, dropped = found_for(job, [NORTH, NORTH_SPOT, replace(SOUTH, market=Market.SPOT)])
    mixed = kept["aws/north-1/p9.48xlarge/spotx32+core"]
    assert [(p.offer.market, p.machines) for p in mixed.parts] == [(Market.ON_DEMAND, 2), (Market.SPOT, 2)]
    assert (mixed.usd_per_hour, mixed.market) == (UsdPerHour.parse("168"), Market.SPOT)
    assert [d.code for d in dropped] == ["core"]
    assert "no on-demand offer beside" in dropped[0].reason


def test_a_core_that_is_the_whole_gang_is_no_spot_gang() -> None:
    assert "core is the whole gang" in codes(a_job(on_demand_share=0.5), [NORTH_SPOT])["core"]


def test_clouds_that_nobody_here_can_order_from_are_for_advice() -> None:
    assert codes(a_job(), [BAY])["advisory"].startswith("cannot be ordered from here")
    kept, dropped = found_for(a_job(), [BAY], advisory=True)
    assert ([c.provisionable for c in kept.values()], dropped) == ([False], [])


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [
        ({"steps": 10**7}, "too slow", "days of run time: over 90"),
        ({"residency": {"allow": ["DE"]}}, "residency", ""),
        (
            {"data": {"uri": "s3://a", "at": "azure/fjord-1", "gib": 5}},
            "egress unknown",
            "no known egress tariff from azure/fjord-1",
        ),
        (
            {"data": {"uri": "s3://a", "at": "aws/south-1", "gib": 50, "egress_cap": {"gib": 49}}},
            "egress cap",
            "50 GiB to move, 49 allowed",
        ),
    ],
)
def test_what_cannot_serve_is_dropped_with_its_reason(job: dict[str, Any], code: str, words: str) -> None:
    found = codes(a_job(**job), [NORTH])
    assert list(found) == [code]
    assert words in found[code]


def test_a_gang_without_a_known_speed_is_dropped() -> None:
    job = simple_job("b", ("A100-80GB", 8), steps=300, steps_per_hour=100)
    other = job.model_copy(update={"workload": a_job().workload})
    assert "A100-80GB" in codes(other, [offer("aws/north-1", "g9.48xlarge", "on_demand", "30")])["speed"]


def test_the_place_where_it_runs_is_marked_once() -> None:
    job = a_job(status={"steps_done": 100, "running": RUNNING_IN_NORTH})
    kept, _ = found_for(job, [NORTH, NORTH_SPOT, SOUTH])
    assert [key for key, c in kept.items() if c.running] == [HERE]


def test_its_own_zone_is_preferred_an_unknown_one_fits_any() -> None:
    zones = [replace(NORTH, zone=zone) for zone in ("north-1a", "north-1b")]
    there = a_job(status={"running": RUNNING_IN_NORTH | {"zone": "north-1b"}})
    assert [c.offer.zone for c in found_for(there, zones)[0].values() if c.running] == ["north-1b"]
    somewhere = a_job(status={"running": RUNNING_IN_NORTH})
    assert [c.offer.zone for c in found_for(somewhere, zones)[0].values() if c.running] == ["north-1a"]
    gone = a_job(status={"running": RUNNING_IN_NORTH | {"zone": "north-1c"}})
    assert [c for c in found_for(gone, zones)[0].values() if c.running] == []


def test_steps_to_do_start_over_where_nothing_was_saved() -> None:
    status = {"steps_done": 100}
    saved, bare = a_job(status=status), a_job(status=status, checkpoint=None)
    assert (steps_to_do(saved, running=False), steps_to_do(saved, running=True)) == (200, 200)
    assert (steps_to_do(bare, running=False), steps_to_do(bare, running=True)) == (300, 200)


def test_a_job_that_cannot_resume_loses_more_to_interruptions() -> None:
    saved = found_for(a_job(), [NORTH_SPOT])[0][SPOT]
    bare = found_for(a_job(checkpoint=None), [NORTH_SPOT])[0][SPOT]
    assert bare.steps_per_hour < saved.steps_per_hour
    assert (saved.risk.resumes, bare.risk.resumes) == (True, False)


def test_a_fixed_interval_is_kept_and_an_asynchronous_checkpoint_does_not_stall() -> None:
    def risk_of(**more: Any) -> Any:
        return found_for(a_job(checkpoint={"size_gib": 360, **more}), [ALPS])[0].popitem()[1].risk

    assert risk_of(interval="30m").interval_hours == 0.5
    assert risk_of().stall_hours == pytest.approx(0.1)
    assert (risk_of(asynchronous=True).stall_hours, risk_of(asynchronous=True).loss_extra_hours) == (0, 0.1)
    assert risk_of(asynchronous=True, interval="1m").interval_hours == 0.1  # a write takes longer than a minute
    assert a_job().startup == timedelta(minutes=12)


def test_a_candidate_says_how_often_it_is_interrupted_and_how_that_is_known() -> None:
    found = found_for(a_job(), [NORTH_SPOT])[0][SPOT]
    # The level's median is 0.15, its 80 % interval 0.05 to 0.45, and its mean 0.15 exp(0.857^2 / 2).
    over_8_hours = math.log(8.6 / 0.6) / 8
    mean = 0.15 * math.exp(0.857**2 / 2) * over_8_hours + HARDWARE
    low, high = 0.05 * over_8_hours + 0.6 * HARDWARE, 0.45 * over_8_hours + 2 * HARDWARE
    assert found.gang_risk.per_hour_over(8.0) == pytest.approx(mean, rel=0.02)
    assert found.gang_risk.interval_over(8.0) == pytest.approx((low, high), rel=0.03)
    assert found.risk_basis == (
        f"interrupted {mean:.2g} times an hour in its first 8 h ({low:.2g} to {high:.2g}): "
        "prior: made up for a test (made up)"
    )
    stated = replace(NORTH_SPOT, interruptions_per_hour=0.02)
    basis = found_for(a_job(), [stated])[0][SPOT].risk_basis
    assert (
        basis
        == "interrupted 0.02 times an hour in its first 8 h (0.02 to 0.021): stated: with the offer, made up for a test"
    )


def test_a_band_moves_what_a_candidate_says_and_is_named() -> None:
    band = RiskSignal("aws", ">20%", "falling", 1.0, 0.36, 2.8, 11.0, "the advisor", "2026-11-01")
    known = replace(
        book([replace(NORTH_SPOT, interruption_band=">20%", band_as_of=date(2026, 10, 1))]), signals=(band,)
    )
    (found,) = candidates_for(a_job(), known, make_limits({}), NOW, False)[0]
    plain = found_for(a_job(), [NORTH_SPOT])[0][SPOT]
    assert found.gang_risk.per_hour_over(8.0) > 4 * plain.gang_risk.per_hour_over(8.0)
    assert "band: >20% (2026-10-01), counts 91%; prior: made up for a test (made up)" in found.risk_basis
    assert found.steps_per_hour < plain.steps_per_hour
    assert found.weak == plain.weak == "made up"


def test_a_spot_gang_runs_under_the_guard_of_the_cheapest_gang_on_demand_of_its_region() -> None:
    dear = replace(NORTH, zone="north-1b", usd_per_hour=UsdPerHour.parse("70"))
    kept, _ = found_for(a_job(deadline="+8h"), [dear, NORTH, NORTH_SPOT, LAKE])
    spot = kept[SPOT]
    assert spot.fallback is kept[HERE], "another region is cheaper, but has to be moved to"
    assert spot.guard is not None
    assert 0 < spot.guard.probability < 1
    assert 0.95 <= spot.guard.on_time_probability <= 1
    assert spot.fallback_usd_per_reserved_hour == pytest.approx(60 * spot.guard.hours_per_reserved)
    assert spot.usd_per_reserved_hour == pytest.approx(
        24 * spot.billed_per_reserved + spot.fallback_usd_per_reserved_hour
    )
    # It costs less than on demand, and no more than running on spot alone would if all of it went well.
    assert 24 / 100 < spot.usd_per_step < kept[HERE].usd_per_step
    assert (kept[HERE].guard, kept[HERE].fallback) == (None, None)


def test_without_a_deadline_leave_to_go_on_demand_makes_nothing_dearer() -> None:
    """Runs of spot alone that are not done in 90 days cost no more after that."""
    south = replace(NORTH_SPOT, region="south-1")
    free = found_for(a_job(steps=3000), [NORTH, NORTH_SPOT, south])[0][SPOT]
    bound = found_for(a_job(steps=3000, spot="only"), [NORTH, NORTH_SPOT, south])[0][SPOT]
    assert free.fallback is not None
    assert bound.fallback is None
    assert free.expected_usd(3000) <= bound.expected_usd(3000) * 1.01


def test_a_spot_gang_may_go_on_in_the_cheapest_other_pool() -> None:
    """Its own pool by another name is none, and one that is lost more often counts as dearer."""
    other = replace(NORTH_SPOT, zone="north-1b", usd_per_hour=UsdPerHour.parse("25"))
    dear = replace(NORTH_SPOT, region="south-1", usd_per_hour=UsdPerHour.parse("50"))
    alone = found_for(a_job(deadline="+8h"), [NORTH, NORTH_SPOT])[0][SPOT]
    with_dear = found_for(a_job(deadline="+8h"), [NORTH, NORTH_SPOT, dear])[0][SPOT]
    kept, _ = found_for(a_job(deadline="+8h"), [NORTH, replace(NORTH_SPOT, zone="north-1a"), other, dear])
    (near,) = (c for c in kept.values() if c.offer.zone == "north-1a" and c.market is Market.SPOT)
    assert alone.next_pool == ""
    assert with_dear.next_pool == "aws/south-1/p9.48xlarge"
    assert near.next_pool == "aws/north-1/north-1b/p9.48xlarge"
    assert near.usd_per_step <= with_dear.usd_per_step <= alone.usd_per_step
    lost = replace(other, interruptions_per_hour=5.0)
    kept, _ = found_for(a_job(deadline="+8h"), [NORTH, replace(NORTH_SPOT, zone="north-1a"), lost, dear])
    (near,) = (c for c in kept.values() if c.offer.zone == "north-1a" and c.market is Market.SPOT)
    assert near.next_pool == "aws/south-1/p9.48xlarge"


def test_the_more_is_left_to_the_deadline_the_less_of_it_is_on_the_fallback() -> None:
    spot = found_for(a_job(deadline="+12h"), [NORTH, NORTH_SPOT])[0][SPOT]
    assert spot.guard is not None
    hours, usd = zip(*spot.guard.costs, strict=True)
    assert list(hours) == sorted(hours)
    assert list(usd) == sorted(usd, reverse=True)
    near = found_for(a_job(deadline="+4h"), [NORTH, NORTH_SPOT])[0][SPOT]
    assert near.guard is not None
    assert near.guard.probability > spot.guard.probability
    assert near.usd_per_step > spot.usd_per_step


def test_a_fallback_is_of_another_region_where_there_is_none_in_its_own_and_moving_there_counts() -> None:
    job = a_job(deadline="+8h", data={"uri": "s3://a", "at": "aws/north-1", "gib": 500})
    spot = found_for(job, [NORTH_SPOT, SOUTH])[0][SPOT]
    assert spot.guard is not None
    assert spot.fallback is not None
    assert str(spot.fallback.region) == "aws/south-1"
    (data,) = spot.fallback.transfers
    reserved = 300 / spot.on_time_steps_per_hour
    assert job.checkpoint is not None
    saved = job.checkpoint.size_gib * 2**30 / 1e9 * 0.02  # from north-1 too
    moves = (data.dearest.dollars() + saved) * spot.guard.probability / reserved
    assert spot.fallback_moves.dollars() == pytest.approx(moves, rel=1e-6)
    assert moves > 0
    compute = 50 * spot.guard.hours_per_reserved
    assert spot.fallback_usd_per_reserved_hour == pytest.approx(compute + moves)
    near = found_for(job, [NORTH_SPOT, SOUTH, NORTH])[0][SPOT]
    assert (near.fallback and near.fallback.key, near.fallback_moves) == (HERE, UsdPerHour(0))
    alone = found_for(job, [NORTH_SPOT])[0][SPOT]
    assert (alone.fallback, alone.fallback_usd_per_reserved_hour) == (None, 0.0)
    assert alone.guard is not None
    assert alone.guard.on_time_probability < spot.guard.on_time_probability


def test_a_short_run_without_a_fallback_may_wait_longer_than_it_works() -> None:
    """Six minutes of work due in twelve hours, in a pool that has no machines for 0.7 h after each interruption.

    Mostly it waits for minutes, but one wait in thirty lasts for eight hours.
    """
    spot = replace(NORTH_SPOT, interruptions_per_hour=1.0)
    found = found_for(a_job(steps=10, deadline="+12h"), [spot])[0][SPOT]
    assert found.guard is not None
    assert found.guard.on_time_probability >= 0.95
    assert 2 < 10 / found.on_time_steps_per_hour < 12


def test_without_a_checkpoint_nothing_falls_back() -> None:
    bare = found_for(a_job(checkpoint=None), [NORTH, NORTH_SPOT])[0][SPOT]
    assert (bare.guard, bare.fallback, bare.fallback_per_reserved) == (None, None, 0.0)


def test_other_pools_have_the_room_that_the_limits_file_states() -> None:
    """One limit that is raised lets a gang run in its own pool, not in others that want more of another limit."""
    south = replace(NORTH_SPOT, region="south-1")
    limits = make_limits(
        {
            "limits": [
                {"name": place, "region": f"{place}-1", "unit": "machines", "amount": 0} for place in ("north", "south")
            ]
        }
    )
    finder = CandidateFinder(book([NORTH_SPOT, south]), limits, NOW, advisory=False)
    kept, _ = finder.without_amounts.find(a_job(steps=3000))
    assert [(c.region.region, c.next_pool) for c in kept] == [("north-1", ""), ("south-1", "")]
