"""What the greedy policy and the safety net decide, case by case."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.policies.deadline_guard import SafetyNet
from router.spot.policies.interface import Decision, Event, Greedy, Here, Move, Observation, Place, Save, Stay, Wait

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def place(
    key: str, dollars: str, hours: float, *, spot: bool = True, start: float = 0.5, transfer: float = 0.0
) -> Place:
    market = Market.SPOT if spot else Market.ON_DEMAND
    return Place(key, market, UsdPerHour.parse("1"), hours, start, Usd.parse(dollars), transfer)


CHEAP = place("cheap", "10", 20)
DEAR = place("dear", "30", 9)
SURE = place("sure", "60", 10, spot=False)


def seen(
    *places: Place, left: float | None = 100, event: Event = Event.TICK, here: Here | None = None, tick: float = 0.5
) -> Observation:
    deadline = None if left is None else NOW + timedelta(hours=left)
    return Observation(NOW, deadline, timedelta(hours=tick), event, here, places)


def test_greedy_stays_while_it_can() -> None:
    assert Greedy().decide(seen(CHEAP, DEAR, here=Here(DEAR))) == Stay()


@pytest.mark.parametrize("event", [Event.LOST, Event.ENDED_SHORT, Event.TICK])
def test_without_machines_it_takes_the_cheapest_that_is_in_time(event: Event) -> None:
    decision = Greedy().decide(seen(DEAR, SURE, CHEAP, left=15, event=event))
    assert isinstance(decision, Move)
    assert (decision.to, decision.late) == (("dear", "sure"), False)


def test_what_is_lost_is_not_asked_to_save() -> None:
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR), event=Event.LOST)), Move)


def test_late_anywhere_it_takes_what_is_soonest_over() -> None:
    decision = Greedy().decide(seen(CHEAP, DEAR, SURE, left=5))
    assert isinstance(decision, Move)
    assert (decision.to, decision.late) == (("dear", "sure", "cheap"), True)


def test_without_a_deadline_nothing_is_late() -> None:
    assert Greedy().decide(seen(CHEAP, DEAR, left=None)) == Move(("cheap", "dear"), "it is not running")
    assert SafetyNet(Greedy()).decide(seen(CHEAP, SURE, left=None)) == Move(("cheap", "sure"), "it is not running")


def test_with_nowhere_to_go_it_waits_a_tick() -> None:
    decision = Greedy().decide(seen())
    assert isinstance(decision, Wait)
    assert decision.until == NOW + HOUR / 2


@pytest.mark.parametrize("event", [Event.INTERRUPTION, Event.MAINTENANCE])
def test_a_machine_that_is_taken_saves_first_then_goes(event: Event) -> None:
    soon = timedelta(seconds=100)
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR, soon), event=event)), Save)
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR, soon, saved=True), event=event)), Move)
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR, timedelta(0)), event=event)), Move)


@pytest.mark.parametrize("event", [Event.REBALANCE, Event.MAINTENANCE])
def test_a_hint_makes_it_save_and_stay_unless_it_heeds_hints(event: Event) -> None:
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR), event=event)), Save)
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR, saved=True), event=event)), Stay)
    assert isinstance(Greedy(heeds_hints=True).decide(seen(CHEAP, here=Here(DEAR, saved=True), event=event)), Move)


def test_a_machine_that_is_not_to_be_trusted_is_left() -> None:
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR), event=Event.HEALTH)), Save)
    assert isinstance(Greedy().decide(seen(CHEAP, here=Here(DEAR, saved=True), event=Event.HEALTH)), Move)


@pytest.mark.parametrize(
    ("there", "saving", "share", "moves"),
    [("29.01", "1", 0, False), ("29", "1", 0, True), ("27.01", "1", 0.1, False), ("27", "1", 0.1, True)],
)
def test_a_price_moves_it_from_the_stated_saving_on(there: str, saving: str, share: float, *, moves: bool) -> None:
    policy = Greedy(saving=Usd.parse(saving), share=Fraction(share).limit_denominator(10))
    other = place("other", there, 9)
    decision = policy.decide(seen(other, DEAR, here=Here(DEAR, saved=True), event=Event.PRICE))
    assert isinstance(decision, Move if moves else Stay)
    unsaved = policy.decide(seen(other, DEAR, here=Here(DEAR), event=Event.PRICE))
    assert isinstance(unsaved, Save if moves else Stay)
    assert policy.decide(seen(other, here=Here(DEAR, saved=True))) == Stay()


def test_a_price_moves_it_nowhere_where_it_would_be_late() -> None:
    assert isinstance(Greedy().decide(seen(CHEAP, left=15, here=Here(DEAR, saved=True), event=Event.PRICE)), Stay)


def net(*places: Place, left: float, here: Here | None = None, event: Event = Event.TICK) -> Decision:
    return SafetyNet(Greedy()).decide(seen(*places, left=left, here=here, event=event))


@pytest.mark.parametrize("hundredths", range(1050, 1401, 5))
def test_the_net_of_the_planning_model_exactly(hundredths: int) -> None:
    """W = 10 h, d = 0.5 h, a tick of 0.5 h: riding spot until left - 0.5 < 10.5, launching it until left - 0.5 < 11."""
    left = hundredths / 100
    spot = place("spot", "10", 10)
    riding = net(spot, SURE, left=left, here=Here(spot))
    launching = net(spot, SURE, left=left)
    assert isinstance(riding, Move) == (left - 0.5 < 10.5)
    assert isinstance(launching, Move)
    assert ("spot" in launching.to) == (left - 0.5 >= 11)
    assert "sure" in launching.to
    assert not launching.late


def test_delays_count_in_whole_ticks() -> None:
    """d = 0.6 h is two ticks of half an hour."""
    slow = place("sure", "60", 10, spot=False, start=0.5, transfer=0.1)
    spot = place("spot", "10", 10)
    assert isinstance(net(slow, spot, left=11.5, here=Here(spot)), Stay)
    assert isinstance(net(slow, spot, left=11.49, here=Here(spot)), Move)


def test_saving_counts_while_the_gang_runs() -> None:
    spot = place("spot", "10", 10)
    late = Observation(NOW, NOW + 11 * HOUR, HOUR / 2, Event.TICK, Here(spot), (SURE, spot), save=MINUTE)
    early = Observation(NOW, NOW + 11 * HOUR + MINUTE, HOUR / 2, Event.TICK, Here(spot), (SURE, spot), save=MINUTE)
    assert isinstance(SafetyNet(Greedy()).decide(late), Move)
    assert isinstance(SafetyNet(Greedy()).decide(early), Stay)


def test_the_way_back_counts_where_the_checkpoint_goes_along() -> None:
    far = place("far", "10", 8, transfer=0.5)
    near = place("near", "11", 8)
    decision = net(far, near, SURE, left=12, here=None)
    assert isinstance(decision, Move)
    assert decision.to == ("near", "sure")


def test_what_runs_on_demand_is_not_moved_to_spot_late() -> None:
    here = Here(place("sure", "60", 10, spot=False), saved=True)
    saving = place("spot", "5", 9)
    assert isinstance(net(saving, SURE, left=11, here=here, event=Event.PRICE), Stay)
    assert isinstance(net(saving, SURE, left=12, here=here, event=Event.PRICE), Move)
    assert net(saving, SURE, left=1, here=here) == Stay()
    assert isinstance(net(saving, left=11, here=here, event=Event.PRICE), Stay)
    assert isinstance(net(saving, left=12, here=here, event=Event.PRICE), Move)


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
    wish = SafetyNet(Wishes(Move(("other",), keep=keep)))
    stays = wish.decide(seen(SURE, here, other, left=11.25, here=Here(here)))
    assert isinstance(stays, Stay)
    assert not stays.late
    assert wish.decide(seen(SURE, here, other, left=11.5, here=Here(here))) == wish.inner.decide(seen())
    last = wish.decide(seen(SURE, here, other, left=10.9, here=Here(here)))
    assert isinstance(last, Move)
    assert last.to == ("sure",)


@pytest.mark.parametrize("event", [Event.LOST, Event.HEALTH, Event.INTERRUPTION])
def test_what_cannot_stay_goes_on_demand_where_another_start_is_too_late(event: Event) -> None:
    here, other = place("here", "10", 10), place("other", "9", 10)
    o = seen(SURE, here, other, left=11.25, here=Here(here, saved=True), event=event)
    decision = SafetyNet(Wishes(Move(("other",)))).decide(o)
    assert isinstance(decision, Move)
    assert decision.to == ("sure",)


def test_on_demand_that_is_wished_for_after_spot_is_taken_where_spot_is_too_late() -> None:
    here, other = place("here", "10", 10), place("other", "9", 10)
    decision = SafetyNet(Wishes(Move(("other", "sure")))).decide(seen(SURE, here, other, left=11.25, here=Here(here)))
    assert isinstance(decision, Move)
    assert decision.to == ("sure",)


def test_when_on_demand_is_too_late_it_says_so_and_takes_the_fastest() -> None:
    decision = net(SURE, CHEAP, DEAR, left=8)
    assert isinstance(decision, Move)
    assert (decision.to, decision.late) == (("dear", "sure", "cheap"), True)
    assert "1:30:00" in decision.why


def test_spot_that_may_still_be_in_time_is_taken_when_on_demand_is_not() -> None:
    decision = net(SURE, DEAR, left=9.75)
    assert isinstance(decision, Move)
    assert (decision.to, decision.late) == (("dear",), True)


def test_what_is_soonest_done_where_it_is_stays_there() -> None:
    decision = net(SURE, DEAR, left=8, here=Here(DEAR, unsaved_hours=0.25))
    assert isinstance(decision, Stay)
    assert decision.late


def test_too_late_is_no_reason_not_to_save() -> None:
    taken = Here(DEAR, timedelta(seconds=100))
    o = Observation(NOW, NOW + HOUR, HOUR / 2, Event.INTERRUPTION, taken, (SURE,), save=MINUTE)
    assert isinstance(SafetyNet(Greedy()).decide(o), Save)


def test_without_on_demand_the_inner_policy_decides() -> None:
    assert net(CHEAP, DEAR, left=5) == Greedy().decide(seen(CHEAP, DEAR, left=5))


def test_never_is_a_duration_too() -> None:
    never = place("never", "1", float("inf"), spot=False)
    decision = net(never, SURE, left=30)
    assert isinstance(decision, Move)
    assert decision.to == ("sure",)


def test_a_tick_has_a_length() -> None:
    with pytest.raises(ValueError, match="tick"):
        seen(tick=0)
