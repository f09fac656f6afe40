"""A policy that sees all availability, as one that has to ask: it believes that spot is there until it hears no."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.simulator.blind_policy import Known, Player, Terms, Wish
from router.spot.simulator.inputs import Scene
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Now, VectorPolicy
from router.spot.simulator.simulation import Player as FreePlayer
from router.spot.simulator.traces import Bools, Series, ZoneSeries


@dataclass(frozen=True, slots=True)
class Believing:
    """Asks ``policy`` what it would do if all zones were up; where that is spot in some zone, what it would do if that
    one was down, and so on. What it wishes for is that order, and at its end what is left to do.

    The policy may look at no more than the moment: several answers are asked of it for each tick. A zone that said no
    is taken to be down for the rest of the tick and ``holds_ticks`` more; 0: every tick is a new chance.
    """

    policy: VectorPolicy
    holds_ticks: int = 0

    def begin(self, terms: Terms, /) -> Player:
        """See :class:`~router.spot.simulator.blind_policy.Explorer`."""
        return _Player(self.policy.begin(scene_of(terms)), self.holds_ticks)


def scene_of(terms: Terms) -> Scene:
    """A scene of these terms in which nothing is ever up and spot costs what on-demand does: all that a policy which
    does not know the weather may read."""
    ticks = int(terms.starts.max()) + terms.ticks
    usd = np.where(np.isfinite(terms.on_demand_usd), terms.on_demand_usd, 1.0)
    named = zip(terms.zones, terms.regions, usd.tolist(), terms.on_demand_usd.tolist(), strict=True)
    zones = tuple(
        ZoneSeries(zone, region, np.zeros(ticks, dtype=np.int64), np.full(ticks, spot), demand)
        for zone, region, spot, demand in named
    )
    return Scene.of(terms.task, Series(terms.tick_s, zones), terms.starts, terms.ways, terms.speed, terms.launch_s)


class _Player:
    def __init__(self, player: FreePlayer, holds_ticks: int) -> None:
        self.player, self.holds = player, holds_ticks

    def act(self, known: Known, /) -> Wish:
        wish = Wish.nothing(known)
        rows = np.arange(known.window.size)
        up = (known.asked < known.tick - self.holds) | known.was_up
        open_ = np.ones(rows.size, dtype=bool)
        for place in range(len(up) + 1):
            kind, zone = self.player(_now(known, up))
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

    def look(self, _: Known, /) -> Bools | None:
        return None


def _now(known: Known, up: Bools) -> Now:
    last = np.where(known.home == NOWHERE, NOWHERE, known.zone)
    return Now(
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
