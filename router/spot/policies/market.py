"""What is for sale where, as :mod:`router.spot.policies.foresight` takes it: prices, speeds, launches and moves of
places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.simulator.inputs import Ways
from router.spot.simulator.traces import Floats, Ints

SAME: Final = 1e-9  # speeds that differ by less are one


@dataclass(frozen=True, eq=False, slots=True)
class Market:
    """What is for sale, by zone: dollars an hour of the whole gang on spot and on demand (infinite: not sold),
    ``speed`` relative to the reference, ``launch_s`` seconds of a launch there without a transfer."""

    spot_usd: Floats
    on_demand_usd: Floats
    speed: Floats
    launch_s: Floats
    ways: Ways

    @property
    def zones(self) -> int:
        """How many there are."""
        return len(self.spot_usd)

    def homes(self) -> tuple[Ints, Ints]:
        """[zone] its group, and [group] a zone of it: from zones of one group moves cost the same."""
        rows = np.concatenate([self.ways.egress_usd, self.ways.transfer_s], axis=1)
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), first

    def on_demand_zones(self) -> Ints:
        """Of each group of homes and each speed the cheapest place on demand."""
        group, _ = self.homes()
        best: dict[tuple[int, float], int] = {}
        for z in np.flatnonzero(np.isfinite(self.on_demand_usd)):
            key = (int(group[z]), float(self.speed[z]))
            if key not in best or self.on_demand_usd[z] < self.on_demand_usd[best[key]]:
                best[key] = int(z)
        return np.array(sorted(best.values()), dtype=np.int64)
