"""Published baseline policies over one zone or several.

Their sources are Wu et al., "Can't Be Late", NSDI 2024, and over zones SkyNomad, NSDI 2027. They need the guard
:attr:`router.spot.simulator.simulation.GuardMode.PUBLISHED`.

Symbols: C work, R deadline, d changeover, t seconds since the start, cp work done, ep(t) = t * C / R. All is exact, in
whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.simulator.blind_policy import NEVER, BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import HOUR_S, SimulationSpec
from router.spot.simulator.simulation import (
    IDLE,
    ON_DEMAND,
    SPOT,
    Actions,
    FullInfoSession,
    FullView,
    InstanceKinds,
    find_on_demand_zone,
)
from router.spot.simulator.traces import Bools, Floats, Ints

Ranking = Callable[[SimulationSpec, FullView], Floats]


def rank_by_price(inputs: SimulationSpec, now: FullView) -> Floats:
    """Return by [zone, window] the present spot price in dollars for an hour's work; the least ranks first."""
    return now.spot_usd if inputs.alike else now.spot_usd / inputs.speed[:, None]


def rank_by_price_elsewhere(inputs: SimulationSpec, now: FullView) -> Floats:
    """Rank as :func:`rank_by_price`, but the whole region where the job last ran last: "eager failover", UP(S)."""
    region = inputs.region_numbers
    was = np.where(now.last < 0, -1, region[np.maximum(now.last, 0)])
    usd = rank_by_price(inputs, now)
    return usd + np.where(region[:, None] == was, float(usd.max()), 0.0)


def choose_spot_or_idle(
    inputs: SimulationSpec, now: FullView, ranking: Ranking = rank_by_price
) -> tuple[Bools, InstanceKinds, Ints]:
    """Return whether there is spot for each window, and the greedy action.

    A live spot instance is kept; else the best zone that is up is taken; else the job is idle.
    """
    if len(now.up) == 1:
        has, zone = now.up[0], now.zone
    else:
        first = np.argmin(np.where(now.up, ranking(inputs, now), np.inf), axis=0)
        has = now.up.any(axis=0)
        zone = np.where((now.kind == SPOT) | ~has, now.zone, first)
    return has, np.where(has, np.int8(SPOT), np.int8(IDLE)), zone


def add_on_demand(inputs: SimulationSpec, now: FullView, kind: InstanceKinds, zone: Ints, needed: Bools) -> Actions:
    """Return the actions with on-demand where it is ``needed``."""
    which = np.flatnonzero(needed)
    if which.size:
        kind, zone = kind.copy(), zone.copy()
        kind[which] = ON_DEMAND
        zone[which] = find_on_demand_zone(inputs, now, which)
    return kind, zone


