"""Places as an explorer's zones: sizes and speeds, markets of one site, places that are closed or that said no."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import numpy as np
import pytest

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.live.replay import Tenure
from router.spot.live.selection import build_named_policy
from router.spot.policies import Rule
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import (
    AvailabilityAnswer,
    CurrentPlacement,
    Decision,
    MoveDecision,
    Observation,
    PastAttempt,
    PlacementOption,
    PolicyEvent,
    ProbeDecision,
    SaveDecision,
    StayDecision,
    WaitDecision,
)
from router.spot.policies.published.baselines import CheapestSpot, OptimisticAdapter, UniformProgress
from router.spot.policies.published.uniform_probing import FailoverProgress, RateProgress
from router.spot.policies.registry import LivePolicy, registered_policies
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.inputs import SimulationSpec
from tests.support.narrowed import typed

BEGAN = datetime(2026, 11, 21, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def place(key: str, usd: str, hours: float, *, site: str = "", region: str = "r0", **more: Any) -> PlacementOption:
    """Spot, unless its key ends so."""
    market = Market.ON_DEMAND if key.endswith("od") else Market.SPOT
    rate = UsdPerHour.parse(usd)
    fields = {"startup_hours": 0.1, "expected_usd": Usd(round(rate.nanos * hours)), **more}
    return PlacementOption(key, market, rate, hours, site=site or key.split("-")[0], region=region, **fields)


A, B, OD = place("a-1", "1", 10), place("a-2", "1.2", 10), place("a-od", "3", 10)
BIG, BIG_OD = place("big-1", "3", 5), place("big-od", "8", 5)


def seen(*places: PlacementOption, passed: timedelta = MINUTE, hours: float = 30, **more: Any) -> Observation:
    fields: dict[str, Any] = {"deadline": BEGAN + hours * HOUR, "event": PolicyEvent.TICK, "here": None, "began": BEGAN}
    return Observation(BEGAN + passed, tick=5 * MINUTE, places=places, **{**fields, **more})


def terms_of(o: Observation, **more: Any) -> SimulationSpec:
    found: list[SimulationSpec] = []

    def making(terms: SimulationSpec, *_: object) -> BlindPolicy:
        found.append(terms)
        return CheapestSpot()

    PolicyAdapter(LivePolicy(making, **more)).decide(o)
    return found[0]


def decided(o: Observation, explorer: BlindPolicy | None = None) -> Decision:
    return PolicyAdapter(LivePolicy(lambda *_: explorer or FailoverProgress())).decide(o)


def lived(key: str, since: timedelta, until: timedelta | None = None, *, taken: bool = False) -> PastAttempt:
    return PastAttempt(key, BEGAN + since, BEGAN + since, None if until is None else BEGAN + until, taken, 1.0, 1.0)


def test_sizes_are_zones_of_other_speed_and_price() -> None:
    """Work is that of the fastest on-demand place; what is not sold on demand costs infinitely much there."""
    slow = place("slow-1", "0.5", 20, startup_hours=0.25)
    terms = terms_of(seen(A, B, OD, BIG, BIG_OD, slow))
    assert terms.zones == ("a-1", "a-2", "big-1", "slow-1")
    assert terms.task.work_s == 5 * 3600
    np.testing.assert_allclose(terms.speed, [0.5, 0.5, 1.0, 0.25])
    assert terms.on_demand_usd.tolist() == [3.0, 3.0, 8.0, inf]
    assert (terms.task.changeover_s, terms.launch_s.tolist()) == (360, [0, 0, 0, 540])
    assert terms_of(seen(A, OD, share=0.25)).task.work_s == 40 * 3600


def test_ways_are_known_from_where_the_checkpoint_is() -> None:
    far = place("c-1", "1", 10, region="r1", moves_usd=Usd.parse("5"), transfer_hours=0.5)
    farther = place("d-1", "1", 10, region="r2", moves_usd=Usd.parse("7"), transfer_hours=0.25)
    ways = terms_of(seen(A, OD, far, farther)).ways
    assert ways.egress_usd.tolist() == [[0, 5, 7], [5, 0, 7], [7, 7, 0]]
    assert ways.transfer_s.tolist() == [[0, 1800, 900], [1800, 0, 1800], [900, 1800, 0]]


def test_of_many_sites_the_cheapest_the_fastest_and_where_it_was_are_looked_at() -> None:
    some = [place(f"x{n:02}-1", f"{1 + n / 100:.2f}", 10) for n in range(60)]
    fast = place("fast-od", "50", 1)
    o = seen(*some, OD, fast, lives=(lived("x59-1", 0 * MINUTE, MINUTE),))
    zones = terms_of(o).zones
    assert zones == tuple(sorted((*(f"x{n:02}-1" for n in range(21)), "x59-1", "a-od", "fast-od")))
    assert len(terms_of(o, most_zones=4).zones) == 4


def test_long_jobs_are_seen_in_longer_ticks() -> None:
    assert terms_of(seen(A, OD, hours=30)).tick_s == 300
    long = terms_of(seen(A, OD, hours=24 * 90))
    assert (long.tick_s % 300, long.ticks <= 1000) == (0, True)


def test_it_goes_for_spot_cheapest_first_and_then_on_demand() -> None:
    """UP(S), two hours behind."""
    late = seen(A, B, OD, passed=2 * HOUR)
    assert decided(late) == MoveDecision(("a-1", "a-2", "a-od"), "as the policy for its deadline wants", ordered=True)
    early = typed(MoveDecision, decided(seen(A, B, OD, passed=0 * MINUTE)))
    assert early.to == ("a-1", "a-2")


def test_what_said_no_in_this_tick_or_is_closed_is_not_tried() -> None:
    no = AvailabilityAnswer("a-1", BEGAN + 2 * HOUR, up=False)
    o = seen(A, B, OD, passed=2 * HOUR + MINUTE, answers=(no,))
    found = typed(MoveDecision, decided(o))
    assert found.to == ("a-2", "a-od")
    again = typed(MoveDecision, decided(replace(o, now=BEGAN + 2 * HOUR + 6 * MINUTE)))
    assert again.to == ("a-1", "a-2", "a-od")
    closed = typed(MoveDecision, decided(seen(OD, passed=2 * HOUR, closed=(A, B))))
    assert closed.to == ("a-od",)
    assert isinstance(decided(seen(OD, passed=0 * MINUTE, closed=(A, B))), WaitDecision)


def test_on_demand_that_is_not_sold_in_a_zone_is_had_where_it_is_cheapest() -> None:
    alone = place("e-1", "0.5", 10)
    o = seen(alone, OD, BIG_OD, passed=2 * HOUR, lives=(lived("e-1", 0 * MINUTE, HOUR, taken=True),))
    found = typed(MoveDecision, decided(o, FailoverProgress()))
    assert found.to[0] == "e-1"
    assert found.to[-1] in ("a-od", "big-od")
    nowhere = typed(MoveDecision, decided(seen(alone, passed=2 * HOUR), FailoverProgress()))
    assert nowhere.to == ("e-1",)


def test_where_it_runs_it_stays_until_the_policy_wants_it_elsewhere() -> None:
    spot = seen(B, OD, passed=HOUR, here=CurrentPlacement(A, saved=True), lives=(lived("a-1", 0 * MINUTE),))
    assert decided(spot) == StayDecision()
    assert spot.age == HOUR
    ahead = seen(
        A, B, BIG, passed=HOUR, here=CurrentPlacement(OD, saved=True), lives=(lived("a-od", 0 * MINUTE),), share=0.5
    )
    plain = decided(ahead, OptimisticAdapter(UniformProgress()))
    assert plain == MoveDecision(
        ("a-1", "a-2", "big-1"), "as the policy for its deadline wants", keep=True, ordered=True
    )
    assert decided(replace(ahead, share=0.99), OptimisticAdapter(UniformProgress())) == StayDecision()
    stops = decided(replace(ahead, places=(), closed=(A, B, BIG)))
    assert stops == MoveDecision((), "as the policy for its deadline wants", ordered=True)


def test_the_net_lets_nothing_stop_that_could_not_come_back() -> None:
    net = DeadlineGuard(PolicyAdapter(LivePolicy(lambda *_: FailoverProgress())))
    ahead = seen(
        passed=HOUR,
        here=CurrentPlacement(OD, saved=True),
        lives=(lived("a-od", 0 * MINUTE),),
        share=0.5,
        closed=(A,),
    )
    stops = net.decide(ahead)
    assert stops == MoveDecision((), "as the policy for its deadline wants", ordered=True)
    assert isinstance(stops, MoveDecision)
    near = replace(ahead, deadline=ahead.now + 10 * HOUR + 8 * MINUTE)
    assert PolicyAdapter(LivePolicy(lambda *_: FailoverProgress())).decide(near) == MoveDecision(
        (), stops.why, ordered=True
    )
    assert net.decide(near) == StayDecision("no time to leave on-demand")


def test_unsaved_work_counts_as_progress_while_it_runs() -> None:
    """Half of it is done, none is saved."""
    here = CurrentPlacement(OD, saved=False, unsaved_hours=5)
    o = seen(A, passed=HOUR, here=here, lives=(lived("a-od", 0 * MINUTE),))
    found = typed(MoveDecision, decided(o, OptimisticAdapter(UniformProgress())))
    assert found.to == ("a-1",)
    assert (
        decided(replace(o, here=CurrentPlacement(OD, saved=True)), OptimisticAdapter(UniformProgress()))
        == StayDecision()
    )


@pytest.mark.parametrize("event", [PolicyEvent.REBALANCE, PolicyEvent.INTERRUPTION, PolicyEvent.HEALTH])
def test_what_is_disturbed_saves_first(event: PolicyEvent) -> None:
    lives = (lived("a-1", 0 * MINUTE),)
    o = seen(A, B, OD, passed=HOUR, event=event, here=CurrentPlacement(A, unsaved_hours=0.5), lives=lives)
    assert isinstance(decided(o), SaveDecision)
    saved = decided(replace(o, here=CurrentPlacement(A, saved=True), places=(B, OD)))
    assert isinstance(saved, StayDecision if event is PolicyEvent.REBALANCE else MoveDecision)
    if isinstance(saved, MoveDecision):
        assert saved.to[0] == "a-2"


def test_without_a_deadline_or_time_it_is_as_greedy_is() -> None:
    for o in (seen(A, OD, deadline=None), seen(A, OD, deadline=BEGAN), seen(OD, A, hours=0.05), seen()):
        assert decided(o) == GreedyPolicy().decide(o)


def test_it_asks_after_what_was_launched_and_does_nothing_else_then() -> None:
    o = seen(
        B,
        OD,
        passed=HOUR,
        here=CurrentPlacement(A, saved=True),
        lives=(lived("a-1", 0 * MINUTE),),
        event=PolicyEvent.LAUNCHED,
    )
    assert decided(o, RateProgress(60)) == ProbeDecision(("a-2",))
    assert DeadlineGuard(PolicyAdapter(LivePolicy(lambda *_: RateProgress(60)))).decide(o) == ProbeDecision(("a-2",))
    assert decided(o) == StayDecision()
    assert isinstance(decided(replace(o, here=None, lives=())), WaitDecision)
    for policy in (GreedyPolicy(), DeadlineGuard(GreedyPolicy())):
        assert policy.decide(o) == StayDecision()
        assert isinstance(policy.decide(replace(o, here=None)), WaitDecision)


def test_every_name_is_a_policy_and_the_same_each_time() -> None:
    assert {policy.rule for policy in registered_policies().values()} - {None} == set(Rule) - {Rule.GREEDY}
    o = seen(
        A,
        B,
        OD,
        BIG,
        BIG_OD,
        passed=3 * HOUR,
        answers=(AvailabilityAnswer("a-2", BEGAN + HOUR, up=False, launch=False),),
    )
    for rule in Rule:
        assert build_named_policy(rule).decide(o) == build_named_policy(rule).decide(o)


def test_lives_in_places_that_are_gone_are_left_out() -> None:
    o = seen(A, OD, passed=2 * HOUR, lives=(lived("gone-1", 0 * MINUTE, HOUR),))
    assert isinstance(decided(o), MoveDecision)
    assert isinstance(decided(seen(A, OD, began=None)), MoveDecision)
    assert decided(seen(A, OD, here=CurrentPlacement(B, saved=True), began=None)) == StayDecision()


def test_work_left_is_even_over_a_spell() -> None:
    spell = Tenure(1, 0, 100.0, 200.0, 400.0, False, 1000.0, 900.0)
    assert [spell.left_s(at, 500.0) for at in (150.0, 200.0, 300.0, 400.0, 450.0)] == [1000, 1000, 950, 900, 900]
    assert [spell.there(at) for at in (100.0, 101.0, 400.0, 401.0)] == [False, True, True, False]
