"""Foresight of one job: waits where that pays, does not where there is no time or spot was seen not to come back, moves
for what is left; fits are remembered and the same after a restart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.jobs.pool_waits import return_rates
from router.spot.availability.hazard_model import AGES_H, CLASSES, LossRates
from router.spot.availability.observed import PoolObservation
from router.spot.live import foresight_cache
from router.spot.live.foresight_cache import build_hazard_model
from router.spot.live.selection import build_named_policy
from router.spot.policies import Rule
from router.spot.policies.interface import (
    AvailabilityAnswer,
    AvailabilityEstimate,
    CurrentPlacement,
    MoveDecision,
    Observation,
    PastAttempt,
    PlacementOption,
    Policy,
    PolicyEvent,
    PolicyZone,
    SpotPoolKey,
    StayDecision,
    WaitDecision,
)
from router.spot.policies.registry import find_no_observations
from router.spot.simulator.inputs import SimulationSpec, Task, ZoneMoveCosts
from tests.support.narrowed import typed

BEGAN = datetime(2026, 11, 21, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WORK_H = 10.0
SPREAD = 0.5
RULES = (Rule.FORESIGHT, Rule.GREEDY, Rule.UNIFORM_PROGRESS)


def pool(name: str) -> SpotPoolKey:
    return ("aws", "north-1", name, "p9")


def spot(name: str, usd: str, *, left: float = WORK_H, back: float = 1.0, lost: float = 0.02) -> PlacementOption:
    rate = UsdPerHour.parse(usd)
    return PlacementOption(
        name,
        Market.SPOT,
        rate,
        left * 1.2,
        0.1,
        Usd(round(rate.nanos * left)),
        losses=LossRates.flat(lost, SPREAD),
        site="x",
        region="north-1",
        chances=AvailabilityEstimate(left, 0.1, (pool(name),), back),
    )


def sure(usd: str = "10", *, left: float = WORK_H) -> PlacementOption:
    rate = UsdPerHour.parse(usd)
    return PlacementOption(
        "od",
        Market.ON_DEMAND,
        rate,
        left,
        0.1,
        Usd(round(rate.nanos * left)),
        site="x",
        region="north-1",
        chances=AvailabilityEstimate(left),
    )


def seen(
    *places: PlacementOption, passed: timedelta, hours: float, closed: tuple[PlacementOption, ...] = ()
) -> Observation:
    """Nothing is done yet. What is closed said no half a minute ago."""
    now = BEGAN + passed
    no = tuple(AvailabilityAnswer(place.key, now - MINUTE / 2, up=False) for place in closed)
    return Observation(
        now, BEGAN + hours * HOUR, 5 * MINUTE, PolicyEvent.TICK, None, places, closed=closed, began=BEGAN, answers=no
    )


def running(here: PlacementOption, *others: PlacementOption, share: float) -> Observation:
    """On spot for half an hour, on time, two hours of slack; ``share`` of the work left."""
    now, deadline = BEGAN + WORK_H * (1 - share) * HOUR, BEGAN + (WORK_H + 2) * HOUR
    life = PastAttempt(here.key, now - HOUR / 2, now - HOUR / 2, None, False, share, share)
    return Observation(
        now,
        deadline,
        5 * MINUTE,
        PolicyEvent.TICK,
        CurrentPlacement(here, saved=True),
        others,
        began=BEGAN,
        share=share,
        lives=(life,),
        answers=(AvailabilityAnswer(here.key, now - HOUR / 2, up=True),),
    )


def named(rule: Rule = Rule.FORESIGHT) -> Policy:
    return build_named_policy(rule)


def test_it_waits_for_cheap_spot_with_much_slack_and_does_not_with_little() -> None:
    """Spot at a tenth of the price is back within an hour and stays two days. An hour has passed: who counts progress
    is behind a straight line and pays for on-demand."""
    cheap = spot("a", "1")
    much = seen(sure(), passed=HOUR, hours=20, closed=(cheap,))
    found = {rule: named(rule).decide(much) for rule in RULES}
    assert isinstance(found[Rule.FORESIGHT], WaitDecision)
    assert isinstance(found[Rule.GREEDY], MoveDecision)
    assert isinstance(found[Rule.UNIFORM_PROGRESS], MoveDecision)
    little = replace(much, deadline=BEGAN + 11.5 * HOUR)
    goes = typed(MoveDecision, named().decide(little))
    assert goes.to == ("od",)


def short_lived(pools: Collection[SpotPoolKey]) -> Mapping[SpotPoolKey, PoolObservation]:
    """Zone "a" was watched for weeks: spot there is lost after a quarter of an hour, and back after as much."""
    events, hours = np.full((2, CLASSES), 400.0), np.full((2, CLASSES), 100.0)
    return {name: PoolObservation(events, hours, True, 0.1, BEGAN, BEGAN) for name in pools if name == pool("a")}


def test_what_was_watched_counts() -> None:
    """By the prior the cheapest is best; where spot was seen to be lost each time it is not tried."""
    o = seen(spot("a", "1"), spot("b", "1.1"), sure(), passed=HOUR, hours=12)
    prior = typed(MoveDecision, build_named_policy(Rule.FORESIGHT, watched=find_no_observations).decide(o))
    assert prior.to[0] == "a"
    known = typed(MoveDecision, build_named_policy(Rule.FORESIGHT, watched=short_lived).decide(o))
    assert "b" in known.to
    assert known.to[0] != "a"


@pytest.mark.parametrize(("share", "moves"), [(0.8, True), (0.02, False)])
def test_it_moves_to_the_cheap_zone_where_that_pays_within_what_is_left(share: float, moves: bool) -> None:
    """A launch takes twelve minutes: of the job's last twelve a quarter off the price saves nothing."""
    left = WORK_H * share
    dear, cheap = spot("b", "4", left=left), spot("a", "3", left=left)
    o = running(dear, cheap, sure(left=left), share=share)
    found = {rule: named(rule).decide(o) for rule in RULES}
    assert isinstance(found[Rule.GREEDY], StayDecision)
    assert isinstance(found[Rule.UNIFORM_PROGRESS], StayDecision)
    move = found[Rule.FORESIGHT]
    assert isinstance(move, MoveDecision) is moves
    if isinstance(move, MoveDecision):
        assert move.to == ("a",)


