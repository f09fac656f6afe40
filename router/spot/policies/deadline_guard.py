"""The safety net around any policy: on-demand while there is just time enough for it (PLANNING-MODEL 4). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from router.spot.policies.interface import (
    Decision,
    Event,
    Here,
    Move,
    Observation,
    Place,
    Policy,
    Probe,
    Save,
    Stay,
    Wait,
    by_cost,
    by_finish,
    span,
)

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class SafetyNet:
    """Goes on demand at the first tick where (time left - one tick) < W + d, and < W + 2d where ``inner`` would launch
    spot and nothing runs that could stay: that goes on until the first of the two.

    W: what is left from the last confirmed checkpoint. d: launch, transfer and restore, rounded up to whole ticks;
    of the two, one is the spot place's own (with the way back, where the checkpoint goes along) and one on-demand's.
    While a gang runs on spot, d includes saving. Who asks at every tick, knows of a loss by the next one, and gives a
    launch up after its start-up hours, misses no deadline that on-demand from the beginning would have met. It is
    assumed that on-demand can be had: without such a place in the observation ``inner`` decides alone.

    Where even on-demand is too late, the decision is marked ``late``: what is soonest over, staying included.
    """

    inner: Policy

    def decide(self, o: Observation) -> Decision:
        """See :class:`~router.spot.policies.interface.Policy`."""
        wanted = self.inner.decide(o)
        if o.event is Event.LAUNCHED:
            return wanted if isinstance(wanted, Probe) else Stay() if o.here is not None else Wait(o.now + o.tick)
        sure = [p for p in o.places if p.sure]
        left, here = o.left, o.here
        if left is not None and here is not None and here.place.sure and not o.must_go:
            return _from_sure(o, wanted, [*sure, here.place], left)
        if left is None or not sure:
            return wanted
        in_time = [p for p in sure if o.last_words + p.needs <= left]
        if not in_time:
            return _too_late(o, wanted, left)
        leaving = _NONE if here is None else o.save
        if left - o.tick < leaving + _least(o, sure):
            return Move(by_cost(in_time), "the last moment for on-demand")
        return _from_spot(o, wanted, sure, left)


def _least(o: Observation, sure: list[Place]) -> timedelta:
    """W + d of the place that is soonest done, d in whole ticks."""
    return min(span(p.hours) + _in_ticks(p.delay, o.tick) for p in sure)


def _in_ticks(duration: timedelta, tick: timedelta) -> timedelta:
    return -(-duration // tick) * tick


def _allowed(o: Observation, wanted: Move, sure: list[Place], left: timedelta) -> tuple[str, ...]:
    """Of the places that the inner policy wants: on-demand ones that are in time, and spot ones from which on-demand is
    still in time if they are lost before their first checkpoint."""
    known, least = {p.key: p for p in o.places}, _least(o, sure)
    to = []
    for place in (known[key] for key in wanted.to if key in known):
        if place.sure:
            fits = o.last_words + place.needs <= left
        else:
            there = _in_ticks(o.last_words + place.delay, o.tick)
            fits = left - o.tick >= there + least + span(place.transfer_hours) + o.save
        if fits:
            to.append(place.key)
    return tuple(to)


def _from_sure(o: Observation, wanted: Decision, sure: list[Place], left: timedelta) -> Decision:
    """What runs on demand stays there unless there is time to lose; one can come back to it."""
    if not isinstance(wanted, Move):
        return wanted
    if not wanted.to:  # it stops, and comes back to on-demand a tick later at the latest
        return wanted if left - o.tick >= o.save + _least(o, sure) else Stay("no time to leave on-demand")
    to = _allowed(o, wanted, sure, left)
    return replace(wanted, to=to) if to else Stay("no time to leave on-demand")


def _from_spot(o: Observation, wanted: Decision, sure: list[Place], left: timedelta) -> Decision:
    """While there is a tick to spare: what is wanted, where a launch that it wants is in time. Where none is, what runs
    and can stay goes on, for a tick of it is safe; else on-demand begins."""
    if not isinstance(wanted, Move) or not wanted.to:
        return wanted
    to = _allowed(o, wanted, sure, left)
    if to:
        return replace(wanted, to=to)
    if not o.must_go:
        return Stay("too late for another spot start, and time enough where it is")
    in_time = [p for p in sure if o.last_words + p.needs <= left]
    return Move(by_cost(in_time), "too late for another spot start")


def _too_late(o: Observation, wanted: Decision, left: timedelta) -> Decision:
    here = o.here
    if isinstance(wanted, Save) and o.last_words > _NONE:
        return wanted
    quick = [p for p in o.places if o.last_words + p.needs <= left]
    best = min(o.last_words + p.needs for p in o.places)
    if here is not None and not o.must_go and _rest(here) <= best:
        on_time = _rest(here) <= left
        return Stay(
            "on-demand would be too late; here it may be in time" if on_time else "late, and soonest here", True
        )
    if quick:
        return Move(by_cost(quick), "on-demand would be too late; this may be in time", late=True)
    return Move(by_finish(o.places), f"late by {best - left} even on the fastest", late=True)


def _rest(here: Here) -> timedelta:
    """Until the last step for what goes on where it is."""
    return max(_NONE, span(here.place.hours) - span(here.unsaved_hours))
