"""Whatever explorer steers, in the net no deadline is missed that on-demand from the beginning would have met: over
random and spiteful availability, places of different speed, start-up and region, spot and on demand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.live.selection import live_policy
from router.spot.policies import Rule
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.published.moves import CheapestWithMoves, Lindy
from router.spot.policies.registry import LivePolicy
from router.spot.simulator.blind_policy import BlindPolicy
from tests.property.test_safety_net import worlds
from tests.support.asked_rules import Dice
from tests.support.spot_game import Game, Spot, World

dear = st.builds(
    Spot,
    start=st.integers(0, 60),
    speed=st.integers(1, 3),
    region=st.integers(0, 2),
    up=st.just(lambda _: True),
)
many = st.builds(
    lambda world, others, slack: _tight(World(**{**world.__dict__, "dear": tuple(others)}), slack),
    worlds(),
    st.lists(dear, max_size=2),
    st.one_of(st.integers(0, 40), st.integers(0, 400)),
)
others: st.SearchStrategy[BlindPolicy] = st.one_of(
    st.builds(Dice, st.integers(0, 10**6)), st.just(CheapestWithMoves()), st.just(Lindy())
)


def _tight(world: World, slack: int) -> World:
    return World(**{**world.__dict__, "deadline": world.always_on_demand + slack})


def steered(explorer: BlindPolicy) -> DeadlineGuard:
    # Dice decide by the tick alone, and need not be shown the past.
    return DeadlineGuard(PolicyAdapter(LivePolicy(lambda *_: explorer, replays_past=not isinstance(explorer, Dice))))


def in_time(world: World, net: DeadlineGuard) -> None:
    game = Game(world, net)
    assert game.play() <= world.deadline, game.decisions


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rule for rule in Rule if rule not in (Rule.GREEDY, Rule.FORESIGHT)])
@settings(max_examples=12, deadline=None)
@given(world=many)
def test_no_deadline_is_missed_by_any_that_can_be_chosen(rule: Rule, world: World) -> None:
    in_time(world, DeadlineGuard(PolicyAdapter(live_policy(rule))))


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(many)
def test_nor_by_foresight_that_is_fitted_to_each_world(world: World) -> None:
    in_time(world, DeadlineGuard(PolicyAdapter(live_policy(Rule.FORESIGHT))))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(many, others)
def test_nor_by_one_that_does_anything_at_all(world: World, explorer: BlindPolicy) -> None:
    in_time(world, steered(explorer))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(many, others)
def test_nor_in_more_availability(world: World, explorer: BlindPolicy) -> None:
    in_time(world, steered(explorer))
