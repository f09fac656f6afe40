"""Our policy for one zone: hazards learned from the past and backward induction on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.availability.hazards import SLOW_H, Signals, Weather
from router.spot.availability.markov_chain import Chain, Shape
from router.spot.policies import repricing
from router.spot.policies.chain_induction import NEVER, Grid, Values, solve
from router.spot.simulator.inputs import HOUR_S, Scene
from router.spot.simulator.simulation import IDLE, ON_DEMAND, SPOT, Actions, Now, Player
from router.spot.simulator.traces import Floats, Ints, Series

# A clock as slow as this decides as well: hazards are per hour, not per minute.
_CLOCK_S = 900
_MEMORY_H = 3 * SLOW_H


@dataclass(frozen=True, eq=False, slots=True)
class Learned:
    """Plays scenes of one zone, of the task, tick length and price on demand that it was fitted for; needs the exact
    net. What is to come is taken to cost what spot costs at the moment."""

    chain: Chain
    grid: Grid
    ticks: int
    on_demand_usd: float

    @classmethod
    def fitted(cls, past: Series, like: Scene, *, shape: Shape | None = None, clock_s: int = _CLOCK_S) -> Learned:
        """From what ``past`` shows of the weather of any zones, on the scene's tick, for scenes ``like`` this one in
        all but starts, weather and prices of spot. ValueError for a scene of several zones."""
        if len(like.series.zones) != 1:
            raise ValueError("this policy is for one zone")
        task = like.task
        step = max(1, clock_s // like.tick_s)
        clock = step * like.tick_s
        chain = Chain.of(Weather.of([past.every(step).up(task.size)], clock), shape)
        grid = Grid.of(clock, task.changeover_s, max(0, like.ticks * like.tick_s - task.work_s))
        return cls(chain, grid, max(1, -(-like.ticks // step)), float(like.on_demand_usd[0]))

    def at(self, spot_usd: float) -> Values:
        """Solves for that price."""
        share = self.chain.weather.tick_s / HOUR_S
        return solve(self.chain, self.grid, self.ticks, spot_usd * share, self.on_demand_usd * share)

    def begin(self, scene: Scene) -> Player:
        """See :class:`~router.spot.simulator.simulation.VectorPolicy`."""
        return _Play(self, scene).play


class _Play:
    def __init__(self, policy: Learned, scene: Scene) -> None:
        self.policy, self.scene, self.chain = policy, scene, policy.chain
        self.solved: dict[float, Values] = {}  # by prices of spot
        self.clock = policy.chain.weather.tick_s
        self.seen = self._before()

    def _before(self) -> Signals:
        """Signals of [zone, window] from the ticks before the windows."""
        scene = self.scene
        count = min(int(_MEMORY_H * HOUR_S) // scene.tick_s, int(scene.starts.max(initial=0)))
        up, known = scene.before(count)
        seen = Signals.unseen(up.shape[:2], self.chain.weather.mean)
        for i in range(count):
            seen.see(up[..., i], scene.tick_s, known[..., i])
        return seen

    def play(self, now: Now) -> Actions:
        """Looks each choice up."""
        seen, rows = self.seen, now.window
        part = Signals(*(getattr(seen, name)[:, rows] for name in ("up", "age_h", "fast", "slow")))
        part.see(now.up, self.scene.tick_s)
        for name in ("up", "age_h", "fast", "slow"):
            getattr(seen, name)[:, rows] = getattr(part, name)
        left_s = (now.ticks - now.tick) * self.scene.tick_s
        n = min(max(1, round(left_s / self.clock)), self.policy.ticks)
        wait, launch, _, to_demand, stay_demand = self._dollars(now, part, n, left_s - now.left_s)
        demand = np.where(now.kind == ON_DEMAND, stay_demand, to_demand)
        best = np.minimum(wait, launch)
        kind = np.where(launch < wait, SPOT, IDLE)
        kind = np.where((demand < best) | ((now.kind == ON_DEMAND) & (demand == best)), ON_DEMAND, kind)
        return np.where(now.kind == SPOT, SPOT, kind).astype(np.int8), now.zone

    def _dollars(self, now: Now, seen: Signals, n: int, slack_s: Ints) -> tuple[Floats, ...]:
        """[window] of each choice."""
        found = np.empty((5, now.window.size))
        for usd in np.unique(now.spot_usd[0]):
            rows = np.flatnonzero(now.spot_usd[0] == usd)
            of = Signals(*(getattr(seen, name)[:, rows] for name in ("up", "age_h", "fast", "slow")))
            found[:, rows] = self._dollars_at(
                self._values(float(usd)), of, n, (slack_s - now.delay_s)[rows].astype(np.float64)
            )
        return tuple(found)

    def _values(self, usd: float) -> Values:
        """At the nearest price that was solved for where that is within 2 % of this one, else at this one."""
        near = min(self.solved, key=lambda other: abs(usd / other - 1), default=usd)
        if not self.solved or (abs(usd / near - 1) > repricing.MOVES and len(self.solved) < repricing.MOST):
            near, self.solved[usd] = usd, self.policy.at(usd)
        return self.solved[near]

    def _dollars_at(self, values: Values, seen: Signals, n: int, slack_s: Floats) -> Floats:
        """[choice, window] of windows that see one price."""
        *states, weights = (part[:, 0] for part in self.chain.corners(seen))
        grid = values.grid
        unit = np.maximum(slack_s / grid.unit_s, 0.0)
        low = np.minimum(unit.astype(np.int64), grid.slacks - 1)
        high = np.minimum(low + 1, grid.slacks - 1)
        share = unit - low
        w, m = values.wait[n - 1], values.more[n - 1]
        wait, more = np.zeros(low.size), np.zeros((low.size, 4))
        for c, u, a, f, weight in zip(*states, weights, strict=True):
            for at, part in ((low, 1 - share), (high, share)):
                wait += weight * part * np.minimum(w[c, u, a, f, at], NEVER)
                more += (weight * part)[:, None] * m[c, u, a, f, at]
        return np.stack([wait, *(np.minimum(wait + more[:, i], NEVER) for i in range(4))])
