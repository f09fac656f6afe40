"""Improve a whole plan: one job at a time at its cheapest free place, then neighbourhoods by small exact programs.

A neighbourhood is some jobs whose column costs much at the relaxation's prices, and the jobs that hold what those want.
Each of its jobs keeps its column or takes one whose reduced cost is at most what all of them could gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from router.planning.columns.column import Column, run_column, run_columns
from router.planning.columns.master import ROOM, MasterSolution
from router.planning.columns.relaxation import common_places
from router.planning.columns.runs import NEVER, RunPricer, Surcharges, row_floors, scarce_rows
from router.planning.columns.table import Floats, Ints, Table
from router.planning.columns.whole import Choice, PlanTotals, WholePlan, solve_choice
from router.planning.program.effort import Effort

_OPTIONS = 60
_FORCED = 6  # columns of a job left out that are tried in the way of others
_PLACES_TRIED = 6  # regions into which a job group is moved as a whole
_LEAST_GAIN = 1e-4  # dollars
_SMALL_GAP = 1e-4


class Improver:
    """Improves plans over the columns of one relaxation, at its prices."""

    def __init__(
        self,
        totals: PlanTotals,
        pricer: RunPricer,
        solution: MasterSolution,
        columns: Sequence[Column],
        left_out: Floats,
    ) -> None:
        self.totals = totals
        self.table: Table = totals.table
        self.pricer = pricer
        self.solution = solution
        self.left_out = left_out
        self.charges = Surcharges.of(self.table, solution.prices)
        self._by_job: list[list[tuple[float, int, Column]]] = [[] for _ in self.table.jobs]
        for number, column in enumerate(columns):
            self._by_job[column.job].append((self.reduced_cost(column), number, column))
        for found in self._by_job:
            found.sort(key=lambda item: item[:2])

    def reduced_cost(self, column: Column | None, job: int = -1) -> float:
        """Return what a column costs more at the relaxation's prices than its job is worth."""
        prices = self.solution.prices
        if column is None:
            return float(prices.left_out[job] - self.solution.alpha[job])
        shared = float(prices.limit.ravel()[column.use] @ column.amount) if len(column.use) else 0.0
        moves = sum(prices.move[meter, month] * gb for meter, month, gb in column.moves)
        shared += float(prices.together[self.table.block[column.holds[0][1]]])
        shared -= float(prices.cover.ravel()[column.cover] @ column.committed) if len(column.cover) else 0.0
        team = self.charges.team[column.job]
        return float(column.usd + team * column.counted + shared + moves - self.solution.alpha[column.job])

    def add(self, columns: Sequence[Column]) -> None:
        """Add columns to those that neighbourhoods choose from."""
        begin = sum(len(found) for found in self._by_job)
        for number, column in enumerate(columns, start=begin):
            self._by_job[column.job].append((self.reduced_cost(column), number, column))
        for job in {column.job for column in columns}:
            self._by_job[job].sort(key=lambda item: item[:2])

    def near_runs(self, slack: float, max_per_job: int) -> list[Column]:
        """Return the unbroken runs on limits that have a price whose reduced cost is below ``slack``.

        No plan that is better by more than ``slack`` minus the relaxation's distance uses another such run. At most
        ``max_per_job`` of a job are returned, nearest first.
        """
        table, charges, alpha = self.table, self.charges, self.solution.alpha
        floors = row_floors(table, charges)
        priced = scarce_rows(table, self.solution.prices)
        rows = np.flatnonzero(priced & (floors - alpha[table.job] < slack))
        rows = rows[table.counted[rows] <= table.allowance[table.job[rows]]]
        if not len(rows):
            return []
        over = self.pricer.cost(rows, charges, floors) - alpha[table.job[rows]][:, None]
        row, start = np.nonzero(over < slack)
        over, row = over[row, start], rows[row]
        order = np.lexsort((start, row, over, table.job[row]))
        jobs = table.job[row[order]]
        place = np.arange(len(order)) - np.searchsorted(jobs, jobs, side="left")
        chosen = order[place < max_per_job]
        return run_columns(table, self.pricer, row[chosen], start[chosen])

    def one_by_one(self, plan: WholePlan) -> WholePlan:
        """Return the plan after each job, in turn, took its cheapest run in what the others leave, until none moves."""
        for _ in range(4):
            before = plan.rank
            for job in range(len(self.table.jobs)):
                plan = self._replaced(plan, job)
            for number in range(len(self.table.affinities)):
                plan = self._moved_together(plan, number)
            if plan.rank >= before:
                break
        return plan

    def _moved_together(self, plan: WholePlan, number: int) -> WholePlan:
        """Return the plan with a whole job group in another region, each job at its cheapest run, if that is better.

        Regions are tried in the order of what the jobs cost there alone.
        """
        table = self.table
        members = np.flatnonzero(table.affinity == number).tolist()
        ranked = sorted(members, key=lambda j: (int(table.tier[j]), -self.solution.alpha[j], j))
        floors = row_floors(table, self.charges)
        for place in common_places(table, number, floors, _PLACES_TRIED):
            columns = [None if job in members else column for job, column in enumerate(plan.columns)]
            found = self.totals.plan(columns)
            for job in ranked:
                found = self._replaced(found, job, place)
            plan = found if found.rank < plan.rank else plan
        return plan

    def with_left_out_placed(self, plan: WholePlan) -> WholePlan:
        """Return the plan with jobs left out put in the way of others, where these find another place."""
        for job in sorted(np.flatnonzero([c is None for c in plan.columns]), key=lambda j: (self.table.tier[j], j)):
            forced = [self._forced(plan, column) for _, _, column in self._by_job[int(job)][:_FORCED]]
            plan = min([plan, *forced], key=lambda whole_plan: whole_plan.rank)
        return plan

    def _forced(self, plan: WholePlan, column: Column) -> WholePlan:
        """Return the plan with this column, and with the jobs in its way moved or left out: the least worth first."""
        table, totals = self.table, self.totals
        columns = list(plan.columns)
        columns[column.job] = column
        over = totals.load(columns) - totals.capacity
        money = totals.spent(columns)[:-1] - table.team_left
        moved = []
        others = [job for job, other in enumerate(columns) if other is not None and job != column.job]
        for job in sorted(others, key=lambda j: (-table.tier[j], self.solution.alpha[j], j)):
            other = columns[job]
            team = int(table.team[job])
            if other is None:
                continue
            crowds = len(other.use) > 0 and bool((over[other.use] > ROOM).any())
            crowds = crowds or not totals.is_beside_mates(other, totals.homes((column,)))
            if crowds or (team >= 0 and money[team] > ROOM):
                over[other.use] -= other.amount
                if team >= 0:
                    money[team] -= other.counted
                columns[job] = None
                moved.append(job)
        if bool((over > ROOM).any()) or bool((money > ROOM).any()):
            return plan
        forced_plan = totals.plan(columns)
        for job in sorted(moved, key=lambda j: (table.tier[j], -self.solution.alpha[j], j)):
            forced_plan = self._replaced(forced_plan, job)
        return forced_plan

    def _replaced(self, plan: WholePlan, job: int, place: int | None = None) -> WholePlan:
        """Return the plan with the job on its cheapest run in what the others leave, in ``place`` if that is given."""
        table, totals = self.table, self.totals
        others = [column if number != job else None for number, column in enumerate(plan.columns)]
        room = totals.capacity - totals.load(others)
        money = np.append(table.team_left, np.inf) - totals.spent(others)
        present = plan.columns[job]
        ceiling = (
            NEVER / 2
            if present is None
            else present.usd + sum(self.solution.prices.move[m, t] * gb for m, t, gb in present.moves)
        )
        rows = np.flatnonzero(table.job == job)
        home = totals.homes(others).get(int(table.affinity[job]), place)
        if home is not None:
            rows = rows[table.place[table.block[rows]] == home]
        counted_left = min(float(table.allowance[job]), float(money[table.team[job]]))
        rows = rows[table.counted[rows] <= counted_left + ROOM]
        if not len(rows):
            return plan
        plain = self._plain(room)
        if table.has_cover:
            left = np.maximum(0.0, table.bought.ravel() - totals.committed(others))
            plain = self._with_cover(plain, job, left)
            if present is not None:
                ceiling -= float(np.minimum(present.committed, left[present.cover]).sum())
        floors = row_floors(table, plain)
        rows = rows[floors[rows] < ceiling - _LEAST_GAIN]
        if not len(rows):
            return plan
        blocked = _blocked(table, table.kind[rows], room)
        cost, start = self.pricer.best_of_rows(rows, plain, floors, blocked)
        best = int(np.lexsort((rows, cost))[0])
        if cost[best] >= ceiling - _LEAST_GAIN:
            return plan
        others[job] = run_column(table, self.pricer, int(rows[best]), int(start[best]))
        found = totals.plan(others)
        return found if found.rank < plan.rank else plan

    def _plain(self, room: Floats) -> Surcharges:
        """Return charges that count moves at the relaxation's prices and nothing else.

        A month in which a cap on egress leaves no room for a block's moves is out of reach; where a job group is does
        not count, since it is a rule here.
        """
        charges, table = self.charges, self.table
        if table.cap_gb.size or table.affinities:
            prices = self.solution.prices
            free = replace(
                prices,
                cover=np.zeros_like(prices.cover),
                limit=np.zeros_like(prices.limit),
                team=np.zeros_like(prices.team),
                together=np.zeros_like(prices.together),
            )
            plain = Surcharges.of(table, free)
            left = room.reshape(len(table.capacity), table.slots)[table.cap_limits, 0]
            full = (table.cap_gb[:, :, None] > left[None] + ROOM).any(axis=1)
            return replace(plain, later=np.where(full, NEVER, plain.later))
        return Surcharges(
            np.zeros_like(charges.slot),
            np.zeros_like(charges.running),
            np.zeros_like(charges.team),
            self._move_only(),
            charges.later,
            np.zeros_like(charges.cover),
            np.zeros_like(charges.most_cover),
        )

    def _with_cover(self, plain: Surcharges, job: int, spare_cover: Floats) -> Surcharges:
        """Return the charges with the share of the job's hours that the cover left by others is enough for."""
        table = self.table
        most = np.zeros(len(table.bought))
        own = np.flatnonzero((table.job == job) & (table.pool >= 0))
        np.maximum.at(most, table.pool[own], table.committed[own])
        needed = np.minimum(most[:, None] * table.hours[job], table.bought)
        share = np.where(
            needed > 0, np.minimum(1.0, spare_cover.reshape(table.bought.shape) / np.maximum(needed, 1e-9)), 0.0
        )
        cover = np.concatenate([share, np.zeros((1, table.slots))])
        most_cover = table.committed * (table.need + table.startup) * cover.max(axis=1)[table.pool]
        return replace(plain, cover=cover, most_cover=most_cover)

    def _move_only(self) -> Floats:
        dearest = self.charges.team[self.table.block_job] * self.table.dearest_moves
        moves: Floats = self.charges.block_moves - dearest
        return moves

    def regret(self, plan: WholePlan) -> Floats:
        """Return by job what its column costs more than the job is worth."""
        return np.array([self.reduced_cost(column, job) for job, column in enumerate(plan.columns)])

    def draw(self, plan: WholePlan, tried: Ints, size: int) -> list[int]:
        """Return the next neighbourhood: a third with the dearest columns, then jobs that hold what these want."""
        regret = self.regret(plan)
        order = np.lexsort((np.arange(len(regret)), -regret / (1 + tried)))
        leaders = [int(job) for job in order[: size // 3] if regret[job] > _LEAST_GAIN]
        wanted = np.zeros(len(self.totals.capacity))
        price = self.solution.prices.limit.ravel()
        for job in leaders:
            for cost, _, column in self._by_job[job][:8]:
                if cost < regret[job] and len(column.use):
                    wanted[column.use] = np.maximum(wanted[column.use], price[column.use] * (regret[job] - cost))
        teams = {int(self.table.team[job]) for job in leaders}
        score = np.zeros(len(regret))
        for job, held in enumerate(plan.columns):
            if held is not None and len(held.use):
                score[job] = float(wanted[held.use] @ held.amount)
            if int(self.table.team[job]) in teams and self.charges.team[job] > 0:
                score[job] += 1e-3
        score = score / (1 + tried)
        score[leaders] = -1.0
        others = [int(job) for job in np.lexsort((np.arange(len(score)), -score)) if score[job] > 0]
        mates = {int(mate) for job in leaders for mate in self.table.mates(job)} - set(leaders)
        others = [*sorted(mates), *(job for job in others if job not in mates)]
        return sorted([*leaders, *others[: size - len(leaders)]])

    def exchange(self, plan: WholePlan, job: int, size: int) -> list[int]:
        """Return a neighbourhood of a job left out: dear jobs of its tier, its team's, and holders of what it wants."""
        table = self.table
        held = [column for column in plan.columns if column is not None and column.job != job]
        same_tier = [column for column in held if table.tier[column.job] == table.tier[job]]
        dearest = [c.job for c in sorted(same_tier, key=lambda c: (-c.usd, c.job))[: size // 4]]
        in_team = [column for column in held if table.team[column.job] == table.team[job] >= 0]
        team = [c.job for c in sorted(in_team, key=lambda c: (-c.counted, c.job))[: size // 2]]
        wanted = np.zeros(len(self.totals.capacity))
        for _, _, column in self._by_job[job][:8]:
            wanted[column.use] = np.maximum(wanted[column.use], column.amount)
        score = {c.job: float(wanted[c.use] @ c.amount) for c in held}
        holders = sorted((other for other in score if score[other] > 0), key=lambda other: (-score[other], other))
        return sorted(list(dict.fromkeys([job, *dearest, *team, *holders]))[:size])

    def options(self, plan: WholePlan, job: int, max_near_columns: int) -> tuple[Column, ...]:
        """Return the columns of least reduced cost, with the present one and the cheapest without a priced limit."""
        columns = [column for _, _, column in self._by_job[job][:max_near_columns]]
        price = self.solution.prices.limit.ravel()
        plain = (c for _, _, c in self._by_job[job] if not len(c.use) or not price[c.use].any())
        for extra in (next(plain, None), plan.columns[job]):
            if extra is not None and all(extra is not other for other in columns):
                columns.append(extra)
        return tuple(columns)

    def near(self, slack: float) -> list[list[Column]]:
        """Return by job the columns of a reduced cost below ``slack``."""
        return [[column for cost, _, column in found if cost < slack] for found in self._by_job]

    def improved(self, plan: WholePlan, jobs: Sequence[int], effort: Effort, spare: float = 0.0) -> WholePlan:
        """Return the plan with these jobs chosen anew together, never worse.

        No column is looked at that costs more than the jobs' regret and ``spare`` dollars above its job's worth.
        """
        regret = spare + sum(max(0.0, self.reduced_cost(plan.columns[job], job)) for job in jobs)
        if regret < _LEAST_GAIN:
            return plan
        options = {}
        for job in jobs:
            near = [column for cost, _, column in self._by_job[job] if cost <= regret][:_OPTIONS]
            present = plan.columns[job]
            if present is not None and all(column is not present for column in near):
                near.append(present)
            options[job] = tuple(near)
        return solve_choice(self.totals, Choice(plan, tuple(jobs), options), self.left_out, effort, _SMALL_GAP)

    def unsold_usd(self, plan: WholePlan) -> float:
        """Return what the capacity that the plan leaves idle is worth at the relaxation's prices."""
        idle = np.maximum(0.0, self.totals.capacity - self.totals.load(plan.columns))
        price = self.solution.prices.limit.ravel()
        priced = price > 0
        return float(idle[priced] @ price[priced])


def _blocked(table: Table, kinds: Ints, room: Floats) -> Ints:
    """Return [kinds, T+1]: the running number of slots without room, for these kinds; others count as free."""
    blocked = np.zeros((len(table.limits), table.slots + 1), dtype=np.int64)
    by_limit = room.reshape(len(table.capacity), table.slots)
    for kind in np.unique(kinds).tolist():
        short = (by_limit[table.limits[kind]] + ROOM < table.amounts[kind][:, None]).any(axis=0)
        blocked[kind, 1:] = np.cumsum(short)
    return blocked
