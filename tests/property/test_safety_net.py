"""The deadline is never missed where on-demand from the beginning would have met it, whatever the availability does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import (
    Decision,
    MoveDecision,
    Observation,
    Policy,
    SaveDecision,
    StayDecision,
    WaitDecision,
)
from tests.support.spot_game import ON_DEMAND, Game, Spot, World

LONG = 4_000


@dataclass
class Erratic:
    """Decides anything at all, always what is allowed in form."""

    rng: Random

    def decide(self, o: Observation) -> Decision:
        keys = [p.key for p in o.places]
        roll = self.rng.random()
        if roll < 0.4 and keys:
            return MoveDecision(tuple(self.rng.sample(keys, self.rng.randint(1, len(keys)))))
        if roll < 0.6:
            return SaveDecision()
        return StayDecision() if o.here is not None else WaitDecision(o.now + o.tick)


@dataclass
class Hopeful:
    """Goes to spot wherever there is one, and would wait for it for ever."""

    def decide(self, o: Observation) -> Decision:
        spots = tuple(p.key for p in o.places if not p.sure)
        if o.here is not None and not o.here.place.sure and not o.must_go:
            return StayDecision()
        return MoveDecision(spots) if spots else WaitDecision(o.now + o.tick)


@dataclass
class Restless:
    """Would be on another spot place at every tick, never on demand."""

    rng: Random
    keep: bool

    def decide(self, o: Observation) -> Decision:
        here = None if o.here is None else o.here.place.key
        others = [p.key for p in o.places if not p.sure and p.key != here]
        if others:
            return MoveDecision(tuple(self.rng.sample(others, len(others))), keep=self.keep)
        return StayDecision() if o.here is not None and not o.must_go else WaitDecision(o.now + o.tick)


def flickering(seed: int, share: float, run: int) -> Callable[[int], bool]:
    """Up or down for stretches of about ``run`` minutes."""
    rng, up = Random(seed), True
    states: list[bool] = []
    while len(states) < LONG:
        states += [up] * rng.randint(1, 2 * run)
        up = rng.random() < share
    return lambda minute: states[minute % LONG]


def spiteful(start: int, lives: int) -> Callable[[int], bool]:
    """Can always be begun, and is gone some minutes after most starts would be ready."""
    period = start + lives + 1
    return lambda minute: minute % period != 0


availabilitys = st.one_of(
    st.builds(flickering, st.integers(0, 10**6), st.sampled_from([0.2, 0.5, 0.9]), st.integers(1, 90)),
    st.builds(spiteful, st.integers(1, 20), st.integers(0, 30)),
)
pools = st.builds(
    Spot,
    start=st.integers(0, 25),
    speed=st.sampled_from([1, 1, 1, 2]),
    region=st.integers(0, 2),
    up=availabilitys,
    notice=st.sampled_from([0, 0, 1, 2]),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    work, start, tick = draw(st.integers(30, 400)), draw(st.integers(0, 25)), draw(st.integers(1, 20))
    slack = draw(st.one_of(st.integers(0, 40), st.integers(0, 400)))
    return World(
        work=work,
        deadline=start + work + slack,
        tick=tick,
        start=start,
        save=draw(st.integers(0, 5)),
        interval=draw(st.sampled_from([0, 10, 30, 60])),
        far=draw(st.sampled_from([0, 0, 7])),
        spots=tuple(draw(st.lists(pools, min_size=1, max_size=3))),
        told=draw(st.booleans()),
        asked_while_starting=draw(st.booleans()),
    )


policies = st.one_of(
    st.just(GreedyPolicy()),
    st.just(GreedyPolicy(heeds_hints=True)),
    st.just(Hopeful()),
    st.builds(Erratic, st.randoms()),
    st.builds(Restless, st.randoms(), st.booleans()),
)


def in_time(world: World, inner: Policy) -> None:
    game = Game(world, DeadlineGuard(inner))
    assert world.always_on_demand <= world.deadline
    assert game.play() <= world.deadline, game.decisions


@settings(max_examples=200, deadline=None)
@given(worlds(), policies)
def test_no_deadline_is_missed_that_on_demand_would_have_met(world: World, inner: Policy) -> None:
    in_time(world, inner)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None)
@given(worlds(), policies)
def test_nor_in_more_availability(world: World, inner: Policy) -> None:
    in_time(world, inner)


@dataclass
class Scripted:
    """Wants one spot option after the other, and then again and again the last."""

    keys: list[str]

    def decide(self, o: Observation) -> Decision:
        return MoveDecision((self.keys.pop(0) if len(self.keys) > 1 else self.keys[0],))


def test_a_checkpoint_saved_far_away_is_brought_back_in_time() -> None:
    """On-demand was near the last checkpoint; the one that is saved on leaving spot is seven minutes farther."""
    pools = (
        Spot(20, 1, 0, spiteful(12, 18)),
        Spot(1, 1, 0, flickering(171, 0.5, 19)),
        Spot(18, 1, 1, spiteful(1, 18)),
    )
    world = World(30, 214, 2, 0, 3, 0, 7, pools, told=False)
    order = [1, 0, 1, 0, 2, 0, 2, 1, 2]
    in_time(world, Scripted([f"spot-{number}" for number in order]))


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(1, 200), policies)
def test_what_cannot_be_in_time_is_said_and_still_ends(world: World, short: int, inner: Policy) -> None:
    hopeless = World(**{**world.__dict__, "deadline": max(0, world.always_on_demand - short), "spots": ()})
    game = Game(hopeless, DeadlineGuard(inner))
    assert game.play() == hopeless.always_on_demand
    assert "late=True" in game.decisions[0]


def test_with_time_enough_spot_does_most_of_the_work() -> None:
    """Otherwise a net that goes on demand at once would pass everything above."""
    paid = on_demand = 0
    for seed in range(40):
        pools = tuple(Spot(5, 1, 0, flickering(1000 * seed + i, 0.7, 60)) for i in range(3))
        world = World(600, 1200, 5, 5, 1, 30, 0, pools)
        game = Game(world, DeadlineGuard(Hopeful()))
        assert game.play() <= world.deadline
        paid += game.nanos
        on_demand += world.always_on_demand * ON_DEMAND.nanos // 60
    assert paid < 0.5 * on_demand


def test_without_the_net_the_same_availability_makes_the_same_policy_late() -> None:
    world = World(100, 130, 5, 5, 0, 0, 0, (Spot(5, 1, 0, lambda minute: minute % 40 != 0 or minute > 400),))
    assert Game(world, Hopeful()).play() > world.deadline
    assert Game(world, DeadlineGuard(Hopeful())).play() <= world.deadline
