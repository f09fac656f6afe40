"""The deadline guard around any policy: on-demand while there is just time enough for it (PLANNING-MODEL 4). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from router.spot.policies.interface import (
    CurrentPlacement,
    Decision,
    MoveDecision,
    Observation,
    PlacementOption,
    Policy,
    PolicyEvent,
    ProbeDecision,
    SaveDecision,
    StayDecision,
    WaitDecision,
    sort_by_cost,
    sort_by_finish,
    to_duration,
)

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class DeadlineGuard:
    """A policy that follows ``inner`` but goes on demand while there is just time for it.

    It does so at the first tick where (time left - one tick) < W + d, or < W + 2d where ``inner`` would launch spot and
    nothing runs that could stay: that goes on until the first of the two.

    W is the work left from the last confirmed checkpoint. d is launch, transfer and restore, rounded up to whole ticks;
    of the two d, one is the spot option's own (with the way back, where the checkpoint moves along) and one
    on-demand's. While a gang runs on spot, d includes saving, and the way back from there of what is saved. A caller
    that asks at every tick, knows of a loss by the next one, and gives a launch up after its start-up hours, misses no
    deadline that on-demand from the beginning would have met. On-demand is assumed to be available: without such an
    option in the observation ``inner`` decides alone.

    Where even on-demand is too late, the decision is marked ``late`` and takes what is done soonest, staying included.
    """

    inner: Policy

    def decide(self, o: Observation) -> Decision:
        decision = self.inner.decide(o)
        if o.event is PolicyEvent.LAUNCHED:
            return (
                decision
                if isinstance(decision, ProbeDecision)
                else StayDecision()
                if o.here is not None
                else WaitDecision(o.now + o.tick)
            )
        sure = [p for p in o.places if p.sure]
        time_left, here = o.left, o.here
        if time_left is not None and here is not None and here.place.sure and not o.must_go:
            return _decide_on_demand(o, decision, [*sure, here.place], time_left)
        if time_left is None or not sure:
            return decision
        in_time = [p for p in sure if o.last_words + p.needs <= time_left]
        if not in_time:
            return _decide_too_late(o, decision, time_left)
        leaving = _NONE if here is None else o.save + _way_from(here)
        if time_left - o.tick < leaving + _time_needed(o, sure):
            moved = _NONE if here is None or not o.last_words else _way_from(here)
            best = [p for p in in_time if o.last_words + moved + p.needs <= time_left] or in_time
            return MoveDecision(sort_by_cost(best), "the last moment for on-demand")
        return _decide_on_spot(o, decision, sure, time_left)


def _time_needed(o: Observation, sure: list[PlacementOption]) -> timedelta:
    """Return W + d of the on-demand option that is done soonest, with d in whole ticks."""
    return min(to_duration(p.hours) + _round_up_to_ticks(p.delay, o.tick) for p in sure)


def _way_from(here: CurrentPlacement) -> timedelta:
    """Return by how much on-demand may be farther from the checkpoint once the gang has saved where it runs."""
    return to_duration(here.checkpoint_transfer_hours)


def _round_up_to_ticks(duration: timedelta, tick: timedelta) -> timedelta:
    return -(-duration // tick) * tick


def _safe_keys(
    o: Observation, move: MoveDecision, sure: list[PlacementOption], time_left: timedelta
) -> tuple[str, ...]:
    """Return the keys that the inner policy wants and that keep the deadline safe.

    These are on-demand options that are in time, and spot ones from which on-demand is still in time if they are lost
    before their first checkpoint.
    """
    known, least = {p.key: p for p in o.places}, _time_needed(o, sure)
    way = _NONE if o.here is None else _way_from(o.here)
    to = []
    for place in (known[key] for key in move.to if key in known):
        if place.sure:
            fits = o.last_words + place.needs <= time_left
        else:
            there = _round_up_to_ticks(o.last_words + way + place.delay, o.tick)
            back = max(way, to_duration(place.transfer_hours) + o.save)
            fits = time_left - o.tick >= there + least + way + back
        if fits:
            to.append(place.key)
    return tuple(to)


def _decide_on_demand(
    o: Observation, decision: Decision, sure: list[PlacementOption], time_left: timedelta
) -> Decision:
    """Return the decision for a gang on demand: it stays there unless there is time to lose.

    It may leave where it could come back to on-demand in time.
    """
    if not isinstance(decision, MoveDecision):
        return decision
    if not decision.to:  # It stops, and comes back to on-demand a tick later at the latest.
        return (
            decision
            if time_left - o.tick >= o.save + _time_needed(o, sure)
            else StayDecision("no time to leave on-demand")
        )
    to = _safe_keys(o, decision, sure, time_left)
    return replace(decision, to=to) if to else StayDecision("no time to leave on-demand")


def _decide_on_spot(o: Observation, decision: Decision, sure: list[PlacementOption], time_left: timedelta) -> Decision:
    """Return the decision while there is a tick to spare.

    It is what the inner policy wants, where a launch of that is in time. Where none is, what runs and can stay goes on,
    for a tick of it is safe; else on-demand begins.
    """
    if not isinstance(decision, MoveDecision) or not decision.to:
        return decision
    to = _safe_keys(o, decision, sure, time_left)
    if to:
        return replace(decision, to=to)
    if not o.must_go:
        return StayDecision("too late for another spot start, and time enough where it is")
    in_time = [p for p in sure if o.last_words + p.needs <= time_left]
    return MoveDecision(sort_by_cost(in_time), "too late for another spot start")


def _decide_too_late(o: Observation, decision: Decision, time_left: timedelta) -> Decision:
    here = o.here
    if isinstance(decision, SaveDecision) and o.last_words > _NONE:
        return decision
    quick = [p for p in o.places if o.last_words + p.needs <= time_left]
    best = min(o.last_words + p.needs for p in o.places)
    if here is not None and not o.must_go and _time_to_finish(here) <= best:
        on_time = _time_to_finish(here) <= time_left
        return StayDecision(
            "on-demand would be too late; here it may be in time" if on_time else "late, and soonest here", True
        )
    if quick:
        return MoveDecision(sort_by_cost(quick), "on-demand would be too late; this may be in time", late=True)
    return MoveDecision(sort_by_finish(o.places), f"late by {best - time_left} even on the fastest", late=True)


def _time_to_finish(here: CurrentPlacement) -> timedelta:
    """Return the time until the last step of a gang that goes on where it is."""
    return max(_NONE, to_duration(here.place.hours) - to_duration(here.unsaved_hours))
