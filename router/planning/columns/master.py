"""Hold the linear program over the columns found so far; its duals are the prices at which the next ones are sought.

Rows: one a job (its columns and ``u``, the share left out, add up to one), one a team budget, one a tier of jobs left
out, one a slot of committed spend, the meters of egress with their tiers. Rows of limits come in when an answer exceeds
them: of a hundred thousand a few hundred ever do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pricing.units import BYTES_PER_GB
from router.planning.columns.column import Column
from router.planning.columns.lp import OpenLp, SparseVector
from router.planning.columns.runs import NEVER, Prices
from router.planning.columns.table import Bools, Floats, Ints, Table
from router.planning.problem.egress_to_date import allowance_left, already_moved
from router.planning.program.egress_rows import add_segments
from router.planning.program.solver import SolverFailedError
from router.planning.rules.program import Program, ProgramBuilder

ROOM = 1e-6  # by which a limit or budget may be exceeded, for rounding
_EXCESS = 1e-7
_MOST_SOLVES = 40


@dataclass(frozen=True)
class MasterSolution:
    """The optimum over the columns: ``x`` by column, ``u`` by job, the prices, the value ``alpha`` of each job."""

    objective: float
    x: Floats
    u: Floats
    alpha: Floats
    prices: Prices


@dataclass(frozen=True, slots=True)
class MeterMonth:
    """A meter in a month: its tariff, gigabytes moved before, and the most that the plan could move."""

    meter: int
    month: int
    already: int
    reach: int


@dataclass(frozen=True)
class EgressRows:
    """The meters that a plan could reach, and the free allowances by cloud and month."""

    meters: tuple[MeterMonth, ...]
    allowances: tuple[tuple[str, int, float], ...]


def egress_rows(table: Table) -> EgressRows:
    """Return the meters on which some job could have to move something, and the allowances that apply to them."""
    problem, months = table.problem, table.months
    reach = np.zeros((len(table.tariffs), len(table.jobs)))
    for block, moves in enumerate(table.moves):
        for move in moves:
            place = (move.meter, table.block_job[block])
            reach[place] = max(reach[place], move.gb)
    total = reach.sum(axis=1) if reach.size else np.zeros(0)
    meters, allowances = [], []
    for meter, tariff in enumerate(table.tariffs):
        for index, month in enumerate(months):
            already = already_moved(problem, tariff, month)
            meters.append(MeterMonth(meter, index, already, int(np.ceil(total[meter] * BYTES_PER_GB))))
            if tariff.allowance_bytes:
                left = allowance_left(problem, tariff.cloud, month) / BYTES_PER_GB
                allowances.append((tariff.cloud, index, left))
    return EgressRows(tuple(meters), tuple(sorted(set(allowances))))


@dataclass(frozen=True, slots=True)
class EgressLayout:
    """The rows of a program for egress: each meter's volume, and each allowance (-1 for none)."""

    volume: tuple[int, ...]
    allowance: tuple[int, ...]


def add_egress_rows(builder: ProgramBuilder, table: Table, egress: EgressRows) -> EgressLayout:
    """Add tiers, volumes and allowances of all meters; columns join the volumes with minus their gigabytes."""
    volume = []
    free: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for item in egress.meters:
        tariff = table.tariffs[item.meter]
        name = f"{tariff.meter} {table.months[item.month]}"
        parts, free_part = add_segments(builder, tariff, item.already, item.reach, name)
        volume.append(len(builder.rows))
        builder.row(f"volume {name}", [(part, 1.0) for part in parts], "==", 0.0)
        if free_part is not None:
            free.setdefault((tariff.cloud, item.month), []).append((free_part, 1.0))
    allowance = []
    for cloud, month, left in egress.allowances:
        terms = free.get((cloud, month))
        allowance.append(len(builder.rows) if terms else -1)
        if terms:
            builder.row(f"free allowance {cloud} {table.months[month]}", terms, "<=", left)
    return EgressLayout(tuple(volume), tuple(allowance))


def least_egress_cost(table: Table, egress: EgressRows, prices: Prices) -> float:
    """Return the least that all meters can add to the Lagrangian: min over V of C(V) - μ V, less the allowances' worth.

    C is piecewise linear, so that its breakpoints suffice.
    """
    priced = [(place, float(price)) for place, price in zip(egress.allowances, prices.allowance, strict=True)]
    worth = {(cloud, month): price for (cloud, month, _), price in priced}
    total = -sum(price * left for (_, _, left), price in priced)
    for item in egress.meters:
        tariff = table.tariffs[item.meter]
        cost = least = volume = 0.0
        most = item.already + item.reach
        for index, tier in enumerate(tariff.tiers):
            end = most if tier.to_bytes is None else min(tier.to_bytes, most)
            size = (end - max(tier.from_bytes, item.already)) / BYTES_PER_GB
            if size <= 0:
                continue
            price = tier.price.dollars()
            if index == 0 and tariff.allowance_bytes:
                full = tariff.after_allowance.dollars()
                price = full - max(0.0, full - worth.get((tariff.cloud, item.month), full))
            volume += size
            cost += size * price
            least = min(least, cost - float(prices.move[item.meter, item.month]) * volume)
        total += least
    return total


