"""The renewal tables of guarded runs beside a simulation of them, life by life."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pricing.hazard import LEVELS, Hazard, HazardShape
from router.jobs.guarded_run import (
    BRIDGED_SHARES,
    GuardedFigures,
    GuardedWork,
    aged_figures,
    figure_levels,
    in_time_by_speed,
    level_figures,
    started_figures,
)
from router.jobs.interruption_sums import LEAVE_AFTER
from router.jobs.renewals import COUNTS, kept_work
from tests.support.guarded_runs import SimulatedRuns, simulate_guarded_runs

DRAWS = 40_000
A_DAY = GuardedWork(24.0, 0.0, 0.2, 1.5, 0.25, 0.0, 1.0, 0.3)
H100_AWS = Hazard.lognormal(HazardShape.FALLING, 0.2, 1.08)
H100_GCP = Hazard.lognormal(HazardShape.FALLING, 0.8, 0.78)
V100_AWS = Hazard.lognormal(HazardShape.FALLING, 1.0, 0.8)
STATED = Hazard.known(0.24)

CASES = [
    ("p5, due in 30 h", A_DAY, H100_AWS, 30.0, 30.0, 55.0),
    ("H100 at Google", A_DAY, H100_GCP, 30.0, 20.0, 88.0),
    ("V100 for two days", replace(A_DAY, work=47.6), V100_AWS, 60.0, 4.2, 19.8),
    ("tight", A_DAY, H100_GCP, 26.0, 20.0, 88.0),
    ("ten days", replace(A_DAY, work=240.0), H100_GCP, 300.0, 20.0, 88.0),
    (
        "three hours",
        replace(A_DAY, work=3.0, loss=0.1),
        Hazard.lognormal(HazardShape.FALLING, 0.2, 0.5),
        6.0,
        20.0,
        80.0,
    ),
    ("stated", A_DAY, STATED, 40.0, 30.0, 55.0),
    ("a band of Azure", A_DAY, Hazard.lognormal(HazardShape.CONSTANT, 0.13, 0.7), 36.0, 20.0, 60.0),
    ("speed unsure", replace(A_DAY, relative_error=0.15), H100_AWS, 40.0, 30.0, 55.0),
]
BRIDGED = [case for case in CASES if case[0] in {"H100 at Google", "V100 for two days", "tight", "stated"}]


def assert_near(
    found: GuardedFigures, played: SimulatedRuns, spot: float, on_demand: float, *, rel: float, points: float
) -> None:
    """Assert that cost and need of the fallback are those of the simulation."""
    usd = float(found.spot[0]) * spot + float(found.fallback[0]) * on_demand
    assert usd == pytest.approx(played.usd(spot, on_demand), rel=rel)
    assert float(found.fallback_probability[0]) == pytest.approx(played.needed.mean(), abs=points)
    last_moment, was = float(found.last_moment_probability[0]), float(played.last_moment.mean())
    # A few runs that have some time left count, too: the promise is the smaller for it.
    assert was - max(points, 0.03) <= last_moment <= was + 0.1


@pytest.mark.parametrize(
    ("run", "hazard", "window", "spot", "on_demand"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_cost_within_two_per_cent_and_probability_within_a_point(
    run: GuardedWork, hazard: Hazard, window: float, spot: float, on_demand: float
) -> None:
    found = level_figures(run, hazard.shape, figure_levels(hazard), np.array([window])).expect_variant(hazard, 0)
    played = simulate_guarded_runs(run, hazard, window, DRAWS, 1)
    assert_near(found, played, spot, on_demand, rel=0.02, points=0.01)


@pytest.mark.parametrize(
    ("run", "hazard", "window", "spot", "on_demand"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_who_leaves_the_pool_early_has_time_to_lose_the_fallback(
    run: GuardedWork, hazard: Hazard, window: float, spot: float, on_demand: float
) -> None:
    figures = level_figures(run, hazard.shape, figure_levels(hazard), np.array([window]))
    played = simulate_guarded_runs(run, hazard, window, DRAWS, 1, leave_after=LEAVE_AFTER)
    assert_near(figures.expect_variant(hazard, 1), played, spot, on_demand, rel=0.02, points=0.02)


@pytest.mark.parametrize("share", BRIDGED_SHARES)
@pytest.mark.parametrize(
    ("run", "hazard", "window", "spot", "on_demand"), [c[1:] for c in BRIDGED], ids=[c[0] for c in BRIDGED]
)
def test_cost_of_bridging(
    share: float, run: GuardedWork, hazard: Hazard, window: float, spot: float, on_demand: float
) -> None:
    """It is counted in means, which is less exact."""
    figures = level_figures(run, hazard.shape, figure_levels(hazard), np.array([window]))
    found = figures.expect_variant(hazard, 2 + BRIDGED_SHARES.index(share))
    played = simulate_guarded_runs(run, hazard, window, DRAWS, 1, share)
    assert_near(found, played, spot, on_demand, rel=0.03, points=0.02)


@pytest.mark.parametrize("age", [3.0, 24.0])
@pytest.mark.parametrize(
    ("run", "hazard", "window", "spot", "on_demand"),
    [c[1:] for c in CASES if c[2].shape is HazardShape.FALLING],
    ids=[c[0] for c in CASES if c[2].shape is HazardShape.FALLING],
)
def test_a_gang_that_has_lived_long(
    age: float, run: GuardedWork, hazard: Hazard, window: float, spot: float, on_demand: float
) -> None:
    figures = aged_figures(run, hazard.shape, figure_levels(hazard), np.array([window]), age)
    found = figures.expect_variant(hazard, 0)
    played = simulate_guarded_runs(run, hazard, window, DRAWS, 1, age=age)
    assert_near(found, played, spot, on_demand, rel=0.03, points=0.02)


@pytest.mark.parametrize(
    ("run", "hazard", "window", "spot", "on_demand"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_pool_that_may_have_no_machines_at_the_start(
    run: GuardedWork, hazard: Hazard, window: float, spot: float, on_demand: float
) -> None:
    """Three points stand for what is left of a wait, which is less exact."""
    (figures,) = started_figures([(run, np.array([window]))], hazard.shape, figure_levels(hazard))
    found = figures.expect_variant(hazard, 0)
    played = simulate_guarded_runs(run, hazard, window, DRAWS // 4, 1, at_any_moment=True)
    assert_near(found, played, spot, on_demand, rel=0.03, points=0.03)


def test_a_wider_window_costs_less_and_falls_back_less() -> None:
    found = level_figures(A_DAY, H100_GCP.shape, figure_levels(H100_GCP), np.array([25.0, 28.0, 36.0, 60.0, 200.0]))
    expected = found.expect(H100_GCP, 4.4)
    assert (np.diff(expected.fallback) < 0).all()
    assert (np.diff(expected.fallback_probability) < 0).all()
    assert (np.diff(expected.spot * 20 + expected.fallback * 88) < 0).all()


def test_without_time_to_lose_all_is_on_the_fallback() -> None:
    found = level_figures(A_DAY, H100_GCP.shape, figure_levels(H100_GCP), np.array([A_DAY.least_window - 0.1])).expect(
        H100_GCP, 4
    )
    assert float(found.fallback[0]) == pytest.approx(24.3, rel=1e-6)
    assert float(found.spot[0]) == pytest.approx(0.0, abs=1e-9)


def test_a_pool_dearer_than_the_fallback_is_left_after_three_interruptions() -> None:
    """At a level of 16 hardly any life outlasts its start-up."""
    hazard = Hazard(HazardShape.FALLING, LEVELS, tuple(float(level == LEVELS[-3]) for level in LEVELS))
    found = level_figures(A_DAY, hazard.shape, figure_levels(hazard), np.array([200.0]))
    left, stayed = found.expect(hazard, 2.0), found.expect_variant(hazard, 0)
    assert float(left.interruptions[0]) == pytest.approx(LEAVE_AFTER, abs=0.05)
    assert float(left.fallback_probability[0]) == pytest.approx(1.0, abs=1e-6)
    assert float(stayed.interruptions[0]) > 20 * LEAVE_AFTER


@pytest.mark.parametrize("hazard", [H100_GCP, STATED], ids=["H100 at Google", "stated"])
def test_runs_computed_together_have_the_figures_of_each_alone(hazard: Hazard) -> None:
    """Runs of other lengths, windows and waits, with a fallback and without, at unsure speed, and one of them twice."""
    runs = [
        (A_DAY, np.array([25.0, 30.0, 200.0])),
        (replace(A_DAY, work=240.0, recovery=0.5, relative_error=0.2), np.array([200.0, 300.0])),
        (replace(A_DAY, fallback_ratio=0.5), np.array([25.0, 30.0, 200.0])),
        (replace(A_DAY, fallback_ratio=None, fallback_start=0.0), np.array([2160.0])),
        (replace(A_DAY, relative_error=0.2), np.array([math.inf])),
        (replace(A_DAY, work=3.0, recovery=0.0), np.array([6.0])),
        (replace(A_DAY, work=0.5, restart=0.0, loss=0.0), np.array([0.8, 0.81, 0.9])),
    ]
    levels = figure_levels(hazard)
    for run, together in zip(runs, started_figures(runs, hazard.shape, levels), strict=True):
        (alone,) = started_figures([run], hazard.shape, levels)
        for name in ("variants", "remaining_share", "not_done", "hits", "delay"):
            np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))


@pytest.mark.parametrize(("level", "work", "waste"), [(0.2, 24, 0.45), (0.9, 3, 0.3), (0.9, 200, 1.0), (2.2, 24, 0.45)])
def test_kept_work_against_drawn_lives(level: float, work: float, waste: float) -> None:
    i = min(range(len(LEVELS[::2])), key=lambda k: abs(math.log(LEVELS[2 * k] / level)))
    kept = kept_work(HazardShape.FALLING, np.array(LEVELS[::2]), work, waste)
    lives = 0.6 * (np.random.default_rng(2).random((20_000, 20)) ** (-1 / LEVELS[2 * i]) - 1)
    done = np.maximum(lives - waste, 0).cumsum(axis=1)
    for count in (1, 3, 8, 20):
        n = list(COUNTS).index(count)
        assert kept.not_done[i, n] == pytest.approx((done[:, count - 1] < work).mean(), abs=0.015)
        assert kept.remaining_share[i, n] == pytest.approx(
            np.maximum(work - done[:, count - 1], 0).mean() / work, abs=0.015
        )


def test_the_speed_decides_whether_even_the_fallback_is_in_time() -> None:
    unsure = replace(A_DAY, relative_error=0.1)
    sure = in_time_by_speed(unsure, np.array([A_DAY.least_window, 24.3 + 24 * 0.1 * 1.6449]))
    assert sure.tolist() == [pytest.approx(0.5), pytest.approx(0.95, abs=1e-3)]
