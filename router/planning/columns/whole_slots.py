"""Bound every schedule of a job that holds whole slots within the horizon, and find the schedule that gives the bound.

Paths price an hour of a slot alike whether the job needs it or not; a job that needs 3.2 hours still holds 4. Here the
work done is counted in units, so that slots are whole. With V_c(t, q) the least dollars to have done q units by the
end of slot t and to hold row c in it, and Off(t, q) the same whatever is held:

    V_c(t, q) = s[c, t] + min over p <= q of k_c (q - p) + the lesser of
                V_c(t-1, p)              for q - p up to the units of a slot
                Off(t-1, p) + a start    for q - p up to the units of a slot less its start-up

k_c and the start are less what committed spend covers of them in slot t. Units of a slot are rounded up, so that no
work that can be done is missed. Beyond the horizon slots are shares: the least cost of the rest is a convex function,
the cheapest hours first. A job that begins there spreads its start over its steps; for one that has begun, further
starts there are free. Formulas: ``docs/design/placement-program.md``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from router.planning.columns.paths import Path
from router.planning.columns.runs import NEVER, Surcharges
from router.planning.columns.table import Floats, Ints, Table, first_places
from router.planning.problem.problem import free_starts

WHOLE_SLOT_UNITS = (320, 1600)
"""Units of a whole job at most: few for all, many for those whose bound is still below their best run."""
_ROUNDING = 1e-9
_CELLS = 250_000  # rows x units that are priced together


@dataclass(frozen=True)
class WholeSlotBounds:
    """For blocks of rows: ``value`` [n] the lower bound without moves, and the schedule that gives it."""

    value: Floats
    paths: tuple[Path, ...]


def bound_whole_slots(table: Table, prices: Surcharges, blocks: Ints, units: int) -> WholeSlotBounds:
    """Return the bounds of these blocks; none of a job without a checkpoint, which has unbroken runs alone."""
    sizes = table.block_sizes(blocks)
    values, paths = np.full(len(blocks), NEVER), []
    begin = 0
    while begin < len(blocks):
        end = begin + max(1, int(np.searchsorted(np.cumsum(sizes[begin:]), _CELLS // units)))
        values[begin:end], found = _Batch(table, prices, blocks[begin:end], units).solve()
        paths += found
        begin = end
    return WholeSlotBounds(values, tuple(paths))


class _Batch:
    """Blocks that are priced together; arrays are by row, and by pool where a pool is a block of the batch."""

    def __init__(self, table: Table, prices: Surcharges, blocks: Ints, units_at_most: int) -> None:
        self.table, self.blocks, self.max_units = table, blocks, units_at_most
        self.rows = rows = table.members(blocks)
        sizes = table.block_sizes(blocks)
        self.first = first_places(sizes)
        self.sizes = sizes
        self.pool = np.repeat(np.arange(len(blocks)), sizes)
        job, slot = table.job[rows], np.arange(table.slots)
        self.hours, self.surcharge = table.hours[job], prices.slot[table.kind[rows]]
        self.need, self.startup = table.need[rows], table.startup[rows]
        team = prices.team[job]
        moved = np.array([free_starts(table.jobs[int(j)]) == 0 for j in table.block_job[blocks]])[self.pool]
        threshold = np.where(moved & ~table.goes_on[rows], table.saving[job], 0.0)
        start_usd = table.start_usd[rows] + team * table.start_paid[rows]
        whole_usd = table.usd[rows] + team * table.paid[rows]
        self.first_usd = start_usd + threshold
        self.again_usd = start_usd + table.saving[job]
        self.units = self._units()
        units = self.units[self.pool]
        self.unit_usd = np.maximum(0.0, whole_usd - self.first_usd) / units
        self.unit_cover, self.start_cover, self.covered_units = self._cover(prices, units)
        self.may_hold = (slot >= table.first[rows][:, None]) & (slot < table.end[rows][:, None]) & (self.hours > 0)
        self.may_start = self.may_hold & (slot < table.start_end[rows][:, None])
        scale = (units / self.need)[:, None]
        self.held_units = _rounded_up(self.hours * scale, self.max_units)
        self.start_units = _rounded_up(np.maximum(0.0, self.hours - self.startup[:, None]) * scale, self.max_units)
        self.goes_on = table.goes_on[rows]

    def _units(self) -> Floats:
        """Return by pool the units of the whole job: the number that rounds the slots of its cheaper rows least."""
        table, rows = self.table, self.rows
        hour = float(np.median(table.hours[table.hours > 0]))
        numbers = np.arange(self.max_units // 2, self.max_units)
        each = (hour / self.need)[:, None] * numbers
        start = (np.maximum(0.0, hour - self.startup) / self.need)[:, None] * numbers
        slots = np.minimum(float(table.horizon), np.ceil(self.need / hour))[:, None]
        error = ((np.ceil(each - _ROUNDING) - each) * slots + np.ceil(start - _ROUNDING) - start) / numbers
        least = np.minimum.reduceat(table.paid[rows], self.first)[self.pool]
        weight = np.maximum(1e-3, least / np.maximum(1e-9, table.paid[rows])) ** 8
        total = np.add.reduceat(error * weight[:, None], self.first, axis=0)
        units: Floats = numbers[total.argmin(axis=1)].astype(np.float64)
        return units

    def _cover(self, prices: Surcharges, units: Floats) -> tuple[Floats, Floats, tuple[Ints, Ints]]:
        """Return [n, T]: what cover saves of a unit done in a slot, at most of a start, and of how many units at most.

        The units are those of a slot that is held already, and of one with a start, which uses cover too.
        """
        table, rows = self.table, self.rows
        price, each = prices.cover[table.pool[rows]], table.committed[rows][:, None]
        bought, startup = table.bought_by_row(rows), self.startup[:, None]
        # A start that is longer than its slot goes on in the next ones.
        fits = startup <= self.hours
        starting = each * startup
        start = np.where(fits, np.minimum(starting, bought) * price, starting * price.max(axis=1, initial=0.0)[:, None])
        a_unit = np.maximum(each * (self.need / units)[:, None], 1e-12)
        held = _rounded_up(np.minimum(bought / a_unit, self.max_units), self.max_units)
        fresh = _rounded_up(np.clip((bought - starting) / a_unit, 0.0, self.max_units), self.max_units)
        saved = np.asarray(price * each * (self.need / units)[:, None], dtype=np.float64)
        return saved, start, (held, np.where(fits, fresh, held))

    def _least(self, before: Floats, t: int, *, started: bool) -> Floats:
        """Return [n, q]: the least dollars with the slot, by those before it: covered units first, then the others."""
        most = (self.start_units if started else self.held_units)[:, t]
        if not self.table.has_cover:
            return least_before(before, most, self.unit_usd)
        covered = np.minimum(most, self.covered_units[int(started)][:, t])
        return least_before(least_before(before, covered, self._covered_usd(t)), most - covered, self.unit_usd)

    def _covered_usd(self, t: int) -> Floats:
        """Return the dollars of a covered unit done in the slot, by row."""
        usd: Floats = np.maximum(0.0, self.unit_usd - self.unit_cover[:, t])
        return usd

    def _usd_of(self, row: int, t: int, units: Ints, *, started: bool) -> Floats:
        """Return the dollars of these numbers of units of one row in the slot."""
        if not self.table.has_cover:
            return np.asarray(float(self.unit_usd[row]) * units, dtype=np.float64)
        covered = np.minimum(units, self.covered_units[int(started)][row, t])
        usd: Floats = float(self._covered_usd(t)[row]) * covered + float(self.unit_usd[row]) * (units - covered)
        return usd

    def solve(self) -> tuple[Floats, list[Path]]:
        """Return the bound and the schedule of each pool."""
        horizon, size = self.table.horizon, self.max_units + 1
        value = np.full((len(self.rows), size), np.inf)
        value[self.goes_on, 0] = 0.0
        off = np.full((len(self.blocks), size), np.inf)
        self.values, self.offs = [value], [off]
        for t in range(horizon):
            saved = self.start_cover[:, t]
            start = off[self.pool] + (self.again_usd - saved)[:, None]
            start[:, 0] = np.minimum(start[:, 0], self.first_usd - saved)
            start[~self.may_start[:, t]] = np.inf
            held = self._least(value, t, started=False)
            fresh = self._least(start, t, started=True)
            value = np.minimum(held, fresh) + self.surcharge[:, t][:, None]
            value[~self.may_hold[:, t]] = np.inf
            off = np.minimum(off, np.minimum.reduceat(value, self.first, axis=0))
            self.values.append(value)
            self.offs.append(off)
        found = [self._finish(pool) for pool in range(len(self.blocks))]
        return np.array([usd for usd, _ in found]), [path for _, path in found]

    def _finish(self, pool: int) -> tuple[float, Path]:
        """Return the least of what was done within the horizon and the rest beyond it."""
        pool_rows = slice(int(self.first[pool]), int(self.first[pool] + self.sizes[pool]))
        units = float(self.units[pool])
        fresh = self._rest(pool, pool_rows, _Before.NOTHING)
        best, done, held_last = fresh.usd(units), -1.0, False
        for held, inside, before in (
            (False, self.offs[-1][pool], _Before.PAUSED),
            (True, self.values[-1][pool_rows].min(axis=0), _Before.HELD),
        ):
            rest = self._rest(pool, pool_rows, before)
            marks = np.arange(int(units) + 1, dtype=np.float64)
            marks = np.unique(np.concatenate([marks, units - rest.ends[rest.ends < units], [units]]))
            total = _between(inside, marks) + rest.usd_of(units - marks)
            at = int(np.argmin(total))
            if total[at] < best:
                best, done, held_last, fresh = float(total[at]), float(marks[at]), held, rest
        if not np.isfinite(best) or best >= NEVER:
            return NEVER, Path(int(self.blocks[pool]), (), ())
        within = [] if done < 0 else self._trace(pool, pool_rows, int(np.ceil(done)), held=held_last)
        holds = sorted([*within, *fresh.held(units - max(0.0, done))])
        return best, Path(int(self.blocks[pool]), tuple(t for t, _ in holds), tuple(r for _, r in holds))

    def _rest(self, pool: int, pool_rows: slice, before: _Before) -> _Rest:
        """Return the least cost of work beyond the horizon.

        A share held there takes that share of a start, unless it goes on from the horizon's last slot: at least the
        part of the row's hours that is held and, of a job that has not begun, the part of its steps that is done.
        """
        horizon, units = self.table.horizon, float(self.units[pool])
        pieces: list[tuple[float, float, int, int]] = []
        hours = np.where(self.may_hold[pool_rows, horizon:], self.hours[pool_rows, horizon:], 0.0)
        need, startup, rows = self.need[pool_rows], self.startup[pool_rows], self.rows[pool_rows]
        starts = np.zeros(len(rows))
        if before is not _Before.HELD:
            starts = 1.0 / np.maximum(hours.sum(axis=1), 1e-9)
        if before is _Before.NOTHING:
            starts = np.maximum(starts, 1.0 / (need + startup))
        start_usd = self.first_usd[pool_rows] if before is _Before.NOTHING else self.again_usd[pool_rows]
        each = np.maximum(0.0, 1.0 - startup * starts) * units / need
        usd = each * self.unit_usd[pool_rows] + start_usd * starts
        usable = (hours > 0) & (each > 0)[:, None]
        if before is not _Before.HELD:
            usable &= ~self.goes_on[pool_rows][:, None]
        cost = hours * usd[:, None] + self.surcharge[pool_rows, horizon:]
        amount = np.where(usable, hours * each[:, None], 0.0)
        hulls: dict[bytes, list[tuple[float, float, int]]] = {}
        for t in np.flatnonzero(usable.any(axis=0)).tolist():
            key = amount[:, t].tobytes() + cost[:, t].tobytes()  # most hours beyond the horizon are alike
            hull = hulls.get(key)
            if hull is None:
                may = np.flatnonzero(usable[:, t])
                hull = hulls[key] = _hull_pieces(amount[may, t], cost[may, t], rows[may])
            pieces += [(rate, units_done, horizon + t, row) for rate, units_done, row in hull]
        pieces.sort()
        return _Rest.of(pieces)

    def _trace(self, pool: int, pool_rows: slice, q: int, *, held: bool) -> list[tuple[int, int]]:
        """Return slots and rows of the least way to have done ``q`` units by the end of the horizon."""
        slots_and_rows: list[tuple[int, int]] = []
        t = self.table.horizon
        while True:
            while not held and t > 0 and self.offs[t - 1][pool, q] <= self.offs[t][pool, q]:
                t -= 1
            if t == 0:
                return sorted(slots_and_rows)
            row = pool_rows.start + int(np.argmin(self.values[t][pool_rows, q]))
            held = True
            while held:
                slots_and_rows.append((t - 1, int(self.rows[row])))
                q, held, first = self._before(pool, row, t, q)
                t -= 1
                if first or t == 0:
                    return sorted(slots_and_rows)

    def _before(self, pool: int, row: int, t: int, q: int) -> tuple[int, bool, bool]:
        """Return the units before a slot that ends with ``q``, whether its row was held then, and whether none was."""
        saved = float(self.start_cover[row, t - 1])
        most = int(self.held_units[row, t - 1])
        low = max(0, q - most)
        spans = np.arange(low, q + 1)
        held = self.values[t - 1][row, spans] + self._usd_of(row, t - 1, q - spans, started=False)
        best, at = (float(held.min()), int(spans[held.argmin()])) if len(held) else (np.inf, q)
        if not self.may_start[row, t - 1]:
            return at, True, False
        low = max(0, q - int(self.start_units[row, t - 1]))
        spans = np.arange(low, q + 1)
        again = self.offs[t - 1][pool, spans] + float(self.again_usd[row]) - saved
        again = again + self._usd_of(row, t - 1, q - spans, started=True)
        if len(again) and float(again.min()) < best:
            best, at, goes_on = float(again.min()), int(spans[again.argmin()]), False
        else:
            goes_on = True
        if low == 0:
            first = float(self.first_usd[row]) - saved + self._usd_of(row, t - 1, np.array([q]), started=True)[0]
            if first < best:
                return 0, False, True
        return at, goes_on, False


def _between(values: Floats, at: Floats) -> Floats:
    """Return the values at these places, on straight lines between whole numbers."""
    low = np.floor(at).astype(np.int64)
    part = at - low
    with np.errstate(invalid="ignore"):
        mixed = (1 - part) * values[low] + part * values[np.minimum(low + 1, len(values) - 1)]
    return np.where(part > 0, mixed, values[low])


class _Before(enum.Enum):
    """Whether a job held a row in the last slot of the horizon, held one before, or has not begun."""

    HELD = "held"
    PAUSED = "paused"
    NOTHING = "nothing"


@dataclass(frozen=True)
class _Rest:
    """A convex cost of units: pieces by rising dollars a unit, their running ``ends`` and dollars ``at`` these."""

    pieces: Sequence[tuple[float, float, int, int]]
    ends: Floats
    at: Floats

    @classmethod
    def of(cls, pieces: Sequence[tuple[float, float, int, int]]) -> _Rest:
        """Return the cost of these pieces: dollars a unit, units, slot and row."""
        amount = np.array([units for _, units, _, _ in pieces])
        rate = np.array([usd for usd, _, _, _ in pieces])
        none = np.zeros(1)
        return cls(pieces, np.concatenate([none, np.cumsum(amount)]), np.concatenate([none, np.cumsum(amount * rate)]))

    def usd_of(self, units: Floats) -> Floats:
        """Return the dollars of each number of units, infinite beyond all pieces."""
        return np.where(units <= self.ends[-1] + 1e-9, np.interp(units, self.ends, self.at), np.inf)

    def usd(self, units: float) -> float:
        """Return the dollars of one number of units."""
        return float(self.usd_of(np.array([units]))[0])

    def held(self, units: float) -> list[tuple[int, int]]:
        """Return slots and rows of the cheapest pieces for so many units, one row a slot."""
        taken: dict[int, int] = {}
        left = units
        for _, amount, slot, row in self.pieces:
            if left <= 1e-9:
                break
            taken[slot] = row
            left -= amount
        return sorted(taken.items())


def _hull_pieces(amount: Floats, cost: Floats, rows: Ints) -> list[tuple[float, float, int]]:
    """Return the pieces of the least cost of a share of one slot: the lower hull of its rows from nothing."""
    order = np.lexsort((cost, amount))
    hull: list[tuple[float, float, int]] = [(0.0, 0.0, -1)]
    for i in order.tolist():
        x, y = float(amount[i]), float(cost[i])
        while len(hull) > 1:
            (x0, y0, _), (x1, y1, _) = hull[-2], hull[-1]
            if (y1 - y0) * (x - x0) >= (y - y0) * (x1 - x0):
                hull.pop()
            else:
                break
        if x > hull[-1][0] + 1e-12:
            hull.append((x, y, int(rows[i])))
    return [((y1 - y0) / (x1 - x0), x1 - x0, row) for (x0, y0, _), (x1, y1, row) in pairwise(hull)]


def _rounded_up(units: Floats, max_units: int) -> Ints:
    return np.minimum(np.ceil(units - _ROUNDING), max_units).astype(np.int64)


def least_before(before: Floats, max_units: Ints, unit_usd: Floats) -> Floats:
    """Return [n, q]: the least of before[p] + unit_usd (q - p) over p from q - max_units to q."""
    size = before.shape[1]
    length = max_units + 1
    level = np.floor(np.log2(length)).astype(np.int64)
    # Windows of powers of two, doubled; the longest first, so that those that double are always the first rows.
    order = np.argsort(-level, kind="stable")
    level, rest = level[order], length[order] - (1 << level[order])
    rise = unit_usd[order, None] * np.arange(size)
    best = before[order] - rise
    for step in range(int(level.max(initial=0))):
        wide, shift = int(np.searchsorted(-level, -step)), 1 << step
        best[:wide, shift:] = np.minimum(best[:wide, shift:], best[:wide, :-shift])
    least = best.copy()
    for shift in np.unique(rest[rest > 0]).tolist():
        rows = np.flatnonzero(rest == shift)
        least[rows, shift:] = np.minimum(best[rows, shift:], best[rows, :-shift])
    least_usd = np.empty_like(least)
    least_usd[order] = least + rise
    return least_usd
