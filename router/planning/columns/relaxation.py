"""Solve the relaxation over all schedules by rounds: price all jobs, add the best columns, solve the master again.

Each round gives a bound: for any prices, Σ_j min(worth of placing j, v_j) - Σ π K - Σ ω B + the least egress can add,
with v_j the least cost of any schedule of the job at these prices. Committed spend adds - Σ K (1 - ρ), with ρ between 0
and 1 the part of a dollar that cover saves, which v_j counts. Prices are a mixture of the master's and those of
the best bound so far, which keeps them from jumping; a round that finds nothing is priced at the master's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.planning.columns.blocks import BlockPricer
from router.planning.columns.column import Column, run_columns
from router.planning.columns.master import Master, MasterSolution, least_egress_cost, most_together
from router.planning.columns.paths import PathBounds
from router.planning.columns.runs import NEVER, Prices, RunPricer, Surcharges, row_floors
from router.planning.columns.single import solve_single
from router.planning.columns.table import Bools, Floats, Ints, Table
from router.planning.columns.whole_slots import WHOLE_SLOT_UNITS
from router.planning.program.effort import Effort

_PHASE = "columns"
_RUNS_A_JOB = 4
_OWN_SHARE_RUNS, _OWN_SHARE_PATHS = 0.5, 0.7  # of the master's own prices in the mixture
_WORTH = 1e-6  # dollars by which a column must undercut the value of its job
_PATHS_A_JOB = 3
_SLOW_ROUNDS, _SLOW = 3, 0.97  # rounds that together leave more than this share of the distance to the bound end it
_CENT = 0.01  # dollars
_FULL = 1e-6  # of a limit: what is left where it counts as used up
_MOST_SINGLES = 30
_SINGLE_WORTH = 1e-4  # of the bound: a job that promises less is not worth its program
_WHOLE_ROUNDS, _LAST_ROUNDS = 20, 3
#: A relaxation is solved to this part of the gap that is asked of the plan.
PART_OF_GAP: Final = 0.25
_COMMON_PLACES = 4  # regions in which the jobs of a job group start with a run each


@dataclass(frozen=True)
class Bound:
    """A proven bound at some prices: ``usd`` counts ``prices.left_out`` for each job left out."""

    usd: float
    prices: Prices
    value: Floats


class Relaxer:
    """Solves the relaxation of one table; columns stay in its master.

    ``table`` may have another objective than the master's own (:meth:`Table.without_costs`).
    """

    def __init__(
        self,
        table: Table,
        master: Master,
        pricer: RunPricer,
        effort: Effort,
        phase: str = _PHASE,
        blocks: BlockPricer | None = None,
    ) -> None:
        self.table = table
        self.blocks = BlockPricer(table, master.table) if blocks is None else blocks
        self._costed = master.table
        self.master = master
        self.pricer = pricer
        self.effort = effort
        self.phase = phase
        self.left_out: Bools = np.zeros(len(table.jobs), dtype=np.bool_)  # jobs that the master holds left out
        self.rounds = 0
        self.single_shares = 0

    def hold(self, placed: Bools, left_out: Bools) -> None:
        """Demand that these jobs are placed, and those left out; all others may be either again."""
        self.master.hold(placed, left_out)
        self.left_out = left_out

    def release(self) -> None:
        """Let every job be placed or left out again."""
        none = np.zeros(len(self.table.jobs), dtype=np.bool_)
        self.hold(none, none)

    def without_costs(self) -> Relaxer:
        """Return what solves the relaxation of the same master where only jobs left out cost anything."""
        return Relaxer(self.table.without_costs(), self.master, self.pricer, self.effort)

    def start(self) -> None:
        """Add the cheapest runs of every job at no prices."""
        table = self.table
        free = free_prices(table)
        charges = Surcharges.of(table, free)
        _, rows, starts, _ = self.pricer.best(
            charges, self._run_floors(charges), np.full(len(table.jobs), NEVER / 2), _RUNS_A_JOB
        )
        self._add_runs(rows, starts)
        self._add_common_runs(charges)

    def _add_common_runs(self, charges: Surcharges) -> None:
        """Add the cheapest runs of the jobs of each job group in the regions that are cheapest for all of them."""
        table, floors = self.table, self._run_floors(charges)
        for number in range(len(table.affinities)):
            for place in common_places(table, number, floors, _COMMON_PLACES):
                bound = table.bound_blocks
                own = table.affinity[table.block_job[bound]] == number
                for block in bound[own & (table.place[bound] == place)].tolist():
                    rows = table.members(np.array([block]))
                    cost, start = self.pricer.best_of_rows(rows, charges, floors)
                    best = int(cost.argmin())
                    if cost[best] < NEVER / 2:
                        self._add_runs(rows[best : best + 1], start[best : best + 1])

    def _run_floors(self, charges: Surcharges) -> Floats:
        """Return floors with rows left out whose one run would be over the job's own budget."""
        table = self.table
        floors = row_floors(table, charges)
        return np.where(table.counted > table.allowance[table.job], NEVER, floors)

    def _add_runs(self, rows: Ints, starts: Ints) -> list[int]:
        return self.master.add(run_columns(self._costed, self.pricer, rows, starts))

    def over_runs(self, gap: float, rounds: int) -> tuple[MasterSolution, Bound]:
        """Return the relaxation over unbroken runs: solved to ``gap``, or as far as ``rounds`` go."""
        solution = self.master.solved()
        best = self._bound_over_runs(solution.prices)[0]
        distances: list[float] = []
        for _ in range(rounds):
            if self.effort.late(self.phase) or solution.objective - best.usd <= gap * abs(solution.objective):
                break
            prices = solution.prices
            added = 0
            for at in (prices.mixed(best.prices, _OWN_SHARE_RUNS), prices):
                bound, rows, starts = self._bound_over_runs(at)
                if bound.usd > best.usd:
                    best = bound
                worth = self._is_worth(rows, starts, solution)
                added = len(self._add_runs(rows[worth], starts[worth]))
                if added:
                    break
            self.rounds += 1
            if not added:
                break
            solution = self.master.solved()
            distances.append(solution.objective - best.usd)
            if _is_slow(distances):
                break
        return solution, best

    def _is_worth(self, rows: Ints, starts: Ints, solution: MasterSolution) -> Bools:
        """Return which of these runs would improve the master."""
        jobs = self.table.job[rows]
        worth: Bools = self._own_costs(rows, starts, solution) < solution.alpha[jobs] - _WORTH
        return worth & ~self.left_out[jobs]

    def _own_costs(self, rows: Ints, starts: Ints, solution: MasterSolution) -> Floats:
        """Return the cost of these runs at the master's own prices."""
        charges = Surcharges.of(self.table, solution.prices)
        floors = row_floors(self.table, charges)
        end, share = self.pricer.ends(rows, starts)
        kind = self.table.kind[rows]
        missing = charges.most_cover[rows] - self.pricer.cover_of(rows, starts, charges) if len(rows) else 0.0
        return (
            floors[rows]
            + missing
            + charges.later[self.table.block[rows], self.table.month[starts]]
            + charges.running[kind, end - 1]
            - charges.running[kind, starts]
            + share * charges.slot[kind, end - 1]
        )

    def _bound_over_runs(self, prices: Prices) -> tuple[Bound, Ints, Ints]:
        charges = Surcharges.of(self.table, prices)
        value, rows, starts, _ = self.pricer.best(
            charges, self._run_floors(charges), prices.left_out.copy(), _RUNS_A_JOB
        )
        return self._bound(prices, value), rows, starts

    def _bound(self, prices: Prices, value: Floats) -> Bound:
        """Return the Lagrangian bound with these least costs of the jobs."""
        table = self.table
        capacity = np.where(np.isfinite(table.capacity), table.capacity, 0.0)
        shared = float(capacity @ prices.limit.sum(axis=1)) + float(prices.team @ table.team_left)
        shared += float(prices.tier @ self.master.most_left_out) + most_together(table, prices)
        shared += float((table.bought * (1 - prices.cover)).sum())
        egress = least_egress_cost(table, self.master.egress, prices)
        value = np.where(self.left_out, NEVER, value)
        total = float(np.minimum(value, prices.left_out).sum()) - shared + egress
        return Bound(total, prices, value)

    def over_paths(
        self, gap: float, rounds: int, first: Bound, *, units: Sequence[int] = ()
    ) -> tuple[MasterSolution, Bound]:
        """Return the relaxation over all schedules, and its best bound.

        With ``units``, as :mod:`whole_slots` counts work in, slots within the horizon are whole.
        """
        solution = self.master.solved()
        best: Bound | None = None
        centre = first
        distances: list[float] = []
        for _ in range(rounds):
            prices = solution.prices
            bound, columns = self._price_paths(prices.mixed(centre.prices, _OWN_SHARE_PATHS), solution, units=units)
            if best is None or bound.usd > best.usd:
                best = centre = bound
            self.rounds += 1
            added = len(self.master.add(columns))
            if not added:
                bound, columns = self._price_paths(prices, solution, units=units)
                best = max(best, bound, key=lambda b: b.usd)
                centre = best
                added = len(self.master.add(columns))
            solution = self.master.solved()
            distances.append(solution.objective - best.usd)
            if self.effort.late(self.phase) or distances[-1] <= gap * abs(solution.objective):
                break
            if added and not _is_slow(distances):
                continue
            spread, columns = self._price_paths(self._spread(solution), solution, units=units)
            added += len(self.master.add(columns))
            if not added or solution.objective - spread.usd > _SLOW * distances[-1]:
                break
            best, distances = max(best, spread, key=lambda b: b.usd), []
            centre = spread
            solution = self.master.solved()
        if best is None:
            best = self._price_paths(solution.prices, solution, units=units)[0]
        return solution, best

    def over_schedules(self, gap: float, bound: Bound, rounds: int, singles: float) -> tuple[MasterSolution, Bound]:
        """Return the relaxation over all schedules: paths, then whole slots, then exact programs of single jobs.

        The last are dear, and solved only where the distance to the bound is more than ``singles`` of the gap.
        ``bound`` is where the rounds begin.
        """
        near = gap * PART_OF_GAP
        solution, bound = self.over_paths(near, rounds, bound)
        solution, found = self.over_paths(near, _WHOLE_ROUNDS, bound, units=WHOLE_SLOT_UNITS[:1])
        bound = max(bound, found, key=lambda b: b.usd)
        if solution.objective - bound.usd > gap * singles * solution.objective:
            _, bound = self.over_single_jobs(bound)
            solution, found = self.over_paths(near, _LAST_ROUNDS, bound, units=WHOLE_SLOT_UNITS)
            bound = max(bound, found, key=lambda b: b.usd)
        return solution, bound

    def exhausted(self, rounds: int, centre: Prices, shares: int) -> tuple[MasterSolution, float, bool]:
        """Return the relaxation over all schedules, its best bound, and whether no column was left to improve it.

        Rounds that bring the bound no nearer do not end it: what counts here is the optimum, to the cent. Exact
        programs of single jobs, up to about ``shares`` of slots in all, find what paths and whole slots do not.
        """
        solution, best = self.master.solved(), -math.inf
        for _ in range(rounds):
            if self.effort.late(self.phase):
                break
            added = 0
            for at in (solution.prices.mixed(centre, _OWN_SHARE_PATHS), solution.prices):
                # Rounded, most prices are those of the round before, and most blocks are priced already.
                bound, columns = self._price_paths(at.rounded(), solution, units=WHOLE_SLOT_UNITS[:1])
                if bound.usd > best:
                    best, centre = bound.usd, bound.prices
                added = len(self.master.add(columns))
                if added:
                    break
            self.rounds += 1
            if added:
                solution = self.master.solved()
                continue
            cost = solution.objective
            if self.single_shares < shares:
                solution, bound = self.over_single_jobs(replace(bound, prices=solution.prices.rounded()), shares)
                best = max(best, bound.usd)
            if cost - solution.objective < _CENT:
                return solution, best, True
        return solution, best, False

    def _spread(self, solution: MasterSolution) -> Prices:
        """Return the master's prices with each limit's evenly over the hours in which it is used up.

        Which of those slots has the price is arbitrary in the master: schedules then avoid that slot alone.
        """
        table, prices = self.table, solution.prices
        full = self.master.load_of(solution.x) >= table.capacity_by_slot * (1 - _FULL)
        hours = np.array([slot.hours for slot in table.problem.slots])
        weight = full.reshape(prices.limit.shape) * hours
        weight = np.where(prices.limit > 0.0, np.maximum(weight, hours * _FULL), weight)
        total = weight.sum(axis=1, keepdims=True)
        share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0.0)
        return replace(prices, limit=prices.limit.sum(axis=1, keepdims=True) * share)

    def _price_paths(
        self, prices: Prices, solution: MasterSolution, *, units: Sequence[int]
    ) -> tuple[Bound, list[Column]]:
        """Return the bound over all schedules at these prices, and columns that would improve the master."""
        table = self.table
        charges = Surcharges.of(table, prices)
        value, rows, starts, _ = self.pricer.best(
            charges, self._run_floors(charges), prices.left_out.copy(), _RUNS_A_JOB
        )
        open_blocks, total, bounds, columns = self._block_bounds(charges, value, units=units)
        bound = self._bound(prices, self._lowest(value, open_blocks, total, charges))
        good = np.flatnonzero(
            total < np.minimum(solution.alpha, prices.left_out)[table.block_job[open_blocks]] - _WORTH
        )
        chosen = _best_of_each(table.block_job[open_blocks], total, good, _PATHS_A_JOB)
        picked = PathBounds(open_blocks[chosen], bounds.value[chosen], bounds.nu[chosen])
        columns += self.blocks.columns_of_paths(charges, picked)
        worth = self._is_worth(rows, starts, solution)
        columns += run_columns(self._costed, self.pricer, rows[worth], starts[worth])
        own = Surcharges.of(table, solution.prices)
        columns = [c for c in columns if not self.left_out[c.job]]
        return bound, [c for c in columns if self.reduced_cost(c, own, solution) < -_WORTH]

    def _block_bounds(
        self, charges: Surcharges, value: Floats, *, units: Sequence[int]
    ) -> tuple[Ints, Floats, PathBounds, list[Column]]:
        """Return the blocks that could undercut the best runs, their bounds with moves, their paths, and columns."""
        table = self.table
        block_floor = np.minimum.reduceat(row_floors(table, charges), table.block_first)
        blocks = np.flatnonzero((block_floor < value[table.block_job]) & ~table.whole[table.block_job])
        upper = np.maximum(value[table.block_job[blocks]] - charges.block_moves[blocks], 1e-6)
        bounds = self.blocks.bound_paths(charges, blocks, upper)
        total = bounds.value + charges.block_moves[blocks]
        if not units:
            return blocks, total, bounds, []
        sharper, columns = self._sharpened(blocks, total, value, charges, units)
        return blocks, sharper, bounds, columns

    def _lowest(self, value: Floats, blocks: Ints, total: Floats, charges: Surcharges) -> Floats:
        """Return a lower bound of every job from its best run and its blocks."""
        lowest = value.copy()
        np.minimum.at(lowest, self.table.block_job[blocks], total)
        if self.table.several[self.table.block_job[blocks]].any():
            lowest = self._pooled(lowest, row_floors(self.table, charges))
        return lowest

    def _sharpened(
        self, blocks: Ints, total: Floats, value: Floats, charges: Surcharges, units: Sequence[int]
    ) -> tuple[Floats, list[Column]]:
        """Return the bounds of these blocks with whole slots where paths promise less than a run, and their columns."""
        several = self.table.several[self.table.block_job[blocks]]
        sharper, columns = total.copy(), list[Column]()
        for number in units:
            promising = np.flatnonzero((sharper < value[self.table.block_job[blocks]] - _WORTH) & ~several)
            exact, found = self.blocks.bound_whole_slots(charges, blocks[promising], number)
            moves = charges.block_moves[blocks[promising]]
            sharper[promising] = np.maximum(sharper[promising], exact + moves)
            columns += found
        return sharper, columns

    def over_single_jobs(self, best: Bound, most_shares: float = math.inf) -> tuple[MasterSolution, Bound]:
        """Return the relaxation and its bound after the exact programs of jobs whose bound is far below their worth.

        At most ``_MOST_SINGLES`` programs of single jobs are solved, where the bound is farthest below, while those of
        this relaxer have fewer than ``most_shares`` shares of slots.
        """
        table = self.table
        prices = best.prices
        charges = Surcharges.of(table, prices)
        value, _, _, _ = self.pricer.best(charges, self._run_floors(charges), prices.left_out.copy(), 1)
        blocks, total, _, columns = self._block_bounds(charges, value, units=WHOLE_SLOT_UNITS)
        exact = np.zeros(len(blocks), dtype=np.bool_)
        alone = ~table.several[table.block_job[blocks]]
        for _ in range(_MOST_SINGLES):
            open_places = np.flatnonzero(alone & ~exact & (total < value[table.block_job[blocks]] - _WORTH))
            if not len(open_places) or self.effort.late(self.phase):
                break
            promised = value[table.block_job[blocks[open_places]]] - total[open_places]
            at = int(open_places[np.lexsort((blocks[open_places], -promised))[0]])
            if promised.max() < _SINGLE_WORTH * best.usd or self.single_shares >= most_shares:
                break
            self.single_shares += len(table.members(blocks[at : at + 1])) * table.slots
            single = solve_single(table, charges, int(blocks[at]), self.effort)
            total[at] = max(float(total[at]), single.bound + float(charges.block_moves[blocks[at]]))
            exact[at] = True
            if single.column is not None:
                columns.append(single.column)
        self.master.add(columns)
        bound = self._bound(prices, self._lowest(value, blocks, total, charges))
        return self.master.solved(), max(best, bound, key=lambda b: b.usd)

    def _pooled(self, lowest: Floats, floors: Floats) -> Floats:
        """Return the bounds with the plain floor for jobs that may use several regions."""
        table = self.table
        least = np.full(len(table.jobs), NEVER)
        np.minimum.at(least, table.job, floors)
        return np.where(table.several, np.minimum(lowest, least), lowest)

    def reduced_cost(self, column: Column, charges: Surcharges, solution: MasterSolution) -> float:
        """Return the column's cost at the master's prices less the value of its job."""
        prices = solution.prices
        shared = float(prices.limit.ravel()[column.use] @ column.amount) if len(column.use) else 0.0
        moves = sum(prices.move[meter, month] * gb for meter, month, gb in column.moves)
        team = charges.team[column.job]
        usd = column.usd if self.table.usd is self._costed.usd else 0.0
        shared += float(prices.together[self.table.block[column.holds[0][1]]])
        if self.table.usd is self._costed.usd and len(column.cover):
            shared -= float(prices.cover.ravel()[column.cover] @ column.committed)
        return float(usd + team * column.counted + shared + moves - solution.alpha[column.job])