@dataclass(frozen=True, slots=True)
class GreedySpot:
    """A policy that takes the cheapest spot whenever there is any, and else waits."""

    ranking: Ranking = rank_by_price

    def begin(self, inputs: SimulationSpec) -> FullInfoSession:
        def play(now: FullView) -> Actions:
            _, kind, zone = choose_spot_or_idle(inputs, now, self.ranking)
            return kind, zone

        return play


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Uniform Progress: on-demand where there is no spot and cp < ep(t), or where it runs already.

    With ``hysteresis`` it leaves on-demand for spot only when cp > ep(t + 2d); without ("plain") it takes any spot at
    once.
    """

    hysteresis: bool = True
    ranking: Ranking = rank_by_price

    def begin(self, inputs: SimulationSpec) -> FullInfoSession:
        task = inputs.task

        def play(now: FullView) -> Actions:
            has, kind, zone = choose_spot_or_idle(inputs, now, self.ranking)
            done, passed = (task.work_s - now.left_s) * task.deadline_s, now.tick * inputs.tick_s
            on_demand = now.kind == ON_DEMAND
            needed = ~has & (on_demand | (done < passed * task.work_s))
            if self.hysteresis:
                needed |= on_demand & (done <= (passed + 2 * task.changeover_s) * task.work_s)
            return add_on_demand(inputs, now, kind, zone, needed)

        return play


@dataclass(frozen=True, slots=True)
class TimeSliced:
    """Time Sliced: greedy in each of ``slices`` parts of R / n, each with a safety net of its own.

    The net of a part keeps n-ths of C done by its end; surplus work is carried over. A tick belongs to the slice in
    which it begins.

    With need = target - cp and rest = the slice's end - t: where nothing is needed, spot or idle; else, where idle or
    on demand and need + 2d > rest - tick, on demand; spot past its delay goes on to need + d. On demand with no spot it
    stays there until the target is met.
    """

    slices: int = 8

    def begin(self, inputs: SimulationSpec) -> FullInfoSession:
        task, g, n = inputs.task, inputs.tick_s, self.slices
        d = task.changeover_s + inputs.ways.longest_s

        def play(now: FullView) -> Actions:
            has, kind, zone = choose_spot_or_idle(inputs, now)
            slice_ = min(n - 1, now.tick * g * n // task.deadline_s)
            # Times are multiplied by n, so that all stay whole seconds.
            need = task.work_s * (slice_ + 1) - n * (task.work_s - now.left_s)
            after = task.deadline_s * (slice_ + 1) - n * (now.tick + 1) * g
            spot, on_demand = now.kind == SPOT, now.kind == ON_DEMAND
            riding = spot & (now.delay_s == 0)
            late = (~spot & (need + 2 * n * d > after)) | (~riding & (need + n * d > after))
            return add_on_demand(inputs, now, kind, zone, (need > 0) & (late | (on_demand & ~has)))

        return play


PROBE_TICKS: Final = 6


def compute_move_gains(terms: SimulationSpec, view: BlindView, hours: Floats) -> Floats:
    """Return by [zone, window] the dollars that a move of the spot instance to the zone saves.

    Spot is assumed to last ``hours`` [zone, window] there, or until the work is done: (p_here - p_there) * hours - d *
    p_there - egress.
    """
    rows = np.arange(view.window.size)
    here = view.spot_usd[view.zone, rows]
    lasts = np.minimum(hours, view.left_s / HOUR_S)
    d_h = (terms.task.changeover_s + terms.ways.transfer_s[view.zone].T) / HOUR_S
    gains_usd: Floats = (here - view.spot_usd) * lasts - d_h * view.spot_usd - terms.ways.egress_usd[view.zone].T
    return gains_usd


@dataclass(frozen=True, slots=True)
class CheapestSpot:
    """A policy that takes the cheapest spot whenever there is any, and else waits; it has to ask for it."""

    def begin(self, _: SimulationSpec, /) -> PolicySession:
        return _CheapestSession()


@dataclass(frozen=True, slots=True)
class CheapestWithMoves:
    """The policy "+ moves": it moves where that pays for itself if spot lasts there until the work is done.

    It tries those zones each tick.
    """

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        return _MovesSession(terms)


@dataclass(frozen=True, slots=True)
class Lindy:
    """The policy "lindy": it moves where that pays for itself if spot lasts there ``factor`` times its age.

    The age is the time for which it has been seen up. The policy probes zones to which a move would pay if they lasted:
    each tick while they are down, which is free, and every ``probe_ticks`` while they are up.
    """

    factor: float = 1.0
    probe_ticks: int = PROBE_TICKS

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        return _LindySession(self, terms)


def _cheapest_order(view: BlindView) -> Floats:
    return np.where(view.kind == IDLE, view.spot_usd, np.inf)


class _CheapestSession(PolicySession):
    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        wish.spot = _cheapest_order(view)
        return wish


class _MovesSession(PolicySession):
    def __init__(self, terms: SimulationSpec) -> None:
        self.terms = terms

    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        better = (compute_move_gains(self.terms, view, np.full(view.spot_usd.shape, np.inf)) > 0) & (view.kind == SPOT)
        wish.spot = np.where(better, view.spot_usd, _cheapest_order(view))
        return wish


class _LindySession:
    """The session of lindy.

    ``first_up`` [zone, window] is the tick since which no answer was "down"; ``NEVER`` if the last one was.
    """

    def __init__(self, rule: Lindy, terms: SimulationSpec) -> None:
        self.rule, self.terms = rule, terms
        self.first_up: Ints = np.full((len(terms.zones), terms.starts.size), NEVER)

    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        first = self.first_up[:, view.window]
        first = np.where((first == NEVER) & view.was_up, view.answer_tick, first)
        first = np.where((view.answer_tick != NEVER) & ~view.was_up, NEVER, first)
        self.first_up[:, view.window] = first
        age_h = np.where(first == NEVER, 0.0, (view.tick - first) * self.terms.tick_s / HOUR_S)
        better = (compute_move_gains(self.terms, view, self.rule.factor * age_h) > 0) & (view.kind == SPOT)
        wish.spot = np.where(better, view.spot_usd, _cheapest_order(view))
        return wish

    def look(self, view: BlindView, /) -> Bools | None:
        worth = compute_move_gains(self.terms, view, np.full(view.spot_usd.shape, np.inf)) > 0
        due = np.where(view.was_up, view.tick >= view.answer_tick + self.rule.probe_ticks, view.answer_tick < view.tick)
        probes: Bools = worth & (due | (view.answer_tick == NEVER)) & (view.kind == SPOT)
        return probes
