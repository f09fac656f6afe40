"""Bound every schedule of a job at given prices, and find the schedules that nearly reach the bound.

A schedule holds some row of a block in some slots, with gaps. With the value ν of the whole job as the price of its
steps, the best schedule is a longest path over (row | off) by slot:

    V_c(t) = h_t (ν - K_c) / H_c - s[c, t] + max(V_c(t-1), 0 if it is the first start, Off(t-1) - σ)
    Off(t) = max(Off(t-1), max_c V_c(t));      L(ν) = ν - max(0, Off(T))

H_c are the hours of the whole job on c with one start, K_c its dollars. The first start is spread over the steps; each
further one costs at least σ, in money and in time. What committed spend covers of an hour is a surcharge below zero. L
is concave, and its maximum over ν is a lower bound for every schedule of the block, fractional ones included; it is
found by tangents between a path that does too little and one that does enough. Formulas:
``docs/design/placement-program.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.planning.columns.runs import NEVER, Surcharges
from router.planning.columns.table import Bools, Floats, Ints, Table, first_places

_TANGENTS = 14
_NONE = -1e30
_ENOUGH = 1 - 1e-9  # of the job's steps
_SAME = 1e-9
_LEAST_VALUE = 1e-4  # of the cost without cover
_FEW_OPEN = 0.7  # share of pools below which those that are done are left out


@dataclass(frozen=True)
class PathBounds:
    """For the blocks asked for: ``value`` the lower bound without moves, ``nu`` the value of the job that gives it."""

    blocks: Ints
    value: Floats
    nu: Floats


@dataclass(frozen=True)
class _Grid:
    """The rows of the pools that are priced together; a pool is a block. What depends on the slot is by [slot, row]."""

    rows: Ints
    pool: Ints
    first: Ints
    hours: Floats
    surcharge: Floats
    may_hold: Bools
    may_start: Bools
    usd: Floats
    startup: Floats
    startup_usd: Floats
    saving: Floats
    weight: Floats
    goes_on: Bools
    covered: bool
    kink_hours: Floats

    @property
    def pools(self) -> int:
        return len(self.first)

    def of_pools(self, kept: Ints) -> _Grid:
        """Return the grid of some of the pools, in their order."""
        sizes = np.diff(np.append(self.first, len(self.rows)))[kept]
        first = first_places(sizes)
        at = np.repeat(self.first[kept] - first, sizes) + np.arange(int(sizes.sum()))
        return _Grid(
            rows=self.rows[at],
            pool=np.repeat(np.arange(len(kept)), sizes),
            first=first,
            hours=np.take(self.hours, at, axis=1),
            surcharge=np.take(self.surcharge, at, axis=1),
            may_hold=np.take(self.may_hold, at, axis=1),
            may_start=np.take(self.may_start, at, axis=1),
            usd=self.usd[at],
            startup=self.startup[at],
            startup_usd=self.startup_usd[at],
            saving=self.saving[kept],
            weight=self.weight[at],
            goes_on=self.goes_on[kept],
            covered=self.covered,
            kink_hours=np.take(self.kink_hours, at, axis=1) if self.covered else self.kink_hours,
        )


def bound_paths(table: Table, prices: Surcharges, blocks: Ints, *, upper: Floats) -> PathBounds:
    """Return for each block the greatest L; ``upper`` is a cost that some run of the block reaches, or ``NEVER``."""
    if not len(blocks):
        none = np.zeros(0)
        return PathBounds(blocks, none, none)
    grid = _grid(table, prices, blocks)
    low_nu, high_nu = np.zeros(grid.pools), np.full(grid.pools, np.inf)
    # The line of a path is cost + ν (1 - share done); the empty path costs nothing and does nothing.
    low = (np.zeros(grid.pools), np.zeros(grid.pools))
    high = (np.full(grid.pools, np.inf), np.full(grid.pools, np.inf))
    first = np.minimum.reduceat(grid.usd, grid.first)
    nu = np.where(upper < NEVER / 2, upper, 2 * first)
    if grid.covered:  # A run may cost next to nothing, and no path be worth its while near that value.
        nu = np.maximum(nu, _LEAST_VALUE * first)
    value, best_nu = np.zeros(grid.pools), np.zeros(grid.pools)
    active = np.ones(grid.pools, dtype=np.bool_)
    some, open_pools = grid, np.arange(grid.pools)
    gain, done = np.zeros(grid.pools), np.zeros(grid.pools)
    for _ in range(_TANGENTS):
        if active.sum() < _FEW_OPEN * some.pools:
            kept = np.flatnonzero(active[open_pools])
            some, open_pools = some.of_pools(kept), open_pools[kept]
        gain[open_pools], done[open_pools] = _longest(some, nu[open_pools])
        found = nu - gain
        cost = found - nu * (1 - done)
        better = active & (found > value)
        value, best_nu = np.where(better, found, value), np.where(better, nu, best_nu)
        enough = done >= _ENOUGH
        rises = active & ~enough
        falls = active & enough
        low_nu = np.where(rises, nu, low_nu)
        low = (np.where(rises, cost, low[0]), np.where(rises, done, low[1]))
        high_nu = np.where(falls, nu, high_nu)
        high = (np.where(falls, cost, high[0]), np.where(falls, done, high[1]))
        bracketed = np.isfinite(high[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            cross = (high[0] - low[0]) / (high[1] - low[1])
        ahead = np.where(bracketed, cross, nu * 4)
        reached = bracketed & (low[0] + cross * (1 - low[1]) <= value * (1 + _SAME) + _SAME)
        impossible = ~bracketed & (nu > NEVER)
        active = active & ~reached & ~impossible
        nu = np.where(active, ahead, nu)
        if not active.any():
            break
    value = np.where(np.isfinite(high[0]), value, np.maximum(value, NEVER))
    return PathBounds(blocks, value, best_nu)


def _grid(table: Table, prices: Surcharges, blocks: Ints) -> _Grid:
    rows = table.members(blocks)
    sizes = table.block_sizes(blocks)
    first = first_places(sizes)
    pool = np.repeat(np.arange(len(blocks)), sizes)
    job, slot = table.job[rows], np.arange(table.slots)[:, None]
    team = prices.team[job]
    surcharge, kink_hours = np.take(prices.slot.T, table.kind[rows], axis=1), np.zeros((0, 0))
    if table.has_cover:
        cover = np.ascontiguousarray(table.cover_by_slot(rows).T)
        surcharge = surcharge - np.take(prices.cover.T, table.pool[rows], axis=1) * cover
        # In the last slot of a run as many hours as have cover may be the best, rather than all or none.
        kink_hours = cover / np.maximum(table.committed[rows], 1e-12)
    return _Grid(
        rows=rows,
        pool=pool,
        first=first,
        hours=np.take(table.hours.T, job, axis=1),
        surcharge=surcharge,
        may_hold=(slot >= table.first[rows]) & (slot < table.end[rows]),
        may_start=(slot >= table.first[rows]) & (slot < table.start_end[rows]),
        usd=table.usd[rows] + team * table.paid[rows],
        startup=table.startup[rows],
        startup_usd=table.start_usd[rows] + team * table.start_paid[rows],
        saving=table.saving[job[first]],
        weight=1.0 / (table.need[rows] + table.startup[rows]),
        goes_on=np.logical_or.reduceat(table.goes_on[rows], first),
        covered=table.has_cover,
        kink_hours=kink_hours,
    )


def _further_start(grid: _Grid, nu: Floats) -> Floats:
    """Return σ by pool: the least that a start beyond the first costs, in money, thresholds and time."""
    per_hour = (nu[grid.pool] - grid.usd) * grid.weight
    # With cover, an hour below zero may be worth holding: a start that is counted as steps must not cost more than it.
    worth = (per_hour if grid.covered else np.maximum(0.0, per_hour)) * grid.startup
    sigma = np.minimum.reduceat(grid.startup_usd + worth, grid.first) + grid.saving
    # Where a row goes on without a start, all starts of the others are spread over their steps already.
    return np.where(grid.goes_on, 0.0, sigma)


def _longest(grid: _Grid, nu: Floats) -> tuple[Floats, Floats]:
    """Return by pool the greatest gain of a path, and the share of the job that it does."""
    per_hour = (nu[grid.pool] - grid.usd) * grid.weight
    sigma = _further_start(grid, nu)
    off, off_done = np.full(grid.pools, _NONE), np.zeros(grid.pools)
    value, done = np.full(len(grid.rows), _NONE), np.zeros(len(grid.rows))
    for t in range(len(grid.hours)):
        again = off - sigma
        fresh = np.maximum(again, 0.0)
        fresh_done = np.where(again > 0.0, off_done, 0.0)
        start = np.where(grid.may_start[t], fresh[grid.pool], _NONE)
        goes_on = value >= start
        hours = grid.hours[t]
        before, before_done = np.where(goes_on, value, start), np.where(goes_on, done, fresh_done[grid.pool])
        value = before + hours * per_hour - grid.surcharge[t]
        done = before_done + hours * grid.weight
        value = np.where(grid.may_hold[t], value, _NONE)
        end, end_done = value, done
        if grid.covered:
            end = _ending(grid, before, value, per_hour, t)
            end_done = np.where(end > value, before_done + grid.kink_hours[t] * grid.weight, done)
        top = np.maximum.reduceat(end, grid.first)
        rises = top > off
        best = np.where(end == top[grid.pool], end_done, 0.0)
        off_done = np.where(rises, np.maximum.reduceat(best, grid.first), off_done)
        off = np.where(rises, top, off)
    return np.maximum(off, 0.0), np.where(off > 0.0, off_done, 0.0)


def _ending(grid: _Grid, before: Floats, value: Floats, per_hour: Floats, t: int) -> Floats:
    """Return by row the gain of a path that ends in the slot: it may use just the hours of it that have cover."""
    kink = before + grid.kink_hours[t] * per_hour - grid.surcharge[t]
    better: Floats = np.where(grid.may_hold[t] & (grid.kink_hours[t] > 0), np.maximum(value, kink), value)
    return better


@dataclass(frozen=True)
class Path:
    """Slots held by one job, each with its row and share."""

    block: int
    slots: tuple[int, ...]
    rows: tuple[int, ...]


def trace_paths(table: Table, prices: Surcharges, bounds: PathBounds) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the best path of each block a little below the value of its bound, and a little above it.

    The first does at most what the job needs, the second at least, up to rounding.
    """
    if not len(bounds.blocks):
        return (), ()
    grid = _grid(table, prices, bounds.blocks)
    below, above = (_trace(grid, bounds.nu * (1 + by), bounds.blocks) for by in (-1e-7, 1e-7))
    return below, above


