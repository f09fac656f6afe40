"""Weather made of pieces of real weather: what a block of time might have brought, nothing assumed of its law.

A stationary bootstrap (Politis and Romano, JASA 1994) with matched ends (Carlstein et al., Bernoulli 1998): real ticks
in their order, all zones together; now and then, and where the block ends, it goes on after another tick of the block
that looks alike, so that a seam is no change of weather that never was.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from router.spot.availability.hazard_model import age_class
from router.spot.simulator.traces import Bools, Floats, Ints

_TRIED: Final = 48  # ticks that a seam chooses among


def resampled(
    up: Bools, ages: Floats, block: range, starts: Ints, ticks: int, piece: float, rng: np.random.Generator
) -> Ints:
    """[window, tick]: which ticks of ``up`` [zone, tick] follow each of ``starts`` in turn. All are of ``block``;
    pieces are ``piece`` ticks long on average. ValueError where the block is shorter than two ticks."""
    if len(block) < 2:
        raise ValueError("pieces of a block of one tick")
    look = (up * 8 + age_class(ages)).T.astype(np.int64)  # [tick, zone]
    states = up.T
    at, found = starts.copy(), np.empty((starts.size, ticks), dtype=np.int64)
    for i in range(ticks):
        seam = np.flatnonzero((rng.random(at.size) < 1 / piece) | (at + 1 >= block.stop))
        if seam.size:
            tried = rng.integers(block.start, block.stop - 1, (seam.size, _TRIED))
            here = at[seam][:, None]
            apart = 4 * (states[tried] != states[here]).sum(axis=2) + (look[tried] != look[here]).sum(axis=2)
            at[seam] = tried[np.arange(seam.size), np.argmin(apart, axis=1)]
        at = at + 1
        found[:, i] = at
    return found