def _is_slow(distances: Sequence[float]) -> bool:
    """Return whether the last rounds brought the bound hardly nearer."""
    return len(distances) > _SLOW_ROUNDS and distances[-1] > _SLOW * distances[-1 - _SLOW_ROUNDS]


def common_places(table: Table, number: int, floors: Floats, max_places: int) -> list[int]:
    """Return the regions that are cheapest for all jobs of a job group; a job that has none there costs ``NEVER``."""
    total = np.zeros(len(table.places))
    for job in np.flatnonzero(table.affinity == number).tolist():
        least = np.full(len(table.places), NEVER)
        rows = np.flatnonzero(table.job == job)
        np.minimum.at(least, table.place[table.block[rows]], floors[rows])
        total += least
    ranked = np.lexsort((np.arange(len(total)), total))[:max_places]
    return [int(place) for place in ranked]


def free_prices(table: Table, cover: float = 1.0) -> Prices:
    """Return prices of nothing: each meter at its next tier, all else free.

    ``cover`` of every dollar that uses committed spend is covered.
    """
    return Prices(
        limit=np.zeros((len(table.capacity), table.slots)),
        team=np.zeros(len(table.team_names)),
        move=np.zeros((len(table.tariffs), len(table.months))),
        allowance=np.zeros(0),
        tier=np.zeros(0),
        left_out=np.full(len(table.jobs), NEVER),
        together=np.zeros(len(table.block_job)),
        cover=np.where(table.bought > 0, cover, 0.0),
    )


def _best_of_each(jobs: Ints, cost: Floats, chosen: Ints, max_per_job: int) -> Ints:
    """Return at most ``max_per_job`` of the chosen of each job, cheapest first, in order of their places."""
    order = chosen[np.lexsort((cost[chosen], jobs[chosen]))]
    place = np.arange(len(order)) - np.searchsorted(jobs[order], jobs[order], side="left")
    return np.sort(order[place < max_per_job])
