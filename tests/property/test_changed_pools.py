"""Gangs that may leave a bad pool for others, beside a simulation of them, life by life."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pricing.hazard import Hazard, HazardShape
from router.jobs.guarded_run import (
    FIGURES,
    GuardedFigures,
    GuardedWork,
    LevelFigures,
    figure_levels,
    figure_weights,
    level_figures,
)
from router.jobs.other_pools import ChangingFigures, ChangingRun, OtherPools, expect_changes
from tests.support.guarded_runs import simulate_guarded_runs

DRAWS = 6_000
ALONE = GuardedWork(24.0, 0.0, 0.2, 1.5, 0.25, 0.0)
BEHIND = replace(ALONE, fallback_ratio=1.0, fallback_start=0.3)
HAZARDS = {
    "as at Google": Hazard.lognormal(HazardShape.FALLING, 0.8, 0.78),
    "hardly known": Hazard.lognormal(HazardShape.FALLING, 0.4, 1.5),
    "often": Hazard.lognormal(HazardShape.FALLING, 1.5, 0.8),
    "alike but for the pool": Hazard.lognormal(HazardShape.FALLING, 1.0, 0.45),
}
WINDOWS = np.array([26.0, 32.0, 48.0, 96.0, 240.0, 960.0])
ABOVE = (0.5, 1.0, 1.5, 2.5, 4.0, math.inf)
LONGEST = 2160.0
ALIKE = OtherPools(1.0, 0.0)


def figures_of(run: GuardedWork, hazard: Hazard, windows: np.ndarray) -> LevelFigures:
    return level_figures(run, hazard.shape, figure_levels(hazard), windows)


def changing(figures: LevelFigures, hazard: Hazard, ratio: float | None, others: OtherPools | None) -> ChangingFigures:
    (found,) = expect_changes([ChangingRun(figures, hazard, ratio, others)])
    return found


def usd(figures: GuardedFigures, ratio: float) -> np.ndarray:
    return np.asarray(figures.spot + ratio * figures.fallback)


@pytest.mark.parametrize("hazard", HAZARDS.values(), ids=HAZARDS)
@pytest.mark.parametrize("work", [8.0, 24.0, 100.0])
def test_without_a_deadline_it_costs_what_the_best_rule_to_leave_does(hazard: Hazard, work: float) -> None:
    """The rule is a level above which the gang leaves; the simulation tries several. No run counts beyond 90 days."""
    found = changing(figures_of(replace(ALONE, work=work), hazard, np.array([LONGEST])), hazard, None, ALIKE)
    run = replace(BEHIND, work=work)
    played = min(
        simulate_guarded_runs(run, hazard, LONGEST, DRAWS, 1, change_above=above).spot.mean() for above in ABOVE[:-1]
    )
    assert float(found.figures.spot[0]) == pytest.approx(played, rel=0.06)


@pytest.mark.parametrize("hazard", HAZARDS.values(), ids=HAZARDS)
@pytest.mark.parametrize("ratio", [1.5, 3.0, 6.0])
def test_with_a_deadline_it_is_never_said_to_be_cheaper_than_it_is(hazard: Hazard, ratio: float) -> None:
    figures = figures_of(BEHIND, hazard, WINDOWS)
    said = usd(changing(figures, hazard, ratio, ALIKE).figures, ratio)
    staying = usd(figures.expect(hazard, ratio), ratio)
    assert (said <= staying + 1e-9).all()
    assert (np.diff(said) <= 1e-9).all()
    for at in (1, 3, 5):
        window, found, stays = WINDOWS[at], said[at], staying[at]
        runs = [simulate_guarded_runs(BEHIND, hazard, window, DRAWS, 1, change_above=above) for above in ABOVE]
        played = min(run.usd(1.0, ratio) for run in runs)
        # The simulated rules neither bridge nor go on demand before they must.
        assert min(played, stays) * 0.92 <= found <= played * 1.15


@pytest.mark.parametrize("price_ratio", [1.2, 2.0, 5.0])
def test_dearer_pools_are_gone_to_less(price_ratio: float) -> None:
    hazard = HAZARDS["hardly known"]
    figures = figures_of(BEHIND, hazard, WINDOWS)
    alike, dearer = (changing(figures, hazard, 4.0, others) for others in (ALIKE, OtherPools(price_ratio, 3.0)))
    staying = usd(figures.expect(hazard, 4.0), 4.0)
    assert (dearer.changes <= alike.changes).all()
    assert (usd(alike.figures, 4.0) <= usd(dearer.figures, 4.0)).all()
    assert (usd(dearer.figures, 4.0) <= staying + 1e-9).all()
    assert (dearer.figures.elapsed >= dearer.figures.spot).all()


@pytest.mark.parametrize("hazard", HAZARDS.values(), ids=HAZARDS)
@pytest.mark.parametrize("work", [8.0, 24.0])
def test_how_often_it_leaves_and_is_interrupted(hazard: Hazard, work: float) -> None:
    """The table's probability of three interruptions before the end is that of single lives; no more runs leave."""
    run = replace(ALONE, work=work)
    figures = figures_of(run, hazard, np.array([LONGEST]))
    found = changing(figures, hazard, None, ALIKE)
    three = simulate_guarded_runs(replace(run, fallback_ratio=1.0), hazard, LONGEST, DRAWS, 1).interruptions >= 3
    assert float(found.changes[0]) <= three.mean() + 0.03
    assert float(figures.not_done @ figure_weights(hazard)) == pytest.approx(three.mean(), abs=0.04)


def test_a_known_level_is_never_left() -> None:
    """Another pool brings nothing that all are known to have."""
    hazard = Hazard.known(0.24)
    found = changing(figures_of(BEHIND, hazard, WINDOWS), hazard, 3.0, ALIKE)
    assert not found.changes[1:].any()


def test_gangs_expected_together_cost_what_each_does_alone() -> None:
    """With and without a fallback and a deadline, in pools of three kinds, some with the same figures."""
    runs = []
    for hazard in HAZARDS.values():
        behind, alone = figures_of(BEHIND, hazard, WINDOWS), figures_of(ALONE, hazard, np.array([LONGEST]))
        runs += [ChangingRun(behind, hazard, ratio, OtherPools(ratio - 1, ratio)) for ratio in (2.0, 3.0, 6.0)]
        runs += [ChangingRun(alone, hazard, None, ALIKE), ChangingRun(behind, hazard, 3.0, None)]
    for run, together in zip(runs, expect_changes(runs), strict=True):
        by_itself = changing(run.figures, run.hazard, run.price_ratio, run.others)
        np.testing.assert_array_equal(together.changes, by_itself.changes)
        for name in FIGURES:
            np.testing.assert_array_equal(getattr(together.figures, name), getattr(by_itself.figures, name))
            np.testing.assert_array_equal(getattr(together.staying, name), getattr(by_itself.staying, name))
