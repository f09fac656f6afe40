"""Choose one column a job: plans over columns, what they take and cost, and the program over some jobs of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pricing.units import BYTES_PER_GB
from router.planning.columns.column import Column
from router.planning.columns.master import ROOM, EgressRows, add_egress_rows
from router.planning.columns.table import Floats, Table
from router.planning.program.effort import Effort
from router.planning.rules.program import Program, ProgramBuilder

_PHASE = "neighbourhoods"
_NODES = 20


@dataclass(frozen=True)
class WholePlan:
    """The column of each job, None for a job left out; ``left_out`` counts them by tier, ``usd`` moves included."""

    columns: tuple[Column | None, ...]
    left_out: tuple[int, ...]
    usd: float

    @property
    def rank(self) -> tuple[tuple[int, ...], float]:
        """Return the sort key: fewest jobs left out, tier by tier, then dollars."""
        return (self.left_out, self.usd)


class PlanTotals:
    """Adds up what columns take of limits, budgets and meters."""

    def __init__(self, table: Table, egress: EgressRows) -> None:
        self.table = table
        self.egress = egress
        self.capacity = table.capacity_by_slot

    def load(self, columns: Iterable[Column | None]) -> Floats:
        """Return the use of every limit and slot, flat."""
        total = np.zeros(len(self.capacity))
        for column in columns:
            if column is not None:
                total[column.use] += column.amount
        return total

    def spent(self, columns: Iterable[Column | None]) -> Floats:
        """Return dollars counted by team, and those of jobs without a budget last."""
        total = np.zeros(len(self.table.team_names) + 1)
        for column in columns:
            if column is not None:
                total[self.table.team[column.job]] += column.counted
        return total

    def moved(self, columns: Iterable[Column | None]) -> dict[tuple[int, int], float]:
        """Return gigabytes by meter and month."""
        total: dict[tuple[int, int], float] = {}
        for column in columns:
            for meter, month, gb in () if column is None else column.moves:
                total[meter, month] = total.get((meter, month), 0.0) + gb
        return total

    def moves_usd(self, moved: Mapping[tuple[int, int], float]) -> float:
        """Return the dollars of these volumes, allowances given where they save most."""
        left = {(cloud, month): gb for cloud, month, gb in self.egress.allowances}
        total = 0.0
        tariffs = self.table.tariffs
        ranked = sorted(self.egress.meters, key=lambda item: -tariffs[item.meter].after_allowance.nanos)
        for item in ranked:
            volume = moved.get((item.meter, item.month), 0.0)
            if volume <= 0:
                continue
            tariff = tariffs[item.meter]
            start, end = item.already / BYTES_PER_GB, item.already / BYTES_PER_GB + volume
            for index, tier in enumerate(tariff.tiers):
                top = end if tier.to_bytes is None else min(end, tier.to_bytes / BYTES_PER_GB)
                size = top - max(start, tier.from_bytes / BYTES_PER_GB)
                if size <= 0:
                    continue
                price = tier.price.dollars()
                if index == 0 and tariff.allowance_bytes:
                    place = (tariff.cloud, item.month)
                    free = min(size, left.get(place, 0.0))
                    left[place] = left.get(place, 0.0) - free
                    size, price = size - free, tariff.after_allowance.dollars()
                total += size * price
        return total

    def committed(self, columns: Iterable[Column | None]) -> Floats:
        """Return the dollars that use committed spend, by pool and slot, flat."""
        total = np.zeros(self.table.bought.size)
        for column in columns:
            if column is not None:
                total[column.cover] += column.committed
        return total

    def covered_usd(self, used: Floats) -> float:
        """Return how many of these dollars are covered."""
        return float(np.minimum(used, self.table.bought.ravel()).sum())

    def keeps_cover(self, used: Floats, column: Column, other: Column) -> bool:
        """Return whether no less is covered with the other column in the place of one of those that use this much."""
        if not len(column.cover) and not len(other.cover):
            return True
        fresh = used.copy()
        fresh[column.cover] -= column.committed
        fresh[other.cover] += other.committed
        return self.covered_usd(fresh) >= self.covered_usd(used) - ROOM

    def plan(self, columns: Sequence[Column | None]) -> WholePlan:
        """Return the columns as a plan."""
        tiers = int(self.table.tier.max(initial=-1)) + 1
        out = [0] * tiers
        for job, column in enumerate(columns):
            if column is None:
                out[int(self.table.tier[job])] += 1
        paid = sum(column.usd for column in columns if column is not None)
        usd = paid + self.moves_usd(self.moved(columns))
        if self.table.has_cover:
            usd -= self.covered_usd(self.committed(columns))
        return WholePlan(tuple(columns), tuple(out), usd)

    def home(self, column: Column) -> int:
        """Return the region of a column, as the table numbers it."""
        return int(self.table.place[self.table.block[column.holds[0][1]]])

    def homes(self, columns: Iterable[Column | None]) -> dict[int, int]:
        """Return the region of each job group of which some job is placed."""
        homes: dict[int, int] = {}
        for column in columns:
            if column is not None and self.table.affinity[column.job] >= 0:
                homes.setdefault(int(self.table.affinity[column.job]), self.home(column))
        return homes

    def is_beside_mates(self, column: Column, homes: Mapping[int, int]) -> bool:
        """Return whether the column is where its job's group is, or may be anywhere."""
        own = int(self.table.affinity[column.job])
        return own < 0 or homes.get(own, self.home(column)) == self.home(column)

    def fits(self, column: Column, room: Floats, money: Floats) -> bool:
        """Return whether the column fits into what is left of limits and of its team's budget."""
        if len(column.use) and bool((column.amount > room[column.use] + ROOM).any()):
            return False
        team = int(self.table.team[column.job])
        return team < 0 or column.counted <= money[team] + ROOM


