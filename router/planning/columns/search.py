"""Plan many jobs: the relaxation, a whole plan from it, the proof of who must be left out, and the bound.

Stages as in design note placement-program: first the fewest jobs left out, tier by tier; then the least cost for as
many. The first relaxation prices a job left out far above any schedule. Where the plan leaves jobs out, each tier gets
a bound of its own, and the cost a bound under exactly as many left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from router.jobs.spec import Job
from router.planning.columns.column import Column, run_column, slot_holds
from router.planning.columns.confidence import SureColumns
from router.planning.columns.dive import dive
from router.planning.columns.exact import NeighbourhoodChoice, NeighbourhoodProgram
from router.planning.columns.left_out import LeftOutBounds
from router.planning.columns.master import Master, MasterSolution
from router.planning.columns.neighbourhoods import Improver
from router.planning.columns.relaxation import PART_OF_GAP, Relaxer, free_prices
from router.planning.columns.runs import NEVER, RunPricer, Surcharges, row_floors
from router.planning.columns.swaps import Swap, SwapChooser
from router.planning.columns.table import Floats, Table, build_table
from router.planning.columns.whole import PlanTotals, WholePlan
from router.planning.columns.windows import WindowChooser
from router.planning.columns.worth import EndedRelaxation
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold, runs_of
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.greedy import greedy_holdings
from router.planning.program.local_search import improve_places
from router.planning.program.solve import PlacementSolution, most_to_stay, threshold_of
from router.planning.program.solver import SolverFailedError, usd_below
from router.planning.rules.budgets import team_row
from router.planning.rules.program import limit_row

PHASE = "columns"
_RUN_ROUNDS, _PATH_ROUNDS = 60, 40
_DIVES = (0.02, 0.05, 0.1, 0.2)
_DIVES_A_SHARE = 4
_MANY = 400  # jobs above which one dive is enough
_GROUP = 60
_ALL = 110  # jobs up to which all are chosen anew together
_TRIES = 60
# Tries in turn without a gain after which a kind of neighbourhood is given up; in windows; to place one more job.
_FAILS, _FAILS_IN_WINDOWS, _FAILS_TO_PLACE = 6, 15, 3
# The search ends where tries of so much work (columns x nodes) closed less than this share of what the gap still lacks.
_SLOW_WORK, _SLOW = 500_000, 0.04
_COVERED_GROUP = 8  # programs with cover take far longer
_FAILS_OF_SWAPS, _LEAST_GAIN = 8, 0.01
_EXACT_GROUP, _EXACT_WINDOW, _EXACT_OPTIONS, _EXACT_NODES = 25, 10, 6, 5
_WINDOW, _WINDOWS, _WINDOW_FAILS = 25, 400, 25
_WANTED = 30.0  # dollars above a job's worth of a column that may come to be wanted
_SINGLES_TO_PLACE = 0.25  # of the gap
_TIER_FACTOR = 4.0
_TIER_RANGE = 4096.0  # between the lowest tier and the highest: a program of larger numbers is not solved exactly
_NEAR_RUNS = 60
_SINGLE_NODES = 200

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _State:
    """The best plan so far, the bound on its cost, and whether fewer jobs left out are proven impossible.

    ``counted``: how many jobs of each tier are left out in the plans for which the bound holds.
    """

    plan: WholePlan
    bound: float
    proven: bool
    solution: MasterSolution
    counted: tuple[int, ...]

    @property
    def gap(self) -> float:
        """Return the relative distance of the plan from its bound."""
        return (self.plan.usd - self.bound) / self.plan.usd if self.plan.usd > 0 else 0.0

    def is_near_relaxation(self, gap: float) -> bool:
        """Return whether the bound, not the plan, is what is left of a larger gap: the plan is near the relaxation."""
        least = self.solution.objective
        return self.plan.usd - least <= gap * self.plan.usd and least - self.bound > gap / 2 * self.plan.usd

    def is_slow(self, before: WholePlan, gap: float) -> bool:
        """Return whether tries since ``before`` closed so little of what a gap lacks that others would not either."""
        gained = before.usd - self.plan.usd
        return before.left_out == self.plan.left_out and gained < _SLOW * (self.plan.usd - self.bound / (1 - gap))


@dataclass(frozen=True)
class _SlotSearch:
    """The tools that choose schedules anew slot by slot, among rows that cost at most ``slack`` more than their job."""

    improver: Improver
    program: NeighbourhoodProgram
    windows: WindowChooser | None
    slack: float


def solve_by_columns(
    problem: PlacementProblem, effort: Effort, gap: float, progress: Progress, *, keeps_confidence: bool = False
) -> PlacementSolution:
    """Return the plan of many jobs, with a bound over all schedules.

    With ``keeps_confidence`` the plan holds no schedule that several offers leave less sure than its job asks; jobs
    left out that would have one are named. The same problem gives the same plan, unless the clock of ``effort`` cuts
    in; then a cut names the phase. A cut names it too where the solver fails; the plan is then the best before.
    """
    placeable = _placeable(problem, effort)
    table = build_table(replace(problem, jobs=placeable))
    if not placeable:
        return _solution(problem, table, None, {}, late=effort.late(PHASE))
    search: _Search | None = None
    try:
        search = _Search(table, effort, gap, progress, keeps_confidence=keeps_confidence)
        state = search.run()
    except SolverFailedError as error:
        progress(f"the solver failed: {error}")
        effort.failed(PHASE)
        return _without_solver(table, problem, search, effort)
    answer = _solution(problem, table, state, search.estimates(state.solution), late=effort.late(PHASE))
    return replace(answer, relaxation=search.ended(state), unsure_left_out=search.unsure_left_out(state.plan))


def _without_solver(
    table: Table, problem: PlacementProblem, search: _Search | None, effort: Effort
) -> PlacementSolution:
    """Return the best plan that the search had, else the greedy one; its bound needs no solver."""
    if search is not None and search.best is not None:
        holdings = _holdings(table, search.best)
    else:
        holdings = greedy_holdings(table.problem)
    out = np.array([job.name not in holdings for job in table.jobs])
    left_out = np.bincount(table.tier, weights=out, minlength=int(table.tier.max()) + 1)
    runs = {name: runs_of(problem, problem.job[name], holds) for name, holds in holdings.items()}
    answer = PlacementSolution(
        problem=problem,
        stage_two=None,
        runs=runs,
        holdings=holdings,
        bound_usd=usd_below(floor_bound(table, left_out.astype(int).tolist())),
        threshold=threshold_of(problem, runs),
        stage_one_proven=not out.any(),
        hit_time_limit=effort.late(PHASE),
    )
    return improve_places(answer, effort)


def floor_bound(table: Table, left_out: Sequence[int]) -> float:
    """Return a bound on the cost under as many jobs of each tier left out, without a solver.

    Each job costs at least its cheapest run where nothing is scarce; the dearest of each tier may be those left out.
    """
    floors = row_floors(table, Surcharges.of(table, free_prices(table)))
    least = np.full(len(table.jobs), NEVER)
    np.minimum.at(least, table.job, floors)
    total = 0.0
    for tier, out in enumerate(left_out):
        own = np.sort(least[table.tier == tier])
        total += float(own[: len(own) - out].sum())
    return total if total < NEVER / 2 else 0.0


def _placeable(problem: PlacementProblem, effort: Effort) -> tuple[Job, ...]:
    """Return the jobs that some schedule could carry if they were alone.

    Where no unbroken run can, the compact program of the job alone decides; while it does not know, the job stays.
    """
    table = build_table(problem)
    free = Surcharges.of(table, free_prices(table))
    left = np.minimum(table.allowance, np.append(table.team_left, np.inf)[table.team])
    floors = np.where(table.counted > left[table.job], NEVER, row_floors(table, free))
    cost, _ = RunPricer(table).best_of_rows(np.arange(len(table.rows)), free, floors)
    best = np.full(len(table.jobs), NEVER)
    np.minimum.at(best, table.job, cost)
    return tuple(
        job
        for job, usd in zip(table.jobs, best, strict=True)
        if usd < NEVER / 2 or _could_be_placed(problem, job, effort)
    )


def _could_be_placed(problem: PlacementProblem, job: Job, effort: Effort) -> bool:
    """Return False where it is proven that no schedule of the job keeps its rules, limits and budgets."""
    alone = replace(problem, jobs=(job,), candidates={job.name: problem.candidates[job.name]})
    formulation = formulate(alone)
    placed = formulation.program.fixed(dict.fromkeys(formulation.layout.u.values(), 0.0))
    return effort.solve(PHASE, placed, 1.0, None, _SINGLE_NODES).outcome != "infeasible"


class _Search:
    def __init__(self, table: Table, effort: Effort, gap: float, progress: Progress, *, keeps_confidence: bool) -> None:
        self.table, self.effort, self.gap, self.progress = table, effort, gap, progress
        self.pricer = RunPricer(table)
        self.penalty = _penalties(table)
        self.master = Master(table, self.penalty)
        self.totals = PlanTotals(table, self.master.egress)
        self.relaxer = Relaxer(table, self.master, self.pricer, effort)
        self.tried = np.zeros(len(table.jobs), dtype=np.int64)
        self.tried_by_slots = np.zeros(len(table.jobs))
        self._seen: set[tuple[object, ...]] = set()
        self.sure = SureColumns(table, keeps_confidence=keeps_confidence)
        self._by_columns_only: set[int] = set()  # jobs that slots, which know no confidence, left unsure
        self._fewest: dict[tuple[int, ...], bool] = {}
        self.best: WholePlan | None = None

    def run(self) -> _State:
        table, relaxer = self.table, self.relaxer
        relaxer.start()
        _, bound = relaxer.over_runs(self.gap * PART_OF_GAP, _RUN_ROUNDS)
        self.progress(f"relaxation over {len(self.master.columns):,} unbroken runs of {len(table.jobs):,} jobs")
        solution, bound = relaxer.over_schedules(self.gap, bound, _PATH_ROUNDS, _SINGLES_TO_PLACE)
        self.progress(f"relaxation over {len(self.master.columns):,} schedules, bound ${bound.usd:,.2f}")
        plan = self._first_plan(solution, _DIVES if len(table.jobs) <= _MANY else _DIVES[1:3])
        self.progress(f"a plan of ${plan.usd:,.2f}, {sum(plan.left_out)} left out, bound ${bound.usd:,.2f}")
        self.best = plan
        none = (0,) * len(plan.left_out)
        state = _State(plan, max(bound.usd, floor_bound(table, none)), True, solution, none)
        state = self._place_more(state)
        self.best = state.plan
        state = self._with_jobs_left_out(state)
        state = self._improve(state)
        self.best = state.plan
        if state.plan.left_out != state.counted:  # the last improvement placed one more job
            state = self._improve(self._with_jobs_left_out(state))
        return replace(state, plan=self._early(self._stayed(state)))

    def _first_plan(self, solution: MasterSolution, shares: Sequence[float]) -> WholePlan:
        """Return the best of some dives; jobs that one leaves out come first in the next."""
        plans: list[WholePlan] = []
        stays = self.table.problem.stays
        first: dict[int, None] = {n: None for n, job in enumerate(self.table.jobs) if job.name in stays}
        for share in shares:
            for _ in range(_DIVES_A_SHARE):
                plan = dive(self.master, self.totals, self.sure, solution, self.effort, share, tuple(first))
                plans.append(plan)
                fresh = [job for job, column in enumerate(plan.columns) if column is None and job not in first]
                if not fresh:
                    break
                first.update(dict.fromkeys(fresh))
        return min(plans, key=lambda plan: plan.rank)

    def _place_more(self, state: _State) -> _State:
        """Improve the plan until no further job can be placed, whatever it costs: by proof, or after some tries."""
        improver = self._improver(state)
        plan = improver.with_left_out_placed(improver.one_by_one(state.plan))
        fails = 0
        while any(plan.left_out) and fails < _FAILS_TO_PLACE and not self.effort.late(PHASE):
            if self._is_fewest(plan):
                break
            self.progress(f"{sum(plan.left_out)} left out")
            better = self._by_columns(improver, plan)
            fails = 0 if better.left_out < plan.left_out else fails + 1
            plan = better
        return replace(state, plan=plan)

    def _is_fewest(self, plan: WholePlan) -> bool:
        """Return whether it is proven that no plan leaves out fewer jobs; costs and counts of the master stay."""
        if plan.left_out not in self._fewest:
            usd, max_per_tier = self.master.left_out_usd, self.master.most_left_out
            self._fewest[plan.left_out] = LeftOutBounds(self.relaxer, self.gap, self.progress).prove(plan)
            self.master.set_column_costs(free=False)
            self.master.set_left_out(usd, max_per_tier)
        return self._fewest[plan.left_out]

    def _improve(self, state: _State) -> _State:
        """Improve the cost until the gap is small enough or nothing more is found."""
        improver = self._improver(state)
        plan = self._exchanged(improver, improver.one_by_one(state.plan))
        state = replace(state, plan=plan)
        slack = max(0.0, plan.usd - state.bound)
        improver.add(self._new(improver.near_runs(slack, _NEAR_RUNS)))
        windows = WindowChooser(self.table, state.solution, improver.near(min(slack, _WANTED)))
        if windows and len(self.table.jobs) > _ALL:
            plan = self._by_windows(improver, windows, state)
            self.progress(f"a plan of ${plan.usd:,.2f}, bound ${state.bound:,.2f}")
        program = NeighbourhoodProgram(self.totals, state.solution)
        by_windows = bool(windows) and not self.table.has_cover
        fails, most = [0, 0, 0], (1, _FAILS, _FAILS_IN_WINDOWS if by_windows else _FAILS)
        tries = deque[tuple[float, WholePlan]]()
        for turn in range(_TRIES):
            state = replace(state, plan=plan)
            tries.append((self.effort.spent, plan))
            while len(tries) > 1 and tries[1][0] <= self.effort.spent - _SLOW_WORK:
                tries.popleft()
            began, before = tries[0]
            if (
                self._is_enough(state)
                or (began <= self.effort.spent - _SLOW_WORK and state.is_slow(before, self.gap))
                or not any(failed < count for failed, count in zip(fails, most, strict=True))
            ):
                break
            kind = turn % len(fails)
            if fails[kind] >= most[kind]:
                continue
            slack = max(0.0, plan.usd - state.bound)
            by_slots = _SlotSearch(improver, program, windows if by_windows else None, slack)
            if kind == 1:
                better = self._by_columns(improver, plan)
            else:
                better = self._by_slots(by_slots, plan) if kind else self._by_swaps(by_slots, state)
            fails[kind] = 0 if better.rank < plan.rank else fails[kind] + 1
            plan = better
            self.progress(f"a plan of ${plan.usd:,.2f}, bound ${state.bound:,.2f}, gap {state.gap:.2%}")
        return replace(state, plan=improver.one_by_one(plan))

    def _improver(self, state: _State) -> Improver:
        self._seen.clear()
        columns = [column for column in self.master.columns if self.sure.is_sure(column)]
        return Improver(self.totals, self.pricer, state.solution, columns, self.penalty)

    def _is_new(self, kind: str, plan: WholePlan, neighbourhood: Sequence[int]) -> bool:
        """Return whether the jobs were not chosen anew in this plan yet; the same program has the same answer."""
        key = (kind, tuple(neighbourhood), plan.rank)
        is_new = bool(neighbourhood) and key not in self._seen
        self._seen.add(key)
        return is_new

    def _is_new_swap(self, plan: WholePlan, swap: Swap) -> bool:
        """Return whether the jobs were not chosen anew from what they hold."""
        key = ("swap", swap.jobs, *(column.holds for job in swap.jobs if (column := plan.columns[job]) is not None))
        is_new = key not in self._seen and self._by_columns_only.isdisjoint(swap.jobs)
        self._seen.add(key)
        return is_new

    def _is_enough(self, state: _State) -> bool:
        """Return whether the plan is as good as asked, or the time is over, or the bound is what is left of the gap."""
        return state.gap <= self.gap or state.is_near_relaxation(self.gap) or self.effort.late(PHASE)

    def _by_columns(self, improver: Improver, plan: WholePlan) -> WholePlan:
        """Choose the columns of a neighbourhood anew."""
        jobs = len(self.table.jobs)
        neighbourhood = list(range(jobs)) if jobs <= _ALL else improver.draw(plan, self.tried, _GROUP)
        self.tried[neighbourhood] += 1
        if not self._is_new("columns", plan, neighbourhood):
            return plan
        return improver.improved(plan, neighbourhood, self.effort, improver.unsold_usd(plan))

    def _exchanged(self, improver: Improver, plan: WholePlan) -> WholePlan:
        """Choose anew around each job left out, where it could be placed for a dearer one."""
        for job in np.flatnonzero([column is None for column in plan.columns]).tolist():
            if plan.columns[job] is None and not self.effort.late(PHASE):
                neighbourhood = improver.exchange(plan, job, _GROUP)
                plan = improver.improved(plan, neighbourhood, self.effort, improver.unsold_usd(plan))
        return plan

    def _by_windows(self, improver: Improver, windows: WindowChooser, state: _State) -> WholePlan:
        """Choose the columns around scarce slots anew, until the gap is reached or windows gain nothing more."""
        plan, fails = state.plan, 0
        for _ in range(_WINDOWS):
            if replace(state, plan=plan).gap <= self.gap or fails >= _WINDOW_FAILS or self.effort.late(PHASE):
                break
            neighbourhood = windows.draw(plan, improver.regret(plan), _WINDOW)
            is_new = self._is_new("columns", plan, neighbourhood)
            better = improver.improved(plan, neighbourhood, self.effort, improver.unsold_usd(plan)) if is_new else plan
            fails = 0 if better.rank < plan.rank else fails + 1
            plan = better
        return plan

    def _by_slots(self, search: _SlotSearch, plan: WholePlan) -> WholePlan:
        """Choose the schedules of a few jobs anew, slot by slot on what is scarce."""
        improver, slack = search.improver, search.slack
        regret = improver.regret(plan)
        if search.windows is not None:
            drawn = search.windows.draw(plan, regret, _EXACT_WINDOW)
            neighbourhood = [job for job in drawn if plan.columns[job] is not None]
        else:
            size = _COVERED_GROUP if self.table.has_cover else _EXACT_GROUP
            neighbourhood = search.program.draw(plan, regret, self.tried_by_slots, slack, size)
        neighbourhood = [job for job in neighbourhood if job not in self._by_columns_only]
        self.tried_by_slots[neighbourhood] += 1
        if not self._is_new("slots", plan, neighbourhood):
            return plan
        return self._chosen_by_slots(search, plan, neighbourhood)

    def _by_swaps(self, search: _SlotSearch, state: _State) -> WholePlan:
        """Choose a few jobs anew around each column that a job would rather have, until that gains nothing more."""
        plan, fails, chooser = state.plan, 0, SwapChooser(search.improver, search.slack)
        swaps = iter(chooser.find(plan))
        while fails < _FAILS_OF_SWAPS and not self._is_enough(replace(state, plan=plan)):
            swap = next((swap for swap in swaps if self._is_new_swap(plan, swap)), None)
            if swap is None:
                break
            better = self._chosen_by_slots(search, plan, swap.jobs, swap.column)
            if plan.usd - better.usd < _LEAST_GAIN:
                fails += 1
                continue
            plan, fails = search.improver.one_by_one(better), 0
            self.progress(f"a plan of ${plan.usd:,.2f}, bound ${state.bound:,.2f}")
            swaps = iter(chooser.find(plan))
        return plan

    def _chosen_by_slots(self, search: _SlotSearch, plan: WholePlan, jobs: Sequence[int], *others: Column) -> WholePlan:
        """Return the plan with the schedules of these jobs chosen anew slot by slot, or taken from ``others`` too."""
        options = {job: search.improver.options(plan, job, _EXACT_OPTIONS) for job in jobs}
        for column in others:
            if all(column is not option for option in options[column.job]):
                options[column.job] = (*options[column.job], column)
        choice = NeighbourhoodChoice(tuple(jobs), options, search.slack, _EXACT_NODES, self.gap / 10)
        better = search.program.improved(plan, choice, self.effort)
        unsure = self.sure.unsure_jobs([column for column in better.columns if column is not None])
        self._by_columns_only |= unsure
        return plan if unsure else better

    def _new(self, columns: Sequence[Column]) -> list[Column]:
        """Add the columns to the master, and return those that it did not have."""
        return [self.master.columns[number] for number in self.master.add(columns)]

    def _with_jobs_left_out(self, state: _State) -> _State:
        """Bound the cost for as many jobs as are left out, until the plans found on the way place no more."""
        one_dive = len(self.table.jobs) > _MANY
        while any(state.plan.left_out):
            left_out = state.plan.left_out
            state = self._bounded(state, one_dive=one_dive)
            if state.plan.left_out == left_out:
                break
            one_dive = True
        return state

    def _bounded(self, state: _State, *, one_dive: bool) -> _State:
        """Prove how many must be left out, then bound the cost for as many; a dive may place more."""
        self.master.add([column for column in state.plan.columns if column is not None])
        fewest = LeftOutBounds(self.relaxer, self.gap, self.progress)
        proven = self._fewest.get(state.plan.left_out, False) or fewest.prove(state.plan)
        branch = fewest.least_cost(state.plan)
        solution = branch.solution
        self.progress(f"{sum(state.plan.left_out)} left out, bound ${branch.bound:,.2f}")
        self.tried[:] = 0
        self.relaxer.hold(branch.placed, branch.left_out)
        if one_dive:
            dived = dive(self.master, self.totals, self.sure, solution, self.effort, _DIVES[1])
        else:
            dived = self._first_plan(solution, _DIVES[1:3])  # neither the longest nor the roughest
        self.relaxer.release()
        plan = min(state.plan, dived, key=lambda whole_plan: whole_plan.rank)
        sure = proven and plan.left_out == state.plan.left_out
        least = max(branch.bound, floor_bound(self.table, state.plan.left_out))
        return _State(plan, least, sure, solution, state.plan.left_out)

    def _stayed(self, state: _State) -> WholePlan:
        """Return the plan with running jobs left where they run, where that fits and costs little enough."""
        table, totals, plan = self.table, self.totals, state.plan
        most = most_to_stay(plan.usd, state.bound, self.gap)
        for row in np.flatnonzero(table.goes_on).tolist():
            job = int(table.job[row])
            present = plan.columns[job]
            if present is None or table.goes_on[present.holds[0][1]]:
                continue
            if not self.pricer.times(np.array([row])).possible[0, 0]:
                continue
            columns = list(plan.columns)
            columns[job] = None
            room = totals.capacity - totals.load(columns)
            money = np.append(table.team_left, np.inf) - totals.spent(columns)
            columns[job] = here = run_column(table, self.pricer, row, 0)
            beside = totals.is_beside_mates(here, totals.homes(c for c in columns if c is not here))
            if beside and totals.fits(here, room, money) and here.counted <= table.allowance[job]:
                stayed = totals.plan(columns)
                plan = stayed if stayed.usd <= most else plan
        return plan

    def _early(self, plan: WholePlan) -> WholePlan:
        """Return the plan with every unbroken run as early as the others allow, by priority and start."""
        table, totals = self.table, self.totals
        columns = list(plan.columns)
        load = totals.load(columns)
        used = totals.committed(columns)
        for _ in range(4):
            moved = False
            order = sorted(
                (c for c in columns if c is not None), key=lambda c: (int(table.tier[c.job]), c.holds[0][0], c.job)
            )
            for column in order:
                earlier = self._earlier(column, totals.capacity - load)
                if earlier is not None and totals.keeps_cover(used, column, earlier):
                    used[column.cover] -= column.committed
                    used[earlier.cover] += earlier.committed
                    load[column.use] -= column.amount
                    load[earlier.use] += earlier.amount
                    columns[column.job], moved = earlier, True
            if not moved:
                break
        return totals.plan(columns)

    def _earlier(self, column: Column, room: Floats) -> Column | None:
        """Return the column's own run from the first slot with room for it; None where it starts there already."""
        table = self.table
        first, row, _ = column.holds[0]
        if first == 0 or any(r != row for _, r, _ in column.holds):
            return None
        if [t for t, _, _ in column.holds] != list(range(first, column.last + 1)):
            return None
        freed = room.copy()
        freed[column.use] += column.amount
        times = self.pricer.times(np.array([row]))
        for start in range(int(table.first[row]), first):
            if not times.possible[0, start] or table.month[start] != table.month[first]:
                continue
            earlier = run_column(table, self.pricer, row, start)
            if bool((earlier.amount <= freed[earlier.use] + 1e-6).all()) and earlier.usd <= column.usd + 1e-6:
                return earlier
        return None

    def ended(self, state: _State) -> EndedRelaxation:
        """Return the relaxation with all columns of the search and those of the plan."""
        self.master.add([column for column in state.plan.columns if column is not None])
        return EndedRelaxation.of(self.master, self.pricer)

    def unsure_left_out(self, plan: WholePlan) -> frozenset[str]:
        """Return the jobs left out for which there are schedules, all on several offers that leave them unsure."""
        unsure = self.sure.unsure_jobs(self.master.columns)
        return frozenset(self.table.jobs[job].name for job in unsure if plan.columns[job] is None)

    def estimates(self, solution: MasterSolution) -> Mapping[str, float]:
        """Return the price of a unit more by the name of each row, as the compact program's relaxation gives it."""
        table, price_by_row = self.table, {}
        for limit, name in enumerate(table.limit_names):
            for slot in np.flatnonzero(solution.prices.limit[limit]).tolist():
                price_by_row[limit_row(name, slot)] = float(solution.prices.limit[limit, slot])
        for team, name in enumerate(table.team_names):
            price_by_row[team_row(name)] = float(solution.prices.team[team])
        return price_by_row


