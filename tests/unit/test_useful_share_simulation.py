"""The useful share against gangs simulated event by event, and the interval against the best that a search finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from router.jobs.goodput import best_interval_hours
from tests.support.checkpointed_gangs import Floats, SavingGang, simulate_lives
from tests.support.share_grid import LOADS, STALLS, WRITES, compare_shares, gangs_of

POINTS = 1.0
FACTORS = np.exp(np.linspace(-4, 4, 8001))


def test_one_life_is_as_counted_by_hand() -> None:
    """Lives of 2.5 h at most: the quantiles of the lifetimes are known, and the work they keep with them."""
    gang = SavingGang(1.0, 1.0, 0.25, 0.5, wait=1.0)
    lives = 4000
    ends = -np.log1p(-(np.arange(lives) + 0.5) / lives)
    saves = np.floor(np.maximum(ends - 0.5, 0) / 1.25)
    simulated = simulate_lives((gang,), lives, seed=1)
    assert simulated.saves[0] == pytest.approx(saves.sum(), rel=0.01)
    assert simulated.kept[0] == simulated.saves[0] * gang.interval
    assert simulated.wall[0] == pytest.approx(ends.sum() + lives, rel=0.01)


def test_a_save_waits_for_the_write_before_it() -> None:
    """Saves that are due every hour and take three to write are done every three hours."""
    often, seldom = SavingGang(0.05, 1.0, 0.0, 3.0, 0.0), SavingGang(0.05, 3.0, 0.0, 3.0, 0.0)
    kept = simulate_lives((often,), 1000, seed=2).kept, simulate_lives((seldom,), 1000, seed=2).kept
    assert kept[0] == pytest.approx(kept[1], rel=0.01)  # the first save of each life is early


def test_a_restart_that_is_hit_begins_anew() -> None:
    gang = SavingGang(1.0, 1.0, 0.0, 0.0, wait=0.5, startup=0.5)
    calm, hit = (simulate_lives((gang,), 20_000, seed=3, restart_is_hit=hit).wall[0] / 20_000 for hit in (False, True))
    assert calm == pytest.approx(2.0, rel=0.01)
    assert hit == pytest.approx(math.exp(0.5) * 1.5, rel=0.02)


def test_the_share_is_that_of_simulated_gangs() -> None:
    found = compare_shares(gangs_of((0.03, 0.3, 1.0), (0.0, 0.1), (0.0, 0.5)), lives=1500)
    assert max(abs(c.points) for c in found) < POINTS / 2


@pytest.mark.slow
def test_the_share_is_that_of_simulated_gangs_over_the_grid() -> None:
    found = compare_shares(gangs_of(LOADS, STALLS, WRITES), lives=2000)
    assert max(abs(c.points) for c in found) < POINTS


@pytest.mark.parametrize("rate", [1e-4, 1e-3, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("stall", [0.001, 0.01, 0.1, 0.5])
def test_the_interval_costs_as_little_as_the_best_that_a_search_finds(rate: float, stall: float) -> None:
    """The cost of a step is in proportion to expm1(λ(τ + δ)) / τ; a search of 8,001 intervals knows no formula."""

    def cost(hours: Floats) -> Floats:
        per_hour: Floats = np.expm1(rate * (hours + stall)) / hours
        return per_hour

    young = math.sqrt(2 * stall / rate)
    searched = np.maximum(young * FACTORS, 1 / 60)
    assert float(cost(np.array(best_interval_hours(rate, stall, 0.0)))) <= float(cost(searched).min()) * 1.005


def test_the_interval_is_the_best_of_simulated_gangs() -> None:
    """The same lives under eleven intervals: none does better than the chosen one by half a percent."""
    rate, stall = 0.2, 0.05
    best = best_interval_hours(rate, stall, 0.0)
    around = (1.0, 0.4, 0.55, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0)
    gangs = tuple(SavingGang(rate, best * factor, stall, 0.0, 1.0) for factor in around)
    shares = simulate_lives(gangs, 6000, seed=5).useful_share
    assert shares[0] >= shares.max() * 0.995
    assert shares[0] > shares[1] * 1.01
