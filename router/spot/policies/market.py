"""The market of a :mod:`router.spot.policies.foresight` model: prices, speeds, launches and moves of zones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.simulator.inputs import ZoneMoveCosts
from router.spot.simulator.traces import Floats, Ints

SPEED_TOLERANCE: Final = 1e-9  # speeds that differ by less count as equal


@dataclass(frozen=True, eq=False, slots=True)
class ZoneMarket:
    """Prices and launches by zone.

    Prices are dollars an hour of the whole gang on spot and on demand (infinite: not sold). ``speed`` is relative to
    the reference; ``launch_s`` is the seconds of a launch there without a transfer.
    """

    spot_usd: Floats
    on_demand_usd: Floats
    speed: Floats
    launch_s: Floats
    ways: ZoneMoveCosts

    @property
    def zones(self) -> int:
        """The number of zones."""
        return len(self.spot_usd)

    def homes(self) -> tuple[Ints, Ints]:
        """Return by [zone] its group, and by [group] a zone of it.

        Moves from zones of one group cost the same.
        """
        rows = np.concatenate([self.ways.egress_usd, self.ways.transfer_s], axis=1)
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), first

    def on_demand_zones(self) -> Ints:
        """Return the cheapest on-demand zone of each group of homes and each speed."""
        group, _ = self.homes()
        best: dict[tuple[int, float], int] = {}
        for z in np.flatnonzero(np.isfinite(self.on_demand_usd)):
            key = (int(group[z]), float(self.speed[z]))
            if key not in best or self.on_demand_usd[z] < self.on_demand_usd[best[key]]:
                best[key] = int(z)
        return np.array(sorted(best.values()), dtype=np.int64)
