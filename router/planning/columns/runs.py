"""Find the best unbroken runs of all jobs at given prices of what jobs share.

A run of row i from slot t covers its hours without a gap: its cost is K_i + ω paid_i + moves + Σ surcharges of the
slots held, the last one by its share beyond the horizon, less what committed spend covers. ``floor`` is the same
without surcharges and with the most cover, a lower bound for any schedule of the row's block, since prices are never
below zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from router.planning.columns.table import Bools, Floats, Ints, Table

NEVER = 1e15  # dollars of a run that cannot be
_SLACK = 1e-9  # hours
_PLACES = 6
_CHUNK = 4_000_000  # runs evaluated at once
_MOST_KEPT = 20_000_000  # runs whose times are kept
_LOWEST = 8  # rows of each job that are evaluated before the others are pruned


@dataclass(frozen=True)
class Prices:
    """Dollars for what jobs share: ``limit`` [limits, T] a unit and slot, ``team`` [teams] a dollar counted.

    ``move`` [meters, months] is for a gigabyte, ``allowance`` for a free one, ``tier`` [tiers] for leaving out a job of
    the tier beyond what is allowed, ``left_out`` [J] all that leaving out the job costs, ``together`` [G]
    for keeping its job group in the region of the block of rows. None is below zero. ``cover`` [pools, T] is what a
    dollar that uses committed spend saves, from 0 to 1.
    """

    limit: Floats
    team: Floats
    move: Floats
    allowance: Floats
    tier: Floats
    left_out: Floats
    together: Floats
    cover: Floats

    def rounded(self) -> Prices:
        """Return the prices to a millionth of a dollar.

        A bound holds at any prices; those that hardly differ are the same then, and are priced once.
        """
        return Prices(*(np.round(getattr(self, each.name), _PLACES) for each in fields(self)))

    def mixed(self, other: Prices, share: float) -> Prices:
        """Return ``share`` of these prices and the rest of the other ones."""
        rest = 1 - share
        return Prices(
            share * self.limit + rest * other.limit,
            share * self.team + rest * other.team,
            share * self.move + rest * other.move,
            share * self.allowance + rest * other.allowance,
            share * self.tier + rest * other.tier,
            share * self.left_out + rest * other.left_out,
            share * self.together + rest * other.together,
            share * self.cover + rest * other.cover,
        )


@dataclass(frozen=True)
class Surcharges:
    """Prices laid out for pricing: by kind and slot, their running sums, by job and by block.

    ``block_moves`` [G] is what moving into the block costs in the cheapest month in which its job may start, and
    ``later`` [G, months] how much more it is in each month. ``cover`` [pools + 1, T] is the price of cover, nothing in
    the last row; ``most_cover`` [N] what cover could save at most where the job is done on the row.
    """

    slot: Floats
    running: Floats
    team: Floats
    block_moves: Floats
    later: Floats
    cover: Floats
    most_cover: Floats

    @classmethod
    def of(cls, table: Table, prices: Prices) -> Surcharges:
        """Return the surcharges of these prices; caps on egress and regions of job groups are paid with the moves."""
        slot = _slot_prices(table, prices)
        running = np.concatenate([np.zeros((len(slot), 1)), np.cumsum(slot, axis=1)], axis=1)
        team = np.append(prices.team, 0.0)[table.team]
        by_month = table.move_gb @ prices.move if prices.move.size else np.zeros((len(table.moves), len(table.months)))
        if table.cap_gb.size:
            by_month = by_month + table.cap_gb @ prices.limit[table.cap_limits, 0]
        least = np.where(table.start_months[table.block_job], by_month, np.inf).min(axis=1, initial=np.inf)
        least = np.where(np.isfinite(least), least, 0.0)
        moves = least + team[table.block_job] * table.dearest_moves + prices.together
        cover = np.concatenate([prices.cover, np.zeros((1, table.slots))])
        most_cover = table.committed * (table.need + table.startup) * cover.max(axis=1)[table.pool]
        return cls(slot, running, team, moves, by_month - least[:, None], cover, most_cover)


def _slot_prices(table: Table, prices: Prices) -> Floats:
    """Return by kind and slot what an hour takes of priced limits; most kinds take of none."""
    slot = np.zeros((len(table.amounts), table.slots))
    priced = (prices.limit != 0.0).any(axis=1)
    kinds = np.flatnonzero((priced[table.limits] & (table.amounts != 0.0)).any(axis=1))
    slot[kinds] = np.einsum("ka,kat->kt", table.amounts[kinds], prices.limit[table.limits[kinds]])
    return slot


def scarce_rows(table: Table, prices: Prices) -> Bools:
    """Return which rows take of a limit that has a price, caps on egress and committed spend included."""
    slot = _slot_prices(table, prices)
    scarce: Bools = np.any(slot > 0, axis=1)[table.kind]
    if table.cap_gb.size:
        capped = (table.cap_gb @ prices.limit[table.cap_limits, 0] > 0).any(axis=1)
        scarce = scarce | capped[table.block]
    if table.has_cover:
        scarce = scarce | (table.committed > 0)  # whole schedules may contend for cover that parts of them share
    return scarce


def row_floors(table: Table, prices: Surcharges) -> Floats:
    """Return by row the cost of the job in one run on it, moves included, without prices of limits.

    As much as any run on it could have is covered.
    """
    cost = table.usd + prices.team[table.job] * table.paid + prices.block_moves[table.block] - prices.most_cover
    return np.where(table.end > table.first, cost, NEVER)


@dataclass(frozen=True)
class RunTimes:
    """For rows and first slots: the slot after the run's last one, the share of the last, whether the run can be."""

    end: Ints
    share: Floats
    possible: Bools


