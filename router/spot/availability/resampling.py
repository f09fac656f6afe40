"""Resampled availability: what a block of time might have brought, made of pieces of real availability.

It assumes nothing of its distribution: a stationary bootstrap (Politis and Romano, JASA 1994) with matched ends
(Carlstein et al., Bernoulli 1998). Real ticks follow in their order, all zones together; now and then, and where the
block ends, it continues after another tick of the block that looks alike, so that a seam adds no change of availability
that never was.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from router.spot.availability.hazard_model import age_class
from router.spot.simulator.traces import Bools, Floats, Ints

_TRIED: Final = 48  # candidate ticks from which a seam takes the most similar one


def resample_ticks(
    up: Bools, ages: Floats, block: range, starts: Ints, ticks: int, piece: float, rng: np.random.Generator
) -> Ints:
    """Return by [window, tick] the ticks of ``up`` [zone, tick] that follow each of ``starts``.

    All are of ``block``; pieces are ``piece`` ticks long on average. Raise ValueError where the block is shorter than
    two ticks.
    """
    if len(block) < 2:
        raise ValueError("a block to resample needs at least two ticks")
    look = (up * 8 + age_class(ages)).T.astype(np.int64)  # [tick, zone]
    states = up.T
    at, ticks_drawn = starts.copy(), np.empty((starts.size, ticks), dtype=np.int64)
    for i in range(ticks):
        seam = np.flatnonzero((rng.random(at.size) < 1 / piece) | (at + 1 >= block.stop))
        if seam.size:
            candidates = rng.integers(block.start, block.stop - 1, (seam.size, _TRIED))
            current = at[seam][:, None]
            distance = 4 * (states[candidates] != states[current]).sum(axis=2) + (
                look[candidates] != look[current]
            ).sum(axis=2)
            at[seam] = candidates[np.arange(seam.size), np.argmin(distance, axis=1)]
        at = at + 1
        ticks_drawn[:, i] = at
    return ticks_drawn
