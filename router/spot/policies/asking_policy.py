"""A policy that must ask zones for spot, played where availability is seen, by the rules of the supervisor.

The simulator of quotes knows speeds, pools and several deadlines at once, but shows its policies all availability. Here
a :class:`~router.spot.simulator.blind_policy.BlindPolicy` is shown only what its launches found out. A gang that runs
tries one zone a tick and goes on until it is obtained; one that runs nowhere tries zone after zone, as
:mod:`router.spot.live.as_run` does. A launch that fails is free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.simulator.blind_policy import NEVER, BlindPolicy, BlindView, LaunchRequest
from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Actions, FullInfoSession, FullView
from router.spot.simulator.traces import Bools, Ints


@dataclass(frozen=True, eq=False, slots=True)
class AskingPolicy:
    """A blind policy as a :class:`~router.spot.simulator.simulation.FullInfoPolicy`; it needs the exact guard."""

    blind: BlindPolicy

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        return _AskingSession(self.blind, inputs).play


class _AskingSession:
    """The session of all windows; arrays are by [zone, window] or [window], of all windows of the inputs."""

    def __init__(self, blind: BlindPolicy, inputs: SimulationInputs) -> None:
        self.session = blind.begin(inputs.spec)
        shape = (len(inputs.zones), inputs.starts.size)
        self.answer_tick: Ints = np.full(shape, NEVER, dtype=np.int64)
        self.was_up: Bools = np.zeros(shape, dtype=bool)
        self.tried: Bools = np.zeros(shape, dtype=bool)
        self.since: Ints = np.full(shape[1], NEVER, dtype=np.int64)
        self.on_spot: Bools = np.zeros(shape[1], dtype=bool)

    def play(self, now: FullView) -> Actions:
        """Return what the policy obtains in this tick."""
        lost = self._hear_of_running(now)
        wish = self.session.act(self._view(now, lost))
        order = _one_try_where_it_runs(wish, now)
        spot = np.where(now.up, order, np.inf)
        first, rows = spot.argmin(axis=0), np.arange(now.window.size)
        least = spot[first, rows]
        launched = np.isfinite(least)
        self._hear_of_tries(now, np.isfinite(order) & (order <= least))
        wants_demand = ~launched & (wish.demand != NOWHERE)
        kind = np.where(launched, SPOT, np.where(wants_demand, ON_DEMAND, np.where(wish.leave, IDLE, now.kind)))
        zone = np.where(launched, first, np.where(wants_demand, wish.demand, now.zone))
        fresh = (kind != IDLE) & ((kind != now.kind) | (zone != now.zone))
        self.since[now.window[fresh]] = now.tick
        self.on_spot[now.window] = kind == SPOT
        return kind.astype(np.int8), zone

    def _hear_of_running(self, now: FullView) -> Bools:
        """Note whether spot that ran is there still, and return which windows lost it."""
        rows = np.arange(now.window.size)
        there = now.up[now.zone, rows]
        lost = self.on_spot[now.window] & (now.kind == IDLE) & ~there
        heard = np.flatnonzero((now.kind == SPOT) | lost)
        self._answer(now, now.zone[heard], heard, there[heard])
        return np.asarray(lost)

    def _hear_of_tries(self, now: FullView, tried: Bools) -> None:
        zone, row = np.nonzero(tried)
        self._answer(now, zone, row, now.up[zone, row])
        self.tried[:, now.window] = tried

    def _answer(self, now: FullView, zone: Ints, row: Ints, up: Bools) -> None:
        window = now.window[row]
        self.answer_tick[zone, window] = now.tick
        self.was_up[zone, window] = up

    def _view(self, now: FullView, lost: Bools) -> BlindView:
        window = now.window
        return BlindView(
            tick=now.tick,
            ticks=now.ticks,
            window=window,
            left_s=now.left_s,
            kind=now.kind,
            zone=now.zone,
            home=now.home,
            delay_s=now.delay_s,
            spot_usd=now.spot_usd,
            lost=lost,
            since=self.since[window],
            answer_tick=self.answer_tick[:, window],
            was_up=self.was_up[:, window],
            tried=self.tried[:, window],
        )


def _one_try_where_it_runs(wish: LaunchRequest, now: FullView) -> np.ndarray:
    """Return the spot requests [zone, window] with only the best of each gang that runs."""
    best, rows = wish.spot.argmin(axis=0), np.arange(now.window.size)
    only = np.full_like(wish.spot, np.inf)
    only[best, rows] = wish.spot[best, rows]
    return np.where((now.kind != IDLE) & ~wish.leave, only, wish.spot)
