"""How long work takes in zones of different speeds, and how soon on-demand would be done. All in whole seconds, exact.

A speed counts to a millionth; what a tick leaves of a second of work is kept for the next one, so that n seconds in
one zone do at least floor(n * speed) of work.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from router.spot.simulator.inputs import MILLION, Scene
from router.spot.simulator.traces import Floats, Ints

NOT_SOLD_S = 2**61  # longer than any window


class Paces:
    """Of the zones of one scene."""

    def __init__(self, scene: Scene) -> None:
        self.pace: Ints = np.rint(scene.speed * MILLION).astype(np.int64)
        self.launch_s: Ints = scene.task.changeover_s + scene.launch_s
        self.from_afar_s: Ints = self.launch_s + scene.ways.transfer_s.max(axis=0)
        self.sold = np.isfinite(scene.on_demand_usd)

    def takes_s(self, left_s: Ints, zone: Ints, kept: Ints | int = 0) -> Ints:
        """Seconds that so much work takes in ``zone``, less what was kept of it; all are broadcast."""
        found: Ints = -((kept - left_s * MILLION) // self.pace[zone])
        return found

    def soonest_s(self, left_s: Ints) -> Ints:
        """[window]: seconds until on-demand is done with it, wherever the checkpoint is now."""
        zones = np.arange(self.pace.size)[:, None]
        whole = self.from_afar_s[:, None] + self.takes_s(left_s, zones)
        found: Ints = np.where(self.sold[:, None], whole, NOT_SOLD_S).min(axis=0)
        return found

    def done_s(self, seconds: Ints, zone: Ints, kept: Ints) -> tuple[Ints, Ints]:
        """Work of so many seconds in ``zone``, and what is kept of it, in millionths, for the next tick."""
        whole = seconds * self.pace[zone] + kept
        return whole // MILLION, whole % MILLION


@lru_cache(maxsize=4)
def paces_of(scene: Scene) -> Paces:
    """Remembered for the scenes that were asked for last: policies ask at every tick."""
    return Paces(scene)


def best_zone(scene: Scene, paces: Paces, left_s: Ints, rest_s: int, transfer_s: Ints, egress_usd: Floats) -> Ints:
    """[window]: of the zones whose on-demand is done within ``rest_s``, the one that does the work for least; the
    soonest done where none is in time. ``transfer_s`` and ``egress_usd``: [zone, window], of the checkpoint."""
    zones = np.arange(paces.pace.size)[:, None]
    needs = paces.launch_s[:, None] + transfer_s + paces.takes_s(left_s, zones)
    needs = np.where(paces.sold[:, None], needs, NOT_SOLD_S)
    usd = needs / 3600 * scene.on_demand_usd[:, None] + egress_usd
    in_time = needs <= rest_s
    cheap: Ints = np.argmin(np.where(in_time, usd, np.inf), axis=0)
    return np.where(in_time.any(axis=0), cheap, np.argmin(needs, axis=0))
