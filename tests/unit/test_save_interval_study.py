"""The study of save intervals: lives and useful hours counted by hand, and saves by age where the hazard falls."""

from __future__ import annotations

import numpy as np
import pytest

from pricing.hazard import AGE_SCALE_HOURS, Hazard, HazardShape
from tests.bench.interruption_rules import UNKNOWN, Recording
from tests.bench.save_intervals import (
    FIXED_H,
    RESTART_H,
    STALLS,
    RecordedLife,
    find_lives,
    fixed_shares,
    play_lives,
    saves_of,
    tell_intervals,
    useful_hours,
)
from tests.support.night import nightly_request

STALL_H = 0.1
LOST = RecordedLife(0.0, RESTART_H + 2.5, is_lost=True)


def recording(counts: list[int]) -> Recording:
    return Recording("made", "made", ("aws", "a", "V100", "one"), 1.0, 1, np.array(counts, dtype=np.int64))


def test_a_life_ends_with_its_loss_where_nobody_looked_and_at_the_end() -> None:
    one = recording([1, 1, 1, 0, 0, 1, 1, UNKNOWN, 1, 1, 1])
    lives = find_lives(one, 1, one.up.size)
    assert sorted({(life.begin_h, life.is_lost) for life in lives}) == [(0.0, False), (1.0, True)]
    lost = [life.end_h for life in lives if life.is_lost]
    assert len(lost) == 8
    assert 2.0 < min(lost) < max(lost) < 3.0
    assert np.mean(lost) == pytest.approx(2.5)
    assert {life.end_h for life in lives if not life.is_lost} == {1.0, 2.0}


def test_useful_hours_are_those_that_a_save_holds() -> None:
    hourly = np.array([1.0])
    assert useful_hours(LOST, hourly, STALL_H) == pytest.approx(2.0)  # saves end after 1.1 and 2.2 h
    assert useful_hours(RecordedLife(0.0, RESTART_H + 2.15, is_lost=True), hourly, STALL_H) == pytest.approx(1.0)
    assert useful_hours(RecordedLife(0.0, RESTART_H + 2.5, is_lost=False), hourly, STALL_H) == pytest.approx(2.3)
    assert useful_hours(RecordedLife(5.0, 7.5, is_lost=True), hourly, STALL_H) == pytest.approx(2.0)  # no restart
    assert useful_hours(RecordedLife(0.0, RESTART_H / 2, is_lost=True), hourly, STALL_H) == 0.0


def test_an_interval_that_grows_with_age_counts_as_soon_as_it_is_told() -> None:
    """Half an hour up to the age of one hour, then one hour: saves begin at ages of 40 min and 1 h 46 min."""
    grows = np.array([0.5] * 12 + [1.0])
    assert useful_hours(LOST, grows, STALL_H) == pytest.approx(0.5 + 1.0)
    assert useful_hours(RecordedLife(0.0, 1.7, is_lost=True), grows, STALL_H) == pytest.approx(0.5)


def test_both_ways_to_count_a_fixed_interval_agree() -> None:
    rng = np.random.default_rng(1)
    lives = [RecordedLife(0.0, float(end), bool(end < 20)) for end in rng.exponential(8.0, 60)]
    shares = fixed_shares(lives, STALL_H)
    for number in (60, 160, 220):
        played = play_lives(lives, FIXED_H[number : number + 1], STALL_H)
        assert shares[number] == pytest.approx(played.share, abs=1e-6)


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
