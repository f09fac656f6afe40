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

    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        rows = np.arange(view.window.size)
        up = (view.answer_tick < view.tick - self.holds) | view.was_up
        open_ = np.ones(rows.size, dtype=bool)
        for place in range(len(up) + 1):
            kind, zone = self.player(_full_view(view, up))
            spot = open_ & (kind == SPOT) & up[zone, rows]
            wish.spot[zone[spot], rows[spot]] = place
            demand = open_ & (kind == ON_DEMAND)
            wish.demand[demand] = zone[demand]
            wish.leave[open_ & (kind == IDLE) & (view.kind != IDLE)] = True
            up = up.copy()
            up[zone[spot], rows[spot]] = False
            open_ = spot & ~((view.kind == SPOT) & (view.zone == zone))
            if not open_.any():
                break
        return wish

    def look(self, _: BlindView, /) -> Bools | None:
        return None


def _full_view(view: BlindView, up: Bools) -> FullView:
    last = np.where(view.home == NOWHERE, NOWHERE, view.zone)
    return FullView(
        tick=view.tick,
        ticks=view.ticks,
        window=view.window,
        left_s=view.left_s,
        kind=view.kind,
        zone=view.zone,
        home=view.home,
        last=last,
        delay_s=view.delay_s,
        kept=np.zeros_like(view.left_s),
        up=up,
        spot_usd=view.spot_usd,
    )
