"""Adapter of a full-information policy to blind views: it assumes that spot is there until a zone says no."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession, SimulationSpec
from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, FullInfoPolicy, FullView
from router.spot.simulator.simulation import FullInfoSession as FreePlayer
from router.spot.simulator.traces import Bools, Series, ZoneSeries


@dataclass(frozen=True, slots=True)
class OptimisticAdapter:
    """A blind policy that asks ``policy`` what it would do if all zones were up.

    Where the answer is spot in some zone, it asks what the policy would do if that one was down, and so on. It requests
    the zones in that order, and at its end what is left to do.

    The policy may look at no more than the present tick: several answers are asked of it for each tick. A zone that
    said no is taken to be down for the rest of the tick and ``holds_ticks`` more; 0: every tick is a new chance.
    """

    policy: FullInfoPolicy
    holds_ticks: int = 0

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        """See :class:`~router.spot.simulator.blind_policy.BlindPolicy`."""
        return _OptimisticSession(self.policy.begin(build_empty_inputs(terms)), self.holds_ticks)


def build_empty_inputs(terms: SimulationSpec) -> SimulationInputs:
    """Return inputs of this specification in which nothing is ever up and spot costs what on-demand does.

    That is all that a policy without knowledge of availability may read.
    """
    ticks = int(terms.starts.max()) + terms.ticks
    usd = np.where(np.isfinite(terms.on_demand_usd), terms.on_demand_usd, 1.0)
    named = zip(terms.zones, terms.regions, usd.tolist(), terms.on_demand_usd.tolist(), strict=True)
    zones = tuple(
        ZoneSeries(zone, region, np.zeros(ticks, dtype=np.int64), np.full(ticks, spot), demand)
        for zone, region, spot, demand in named
    )
    return SimulationInputs.of(
        terms.task, Series(terms.tick_s, zones), terms.starts, terms.ways, terms.speed, terms.launch_s
    )


class _OptimisticSession:
    def __init__(self, player: FreePlayer, holds_ticks: int) -> None:
        self.player, self.holds = player, holds_ticks

    def act(self, known: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(known)
        rows = np.arange(known.window.size)
        up = (known.asked < known.tick - self.holds) | known.was_up
        open_ = np.ones(rows.size, dtype=bool)
        for place in range(len(up) + 1):
            kind, zone = self.player(_full_view(known, up))
            spot = open_ & (kind == SPOT) & up[zone, rows]
            wish.spot[zone[spot], rows[spot]] = place
            demand = open_ & (kind == ON_DEMAND)
            wish.demand[demand] = zone[demand]
            wish.leave[open_ & (kind == IDLE) & (known.kind != IDLE)] = True
            up = up.copy()
            up[zone[spot], rows[spot]] = False
            open_ = spot & ~((known.kind == SPOT) & (known.zone == zone))
            if not open_.any():
                break
        return wish

    def look(self, _: BlindView, /) -> Bools | None:
        return None


def _full_view(known: BlindView, up: Bools) -> FullView:
    last = np.where(known.home == NOWHERE, NOWHERE, known.zone)
    return FullView(
        tick=known.tick,
        ticks=known.ticks,
        window=known.window,
        left_s=known.left_s,
        kind=known.kind,
        zone=known.zone,
        home=known.home,
        last=last,
        delay_s=known.delay_s,
        kept=np.zeros_like(known.left_s),
        up=up,
        spot_usd=known.spot_usd,
    )
