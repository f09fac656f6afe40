"""The study of save intervals: saves by age where the hazard falls, and the stalls that are held."""

from __future__ import annotations

import numpy as np
import pytest

from pricing.hazard import AGE_SCALE_HOURS, Hazard, HazardShape
from tests.bench.save_intervals import (
    STALLS,
    RecordedLife,
    fixed_shares,
    play_lives,
    saves_of,
    tell_intervals,
)
from tests.support.night import nightly_request

STALL_H = 0.1


def test_saves_by_age_beat_any_fixed_interval_where_the_hazard_is_as_foreseen() -> None:
    """Ten thousand lives of level 0.5: even the best interval in hindsight is behind."""
    ends = AGE_SCALE_HOURS * (np.random.default_rng(2).random(10_000) ** (-1 / 0.5) - 1)
    lives = [RecordedLife(0.0, float(min(end, 200.0)), bool(end < 200.0)) for end in ends]
    hazard = Hazard.lognormal(HazardShape.FALLING, 0.5, 0.05)
    told = tell_intervals(hazard, saves_of(STALL_H), 200.0)
    assert told[-1] > 4 * told[0]
    assert play_lives(lives, told, STALL_H).share > fixed_shares(lives, STALL_H).max() + 0.2


def test_no_example_job_saves_for_longer_than_the_stall_that_is_held() -> None:
    jobs = nightly_request().jobs
    longest = max(job.checkpoint.size_gib / job.checkpoint.write_gib_per_s for job in jobs if job.checkpoint)
    assert longest == pytest.approx(115)
    assert longest / 3600 <= STALLS["2 min"]
