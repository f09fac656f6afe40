"""The greedy policy: it stays while it can, and else goes where the rest of the job is cheapest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from pricing.money import Usd
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
    sort_by_cost,
    sort_by_finish,
)

_NONE = timedelta(0)
# A change of prices moves a gang only where that saves at least this much.
_LEAST_SAVING = Usd(1_000_000_000)
_LEAST_SHARE = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class GreedyPolicy:
    """A policy that stays while it can, and else goes where the rest is cheapest among the options in time.

    A change of prices moves it only where that saves at least ``saving`` and that ``share`` of what is left to pay.
    Hints make it save; with ``heeds_hints`` it leaves then, before it is preempted.
    """

    saving: Usd = _LEAST_SAVING
    share: Fraction = _LEAST_SHARE
    heeds_hints: bool = False

    def decide(self, o: Observation) -> Decision:
        here = o.here
        if o.event is PolicyEvent.LAUNCHED:
            return StayDecision() if here is not None else WaitDecision(o.now + o.tick)
        if here is None or o.event is PolicyEvent.LOST:
            return _leave(o, "it is not running")
        if o.must_go or (self.heeds_hints and _is_hint(o.event)):
            return _save_if_needed(here, o.event.value) or _leave(o, o.event.value)
        if o.event is PolicyEvent.PRICE:
            return self._decide_on_price(o, here)
        if _is_hint(o.event):
            return _save_if_needed(here, o.event.value) or StayDecision("a hint, nothing is taken yet")
        return StayDecision()

    def _decide_on_price(self, o: Observation, here: CurrentPlacement) -> Decision:
        paid = here.place.expected_usd
        least_saving = max(self.saving, Usd(int(self.share * paid.nanos)))
        cheaper = [
            p
            for p in o.places
            if p.key != here.place.key and paid - p.expected_usd >= least_saving and _is_in_time(o, p)
        ]
        if not cheaper:
            return StayDecision("no other place saves enough")
        return _save_if_needed(here, "before moving") or MoveDecision(
            sort_by_cost(cheaper), f"saves at least ${least_saving.dollars():,.2f}"
        )


def _is_hint(event: PolicyEvent) -> bool:
    return event in (PolicyEvent.REBALANCE, PolicyEvent.MAINTENANCE)


def _save_if_needed(here: CurrentPlacement, why: str) -> SaveDecision | None:
    gone = here.leaves_in is not None and here.leaves_in <= _NONE
    return None if here.saved or gone else SaveDecision(why)


def _leave(o: Observation, why: str) -> MoveDecision | WaitDecision:
    if not o.places:
        return WaitDecision(o.now + o.tick, f"{why}, and no place is left")
    in_time = [p for p in o.places if _is_in_time(o, p)]
    return (
        MoveDecision(sort_by_cost(in_time), why)
        if in_time
        else MoveDecision(sort_by_finish(o.places), f"{why}; late anywhere", late=True)
    )


def _is_in_time(o: Observation, place: PlacementOption) -> bool:
    return o.left is None or o.last_words + place.needs <= o.left