@dataclass
class RunPricer:
    """Evaluates runs against one table and keeps their times, which do not depend on prices."""

    table: Table

    def over(self, table: Table) -> RunPricer:
        """Return a pricer of a table that differs in its limits alone; what is kept of times is shared."""
        other = RunPricer(table)
        other.__dict__["_kept"] = self._kept
        return other

    def times(self, rows: Ints) -> RunTimes:
        """Return the times of the runs of these rows from every slot, [n, T]."""
        if self._kept is None:
            return self._worked_out(rows)
        return RunTimes(self._kept.end[rows], self._kept.share[rows], self._kept.possible[rows])

    @cached_property
    def _kept(self) -> RunTimes | None:
        """Return the times of all rows; None where they would take too much memory."""
        count = len(self.table.rows)
        if count * self.table.slots > _MOST_KEPT:
            return None
        step = max(1, _CHUNK // max(1, self.table.slots))
        parts = [self._worked_out(np.arange(at, min(at + step, count))) for at in range(0, count, step)]
        if not parts:
            return None
        ends, shares, possible = zip(*((p.end, p.share, p.possible) for p in parts), strict=True)
        return RunTimes(np.concatenate(ends), np.concatenate(shares), np.concatenate(possible))

    def _worked_out(self, rows: Ints) -> RunTimes:
        table, slots = self.table, self.table.slots
        flat, offset = table.flat_elapsed
        job = table.job[rows]
        begin = table.elapsed[job, :slots]
        target = begin + (table.need[rows] + table.startup[rows])[:, None]
        shifted = target + (offset * job)[:, None] - _SLACK
        end = np.searchsorted(flat, shifted.ravel(), side="left").reshape(shifted.shape) - (job * (slots + 1))[:, None]
        slot = np.arange(slots)
        end = np.maximum(end, slot + 1)
        possible = (
            (slot >= table.first[rows][:, None])
            & (slot < table.start_end[rows][:, None])
            & (end <= table.end[rows][:, None])
        )
        end = np.where(possible, end, slot + 1)
        last = end - 1
        length = table.hours[job[:, None], last]
        used = target - table.elapsed[job[:, None], last]
        loose = ~table.order[last] & ~table.whole[job][:, None] & (length > 0)
        share = np.where(loose, np.clip(used / np.where(length > 0, length, 1.0), 0.0, 1.0), 1.0)
        return RunTimes(end, share, possible)

    def ends(self, rows: Ints, starts: Ints) -> tuple[Ints, Floats]:
        """Return the slot after the last one, and the share of the last, of runs that are possible."""
        table = self.table
        flat, offset = table.flat_elapsed
        job = table.job[rows]
        target = table.elapsed[job, starts] + table.need[rows] + table.startup[rows]
        end = np.searchsorted(flat, target + offset * job - _SLACK, side="left") - job * (table.slots + 1)
        end = np.maximum(end, starts + 1)
        last = end - 1
        length = table.hours[job, last]
        loose = ~table.order[last] & ~table.whole[job] & (length > 0)
        used = (target - table.elapsed[job, last]) / np.where(length > 0, length, 1.0)
        return end, np.where(loose, np.clip(used, 0.0, 1.0), 1.0)

    def cost(self, rows: Ints, prices: Surcharges, floors: Floats, blocked: Ints | None = None) -> Floats:
        """Return the cost of the run of each row from every slot, [n, T]; ``NEVER`` where it cannot be.

        ``blocked`` [kinds, T+1]: running number of slots in which a kind has no room.
        """
        table, times = self.table, self.times(rows)
        kind = table.kind[rows][:, None]
        slot = np.arange(table.slots)
        last = times.end - 1
        surcharge = prices.running[kind, last] - prices.running[kind, slot] + times.share * prices.slot[kind, last]
        possible = times.possible
        if blocked is not None:
            possible = possible & (blocked[kind, times.end] == blocked[kind, slot])
        later = prices.later[table.block[rows][:, None], table.month]
        if table.has_cover:
            surcharge = surcharge + self._uncovered(rows, prices)
        return np.where(possible, floors[rows][:, None] + later + surcharge, NEVER)

    def _uncovered(self, rows: Ints, prices: Surcharges) -> Floats:
        """Return by row and first slot how much less a run has covered than the floor says, [n, T]."""
        table, times = self.table, self.times(rows)
        job, last = table.job[rows][:, None], times.end - 1
        price = prices.cover[table.pool[rows]]
        whole = np.cumsum(price * table.cover_by_slot(rows), axis=1)
        saved = np.concatenate([np.zeros((len(rows), 1)), whole], axis=1)
        begin, number = np.arange(table.slots), np.arange(len(rows))[:, None]
        used = table.elapsed[job, begin] + (table.need[rows] + table.startup[rows])[:, None] - table.elapsed[job, last]
        in_last = np.minimum(
            table.committed[rows][:, None] * np.maximum(0.0, used), table.bought_by_row(rows)[number, last]
        )
        covered = saved[number, last] - saved[:, :-1] + in_last * price[number, last]
        missing: Floats = prices.most_cover[rows][:, None] - covered
        return missing

    def cover_of(self, rows: Ints, starts: Ints, prices: Surcharges) -> Floats:
        """Return what cover saves of the runs of these rows from these slots, which must be possible."""
        missing = self._uncovered(rows, prices)[np.arange(len(rows)), starts]
        saved: Floats = prices.most_cover[rows] - missing
        return saved

    def best_of_rows(
        self, rows: Ints, prices: Surcharges, floors: Floats, blocked: Ints | None = None
    ) -> tuple[Floats, Ints]:
        """Return by row the least cost of a run and its first slot, the earliest among equals."""
        cost, start = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
        step = max(1, _CHUNK // max(1, self.table.slots))
        for at in range(0, len(rows), step):
            found = self.cost(rows[at : at + step], prices, floors, blocked)
            start[at : at + step] = found.argmin(axis=1)
            cost[at : at + step] = found[np.arange(len(found)), start[at : at + step]]
        return cost, start

    def best(
        self, prices: Surcharges, floors: Floats, ceiling: Floats, max_per_job: int, blocked: Ints | None = None
    ) -> tuple[Floats, Ints, Ints, Floats]:
        """Return v [J], the least cost of an unbroken run of each job (at most ``ceiling``), and the best runs found.

        The runs are rows, first slots and costs: at most ``max_per_job`` of each job, below its ceiling, cheapest
        first. Rows whose floor is above what is found are not evaluated.
        """
        table = self.table
        order = np.lexsort((np.arange(len(floors)), floors, table.job))
        rank = np.arange(len(order)) - np.searchsorted(table.job[order], table.job[order], side="left")
        lowest = order[(rank < _LOWEST) & (floors[order] < ceiling[table.job[order]])]
        value = ceiling.copy()
        cost, start = self.best_of_rows(lowest, prices, floors, blocked)
        np.minimum.at(value, table.job[lowest], cost)
        rest = order[(rank >= _LOWEST) & (floors[order] < value[table.job[order]])]
        more_cost, more_start = self.best_of_rows(rest, prices, floors, blocked)
        np.minimum.at(value, table.job[rest], more_cost)
        rows = np.concatenate([lowest, rest])
        cost, start = np.concatenate([cost, more_cost]), np.concatenate([start, more_start])
        good = np.flatnonzero(cost < ceiling[table.job[rows]])
        good = good[np.lexsort((start[good], cost[good], table.job[rows[good]]))]
        place = np.arange(len(good)) - np.searchsorted(table.job[rows[good]], table.job[rows[good]], side="left")
        good = good[place < max_per_job]
        return value, rows[good], start[good], cost[good]
