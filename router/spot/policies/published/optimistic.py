"""Adapter of a full-information policy to blind views: it assumes that spot is there until a zone says no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import SimulationSpec
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, FullInfoSession, FullView
from router.spot.simulator.traces import Bools


class PresentPolicy(Protocol):
    """A policy that looks at no more than the present tick."""

    def begin(self, inputs: SimulationSpec) -> FullInfoSession: ...


@dataclass(frozen=True, slots=True)
class OptimisticAdapter:
    """A blind policy that asks ``policy`` what it would do if all zones were up.

    Where the answer is spot in some zone, it asks what the policy would do if that one was down, and so on. It requests
    the zones in that order, and at its end what is left to do.

    Several answers are asked of the policy for each tick. A zone that said no is taken to be down for the rest of the
    tick and ``holds_ticks`` more; 0: every tick is a new chance.
    """

    policy: PresentPolicy
    holds_ticks: int = 0

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        return _OptimisticSession(self.policy.begin(terms), self.holds_ticks)


class _OptimisticSession(PolicySession):
    def __init__(self, player: FullInfoSession, holds_ticks: int) -> None:
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