@pytest.mark.parametrize(("there", "moves"), [("16.6", False), ("12", True)])
def test_two_prices_are_compared_as_they_are(there: str, moves: bool) -> None:
    """Of two digits both 17.45 and 16.6 are 17, and what is paid here looks dearer than what it was fitted for."""
    left = WORK_H * 0.8
    o = running(spot("b", "17.45", left=left), spot("a", there, left=left), sure("40", left=left), share=0.8)
    assert isinstance(named().decide(o), MoveDecision) is moves


@given(st.lists(st.floats(1e-3, 1e4), min_size=2, max_size=2), st.floats(0.01, 1e3), st.floats(0.05, 20.0))
def test_what_is_fitted_is_what_is_asked_for(usd: list[float], egress: float, speed: float) -> None:
    prices = [UsdPerHour.parse(f"{value:.9f}") for value in usd]
    places = [replace(spot(name, "1"), usd_per_hour=price) for name, price in zip("ab", prices, strict=True)]
    away = np.array([[0.0, egress], [egress, 0.0]])
    terms = SimulationSpec(
        Task(36_000, 72_000, 360),
        300,
        np.zeros(1, dtype=np.int64),
        ("a", "b"),
        ("x", "y"),
        ZoneMoveCosts(away, np.zeros((2, 2), dtype=np.int64)),
        np.array([usd[0], np.inf]),
        np.array([1.0, speed]),
        np.zeros(2, dtype=np.int64),
    )
    sites = [PolicyZone(place, None) for place in places]
    case = foresight_cache._fit_key(terms, sites, build_hazard_model(sites, find_no_observations))
    np.testing.assert_allclose(case.spot_usd, [price.dollars() for price in prices], rtol=1e-4)
    np.testing.assert_allclose(case.speed, [1.0, speed], rtol=1e-4)
    np.testing.assert_allclose(case.egress_usd, away.ravel(), rtol=1e-4)
    assert case.on_demand_usd == (usd[0], np.inf)