@dataclass(frozen=True)
class Choice:
    """Some jobs that may change, each with the columns that it may take; the other jobs of ``plan`` stay."""

    plan: WholePlan
    jobs: tuple[int, ...]
    options: Mapping[int, tuple[Column, ...]]


def solve_choice(totals: PlanTotals, choice: Choice, left_out_usd: Floats, effort: Effort, gap: float) -> WholePlan:
    """Return the best plan over the choice that the solver finds from the present one; never a worse one."""
    program = _ChoiceProgram(totals, choice, left_out_usd)
    solution = effort.solve(_PHASE, program.build(), gap, program.start, _NODES)
    if not solution.values:
        return choice.plan
    columns = list(program.kept)
    for number, column in program.columns.items():
        if solution.values[number] > 0.5:
            columns[column.job] = column
    better = totals.plan(columns)
    return better if better.rank < choice.plan.rank else choice.plan


class _ChoiceProgram:
    """Writes the program of a choice: one column a free job, in what the other jobs leave."""

    def __init__(self, totals: PlanTotals, choice: Choice, left_out_usd: Floats) -> None:
        free = set(choice.jobs)
        self.totals = totals
        self.kept = [column if job not in free else None for job, column in enumerate(choice.plan.columns)]
        self.columns: dict[int, Column] = {}
        self.start: dict[int, float] = {}
        self._builder = ProgramBuilder()
        self._homes = totals.homes(self.kept)
        self._together: dict[int, dict[tuple[int, int], list[tuple[int, float]]]] = {}
        self._room = totals.capacity - totals.load(self.kept)
        self._money = np.append(totals.table.team_left, np.inf) - totals.spent(self.kept)
        self._limits: dict[int, list[tuple[int, float]]] = {}
        self._peaks: dict[int, dict[int, float]] = {}
        self._teams: dict[int, list[tuple[int, float]]] = {}
        self._volumes: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self._committed: dict[int, list[tuple[int, float]]] = {}
        for job in choice.jobs:
            self._add_job(choice, job, float(left_out_usd[job]))

    def build(self) -> Program:
        """Return the program with the rows of what is shared."""
        builder = self._builder
        for place, found in sorted(self._limits.items()):
            if sum(self._peaks[place].values()) > self._room[place] + ROOM:
                builder.row(f"limit {place}", found, "<=", float(self._room[place]))
        for team, found in sorted(self._teams.items()):
            builder.row(f"team {team}", found, "<=", float(self._money[team]))
        for number, together in sorted(self._together.items()):
            self._add_together(number, together)
        _add_moves(builder, self.totals, self.totals.moved(self.kept), self._volumes)
        others, bought = self.totals.committed(self.kept), self.totals.table.bought.ravel()
        for place, found in sorted(self._committed.items()):
            v = builder.variable(f"covered {place}", high=float(bought[place]), cost=-1.0)
            builder.row(f"commitment {place}", [(v, 1.0), *found], "<=", float(others[place]))
        return builder.build()

    def _add_together(self, number: int, group_terms: Mapping[tuple[int, int], list[tuple[int, float]]]) -> None:
        """Add the rows that keep a job group of which no job is held in one region."""
        builder = self._builder
        chosen = {}
        for place in sorted({place for place, _ in group_terms}):
            chosen[place] = builder.binary(f"job group {number} {place}")
            here = [i for (at, _), terms in group_terms.items() if at == place for i, _ in terms]
            self.start[chosen[place]] = float(any(self.start[i] for i in here))
        for (place, job), terms in sorted(group_terms.items()):
            builder.row(f"together {job} {place}", [*terms, (chosen[place], -1.0)], "<=", 0.0)
        builder.row(f"one region {number}", [(g, 1.0) for g in chosen.values()], "<=", 1.0)

    def _add_job(self, choice: Choice, job: int, left_out_usd: float) -> None:
        builder, present = self._builder, choice.plan.columns[job]
        u = builder.binary(f"u {job}", cost=left_out_usd)
        self.start[u] = float(present is None)
        terms = [(u, 1.0)]
        for number, column in enumerate(choice.options[job]):
            beside = self.totals.is_beside_mates(column, self._homes)
            if beside and self.totals.fits(column, self._room, self._money):
                i = builder.binary(f"x {job} {number}", cost=column.usd)
                self.start[i] = float(column is present)
                self.columns[i] = column
                terms.append((i, 1.0))
                self._count(i, column)
        builder.row(f"job {job}", terms, "==", 1.0)

    def _count(self, i: int, column: Column) -> None:
        """Note what the column takes of limits, budgets and meters."""
        for place, amount in zip(column.use.tolist(), column.amount.tolist(), strict=True):
            self._limits.setdefault(place, []).append((i, amount))
            peak = self._peaks.setdefault(place, {})
            peak[column.job] = max(peak.get(column.job, 0.0), amount)
        team = int(self.totals.table.team[column.job])
        if team >= 0:
            self._teams.setdefault(team, []).append((i, column.counted))
        own = int(self.totals.table.affinity[column.job])
        if own >= 0 and own not in self._homes:
            place = (self.totals.home(column), column.job)
            self._together.setdefault(own, {}).setdefault(place, []).append((i, 1.0))
        for meter, month, gb in column.moves:
            self._volumes.setdefault((meter, month), []).append((i, gb))
        for place, usd in zip(column.cover.tolist(), column.committed.tolist(), strict=True):
            self._committed.setdefault(place, []).append((i, -usd))


