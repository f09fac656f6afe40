"""What interruptions leave of a gang's speed: against lives simulated segment by segment, and its monotonicity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.jobs.goodput import (
    GangRunRisk,
    best_interval_hours,
    billed_share,
    expected_steps_per_hour,
    hours_with_probability,
    on_time_probability,
    on_time_probability_in_turn,
    on_time_steps_per_hour,
    useful_share,
)

Floats = npt.NDArray[np.float64]
SPEED = 100.0
LIVES = 20_000
SPOT = GangRunRisk(SPEED, 0.05, 0.27, 1.6, 0.2, 1.0, 0.02, 0.0, True)
CALM = replace(SPOT, interruptions_per_hour=0.003, interval_hours=2.0)
SURE = replace(SPOT, relative_error=0.0)
WRITES_BESIDE = replace(SPOT, stall_hours=0.0, loss_extra_hours=0.3)
NO_CHECKPOINT = GangRunRisk(SPEED, 0.05, 0.05, 1.6, 0.2, 10.0, 0.0, 0.0, False)
RISKS = {"spot": SPOT, "calm": CALM, "sure": SURE, "beside": WRITES_BESIDE, "none": NO_CHECKPOINT}


def live(risk: GangRunRisk, segments: int, lives: int = LIVES, seed: int = 7) -> tuple[Floats, Floats]:
    """Wall and billed hours of that many segments: a life keeps those whose writes ended before its interruption."""
    rng = np.random.default_rng(seed)
    slowness = 1 + risk.relative_error * rng.standard_normal(lives)
    length = (risk.interval_hours + risk.stall_hours) * slowness
    wall, billed, left = np.zeros(lives), np.zeros(lives), np.full(lives, float(segments))
    trying = np.arange(lives)
    while len(trying):
        until, most = rng.exponential(1 / risk.interruptions_per_hour, len(trying)), left[trying] * length[trying]
        done = until >= most
        ran = np.where(done, most, until + risk.startup_hours)
        billed[trying] += ran
        wall[trying] += ran + np.where(done, 0.0, risk.recovery_hours)
        left[trying] -= np.floor(np.maximum(until - risk.loss_extra_hours, 0.0) / length[trying])
        trying = trying[~done]
    return wall, billed


@pytest.mark.parametrize("name", RISKS)
def test_expected_progress_and_bill_are_those_of_simulated_segments(name: str) -> None:
    risk = replace(RISKS[name], relative_error=0.0)
    wall, billed = live(risk, 20)
    assert risk.interval_hours * 20 / wall.mean() == pytest.approx(useful_share(risk), rel=0.01)
    assert billed.mean() / wall.mean() == pytest.approx(billed_share(risk), rel=0.01)


@pytest.mark.parametrize(
    ("name", "segments", "points"),
    [("spot", 20, 0.01), ("sure", 20, 0.01), ("calm", 12, 0.01), ("beside", 20, 0.02), ("none", 1, 0.03)],
)
def test_finish_times_are_distributed_as_simulated_ones(name: str, segments: int, points: float) -> None:
    """From an even chance to 99 %: the probability is the share of lives that are done by then."""
    risk = RISKS[name]
    wall, _ = live(risk, segments)
    steps = SPEED * risk.interval_hours * segments
    for share in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
        by = float(np.quantile(wall, share))
        assert on_time_probability(risk, steps, by) == pytest.approx(share, abs=points)


def test_two_gangs_in_turn_are_as_simulated() -> None:
    first, second = live(SPOT, 10)[0], live(CALM, 8, seed=8)[0]
    parts = ((SPOT, SPEED * 10.0), (CALM, SPEED * 16.0))
    for share in (0.5, 0.8, 0.95):
        by = float(np.quantile(first + second, share))
        assert on_time_probability_in_turn(parts, by) == pytest.approx(share, abs=0.015)
    assert on_time_probability_in_turn(parts[:1], 20.0) == on_time_probability(SPOT, SPEED * 10.0, 20.0)


rates = st.floats(1e-6, 2.0)
# Within what the planner keeps: e ** (rate x segment) tries for each segment, at most some hundreds.
hours = st.floats(0.0, 5.0)
risks = st.builds(
    GangRunRisk,
    nominal_steps_per_hour=st.floats(0.1, 1e5),
    relative_error=st.floats(0, 0.4),
    interruptions_per_hour=st.floats(1e-6, 0.5),
    recovery_hours=hours,
    startup_hours=st.floats(0, 1),
    interval_hours=st.floats(0.02, 2),
    stall_hours=st.floats(0, 0.5),
    loss_extra_hours=st.floats(0, 0.5),
    resumes=st.just(True),
)


@given(risks)
def test_shares_are_shares(risk: GangRunRisk) -> None:
    assert 0 < useful_share(risk) <= 1
    assert 0 < billed_share(risk) <= 1
    assert useful_share(risk) <= risk.interval_hours / (risk.interval_hours + risk.stall_hours) * (1 + 1e-9)
    assert expected_steps_per_hour(risk) <= risk.nominal_steps_per_hour


@given(risks, st.floats(1.01, 3))
def test_whatever_gets_worse_leaves_less(risk: GangRunRisk, factor: float) -> None:
    share = useful_share(risk) * (1 + 1e-12)
    assert useful_share(replace(risk, interruptions_per_hour=risk.interruptions_per_hour * factor)) <= share
    assert useful_share(replace(risk, recovery_hours=risk.recovery_hours * factor)) <= share
    assert useful_share(replace(risk, startup_hours=risk.startup_hours * factor)) <= share
    assert useful_share(replace(risk, stall_hours=risk.stall_hours * factor)) <= share
    assert useful_share(replace(risk, loss_extra_hours=risk.loss_extra_hours * factor)) <= share


@given(risks, st.floats(1, 300), st.floats(1.0, 3))
def test_more_time_is_never_less_likely_enough(risk: GangRunRisk, compute: float, factor: float) -> None:
    steps = compute * risk.nominal_steps_per_hour
    wall = steps / expected_steps_per_hour(risk)
    early, late = (on_time_probability(risk, steps, wall * by) for by in (1.0, factor))
    assert -1e-9 <= early <= late + 1e-9 <= 1 + 2e-9


@given(risks, st.floats(1, 300), st.floats(0.5, 0.99), st.floats(0.0, 0.009))
def test_more_certainty_takes_more_time(risk: GangRunRisk, compute: float, sure: float, more: float) -> None:
    steps = compute * risk.nominal_steps_per_hour
    shorter = hours_with_probability(risk, steps, sure)
    longer = hours_with_probability(risk, steps, sure + more)
    assert compute / 3 < shorter <= longer * (1 + 1e-6)
    assert on_time_probability(risk, steps, shorter) >= sure
    assert on_time_probability(risk, steps, shorter * (1 - 1e-5)) < sure + 1e-3
    calm, careful = (on_time_steps_per_hour(risk, steps, share) for share in (sure, sure + more))
    assert 0 < careful <= calm * (1 + 1e-6)
    assert calm <= expected_steps_per_hour(risk)


@given(risks, st.floats(10, 300), st.floats(1.5, 4))
def test_interruptions_make_finishing_in_time_less_likely(risk: GangRunRisk, compute: float, factor: float) -> None:
    """Where the chance is a good one: below one half the spread that interruptions add may help."""
    steps = compute * risk.nominal_steps_per_hour
    worse = replace(risk, interruptions_per_hour=risk.interruptions_per_hour * factor)
    wall = hours_with_probability(risk, steps, 0.95)
    assert on_time_probability(worse, steps, wall) <= on_time_probability(risk, steps, wall) + 1e-6


@given(rates, st.floats(0.0, 1.0), st.floats(0.05, 20))
def test_no_other_interval_leaves_more(rate: float, stall: float, factor: float) -> None:
    best = best_interval_hours(rate, stall, 0.0)
    share, other = (
        useful_share(GangRunRisk(1, 0, rate, 1.0, 0.1, interval, stall, 0.0, True))
        for interval in (best, max(best * factor, 1 / 60))
    )
    assert share >= other * (1 - 1e-9)
