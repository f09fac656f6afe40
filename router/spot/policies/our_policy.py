"""Our policy: backward induction on hazards learned from the past, for one zone or, by its factories, for several.

It is called "ours" in back-tests; quotes are made for its faster fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from router.spot.availability.hazard_model import HazardModel
from router.spot.availability.hazards import (
    SLOW_H,
    AvailabilityChain,
    AvailabilitySignals,
    ChainShape,
    LogisticHazards,
    Singles,
)
from router.spot.policies import action_values
from router.spot.policies.asking_policy import AskingPolicy
from router.spot.policies.foresight_policies import BlindForesightPolicy, ForesightPolicy
from router.spot.policies.published.baselines import GreedySpot
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, sells_reference
from router.spot.simulator.simulation import (
    IDLE,
    ON_DEMAND,
    SPOT,
    Actions,
    FullInfoPolicy,
    FullInfoSession,
    FullView,
    find_on_demand_zone,
)
from router.spot.simulator.traces import Floats, Ints, Series

Halves = NDArray[np.float16]
CHAIN_INFEASIBLE_USD = 1e4
_MOST_SLACKS = 400
_FINEST = 6


@dataclass(frozen=True, slots=True)
class SlackGrid:
    """The grid of slack: ``per_tick`` units a tick, ``delay`` units a changeover, ``slacks`` values."""

    per_tick: int
    delay: int
    slacks: int
    unit_s: float

    @classmethod
    def of(cls, tick_s: int, delay_s: int, slack_s: int) -> SlackGrid:
        """Return the grid whose unit brings the changeover nearest to a whole number, and is not too fine."""
        best = (np.inf, 1)
        for parts in range(1, _FINEST + 1):
            unit = tick_s / parts
            if slack_s / unit > _MOST_SLACKS and parts > 1:
                break
            error = abs(max(1, round(delay_s / unit)) * unit - delay_s) / max(delay_s, 1) + 0.02 / parts
            best = min(best, (error, parts))
        unit = tick_s / best[1]
        delay = max(1, round(delay_s / unit)) if delay_s else 0
        return cls(best[1], delay, int(slack_s / unit) + 1, unit)


@dataclass(frozen=True, eq=False, slots=True)
class ChainValues:
    """The solution, by [tick left - 1, class, up, age, level, slack].

    ``wait`` is the dollars of waiting, and ``more`` [..., choice] those of the other actions above waiting: launch
    spot, stay on spot, launch on demand, stay on demand.
    """

    grid: SlackGrid
    wait: Singles
    more: Halves


def solve_chain(
    chain: AvailabilityChain, grid: SlackGrid, ticks: int, spot_usd: float, demand_usd: float
) -> ChainValues:
    """Return the solution for these prices, in dollars a tick."""
    shape = (*chain.change.shape, grid.slacks)
    tick, left, delays = grid.per_tick, grid.delay, list[int]()
    while left > 0:
        delays.append(min(left, tick))
        left -= delays[-1]
    # Layers of running spot: layer i has the last i of the delays still to pass.
    layers = [np.zeros(shape, np.float32) for _ in range(max(1, len(delays)))]
    idle, demand = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    wait_all = np.empty((ticks, *shape), np.float32)
    more_all = np.empty((ticks, *shape, 4), np.float16)
    spot, on_demand = np.float32(spot_usd), np.float32(demand_usd)
    for n in range(1, ticks + 1):
        for layer in layers:
            layer[:, 0] = idle[:, 0]  # lost
        wait = reduce_slack(chain.expect(idle), tick)
        runs = [chain.expect(layer) for layer in layers]
        stays = [spot + runs[0]] + [spot + reduce_slack(runs[i], delay) for i, delay in enumerate(reversed(delays))]
        for values in stays:
            values[:, 0] = CHAIN_INFEASIBLE_USD
        stay, launch = stays[0], stays[-1]
        stay_demand = on_demand + chain.expect(demand)
        to_demand = reduce_slack(stay_demand, grid.delay)
        otherwise = np.minimum(wait, launch)
        idle = np.minimum(otherwise, to_demand)
        demand = np.minimum(stay_demand, otherwise)
        layers = [np.minimum(values, idle) for values in stays[: len(layers)]]
        for values in (idle, demand, *layers):
            values[..., n * tick :] = 0  # done
        wait_all[n - 1] = wait
        for i, values in enumerate((launch, stay, to_demand, stay_demand)):
            more_all[n - 1, ..., i] = np.clip(values - wait, -CHAIN_INFEASIBLE_USD, CHAIN_INFEASIBLE_USD)
    return ChainValues(grid, wait_all, more_all)


def reduce_slack(values: Singles, units: int) -> Singles:
    """Return the values with ``units`` less slack."""
    if units == 0:
        return values
    shifted = np.full_like(values, CHAIN_INFEASIBLE_USD)
    shifted[..., units:] = values[..., :-units] if units < values.shape[-1] else shifted[..., units:]
    return shifted


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
        if len(like.zones) != 1:
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

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        return _ChainSession(self, inputs).play


class _ChainSession:
    def __init__(self, policy: ChainPolicy, inputs: SimulationInputs) -> None:
        self.policy, self.inputs, self.chain = policy, inputs, policy.chain
        self.solved: dict[float, ChainValues] = {}  # by spot price
        self.clock = policy.chain.hazards.tick_s
        self.seen = self._past_signals()

    def _past_signals(self) -> AvailabilitySignals:
        """Return the signals [zone, window] from the ticks before the windows."""
        inputs = self.inputs
        count = min(int(_MEMORY_H * HOUR_S) // inputs.tick_s, int(inputs.starts.max(initial=0)))
        up, known = inputs.before(count)
        seen = AvailabilitySignals.unseen(up.shape[:2], self.chain.hazards.mean)
        for i in range(count):
            seen.see(up[..., i], inputs.tick_s, known[..., i])
        return seen

    def play(self, now: FullView) -> Actions:
        seen, rows = self.seen, now.window
        part = seen.at(rows)
        part.see(now.up, self.inputs.tick_s)
        for name in ("up", "age_h", "fast", "slow"):
            getattr(seen, name)[:, rows] = getattr(part, name)
        left_s = (now.ticks - now.tick) * self.inputs.tick_s
        n = min(max(1, round(left_s / self.clock)), self.policy.ticks)
        wait, launch, _, to_demand, stay_demand = self._dollars(now, part, n, left_s - now.left_s)
        demand = np.where(now.kind == ON_DEMAND, stay_demand, to_demand)
        best = np.minimum(wait, launch)
        kind = np.where(launch < wait, SPOT, IDLE)
        kind = np.where((demand < best) | ((now.kind == ON_DEMAND) & (demand == best)), ON_DEMAND, kind)
        return np.where(now.kind == SPOT, SPOT, kind).astype(np.int8), now.zone

    def _dollars(self, now: FullView, seen: AvailabilitySignals, n: int, slack_s: Ints) -> tuple[Floats, ...]:
        dollars = np.empty((5, now.window.size))
        for usd in np.unique(now.spot_usd[0]):
            rows = np.flatnonzero(now.spot_usd[0] == usd)
            slack = (slack_s - now.delay_s)[rows].astype(np.float64)
            dollars[:, rows] = self._dollars_at(self._solution(float(usd)), seen.at(rows), n, slack)
        return tuple(dollars)

    def _solution(self, usd: float) -> ChainValues:
        """Return the solution at the nearest solved price within 2 % of this one, or else at this one."""
        near = min(self.solved, key=lambda other: abs(usd / other - 1), default=usd)
        if not self.solved or (abs(usd / near - 1) > action_values.MOVES and len(self.solved) < action_values.MOST):
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


QUOTED_DESCRIPTION: Final = "foresight, which asks each place, in the exact safety net"


@dataclass(frozen=True, slots=True)
class OnDemandNow:
    """A policy that runs on demand from the first tick, in the cheapest zone that is in time.

    It is a :class:`~router.spot.simulator.simulation.FullInfoPolicy`.
    """

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        def play(now: FullView) -> Actions:
            rows = np.arange(now.window.size)
            runs = now.kind == ON_DEMAND
            zone = np.where(runs, now.zone, find_on_demand_zone(inputs, now, rows))
            return np.full(rows.size, ON_DEMAND, dtype=np.int8), zone

        return play


def policy_for(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy:
    """Return our policy for this hazard model of the zones of ``like``; it needs the exact guard.

    It plays inputs like ``like`` in all but starts, availability and prices, with deadlines up to its own. Spot prices
    in ``like`` are the expected ones, the same all the time.
    """
    return _fallback_policy(hazard_model, like) or ForesightPolicy.fitted(hazard_model, like)


def quoted_policy_for(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy:
    """Return the policy that quotes are made for: ours on few zones, which it asks as a run does, fitted quickly.

    It decides by the time left, not by the time passed.
    """
    return _fallback_policy(hazard_model, like) or AskingPolicy(BlindForesightPolicy.quickly(hazard_model, like))


def _fallback_policy(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy | None:
    """Return the policy of a case without an optimisation; None for all others.

    Where nothing as fast as the reference is sold on demand there is no fallback: any spot is taken, the cheapest
    first. Where spot never comes, on-demand begins at once.
    """
    if not sells_reference(like.on_demand_usd, like.speed):
        return GreedySpot()
    return None if hazard_model.comes().size else OnDemandNow()


def policy_from(past: Series | None, inputs: SimulationInputs) -> FullInfoPolicy:
    """Return our policy with all expectations learned from ``past``.

    ``past`` is on the tick of the inputs and has their zones by name (KeyError where one is missing), perhaps among
    others, which are learned from too. The policy sees nothing of the inputs' availability and prices. In one zone the
    induction is exact.
    """
    assert past is not None  # the registry has checked it
    own = _own_zones(past, inputs)
    if own.size == 1:
        return ChainPolicy.fitted(past, inputs)
    return policy_for(HazardModel.of(past, inputs.task.size).only(own), build_expected_inputs(past, inputs))


def blind_policy_from(past: Series | None, inputs: SimulationInputs) -> BlindPolicy:
    """Return our policy, learned from ``past``, for zones that must be asked; it needs the exact guard."""
    assert past is not None  # the registry has checked it
    model = HazardModel.of(past, inputs.task.size).only(_own_zones(past, inputs))
    return BlindForesightPolicy.fitted(model, inputs.spec, build_expected_inputs(past, inputs).spot_usd[:, 0])


def _own_zones(past: Series, inputs: SimulationInputs) -> Ints:
    """Return the numbers of the inputs' zones in ``past``; raise KeyError where one is missing."""
    which = {zone.zone: i for i, zone in enumerate(past.zones)}
    return np.array([which[zone] for zone in inputs.zones], dtype=np.int64)


def build_expected_inputs(past: Series, inputs: SimulationInputs) -> SimulationInputs:
    """Return one window like those of the inputs, without spot, at the last spot price of each zone in ``past``."""
    usd = past.only(inputs.zones).spot_usd(inputs.task.size)[:, -1:]
    shape = (len(inputs.zones), inputs.ticks)
    return replace(
        inputs,
        starts=np.zeros(1, dtype=np.int64),
        up=np.zeros(shape, dtype=bool),
        spot_usd=np.broadcast_to(usd, shape),
        begins=None,
    )