def _penalties(table: Table) -> Floats:
    """Return what a job left out costs by tier: far above any schedule, more for each higher tier."""
    free = Surcharges.of(table, free_prices(table, cover=0.0))
    floors = row_floors(table, free)
    dearest = float(floors[floors < NEVER / 2].max(initial=0.0))
    lowest = int(table.tier.max(initial=0))
    factor = min(_TIER_FACTOR, _TIER_RANGE ** (1 / max(1, lowest)))
    penalties: Floats = (4 * dearest + 100.0) * factor ** (lowest - table.tier).astype(np.float64)
    return penalties


def _holdings(table: Table, plan: WholePlan) -> dict[str, tuple[SlotHold, ...]]:
    """Return what each placed job holds."""
    holdings: dict[str, tuple[SlotHold, ...]] = {}
    for column in plan.columns:
        if column is not None:
            holdings[table.jobs[column.job].name] = slot_holds(table, column)
    return holdings


def _solution(
    problem: PlacementProblem, table: Table, state: _State | None, estimates: Mapping[str, float], *, late: bool
) -> PlacementSolution:
    """Return the plan as the other phases of planning read it."""
    holdings = {} if state is None else _holdings(table, state.plan)
    runs = {name: runs_of(problem, problem.job[name], holds) for name, holds in holdings.items()}
    return PlacementSolution(
        problem=problem,
        stage_two=None,
        runs=runs,
        holdings=holdings,
        bound_usd=usd_below(0.0 if state is None else state.bound),
        threshold=threshold_of(problem, runs),
        stage_one_proven=state is None or state.proven,
        hit_time_limit=late,
        estimates=estimates,
    )
