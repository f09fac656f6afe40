"""Policies that move spot where that pays for itself: "+ moves" and "lindy", as SkyNomad (NSDI 2027) compares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.policies.published.baselines import order_by_price
from router.spot.policies.registry import RegisteredPolicy
from router.spot.simulator.blind_policy import NEVER, BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import HOUR_S, SimulationSpec
from router.spot.simulator.simulation import SPOT
from router.spot.simulator.traces import Bools, Floats, Ints

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


class _MovesSession(PolicySession):
    def __init__(self, terms: SimulationSpec) -> None:
        self.terms = terms

    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        better = (compute_move_gains(self.terms, view, np.full(view.spot_usd.shape, np.inf)) > 0) & (view.kind == SPOT)
        wish.spot = np.where(better, view.spot_usd, order_by_price(view))
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
        wish.spot = np.where(better, view.spot_usd, order_by_price(view))
        return wish

    def look(self, view: BlindView, /) -> Bools | None:
        worth = compute_move_gains(self.terms, view, np.full(view.spot_usd.shape, np.inf)) > 0
        due = np.where(view.was_up, view.tick >= view.answer_tick + self.rule.probe_ticks, view.answer_tick < view.tick)
        probes: Bools = worth & (due | (view.answer_tick == NEVER)) & (view.kind == SPOT)
        return probes


POLICIES: Final = (
    RegisteredPolicy(
        "moves", "the cheapest spot, moves when that pays if it lasts", asks=lambda *_: CheapestWithMoves()
    ),
    RegisteredPolicy("lindy", "moves when that pays if spot lasts as long again", asks=lambda *_: Lindy()),
)