def test_where_nothing_is_sold_on_demand_any_spot_is_taken() -> None:
    found = typed(MoveDecision, named().decide(seen(spot("b", "2"), spot("a", "1"), passed=HOUR, hours=20)))
    assert found.to == ("a", "b")


def test_fits_are_remembered_and_the_same_after_a_restart() -> None:
    much = seen(spot("b", "5"), sure(), passed=HOUR, hours=20, closed=(spot("a", "1"),))
    foresight_cache._cached_fit.cache_clear()
    first = named().decide(much)
    later = replace(much, now=much.now + 10 * MINUTE, share=0.99)
    named().decide(later)
    dearer = replace(later, closed=(spot("a", "1.000001"),))
    named().decide(dearer)
    assert (foresight_cache._cached_fit.cache_info().misses, foresight_cache._cached_fit.cache_info().hits) == (1, 2)
    foresight_cache._cached_fit.cache_clear()
    assert named().decide(much) == first


def test_the_outlook_is_the_prior_and_what_was_seen() -> None:
    two = replace(spot("c", "1"), chances=AvailabilityEstimate(1.0, 0.1, (pool("c"), pool("d")), 4.0))
    sites = [PolicyZone(spot("a", "1", back=2.0, lost=0.1), None), PolicyZone(None, sure()), PolicyZone(two, None)]
    asked: list[SpotPoolKey] = []

    def watched(pools: Collection[SpotPoolKey]) -> Mapping[SpotPoolKey, PoolObservation]:
        asked.extend(pools)
        return short_lived(pools)

    alone, known = build_hazard_model(sites, find_no_observations), build_hazard_model(sites, watched)
    assert asked == [pool("a")]
    back = [return_rates((0.0, *AGES_H), hours)[0] for hours in (2.0, 4.0)]
    np.testing.assert_allclose(alone.mean()[:, :, 0], [[back[0], 0.1], [1e-6, 1.0], [back[1], 0.02]])
    np.testing.assert_allclose(known.mean()[0], 4.0, rtol=0.01)
    np.testing.assert_array_equal(known.events[1:], alone.events[1:])
    assert alone.spread == (SPREAD, 0.0, SPREAD)
    assert known.spread[0] < 0.1
    assert known.spread[1:] == alone.spread[1:]
    bare = PolicyZone(replace(two, chances=None), None)
    np.testing.assert_allclose(build_hazard_model([bare], watched).mean()[0, 0], return_rates((0.0, *AGES_H), 1.0))


def test_losses_that_rest_on_the_history_of_the_pool_are_not_counted_twice() -> None:
    """The watched pools still say when spot is back."""
    site = PolicyZone(replace(spot("a", "1", back=2.0, lost=0.1), knows_losses=True), None)
    found = build_hazard_model([site], short_lived)
    np.testing.assert_allclose(found.mean()[0, 1], 0.1)
    np.testing.assert_allclose(found.mean()[0, 0], 4.0, rtol=0.01)
    assert found.spread == (SPREAD,)


def test_a_fit_depends_on_how_sure_losses_are() -> None:
    much = seen(spot("a", "1"), sure(), passed=HOUR, hours=20)
    unsure = replace(much, places=(replace(much.places[0], losses=LossRates.flat(0.02, 2 * SPREAD)), much.places[1]))
    foresight_cache._cached_fit.cache_clear()
    for o in (much, unsure, much):
        named().decide(o)
    assert (foresight_cache._cached_fit.cache_info().misses, foresight_cache._cached_fit.cache_info().hits) == (2, 1)
