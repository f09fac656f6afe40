"""On-demand from the start to the end: the policy that remains where spot never comes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import ON_DEMAND, Actions, FullInfoSession, FullView, find_on_demand_zone


@dataclass(frozen=True, slots=True)
class OnDemandNow:
    """A policy that runs on demand from the first tick, in the cheapest zone that is in time.

    It is a :class:`~router.spot.simulator.simulation.FullInfoPolicy`.
    """

    def begin(self, scene: SimulationInputs) -> FullInfoSession:
        """See :class:`~router.spot.simulator.simulation.FullInfoPolicy`."""

        def play(now: FullView) -> Actions:
            rows = np.arange(now.window.size)
            runs = now.kind == ON_DEMAND
            zone = np.where(runs, now.zone, find_on_demand_zone(scene, now, rows))
            return np.full(rows.size, ON_DEMAND, dtype=np.int8), zone

        return play