def _trace(grid: _Grid, nu: Floats, blocks: Ints) -> tuple[Path, ...]:
    """Return the longest path of each pool."""
    per_hour = (nu[grid.pool] - grid.usd) * grid.weight
    sigma = _further_start(grid, nu)
    slots = len(grid.hours)
    off = np.full(grid.pools, _NONE)
    value = np.full(len(grid.rows), _NONE)
    went_on = np.zeros((slots, len(grid.rows)), dtype=np.bool_)
    is_again = np.zeros((slots, grid.pools), dtype=np.bool_)
    winner = np.full((slots, grid.pools), -1, dtype=np.int64)
    number = np.arange(len(grid.rows))
    for t in range(slots):
        again = off - sigma
        is_again[t] = again > 0.0
        start = np.where(grid.may_start[t], np.maximum(again, 0.0)[grid.pool], _NONE)
        went_on[t] = value >= start
        before = np.where(went_on[t], value, start)
        value = before + grid.hours[t] * per_hour - grid.surcharge[t]
        value = np.where(grid.may_hold[t], value, _NONE)
        end = _ending(grid, before, value, per_hour, t) if grid.covered else value
        top = np.maximum.reduceat(end, grid.first)
        rises = top > off
        first = np.minimum.reduceat(np.where(end == top[grid.pool], number, len(number)), grid.first)
        winner[t] = np.where(rises, first, -1)
        off = np.where(rises, top, off)
    return tuple(_follow(int(blocks[p]), p, float(off[p]), grid, went_on, is_again, winner) for p in range(grid.pools))


def _follow(block: int, pool: int, gain: float, grid: _Grid, went_on: Bools, is_again: Bools, winner: Ints) -> Path:
    """Return the path that ends with ``gain``, followed back from its last slot."""
    held: list[tuple[int, int]] = []
    if gain <= 0.0:
        return Path(block, (), ())
    t = _last_win(winner, pool, winner.shape[0] - 1)
    row = int(winner[t, pool])
    while True:
        held.append((t, row))
        if went_on[t, row]:
            t -= 1
            continue
        if not is_again[t, pool]:
            break
        t = _last_win(winner, pool, t - 1)
        row = int(winner[t, pool])
    held.reverse()
    return Path(block, tuple(t for t, _ in held), tuple(int(grid.rows[r]) for _, r in held))


def _last_win(winner: Ints, pool: int, t: int) -> int:
    while winner[t, pool] < 0:
        t -= 1
    return t