def _add_affinities(builder: ProgramBuilder, table: Table) -> dict[int, int]:
    """Add Σ columns of a job in a region <= g, Σ_r g <= 1 for each job group; return the former by block of rows."""
    chosen: dict[tuple[int, int], int] = {}
    rows: dict[int, int] = {}
    for block in table.bound_blocks.tolist():
        key = (int(table.affinity[table.block_job[block]]), int(table.place[block]))
        if key not in chosen:
            chosen[key] = builder.variable(f"job group {key}", high=1.0)
        rows[block] = len(builder.rows)
        builder.row(f"together {block}", [(chosen[key], -1.0)], "<=", 0.0)
    for number in range(len(table.affinities)):
        terms = [(g, 1.0) for (own, _), g in chosen.items() if own == number]
        builder.row(f"one region {number}", terms, "<=", 1.0)
    return rows


def most_together(table: Table, prices: Prices) -> float:
    """Return the most that the prices of one region bring each job group: Σ over blocks of max_r Σ_j price."""
    bound = table.bound_blocks
    if not len(bound):
        return 0.0
    brings = np.zeros((len(table.affinities), len(table.places)))
    np.add.at(brings, (table.affinity[table.block_job[bound]], table.place[bound]), prices.together[bound])
    return float(brings.max(axis=1).sum())


@dataclass(frozen=True)
class ColumnArrays:
    """All columns as arrays: by column job, dollars and dollars counted; by use place, amount and column."""

    job: Ints
    usd: Floats
    counted: Floats
    place: Ints
    amount: Floats
    column: Ints

    def touches(self, places: Bools) -> Bools:
        """Return by column whether it takes anything at the marked places."""
        touched: Bools = np.bincount(self.column, weights=places[self.place], minlength=len(self.job)) > 0
        return touched

    def fits(self, table: Table, room: Floats, money: Floats) -> Bools:
        """Return by column whether it fits into what is left of limits and budgets; ``money`` has no team last."""
        short = self.amount > room[self.place] + ROOM
        crowded = np.bincount(self.column, weights=short, minlength=len(self.job)) > 0
        fits: Bools = ~crowded & (self.counted <= money[table.team[self.job]] + ROOM)
        return fits


def _add_cover(builder: ProgramBuilder, table: Table) -> dict[int, int]:
    """Add v <= Σ dollars that columns use, v <= what the slot buys, -1 in the objective; return rows by place."""
    rows: dict[int, int] = {}
    for place in np.flatnonzero(table.bought.ravel() > 0).tolist() if table.has_cover else ():
        v = builder.variable(f"covered {place}", high=float(table.bought.ravel()[place]), cost=-1.0)
        rows[place] = len(builder.rows)
        builder.row(f"commitment {place}", [(v, 1.0)], "<=", 0.0)
    return rows


