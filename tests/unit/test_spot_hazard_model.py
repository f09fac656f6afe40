"""The hazard model is fitted to past availability, and simulates availability from its hazards."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.availability.hazard_model import (
    AGES_H,
    CLASSES,
    DRIFT,
    SWING,
    SWING_H,
    HazardModel,
    ScarcityProcess,
    ZoneStates,
    advance_states,
    age_class,
    simulate_availability,
)
from router.spot.simulator.traces import Bools, Floats, Series, ZoneSeries
from tests.support.spot_windows import known_hazards

LOST, BACK = np.array([0.2, 0.8]), np.array([0.5, 0.1])


def availability(ticks: int, tick_s: int, lost: Floats = LOST, back: Floats = BACK) -> Bools:
    """[zone, tick] of hazards that do not change."""
    outlook = known_hazards(lost, back, 1.0)
    sky = outlook.usual(1, np.random.default_rng(1))
    return np.asarray(simulate_availability(outlook.mean()[None], sky, ticks, tick_s, np.random.default_rng(2))[0])


@pytest.mark.parametrize("tick_s", [60, 600])
def test_hazards_are_found_again_whatever_the_tick(tick_s: int) -> None:
    """Within four standard deviations of what is left unsure; a tick sees one change at most, which hides some."""
    found = HazardModel.seen(availability(1000 * 3600 // tick_s, tick_s), tick_s)
    for up, rate in ((1, LOST), (0, BACK)):
        unsure = found.mean()[:, up] / np.sqrt(found.events[:, up])
        hidden = rate[:, None] * (LOST + BACK)[:, None] * tick_s / 3600
        assert (np.abs(found.mean()[:, up] - rate[:, None]) < 4 * unsure + hidden).all()


def test_a_zone_where_nothing_happened_is_taken_to_be_like_the_others() -> None:
    up = np.concatenate([availability(5000, 600), np.ones((1, 100), bool).repeat(50, 1)])
    alone, among = HazardModel.seen(up[2:], 600), HazardModel.seen(up, 600).only(np.array([2]))
    assert (among.mean()[0, 1] < alone.mean()[0, 1] * 2).all()
    back = HazardModel.seen(up, 600).mean()[:, 0]
    assert (among.mean()[0, 0] > back[:2].min(axis=0)).all()
    assert (among.mean()[0, 0] < back[:2].max(axis=0)).all()
    assert (among.events[0, 0] == 0.5).all()


def test_of_a_series_is_of_its_gang() -> None:
    counts = np.array([2, 2, 1, 1, 2, 0, 2, 2])
    series = Series(600, (ZoneSeries("a", "r", counts, np.ones(8), 3.0),))
    for size in (1, 2):
        assert (HazardModel.of(series, size).events == HazardModel.seen(counts[None] >= size, 600).events).all()


def test_draws_are_as_wide_as_said() -> None:
    outlook = known_hazards(LOST, BACK, 1e8)
    drawn = np.log(outlook.draw(20_000, np.random.default_rng(3)) / outlook.mean())
    assert drawn.std(axis=0) == pytest.approx(DRIFT, rel=0.03)
    one, other = drawn[:, 0, 1, 0], drawn[:, 1, 1, 0]
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(0.5, abs=0.03)
    few = known_hazards(LOST, BACK, 40.0, drift=0.0)
    assert few.draw(20_000, np.random.default_rng(4)).std(axis=0) == pytest.approx(np.sqrt(few.events) / 40, rel=0.03)


def test_after_a_long_while_it_is_up_for_the_share_of_time_that_it_should_be() -> None:
    outlook = known_hazards(LOST, BACK, 1.0)
    sky = outlook.usual(20_000, np.random.default_rng(5))
    gone, back = -np.expm1(-LOST), -np.expm1(-BACK)
    assert sky.up.mean(axis=0) == pytest.approx(back / (back + gone), abs=0.015)
    fine = simulate_availability(
        outlook.mean()[None].repeat(200, 0),
        ZoneStates(sky.up[:200], sky.age_h[:200]),
        3000,
        60,
        np.random.default_rng(6),
    )
    assert fine[..., 1000:].mean(axis=(0, 2)) == pytest.approx(BACK / (BACK + LOST), abs=0.03)


def test_ages() -> None:
    assert age_class(np.array([0.1, *AGES_H, 100.0])).tolist() == [0, 0, 1, 2, CLASSES - 1]
    sky = ZoneStates(np.array([True, True]), np.array([3.0, 3.0]))
    kept = sky.copy()
    sky.pass_on(np.array([True, False]), 0.5)
    assert sky.age_h.tolist() == [3.5, 0.5]
    assert (kept.up.tolist(), kept.age_h.tolist()) == ([True, True], [3.0, 3.0])


def test_old_spot_may_live_longer_than_young() -> None:
    """Hazards that depend on age are told apart."""
    hazards = np.full((1, 1, 2, CLASSES), 0.5)
    hazards[0, 0, 1] = (1.0, 0.5, 0.2, 0.05)
    sky = ZoneStates(np.ones((1, 1), bool), np.ones((1, 1)))
    up = simulate_availability(hazards, sky, 60_000, 600, np.random.default_rng(7))[0]
    assert HazardModel.seen(up, 600).mean()[0, 1] == pytest.approx(hazards[0, 0, 1], rel=0.15)


def test_scarcity_is_as_wide_as_said_forgets_and_is_shared() -> None:
    rng, sd = np.random.default_rng(8), SWING
    swings = ScarcityProcess.begin(np.array([0, 0, 1]), 30_000, rng)
    first = swings.step(0.0, rng)
    later = swings.step(SWING_H, rng)
    assert first.std(axis=0) == pytest.approx(sd, rel=0.03)
    assert later.std(axis=0) == pytest.approx(sd, rel=0.03)
    assert np.corrcoef(first[:, 0], later[:, 0])[0, 1] == pytest.approx(np.exp(-1), abs=0.03)
    together = np.asarray(np.corrcoef(later.T))
    assert (together[0, 1], together[0, 2]) == (pytest.approx(1), pytest.approx(0, abs=0.03))


def test_scarcity_takes_more_and_brings_back_less() -> None:
    hazards = np.full((40_000, 1, 2, CLASSES), 0.2)
    for up in (True, False):
        changed = []
        for scarce in (0.0, 1.0):
            sky = ZoneStates(np.full((40_000, 1), up), np.ones((40_000, 1)))
            advance_states(hazards, sky, 0.1, np.random.default_rng(9), np.full((40_000, 1), scarce))
            changed.append((sky.up != up).mean())
        assert changed[1] / changed[0] == pytest.approx(np.exp(1 if up else -1), rel=0.15)
