"""Durations of work in zones of different speeds, and the time until on-demand would finish it.

All is in whole seconds and exact. A speed counts to a millionth; the fraction of a second of work that a tick leaves
over is carried into the next tick, so that n seconds in one zone do at least floor(n * speed) of work.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from router.spot.simulator.inputs import MILLION, SimulationInputs
from router.spot.simulator.traces import Floats, Ints

NOT_SOLD_S = 2**61  # longer than any window


class ZoneSpeeds:
    """The speeds and launch times of the zones of one simulation."""

    def __init__(self, scene: SimulationInputs) -> None:
        self.pace: Ints = np.rint(scene.speed * MILLION).astype(np.int64)
        self.launch_s: Ints = scene.task.changeover_s + scene.launch_s
        self.from_afar_s: Ints = self.launch_s + scene.ways.transfer_s.max(axis=0)
        self.sold = np.isfinite(scene.on_demand_usd)

    def takes_s(self, left_s: Ints, zone: Ints, kept: Ints | int = 0) -> Ints:
        """Return the seconds that this work takes in ``zone``, less the carried fraction.

        All arguments are broadcast.
        """
        seconds: Ints = -((kept - left_s * MILLION) // self.pace[zone])
        return seconds

    def soonest_s(self, left_s: Ints) -> Ints:
        """Return by [window] the seconds until on-demand has done the work, wherever the checkpoint is now."""
        zones = np.arange(self.pace.size)[:, None]
        whole = self.from_afar_s[:, None] + self.takes_s(left_s, zones)
        soonest: Ints = np.where(self.sold[:, None], whole, NOT_SOLD_S).min(axis=0)
        return soonest

    def done_s(self, seconds: Ints, zone: Ints, kept: Ints) -> tuple[Ints, Ints]:
        """Return the work done in these seconds in ``zone``, and the fraction carried to the next tick.

        The fraction is in millionths of a second.
        """
        whole = seconds * self.pace[zone] + kept
        return whole // MILLION, whole % MILLION


@lru_cache(maxsize=4)
def get_zone_speeds(scene: SimulationInputs) -> ZoneSpeeds:
    """Return the speeds of these inputs, cached for the last inputs: policies ask at every tick."""
    return ZoneSpeeds(scene)


def pick_on_demand_zone(
    scene: SimulationInputs, paces: ZoneSpeeds, left_s: Ints, rest_s: int, transfer_s: Ints, egress_usd: Floats
) -> Ints:
    """Return by [window] the zone where on-demand does the work at the least cost within ``rest_s``.

    Where none is in time, it is the zone that is done soonest. ``transfer_s`` and ``egress_usd`` are by [zone, window],
    of the checkpoint.
    """
    zones = np.arange(paces.pace.size)[:, None]
    needs = paces.launch_s[:, None] + transfer_s + paces.takes_s(left_s, zones)
    needs = np.where(paces.sold[:, None], needs, NOT_SOLD_S)
    usd = needs / 3600 * scene.on_demand_usd[:, None] + egress_usd
    in_time = needs <= rest_s
    cheap: Ints = np.argmin(np.where(in_time, usd, np.inf), axis=0)
    return np.where(in_time.any(axis=0), cheap, np.argmin(needs, axis=0))