def _add_moves(
    builder: ProgramBuilder,
    totals: PlanTotals,
    moved: Mapping[tuple[int, int], float],
    volumes: Mapping[tuple[int, int], Sequence[tuple[int, float]]],
) -> None:
    """Add the tiers of the meters that the free jobs could use, on top of what the others move."""
    table, egress = totals.table, totals.egress
    used: dict[tuple[str, int], float] = {}
    for (meter, month), gb in moved.items():
        tariff = table.tariffs[meter]
        already = next(i.already for i in egress.meters if (i.meter, i.month) == (meter, month))
        taken = tariff.allowance_use(already, round(gb * BYTES_PER_GB)) / BYTES_PER_GB
        used[tariff.cloud, month] = used.get((tariff.cloud, month), 0.0) + taken
    meters = []
    for item in egress.meters:
        terms = volumes.get((item.meter, item.month))
        if terms:
            before = round(moved.get((item.meter, item.month), 0.0) * BYTES_PER_GB)
            reach = int(np.ceil(sum(gb for _, gb in terms) * BYTES_PER_GB))
            meters.append(replace(item, already=item.already + before, reach=reach))
    allowances = tuple(
        (cloud, month, max(0.0, left - used.get((cloud, month), 0.0))) for cloud, month, left in egress.allowances
    )
    layout = add_egress_rows(builder, table, EgressRows(tuple(meters), allowances))
    for item, row in zip(meters, layout.volume, strict=True):
        terms = volumes[item.meter, item.month]
        old = builder.rows[row]
        builder.rows[row] = replace(old, terms=(*old.terms, *((i, -gb) for i, gb in terms)))