class Master:
    """The program over all columns so far; ``columns`` are all columns, in order of their arrival."""

    def __init__(self, table: Table, left_out_usd: Floats) -> None:
        self.table = table
        self.egress = egress_rows(table)
        self.columns: list[Column] = []
        self._known: set[tuple[object, ...]] = set()
        self._free = False
        self._lp = OpenLp()
        builder = ProgramBuilder()
        jobs = range(len(table.jobs))
        self._u = np.array([builder.variable(f"u {j}", cost=float(left_out_usd[j])) for j in jobs], dtype=np.int64)
        for j in jobs:
            builder.row(f"job {j}", [(int(self._u[j]), 1.0)], "==", 1.0)
        tiers = int(table.tier.max(initial=-1)) + 1
        self._tier = len(builder.rows) + np.arange(tiers)
        for tier in range(tiers):
            members = [(int(self._u[j]), 1.0) for j in jobs if table.tier[j] == tier]
            builder.row(f"tier {tier}", members, "<=", float(len(members)))
        self._together = _add_affinities(builder, table)
        self._committed = _add_cover(builder, table)
        layout = add_egress_rows(builder, table, self.egress)
        self._volume = {
            (item.meter, item.month): row for item, row in zip(self.egress.meters, layout.volume, strict=True)
        }
        self._allowance = layout.allowance
        program = builder.build()
        self._load(program)
        others = [i for i in range(len(program.variables)) if i >= len(self._u)]
        self._egress_columns = np.array(others, dtype=np.int64)
        self._egress_usd = np.array([program.variables[i].cost for i in others])
        self._team = self._lp.rows + np.arange(len(table.team_names))
        empty = SparseVector(np.zeros(0, dtype=np.int64), np.zeros(0))
        if len(self._team):
            self._lp.add_rows(
                [empty] * len(self._team), np.full(len(self._team), -np.inf), table.team_left.astype(np.float64)
            )
        self._first_column = self._lp.columns
        self._limit_rows: dict[int, int] = {}
        nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
        self.arrays = ColumnArrays(none, nothing, nothing, none, nothing, none)
        self._capacity = table.capacity_by_slot
        self.left_out_usd = left_out_usd
        self.most_left_out = np.bincount(table.tier, minlength=tiers).astype(np.float64)
        self.placed: Bools = np.zeros(len(table.jobs), dtype=np.bool_)
        self.iterations = 0

    def _load(self, program: Program) -> None:
        """Copy a program into the open one; whole numbers are relaxed."""
        variables, rows = program.variables, program.rows
        none = SparseVector(np.zeros(0, dtype=np.int64), np.zeros(0))
        high = np.array([np.inf if v.high is None else v.high for v in variables])
        self._lp.add_columns([none] * len(variables), np.array([v.cost for v in variables]), high)
        vectors = [
            SparseVector(np.array([i for i, _ in r.terms], dtype=np.int64), np.array([a for _, a in r.terms]))
            for r in rows
        ]
        low = np.array([-np.inf if r.sense == "<=" else r.rhs for r in rows])
        top = np.array([np.inf if r.sense == ">=" else r.rhs for r in rows])
        self._lp.add_rows(vectors, low, top)

    def add(self, columns: Sequence[Column]) -> list[int]:
        """Add the columns that are new, and return their numbers."""
        fresh = []
        for column in columns:
            key = (column.job, tuple((t, r, round(share, 9)) for t, r, share in column.holds))
            if key not in self._known:
                self._known.add(key)
                fresh.append(column)
        if not fresh:
            return []
        vectors = [self._vector(column) for column in fresh]
        usd = np.array([0.0 if self._free else c.usd for c in fresh])
        self._lp.add_columns(vectors, usd, np.full(len(fresh), np.inf))
        begin = len(self.columns)
        self.columns += fresh
        before = self.arrays
        self.arrays = ColumnArrays(
            np.append(before.job, [c.job for c in fresh]),
            np.append(before.usd, [c.usd for c in fresh]),
            np.append(before.counted, [c.counted for c in fresh]),
            np.concatenate([before.place, *(c.use for c in fresh)]),
            np.concatenate([before.amount, *(c.amount for c in fresh)]),
            np.concatenate([before.column, *(np.full(len(c.use), begin + i) for i, c in enumerate(fresh))]),
        )
        return list(range(begin, len(self.columns)))

    def _vector(self, column: Column) -> SparseVector:
        terms = {column.job: 1.0}
        team = int(self.table.team[column.job])
        if team >= 0 and column.counted:
            terms[int(self._team[team])] = column.counted
        together = self._together.get(int(self.table.block[column.holds[0][1]]))
        if together is not None:
            terms[together] = 1.0
        for meter, month, gb in column.moves:
            terms[self._volume[meter, month]] = -gb
        for place, usd in zip(column.cover.tolist(), column.committed.tolist(), strict=True):
            terms[self._committed[place]] = -usd
        for place, amount in zip(column.use, column.amount, strict=True):
            row = self._limit_rows.get(int(place))
            if row is not None:
                terms[row] = float(amount)
        rows = sorted(terms)
        return SparseVector(np.array(rows, dtype=np.int64), np.array([terms[row] for row in rows]))

    def load_of(self, x: Floats) -> Floats:
        """Return the use of every limit in every slot, flat."""
        all_columns = self.arrays
        weights = all_columns.amount * x[all_columns.column]
        load = np.bincount(all_columns.place, weights=weights, minlength=len(self._capacity))
        return load.astype(np.float64)

    def forget_basis(self) -> None:
        """Let the next solution start anew, after many columns were fixed."""
        self._lp.forget_basis()

    def solve(self) -> MasterSolution | None:
        """Return the optimum that keeps every limit; None where there is none (a fixing that nothing fits)."""
        for _ in range(_MOST_SOLVES):
            solution = self._lp.solve()
            if solution is None:
                return None
            self.iterations += solution.iterations
            x = solution.values[self._first_column :]
            if not self._add_exceeded(x):
                return self._read(solution.objective, solution.values, solution.duals)
        raise SolverFailedError("rows of limits keep coming in: the open program does not keep them")

    def solved(self) -> MasterSolution:
        """Return the optimum while no column is fixed, so that there is one; SolverFailedError where none is found."""
        solution = self.solve()
        if solution is None:
            raise SolverFailedError("the program over columns has no answer, though every job may be left out")
        return solution

    def _add_exceeded(self, x: Floats) -> bool:
        """Add the rows of limits that the answer exceeds, and return whether there were any."""
        load = self.load_of(x)
        exceeded = np.flatnonzero(load > self._capacity + _EXCESS * np.maximum(1.0, self._capacity))
        exceeded = np.array([place for place in exceeded if int(place) not in self._limit_rows], dtype=np.int64)
        if not len(exceeded):
            return False
        all_columns = self.arrays
        chosen = np.flatnonzero(np.isin(all_columns.place, exceeded))
        chosen = chosen[np.argsort(all_columns.place[chosen], kind="stable")]
        places, amounts, owners = all_columns.place[chosen], all_columns.amount[chosen], all_columns.column[chosen]
        bounds = np.searchsorted(places, exceeded), np.searchsorted(places, exceeded, side="right")
        vectors = [SparseVector(owners[a:b] + self._first_column, amounts[a:b]) for a, b in zip(*bounds, strict=True)]
        begin = self._lp.rows
        self._lp.add_rows(vectors, np.full(len(vectors), -np.inf), self._capacity[exceeded])
        self._limit_rows.update({int(place): begin + i for i, place in enumerate(exceeded)})
        return True

    def _read(self, objective: float, values: Floats, duals: Floats) -> MasterSolution:
        table = self.table
        limit = np.zeros(len(self._capacity))
        if self._limit_rows:
            places, rows = np.array(list(self._limit_rows)), np.array(list(self._limit_rows.values()))
            limit[places] = np.maximum(0.0, -duals[rows])
        move = np.zeros((len(table.tariffs), len(table.months)))
        for (meter, month), row in self._volume.items():
            move[meter, month] = max(0.0, duals[row])
        allowance = np.array([max(0.0, -duals[row]) if row >= 0 else 0.0 for row in self._allowance])
        together = np.zeros(len(table.block_job))
        for block, row in self._together.items():
            together[block] = max(0.0, -duals[row])
        cover = np.zeros(table.bought.size)
        for place, row in self._committed.items():
            cover[place] = min(1.0, max(0.0, -duals[row]))
        tier = np.maximum(0.0, -duals[self._tier])
        left_out = self.left_out_usd + (tier[table.tier] if len(tier) else 0.0)
        left_out = np.where(self.placed, NEVER, left_out)
        return MasterSolution(
            objective=objective,
            x=values[self._first_column :],
            u=values[self._u],
            alpha=duals[: len(table.jobs)],
            prices=Prices(
                limit.reshape(len(table.capacity), table.slots),
                np.maximum(0.0, -duals[self._team]) if len(self._team) else np.zeros(0),
                move,
                allowance,
                tier,
                left_out,
                together,
                cover.reshape(table.bought.shape),
            ),
        )

    def set_left_out(self, usd: Floats, max_per_tier: Floats) -> None:
        """Replace what a job left out costs, and how many of each tier may be."""
        self.left_out_usd, self.most_left_out = usd, max_per_tier
        self._lp.set_costs(self._u, usd)
        for tier, row in enumerate(self._tier):
            self._lp.set_row(int(row), -np.inf, float(max_per_tier[tier]))

    def hold(self, placed: Bools, left_out: Bools) -> None:
        """Demand that these jobs are placed, and those left out; all others may be either again."""
        self.placed = placed
        self._lp.set_bounds(self._u, np.where(left_out, 1.0, 0.0), np.where(placed, 0.0, np.inf))

    def set_limits(self, table: Table) -> None:
        """Let the limits be those of a table that differs from the master's in their capacity alone."""
        self.table, self._capacity = table, table.capacity_by_slot
        for place, row in self._limit_rows.items():
            self._lp.set_row(row, -np.inf, float(self._capacity[place]))

    def set_column_costs(self, *, free: bool) -> None:
        """Let columns, later ones too, and egress cost nothing, or what they cost."""
        self._free = free
        numbers = self._first_column + np.arange(len(self.columns))
        costs = np.zeros(len(self.columns)) if free else np.array([c.usd for c in self.columns])
        self._lp.set_costs(
            np.concatenate([self._egress_columns, numbers]),
            np.concatenate([0.0 * self._egress_usd if free else self._egress_usd, costs]),
        )

    def fix(self, columns: Ints, low: Floats, high: Floats) -> None:
        """Bound these columns."""
        self._lp.set_bounds(columns + self._first_column, low, high)
