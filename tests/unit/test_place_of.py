"""A candidate as a policy sees it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from pricing.places import Market, RegionId
from pricing.pool_experience import ExperienceKind, PoolExperience
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import candidates_for
from router.planning.find.transfers import TRANSFER_GIB_PER_S
from router.planning.problem.remaining_work import remaining_job, remaining_usd
from router.spot.options import build_option
from tests.support.made_up_book import book
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, SOUTH, a_job, found_for

HOME = RegionId("aws", "north-1")
HARDWARE = 8 / 30_000


def test_a_place_says_what_is_left_there() -> None:
    limits = make_limits({})
    job = remaining_job(a_job(checkpoint={"size_gib": 90}, deadline="+9h"), 120, HOME, NOW)
    kept, _ = found_for(job, [NORTH, NORTH_SPOT, SOUTH])
    for candidate in kept.values():
        place = build_option(candidate, job, limits)
        assert place.key == candidate.key
        assert place.sure == (candidate.market.value != "spot")
        assert place.hours == pytest.approx(180 / steady_speed(candidate))
        assert place.startup_hours == pytest.approx(0.2)
        away = candidate.region != HOME
        assert place.transfer_hours == pytest.approx(90 / TRANSFER_GIB_PER_S / 3600 if away else 0.0)
        assert place.expected_usd == remaining_usd(job, candidate, limits)
        assert place.losses.per_hour[0] >= HARDWARE
        assert not place.knows_losses


def steady_speed(candidate: Candidate) -> float:
    """Steps an hour: under the guard without interruptions, which the policy models; else those that are held."""
    if candidate.market is not Market.SPOT:
        return candidate.on_time_steps_per_hour
    return 100 * candidate.risk.interval_hours / (candidate.risk.interval_hours + candidate.risk.stall_hours)


def test_losses_fall_with_age_on_spot_and_are_those_of_hardware_elsewhere() -> None:
    job = remaining_job(a_job(), 120, HOME, NOW)
    kept, _ = found_for(job, [NORTH, NORTH_SPOT])
    assert len(kept) == 2
    for candidate in kept.values():
        losses = build_option(candidate, job, make_limits({})).losses
        if candidate.market is not Market.SPOT:
            assert losses.per_hour == pytest.approx((HARDWARE,) * 4)
            assert losses.spread == 0
            continue
        mean = candidate.gang_risk.hazard.mean
        for rate, (since, until) in zip(losses.per_hour, pairwise((0.0, 0.5, 2.0, 8.0, 48.0)), strict=True):
            lost = mean * (math.log(0.6 + until) - math.log(0.6 + since))
            assert rate == pytest.approx(lost / (until - since) + HARDWARE)
        # 0.05 to 0.45 hold the level four times in five.
        assert losses.spread == pytest.approx(math.log(9) / 2.563, rel=0.02)


def test_a_place_says_whether_its_losses_rest_on_the_history_of_its_pool() -> None:
    pool = ("aws", "north-1", None, "p9.48xlarge", Market.SPOT)
    calm = PoolExperience(*pool, 1, 60.0, 30.0, 1.0, 3, NOW, NOW, ExperienceKind.AVAILABILITY)
    job = remaining_job(a_job(), 120, HOME, NOW)
    found = {}
    for kind in (None, ExperienceKind.AVAILABILITY, ExperienceKind.GANGS):
        records = () if kind is None else (replace(calm, kind=kind),)
        known = replace(book([NORTH_SPOT]), records=records)
        (candidate,) = candidates_for(job, known, make_limits({}), NOW, False)[0]
        found[kind] = build_option(candidate, job, make_limits({}))
    plain, watched, held = found.values()
    assert (plain.knows_losses, watched.knows_losses, held.knows_losses) == (False, True, False)
    assert watched.losses == held.losses
    assert watched.losses.per_hour[0] < plain.losses.per_hour[0]
    assert watched.losses.spread < plain.losses.spread


def test_what_is_streamed_holds_nothing_up() -> None:
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 500, "mode": "stream"}
    job = remaining_job(a_job(data=data, checkpoint={"size_gib": 0}), 120, None, NOW)
    (candidate,) = found_for(job, [SOUTH])[0].values()
    assert candidate.transfers
    assert build_option(candidate, job, make_limits({})).transfer_hours == 0.0
