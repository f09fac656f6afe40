"""On demand from the start to the end: what is left where spot is not to be had."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.simulator.inputs import Scene
from router.spot.simulator.simulation import ON_DEMAND, Actions, Now, Player, on_demand_zone


@dataclass(frozen=True, slots=True)
class AtOnce:
    """A :class:`~router.spot.simulator.simulation.VectorPolicy`: the cheapest place that is in time, from the first
    tick."""

    def begin(self, scene: Scene) -> Player:
        """See :class:`~router.spot.simulator.simulation.VectorPolicy`."""

        def play(now: Now) -> Actions:
            rows = np.arange(now.window.size)
            runs = now.kind == ON_DEMAND
            zone = np.where(runs, now.zone, on_demand_zone(scene, now, rows))
            return np.full(rows.size, ON_DEMAND, dtype=np.int8), zone

        return play
