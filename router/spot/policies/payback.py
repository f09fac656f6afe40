"""Two simple policies for zones that have to be asked: "+ moves" and "lindy".

They are our reading of policies that are described in a sentence each beside the figures of SkyNomad. Both take the
cheapest spot, wait where there is none, and need the guard
:attr:`router.spot.simulator.blind_simulator.BlindGuardMode.PUBLISHED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.simulator.blind_policy import NEVER, BlindView, LaunchRequest, PolicySession, SimulationSpec
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import IDLE, SPOT
from router.spot.simulator.traces import Bools, Floats, Ints

PROBE_TICKS: Final = 6


def compute_move_gains(terms: SimulationSpec, known: BlindView, hours: Floats) -> Floats:
    """Return by [zone, window] the dollars that a move of the spot instance to the zone saves.

    Spot is assumed to last ``hours`` [zone, window] there, or until the work is done: (p_here - p_there) * hours - d *
    p_there - egress.
    """
    rows = np.arange(known.window.size)
    here = known.spot_usd[known.zone, rows]
    lasts = np.minimum(hours, known.left_s / HOUR_S)
    d_h = (terms.task.changeover_s + terms.ways.transfer_s[known.zone].T) / HOUR_S
    gains_usd: Floats = (here - known.spot_usd) * lasts - d_h * known.spot_usd - terms.ways.egress_usd[known.zone].T
    return gains_usd


@dataclass(frozen=True, slots=True)
class CheapestWithMoves:
    """The policy "+ moves": it moves where that pays for itself if spot lasts there until the work is done.

    It tries those zones each tick.
    """

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        """See :class:`~router.spot.simulator.blind_policy.BlindPolicy`."""
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
        """See :class:`~router.spot.simulator.blind_policy.BlindPolicy`."""
        return _LindySession(self, terms)


def _cheapest_order(known: BlindView) -> Floats:
    return np.where(known.kind == IDLE, known.spot_usd, np.inf)


class _MovesSession:
    def __init__(self, terms: SimulationSpec) -> None:
        self.terms = terms

    def act(self, known: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(known)
        better = (compute_move_gains(self.terms, known, np.full(known.spot_usd.shape, np.inf)) > 0) & (
            known.kind == SPOT
        )
        wish.spot = np.where(better, known.spot_usd, _cheapest_order(known))
        return wish

    def look(self, _: BlindView, /) -> Bools | None:
        return None


class _LindySession:
    """The session of lindy.

    ``first_up`` [zone, window] is the tick since which no answer was "down"; ``NEVER`` if the last one was.
    """

    def __init__(self, rule: Lindy, terms: SimulationSpec) -> None:
        self.rule, self.terms = rule, terms
        self.first_up: Ints = np.full((len(terms.zones), terms.starts.size), NEVER)

    def act(self, known: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(known)
        first = self.first_up[:, known.window]
        first = np.where((first == NEVER) & known.was_up, known.asked, first)
        first = np.where((known.asked != NEVER) & ~known.was_up, NEVER, first)
        self.first_up[:, known.window] = first
        age_h = np.where(first == NEVER, 0.0, (known.tick - first) * self.terms.tick_s / HOUR_S)
        better = (compute_move_gains(self.terms, known, self.rule.factor * age_h) > 0) & (known.kind == SPOT)
        wish.spot = np.where(better, known.spot_usd, _cheapest_order(known))
        return wish

    def look(self, known: BlindView, /) -> Bools | None:
        worth = compute_move_gains(self.terms, known, np.full(known.spot_usd.shape, np.inf)) > 0
        due = np.where(known.was_up, known.tick >= known.asked + self.rule.probe_ticks, known.asked < known.tick)
        probes: Bools = worth & (due | (known.asked == NEVER)) & (known.kind == SPOT)
        return probes
