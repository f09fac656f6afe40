"""Backward induction on a Markov chain: future dollars by time left, slack, what runs and the availability.

Slack is time left less work left. Running leaves it unchanged, waiting takes a tick of it, a launch its changeover.
Without the slack to go on demand the dollars are as good as infinite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router.spot.availability.markov_chain import AvailabilityChain, Singles

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
