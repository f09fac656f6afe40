"""Our policy for one zone: backward induction on hazards learned from the past."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.availability.hazards import SLOW_H, AvailabilitySignals, LogisticHazards
from router.spot.availability.markov_chain import AvailabilityChain, ChainShape
from router.spot.policies import price_fits
from router.spot.policies.chain_induction import CHAIN_INFEASIBLE_USD, ChainValues, SlackGrid, solve_chain
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import IDLE, ON_DEMAND, SPOT, Actions, FullInfoSession, FullView
from router.spot.simulator.traces import Floats, Ints, Series

# A clock as slow as this decides equally well: hazards are per hour, not per minute.
_CLOCK_S = 900
_MEMORY_H = 3 * SLOW_H


@dataclass(frozen=True, eq=False, slots=True)
class ChainPolicy:
    """A policy for one zone, with the task, tick length and on-demand price that it was fitted for.

    It needs the exact guard. Future spot is taken to cost the present spot price.
    """

    chain: AvailabilityChain
    grid: SlackGrid
    ticks: int
    on_demand_usd: float

    @classmethod
    def fitted(
        cls, past: Series, like: SimulationInputs, *, shape: ChainShape | None = None, clock_s: int = _CLOCK_S
    ) -> ChainPolicy:
        """Return the policy fitted to the availability of any zones in ``past``, for inputs like ``like``.

        ``past`` is on the tick of the inputs. Starts, availability and spot prices of the inputs to be played may
        differ. Raise ValueError for inputs of several zones.
        """
        if len(like.series.zones) != 1:
            raise ValueError("this policy supports one zone only")
        task = like.task
        step = max(1, clock_s // like.tick_s)
        clock = step * like.tick_s
        chain = AvailabilityChain.of(LogisticHazards.of([past.every(step).up(task.size)], clock), shape)
        grid = SlackGrid.of(clock, task.changeover_s, max(0, like.ticks * like.tick_s - task.work_s))
        return cls(chain, grid, max(1, -(-like.ticks // step)), float(like.on_demand_usd[0]))

    def at(self, spot_usd: float) -> ChainValues:
        """Return the solution for that spot price."""
        share = self.chain.hazards.tick_s / HOUR_S
        return solve_chain(self.chain, self.grid, self.ticks, spot_usd * share, self.on_demand_usd * share)

    def begin(self, scene: SimulationInputs) -> FullInfoSession:
        """See :class:`~router.spot.simulator.simulation.FullInfoPolicy`."""
        return _ChainSession(self, scene).play


class _ChainSession:
    def __init__(self, policy: ChainPolicy, scene: SimulationInputs) -> None:
        self.policy, self.scene, self.chain = policy, scene, policy.chain
        self.solved: dict[float, ChainValues] = {}  # by spot price
        self.clock = policy.chain.hazards.tick_s
        self.seen = self._past_signals()

    def _past_signals(self) -> AvailabilitySignals:
        """Return the signals [zone, window] from the ticks before the windows."""
        scene = self.scene
        count = min(int(_MEMORY_H * HOUR_S) // scene.tick_s, int(scene.starts.max(initial=0)))
        up, known = scene.before(count)
        seen = AvailabilitySignals.unseen(up.shape[:2], self.chain.hazards.mean)
        for i in range(count):
            seen.see(up[..., i], scene.tick_s, known[..., i])
        return seen

    def play(self, now: FullView) -> Actions:
        """Look each action up."""
        seen, rows = self.seen, now.window
        part = AvailabilitySignals(*(getattr(seen, name)[:, rows] for name in ("up", "age_h", "fast", "slow")))
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

    def _dollars(self, now: FullView, seen: AvailabilitySignals, n: int, slack_s: Ints) -> tuple[Floats, ...]:
        """Return by [window] the dollars of each action."""
        dollars = np.empty((5, now.window.size))
        for usd in np.unique(now.spot_usd[0]):
            rows = np.flatnonzero(now.spot_usd[0] == usd)
            window_signals = AvailabilitySignals(
                *(getattr(seen, name)[:, rows] for name in ("up", "age_h", "fast", "slow"))
            )
            dollars[:, rows] = self._dollars_at(
                self._solution(float(usd)), window_signals, n, (slack_s - now.delay_s)[rows].astype(np.float64)
            )
        return tuple(dollars)

    def _solution(self, usd: float) -> ChainValues:
        """Return the solution at the nearest solved price within 2 % of this one, or else at this one."""
        near = min(self.solved, key=lambda other: abs(usd / other - 1), default=usd)
        if not self.solved or (abs(usd / near - 1) > price_fits.MOVES and len(self.solved) < price_fits.MOST):
            near, self.solved[usd] = usd, self.policy.at(usd)
        return self.solved[near]

    def _dollars_at(self, values: ChainValues, seen: AvailabilitySignals, n: int, slack_s: Floats) -> Floats:
        """Return by [choice, window] the dollars of windows that see one price."""
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
                wait += weight * part * np.minimum(w[c, u, a, f, at], CHAIN_INFEASIBLE_USD)
                more += (weight * part)[:, None] * m[c, u, a, f, at]
        return np.stack([wait, *(np.minimum(wait + more[:, i], CHAIN_INFEASIBLE_USD) for i in range(4))])
