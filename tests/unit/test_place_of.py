"""A candidate as a policy sees it."""

from __future__ import annotations

import pytest

from pricing.places import RegionId
from router.planning.remaining_work import remaining_job, remaining_usd
from router.spot.options import TRANSFER_GIB_PER_S, build_option
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, SOUTH, a_job, found_for

HOME = RegionId("aws", "north-1")


def test_a_place_says_what_is_left_there() -> None:
    limits = make_limits({})
    job = remaining_job(a_job(checkpoint={"size_gib": 90}, deadline="+9h"), 120, HOME, NOW)
    kept, _ = found_for(job, [NORTH, NORTH_SPOT, SOUTH])
    for candidate in kept.values():
        place = build_option(candidate, job, limits)
        assert place.key == candidate.key
        assert place.sure == (candidate.market.value != "spot")
        assert place.hours == pytest.approx(180 / candidate.on_time_steps_per_hour)
        assert place.startup_hours == pytest.approx(0.2)
        away = candidate.region != HOME
        assert place.transfer_hours == pytest.approx(90 / TRANSFER_GIB_PER_S / 3600 if away else 0.0)
        assert place.expected_usd == remaining_usd(job, candidate, limits)
        assert place.interruptions_per_hour > 0


def test_what_is_streamed_holds_nothing_up() -> None:
    data = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 500, "mode": "stream"}
    job = remaining_job(a_job(data=data, checkpoint={"size_gib": 0}), 120, None, NOW)
    (candidate,) = found_for(job, [SOUTH])[0].values()
    assert candidate.transfers
    assert build_option(candidate, job, make_limits({})).transfer_hours == 0.0
