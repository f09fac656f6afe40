"""What the greedy policy and the safety net decide, case by case."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import (
    CurrentPlacement,
    Decision,
    MoveDecision,
    Observation,
    PlacementOption,
    PolicyEvent,
    SaveDecision,
    StayDecision,
    WaitDecision,
)
from tests.support.narrowed import typed

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def place(
    key: str, dollars: str, hours: float, *, spot: bool = True, start: float = 0.5, transfer: float = 0.0
) -> PlacementOption:
    market = Market.SPOT if spot else Market.ON_DEMAND
    return PlacementOption(key, market, UsdPerHour.parse("1"), hours, start, Usd.parse(dollars), transfer)


CHEAP = place("cheap", "10", 20)
DEAR = place("dear", "30", 9)
SURE = place("sure", "60", 10, spot=False)


def seen(
    *places: PlacementOption,
    left: float | None = 100,
    event: PolicyEvent = PolicyEvent.TICK,
    here: CurrentPlacement | None = None,
    tick: float = 0.5,
) -> Observation:
    deadline = None if left is None else NOW + timedelta(hours=left)
    return Observation(NOW, deadline, timedelta(hours=tick), event, here, places)


@pytest.mark.parametrize("event", [PolicyEvent.LOST, PolicyEvent.ENDED_SHORT, PolicyEvent.TICK])
def test_without_machines_it_takes_the_cheapest_that_is_in_time(event: PolicyEvent) -> None:
    decision = typed(MoveDecision, GreedyPolicy().decide(seen(DEAR, SURE, CHEAP, left=15, event=event)))
    assert (decision.to, decision.late) == (("dear", "sure"), False)


def test_late_anywhere_it_takes_what_is_soonest_over() -> None:
    decision = typed(MoveDecision, GreedyPolicy().decide(seen(CHEAP, DEAR, SURE, left=5)))
    assert (decision.to, decision.late) == (("dear", "sure", "cheap"), True)


def test_without_a_deadline_nothing_is_late() -> None:
    assert GreedyPolicy().decide(seen(CHEAP, DEAR, left=None)) == MoveDecision(("cheap", "dear"), "it is not running")
    assert DeadlineGuard(GreedyPolicy()).decide(seen(CHEAP, SURE, left=None)) == MoveDecision(
        ("cheap", "sure"), "it is not running"
    )


def test_with_nowhere_to_go_it_waits_a_tick() -> None:
    decision = typed(WaitDecision, GreedyPolicy().decide(seen()))
    assert decision.until == NOW + HOUR / 2


SOON = timedelta(seconds=100)
UNSAVED, SAVED = CurrentPlacement(DEAR), CurrentPlacement(DEAR, saved=True)


@pytest.mark.parametrize(
    ("event", "here", "kind"),
    [
        (PolicyEvent.TICK, UNSAVED, StayDecision),
        # What is lost is not asked to save; a machine that is taken, or not to be trusted, saves first, then goes.
        (PolicyEvent.LOST, UNSAVED, MoveDecision),
        *(
            case
            for event in (PolicyEvent.INTERRUPTION, PolicyEvent.MAINTENANCE)
            for case in (
                (event, CurrentPlacement(DEAR, SOON), SaveDecision),
                (event, CurrentPlacement(DEAR, SOON, saved=True), MoveDecision),
                (event, CurrentPlacement(DEAR, timedelta(0)), MoveDecision),
            )
        ),
        (PolicyEvent.HEALTH, UNSAVED, SaveDecision),
        (PolicyEvent.HEALTH, SAVED, MoveDecision),
        # A hint makes it save and stay.
        (PolicyEvent.REBALANCE, UNSAVED, SaveDecision),
        (PolicyEvent.REBALANCE, SAVED, StayDecision),
        (PolicyEvent.MAINTENANCE, UNSAVED, SaveDecision),
        (PolicyEvent.MAINTENANCE, SAVED, StayDecision),
    ],
)
def test_what_greedy_does_about_each_event(event: PolicyEvent, here: CurrentPlacement, kind: type[Decision]) -> None:
    assert isinstance(GreedyPolicy().decide(seen(CHEAP, here=here, event=event)), kind)


@pytest.mark.parametrize("event", [PolicyEvent.REBALANCE, PolicyEvent.MAINTENANCE])
def test_a_hint_makes_it_leave_where_it_heeds_hints(event: PolicyEvent) -> None:
    assert isinstance(GreedyPolicy(heeds_hints=True).decide(seen(CHEAP, here=SAVED, event=event)), MoveDecision)


@pytest.mark.parametrize(
    ("there", "saving", "share", "moves"),
    [("29.01", "1", 0, False), ("29", "1", 0, True), ("27.01", "1", 0.1, False), ("27", "1", 0.1, True)],
)
def test_a_price_moves_it_from_the_stated_saving_on(there: str, saving: str, share: float, *, moves: bool) -> None:
    policy = GreedyPolicy(saving=Usd.parse(saving), share=Fraction(share).limit_denominator(10))
    other = place("other", there, 9)
    decision = policy.decide(seen(other, DEAR, here=SAVED, event=PolicyEvent.PRICE))
    assert isinstance(decision, MoveDecision if moves else StayDecision)
    unsaved = policy.decide(seen(other, DEAR, here=UNSAVED, event=PolicyEvent.PRICE))
    assert isinstance(unsaved, SaveDecision if moves else StayDecision)
    assert policy.decide(seen(other, here=CurrentPlacement(DEAR, saved=True))) == StayDecision()


def test_a_price_moves_it_nowhere_where_it_would_be_late() -> None:
    assert isinstance(
        GreedyPolicy().decide(seen(CHEAP, left=15, here=SAVED, event=PolicyEvent.PRICE)),
        StayDecision,
    )


def goes_to(decision: Decision) -> tuple[str, ...]:
    assert isinstance(decision, MoveDecision)
    return decision.to


def net(
    *places: PlacementOption, left: float, here: CurrentPlacement | None = None, event: PolicyEvent = PolicyEvent.TICK
) -> Decision:
    return DeadlineGuard(GreedyPolicy()).decide(seen(*places, left=left, here=here, event=event))


@pytest.mark.parametrize("hundredths", range(1050, 1401, 5))
def test_the_net_of_the_planning_model_exactly(hundredths: int) -> None:
    """W = 10 h, d = 0.5 h, a tick of 0.5 h: riding spot until left - 0.5 < 10.5, launching it until left - 0.5 < 11."""
    left = hundredths / 100
    spot = place("spot", "10", 10)
    riding = net(spot, SURE, left=left, here=CurrentPlacement(spot))
    launching = net(spot, SURE, left=left)
    assert isinstance(riding, MoveDecision) == (left - 0.5 < 10.5)
    assert isinstance(launching, MoveDecision)
    assert ("spot" in launching.to) == (left - 0.5 >= 11)
    assert "sure" in launching.to
    assert not launching.late


def test_delays_count_in_whole_ticks() -> None:
    """d = 0.6 h is two ticks of half an hour."""
    slow = place("sure", "60", 10, spot=False, start=0.5, transfer=0.1)
    spot = place("spot", "10", 10)
    assert isinstance(net(slow, spot, left=11.5, here=CurrentPlacement(spot)), StayDecision)
    assert isinstance(net(slow, spot, left=11.49, here=CurrentPlacement(spot)), MoveDecision)


def test_saving_counts_while_the_gang_runs() -> None:
    spot = place("spot", "10", 10)
    for spare, kind in ((timedelta(0), MoveDecision), (MINUTE, StayDecision)):
        o = replace(
            seen(SURE, spot, left=11, here=CurrentPlacement(spot)), deadline=NOW + 11 * HOUR + spare, save=MINUTE
        )
        assert isinstance(DeadlineGuard(GreedyPolicy()).decide(o), kind)


def test_the_way_back_counts_where_the_checkpoint_goes_along() -> None:
    far = place("far", "10", 8, transfer=0.5)
    near = place("near", "11", 8)
    decision = typed(MoveDecision, net(far, near, SURE, left=12, here=None))
    assert decision.to == ("near", "sure")


def test_what_runs_on_demand_is_not_moved_to_spot_late() -> None:
    here = CurrentPlacement(place("sure", "60", 10, spot=False), saved=True)
    saving = place("spot", "5", 9)
    assert isinstance(net(saving, SURE, left=11, here=here, event=PolicyEvent.PRICE), StayDecision)
    assert isinstance(net(saving, SURE, left=12, here=here, event=PolicyEvent.PRICE), MoveDecision)
    assert net(saving, SURE, left=1, here=here) == StayDecision()
    assert isinstance(net(saving, left=11, here=here, event=PolicyEvent.PRICE), StayDecision)
    assert isinstance(net(saving, left=12, here=here, event=PolicyEvent.PRICE), MoveDecision)


@dataclass(frozen=True)
class Wishes:
    """Always the same."""

    decision: Decision

    def decide(self, _: Observation) -> Decision:
        return self.decision


@pytest.mark.parametrize("keep", [True, False])
def test_spot_that_is_healthy_stays_where_another_start_is_too_late(keep: bool) -> None:
    """W = 10 h, d = 0.5 h, ticks of half an hour: riding is safe from 11 h on, another spot start from 11.5 h on."""
    here, other = place("here", "10", 10), place("other", "9", 10)
    wish = DeadlineGuard(Wishes(MoveDecision(("other",), keep=keep)))
    stays = typed(StayDecision, wish.decide(seen(SURE, here, other, left=11.25, here=CurrentPlacement(here))))
    assert not stays.late
    assert wish.decide(seen(SURE, here, other, left=11.5, here=CurrentPlacement(here))) == wish.inner.decide(seen())
    assert goes_to(wish.decide(seen(SURE, here, other, left=10.9, here=CurrentPlacement(here)))) == ("sure",)


@pytest.mark.parametrize("event", [PolicyEvent.LOST, PolicyEvent.HEALTH, PolicyEvent.INTERRUPTION])
def test_what_cannot_stay_goes_on_demand_where_another_start_is_too_late(event: PolicyEvent) -> None:
    here, other = place("here", "10", 10), place("other", "9", 10)
    o = seen(SURE, here, other, left=11.25, here=CurrentPlacement(here, saved=True), event=event)
    assert goes_to(DeadlineGuard(Wishes(MoveDecision(("other",)))).decide(o)) == ("sure",)


def test_on_demand_that_is_wished_for_after_spot_is_taken_where_spot_is_too_late() -> None:
    here, other = place("here", "10", 10), place("other", "9", 10)
    assert goes_to(
        DeadlineGuard(Wishes(MoveDecision(("other", "sure")))).decide(
            seen(SURE, here, other, left=11.25, here=CurrentPlacement(here))
        )
    ) == ("sure",)


def test_when_on_demand_is_too_late_it_says_so_and_takes_the_fastest() -> None:
    decision = typed(MoveDecision, net(SURE, CHEAP, DEAR, left=8))
    assert (decision.to, decision.late) == (("dear", "sure", "cheap"), True)
    assert "1:30:00" in decision.why


def test_spot_that_may_still_be_in_time_is_taken_when_on_demand_is_not() -> None:
    decision = typed(MoveDecision, net(SURE, DEAR, left=9.75))
    assert (decision.to, decision.late) == (("dear",), True)


def test_what_is_soonest_done_where_it_is_stays_there() -> None:
    decision = typed(StayDecision, net(SURE, DEAR, left=8, here=CurrentPlacement(DEAR, unsaved_hours=0.25)))
    assert decision.late


def test_too_late_is_no_reason_not_to_save() -> None:
    taken = CurrentPlacement(DEAR, timedelta(seconds=100))
    o = Observation(NOW, NOW + HOUR, HOUR / 2, PolicyEvent.INTERRUPTION, taken, (SURE,), save=MINUTE)
    assert isinstance(DeadlineGuard(GreedyPolicy()).decide(o), SaveDecision)


def test_without_on_demand_the_inner_policy_decides() -> None:
    assert net(CHEAP, DEAR, left=5) == GreedyPolicy().decide(seen(CHEAP, DEAR, left=5))


def test_never_is_a_duration_too() -> None:
    never = place("never", "1", float("inf"), spot=False)
    decision = typed(MoveDecision, net(never, SURE, left=30))
    assert decision.to == ("sure",)


def test_a_tick_has_a_length() -> None:
    with pytest.raises(ValueError, match="tick"):
        seen(tick=0)
