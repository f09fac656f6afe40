"""Choose the schedules of a neighbourhood of jobs anew by the compact program, while the others keep theirs.

The compact program knows every schedule of the candidates that it is given, gaps and shares beyond the horizon
included, which no list of columns does. It gets the candidates on limits that have a price; elsewhere a job takes one
of its best columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.columns.column import Column, priced_column
from router.planning.columns.master import ROOM, MasterSolution
from router.planning.columns.runs import NEVER, Surcharges, row_floors, scarce_rows
from router.planning.columns.table import Bools, Floats, Table
from router.planning.columns.whole import PlanTotals, WholePlan
from router.planning.find.affinity import affinity_of
from router.planning.find.candidate import Candidate
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.program.effort import Effort
from router.planning.program.formulation import Formulation, formulate, holdings_of
from router.planning.program.greedy import start_values
from router.planning.rules.budgets import team_row
from router.planning.rules.commitments import cover_row
from router.planning.rules.job_groups import choice_name, one_region_row, together_row
from router.planning.rules.program import Program, ProgramBuilder, ProgramLayout, limit_row

_PHASE = "exact groups"
_TINY = 1e-9


@dataclass(frozen=True)
class NeighbourhoodChoice:
    """Jobs to choose anew: rows within ``slack`` dollars of their worth, or one of ``options``, the present among them.

    The search ends at a relative ``gap`` or after ``nodes``.
    """

    jobs: tuple[int, ...]
    options: Mapping[int, tuple[Column, ...]]
    slack: float
    nodes: int
    gap: float


class NeighbourhoodProgram:
    """Writes the compact program of neighbourhoods at the prices of one relaxation."""

    def __init__(self, totals: PlanTotals, solution: MasterSolution) -> None:
        self.totals = totals
        self.table: Table = totals.table
        self.solution = solution
        charges = Surcharges.of(self.table, solution.prices)
        self.floors: Floats = row_floors(self.table, charges)
        self.priced: Bools = scarce_rows(self.table, solution.prices)

    def improved(self, plan: WholePlan, choice: NeighbourhoodChoice, effort: Effort) -> WholePlan:
        """Return the plan with the neighbourhood's jobs chosen anew; never worse."""
        table = self.table
        problem = self._problem(plan, choice)
        formulation = formulate(problem)
        program, start, numbers = self._with_columns(formulation, plan, choice)
        solution = effort.solve(_PHASE, program, choice.gap, start, choice.nodes)
        if not solution.values:
            return plan
        columns = list(plan.columns)
        for number, column in numbers.items():
            if solution.values[number] > 0.5:
                columns[column.job] = column
        jobs = {table.jobs[job].name: job for job in choice.jobs}
        for name, holds in holdings_of(problem, formulation.layout, solution.values).items():
            found = priced_column(table, self._rows(jobs[name], holds))
            if found is not None and found.counted <= table.allowance[found.job]:
                columns[jobs[name]] = found
        better = self.totals.plan(columns)
        return better if better.rank < plan.rank and self._keeps_limits(columns) else plan

    def _with_columns(
        self, formulation: Formulation, plan: WholePlan, choice: NeighbourhoodChoice
    ) -> tuple[Program, dict[int, float], dict[int, Column]]:
        """Add the columns that each job may take instead of its rows by slot, and the values to start from.

        A job that the rows by slot leave out takes one of its columns. Their moves count at the relaxation's prices.
        """
        table, totals, prices = self.table, self.totals, self.solution.prices
        layout = formulation.layout
        builder = ProgramBuilder(list(formulation.program.variables), list(formulation.program.rows))
        places = {row.name: number for number, row in enumerate(builder.rows)}
        more: dict[int, list[tuple[int, float]]] = {}
        fresh: dict[int, list[tuple[int, float]]] = {}
        chosen = set(choice.jobs)
        kept = [None if job in chosen else column for job, column in enumerate(plan.columns)]
        homes = totals.homes(kept)
        room = totals.capacity - totals.load(kept)
        numbers: dict[int, Column] = {}
        values = start_values(self.table.problem, layout, {})
        start = dict(values)
        rows, cover = _GroupRows(builder, layout, start), _CoverRows(builder, totals, kept)
        for job in choice.jobs:
            u = layout.u[table.jobs[job].name]
            terms = [(u, -1.0)]
            for option in choice.options[job]:
                if not totals.is_beside_mates(option, homes):
                    continue
                moves = sum(prices.move[meter, month] * gb for meter, month, gb in option.moves)
                i = builder.binary(f"column {job} {len(numbers)}", cost=option.usd + moves)
                numbers[i] = option
                start[i] = float(option is plan.columns[job])
                terms.append((i, 1.0))
                if table.affinity[job] >= 0 and int(table.affinity[job]) not in homes:
                    rows.add(table.jobs[job], table.places[totals.home(option)], i)
                for place, amount in zip(option.use.tolist(), option.amount.tolist(), strict=True):
                    name = limit_row(table.limit_names[place // table.slots], place % table.slots)
                    if name in places:
                        more.setdefault(places[name], []).append((i, amount))
                    else:
                        fresh.setdefault(place, []).append((i, amount))
                cover.add(option, i)
                money_row = places.get(team_row(table.jobs[job].team))
                if money_row is not None:
                    more.setdefault(money_row, []).append((i, option.counted))
            builder.row(f"columns of {job}", terms, "==", 0.0)
        rows.write()
        for number, terms in more.items():
            builder.rows[number] = replace(builder.rows[number], terms=(*builder.rows[number].terms, *terms))
        cover.write()
        for place, terms in sorted(fresh.items()):
            if sum(amount for _, amount in terms) > room[place] + ROOM:
                builder.row(f"room {place}", terms, "<=", float(room[place]))
        return builder.build(), start, numbers

    def draw(self, plan: WholePlan, regret: Floats, tried: Floats, slack: float, size: int) -> list[int]:
        """Return the placed jobs with most to gain on limits that have a price: fresh ones first, then by regret."""
        table = self.table
        over = np.full(len(table.jobs), np.inf)
        priced = np.flatnonzero(self.priced & (self.floors < NEVER / 2))
        np.minimum.at(over, table.job[priced], self.floors[priced] - self.solution.alpha[table.job[priced]])
        near = np.flatnonzero((over < slack) & np.array([column is not None for column in plan.columns]))
        score = (regret[near] + 0.1 * np.maximum(0.0, slack - over[near])) / (1.0 + tried[near]) ** 2
        chosen = near[np.lexsort((near, -score))][:size].tolist()
        placed = {int(mate) for job in chosen for mate in table.mates(job) if plan.columns[int(mate)] is not None}
        mates = sorted(placed - set(chosen))
        return sorted([*chosen[: max(1, size - len(mates))], *mates][:size]) if mates else sorted(chosen)

    def _keeps_limits(self, columns: Sequence[Column | None]) -> bool:
        homes = self.totals.homes(columns)
        if not all(self.totals.is_beside_mates(column, homes) for column in columns if column is not None):
            return False
        load, spent = self.totals.load(columns), self.totals.spent(columns)[:-1]
        return bool((load <= self.totals.capacity + 1e-6).all() and (spent <= self.table.team_left + 1e-6).all())

    def _rows(self, job: int, holds: Sequence[SlotHold]) -> list[tuple[int, int, float]]:
        """Return holdings by row."""
        ordered = sorted(holds, key=lambda h: (h.slot.index, h.key))
        return self.table.rows_held(job, [(hold.slot.index, hold.key, hold.share) for hold in ordered])

    def _problem(self, plan: WholePlan, choice: NeighbourhoodChoice) -> PlacementProblem:
        """Return the problem of these jobs over their rows on priced limits, with what the others leave."""
        table, totals = self.table, self.totals
        chosen = set(choice.jobs)
        kept = [None if job in chosen else column for job, column in enumerate(plan.columns)]
        homes = totals.homes(kept)
        load, committed = totals.load(kept), totals.committed(kept)
        held = {
            (table.limit_names[place // table.slots], int(place % table.slots)): float(load[place])
            for place in np.flatnonzero(load > _TINY).tolist()
        }
        spent = dict(zip(table.team_names, totals.spent(kept)[:-1].tolist(), strict=True))
        teams = tuple(
            team.model_copy(update={"spent": team.spent + Usd(int(spent.get(team.team, 0.0) * 1e9))})
            for team in table.problem.limits.teams
        )
        return replace(
            table.problem,
            jobs=tuple(table.jobs[job] for job in sorted(choice.jobs)),
            candidates={table.jobs[job].name: self._candidates(job, choice.slack, homes) for job in choice.jobs},
            limits=table.problem.limits.model_copy(update={"teams": teams}),
            held=held,
            committed={
                (place // table.slots, place % table.slots): float(committed[place])
                for place in np.flatnonzero(committed > 0).tolist()
            },
        )

    def _candidates(self, job: int, slack: float, homes: Mapping[int, int]) -> tuple[Candidate, ...]:
        """Return the candidates on priced limits whose floor is within ``slack`` of the job's worth.

        A job of a group whose other jobs are held has those of their region.
        """
        table = self.table
        home = homes.get(int(table.affinity[job]))
        own = (table.job == job) & self.priced & (self.floors - self.solution.alpha[job] < slack)
        if home is not None:
            own &= table.place[table.block] == home
        found = {table.rows[row].candidate.key: table.rows[row].candidate for row in np.flatnonzero(own).tolist()}
        return tuple(found[key] for key in sorted(found))


class _CoverRows:
    """Adds what whole columns use of committed spend to its rows, and writes those that are missing."""

    def __init__(self, builder: ProgramBuilder, totals: PlanTotals, kept: Sequence[Column | None]) -> None:
        self._builder, self._table = builder, totals.table
        self._others = totals.committed(kept)
        self._numbers = {row.name: number for number, row in enumerate(builder.rows)} if len(self._others) else {}
        self._terms: dict[int, list[tuple[int, float]]] = {}

    def add(self, option: Column, column: int) -> None:
        """Note a column and what it uses."""
        for place, usd in zip(option.cover.tolist(), option.committed.tolist(), strict=True):
            self._terms.setdefault(place, []).append((column, -usd))

    def write(self) -> None:
        """Write v <= Σ dollars used by rows, columns and other jobs, for each pool and slot."""
        builder, slots = self._builder, self._table.slots
        for place, terms in sorted(self._terms.items()):
            name = cover_row((place // slots, place % slots))
            number = self._numbers.get(name)
            if number is None:
                v = builder.variable(name, high=float(self._table.bought.ravel()[place]), cost=-1.0)
                builder.row(name, [(v, 1.0), *terms], "<=", float(self._others[place]))
            else:
                builder.rows[number] = replace(builder.rows[number], terms=(*builder.rows[number].terms, *terms))


class _GroupRows:
    """Adds whole columns to the rows that keep job groups in one region, and writes those that are missing."""

    def __init__(self, builder: ProgramBuilder, layout: ProgramLayout, start: dict[int, float]) -> None:
        self._builder, self._chosen, self._start = builder, dict(layout.g), start
        self._numbers = {row.name: number for number, row in enumerate(builder.rows)}
        self._terms: dict[tuple[str, RegionId, str], list[tuple[int, float]]] = {}

    def add(self, job: Job, region: RegionId, column: int) -> None:
        """Note a column of the job in the region."""
        self._terms.setdefault((job.name, region, affinity_of(job) or ""), []).append((column, 1.0))

    def write(self) -> None:
        """Write Σ y + columns <= g for each job and region, and Σ_r g <= 1 for each group."""
        builder = self._builder
        for (job, region, affinity), terms in sorted(self._terms.items()):
            g = self._chosen.get((affinity, region))
            if g is None:
                g = self._chosen[affinity, region] = builder.binary(choice_name(affinity, region))
            self._start[g] = max(self._start.get(g, 0.0), *(self._start[i] for i, _ in terms))
            number = self._numbers.get(together_row(job, region))
            if number is None:
                builder.row(together_row(job, region), [*terms, (g, -1.0)], "<=", 0.0)
            else:
                builder.rows[number] = replace(builder.rows[number], terms=(*builder.rows[number].terms, *terms))
        for affinity in sorted({affinity for _, _, affinity in self._terms}):
            own = tuple((g, 1.0) for (name, _), g in sorted(self._chosen.items()) if name == affinity)
            number = self._numbers.get(one_region_row(affinity))
            if number is None:
                builder.row(one_region_row(affinity), own, "<=", 1.0)
            else:
                builder.rows[number] = replace(builder.rows[number], terms=own)
