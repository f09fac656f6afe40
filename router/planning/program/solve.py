"""Solve in stages: first which jobs can be placed (strict tiers of priority), then at what cost.

Every answer carries a proven bound.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.costing import moves_of
from router.planning.document.cover import committed_jobs, covered_usd
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.problem.commitments import has_cover, most_covered
from router.planning.problem.precedence import left_out_by_tier, levels_of
from router.planning.problem.problem import PlacementProblem, free_starts
from router.planning.problem.run_costs import external_usd, objective_usd
from router.planning.problem.schedule import Holdings, ScheduledRun, SlotHold, runs_of, starts_of
from router.planning.program.column_generation import Shortlist
from router.planning.program.effort import Effort
from router.planning.program.formulation import Formulation, holdings_of
from router.planning.program.greedy import greedy_holdings, start_values
from router.planning.program.left_shift import compact_holdings
from router.planning.program.solver import Solution, usd_below
from router.planning.rules.program import ConstraintRow, Program

PLACEMENT = "placement"
_STAYING = "staying"


@dataclass(frozen=True, slots=True)
class LimitRaise:
    """More of a limit: ``by`` in its unit, which ``machines`` machines of a blocked gang take."""

    limit: str
    by: int
    machines: int = 0
    instance_type: str = ""


@dataclass(frozen=True, slots=True)
class LimitWorth:
    """The saving of a plan's relaxation with more of a limit.

    Where no schedule was left that improves either relaxation (``ended``) it is their difference, otherwise the least
    that their bounds prove.
    """

    usd: float
    ended: bool


class PlanRelaxation(Protocol):
    """The relaxation that a plan by columns ended with."""

    def worths(self, raises: Sequence[LimitRaise], effort: Effort) -> tuple[LimitWorth, ...]:
        """Return the worth of each raise alone, for as many jobs left out; of fewer where time or solver gave out."""


_SAME = 1e-8  # of a cost: a difference that is the solver's arithmetic
_MOST_GAP = 0.999


@dataclass(frozen=True)
class PlacementSolution:
    """The program's answer as runs by job.

    ``bound_usd`` is a proven floor of cost + thresholds for the jobs placed. ``stage_two`` is the compact program that
    gave the answer; None where columns did, and ``estimates`` are then the duals of their ``relaxation`` by row name.
    ``unsure_left_out`` names jobs left out whose schedules on several offers are less sure than they ask.
    """

    problem: PlacementProblem
    stage_two: Program | None
    runs: Mapping[str, tuple[ScheduledRun, ...]]
    holdings: Mapping[str, tuple[SlotHold, ...]]
    bound_usd: Usd
    threshold: Usd
    stage_one_proven: bool
    hit_time_limit: bool
    estimates: Mapping[str, float] = field(default_factory=dict)
    relaxation: PlanRelaxation | None = field(default=None, compare=False, repr=False)
    unsure_left_out: frozenset[str] = frozenset()

    @property
    def rank(self) -> tuple[int, ...]:
        """Return how many jobs of each level are left out; the least is the best."""
        return left_out_by_tier(self.problem, self.runs)

    @property
    def external_usd(self) -> Usd:
        """Return what all runs cost others, which nobody pays; nothing where the limits weigh none of it."""
        return Usd.total(external_usd(found) for found in self.runs.values())

    @property
    def spent(self) -> Usd:
        """Return the objective, exact, to compare answers: cost less what is covered, thresholds, external cost."""
        compute = Usd.total(objective_usd(found) for found in self.runs.values())
        moves = Usd.total(m.cost_usd for m in moves_of(self.problem, self.runs))
        return self.threshold + compute + moves - covered_usd(self.problem, self.runs)

    @property
    def gap(self) -> float:
        """Return by what share of the objective the answer lies above its bound."""
        spent = self.spent.nanos
        return (spent - self.bound_usd.nanos) / spent if spent > 0 else 0.0


def gap_to_keep(gap: float, gap_asked: float) -> float:
    """Return the gap that a repaired plan may have: the one asked, or as much more where the search missed it."""
    return gap_asked if gap <= gap_asked else gap + gap_asked


def most_to_stay(spent: float, bound: float, gap: float) -> float:
    """Return what a plan that costs ``spent`` may cost at most where jobs stay at their places, in the same unit.

    It keeps the gap from its bound. A plan that the search left above the gap may become as much dearer as the gap of
    one at its bound: what the search could not prove is no reason to move.
    """
    least = bound if spent - bound <= gap * spent else spent
    return least / (1 - min(max(gap, _SAME), _MOST_GAP))


def solve_in_stages(
    problem: PlacementProblem, formulation: Formulation, effort: Effort, gap: float, phase: str = PLACEMENT
) -> PlacementSolution:
    """Place all jobs at the least cost.

    Only where placing all is impossible, level by level the fewest jobs are left out first; then the cost is
    minimised. Half of the effort may go into the first attempt.
    """
    program, u = formulation.program, formulation.layout.u
    if not problem.jobs:
        return _empty_answer(problem, program, proven=True)
    all_placed = program.fixed(dict.fromkeys(u.values(), 0.0))
    quick = greedy_holdings(problem)
    start = start_values(problem, formulation.layout, quick)
    greedy_places_all = len(quick) == len(problem.jobs)
    first = effort if greedy_places_all else effort.within(1 / 2, 1 / 2)
    solution = first.solve(phase, all_placed, _solver_gap(gap), start if greedy_places_all else None)
    if solution.values:
        return _answer(problem, formulation, all_placed, solution, proven=True)
    if greedy_places_all:
        # Every job has a place, so stage one is proven whatever the search found in time.
        return replace(_greedy_answer(problem, all_placed, quick, solution), stage_one_proven=True)
    proven, hit_time_limit = True, solution.hit_time_limit
    narrowed = program
    levels = levels_of(problem)
    best: Solution | None = None
    for number, level in enumerate(levels):
        out = {u[name]: 1.0 for name in level.jobs}
        share = 1 / (len(levels) - number + 1)
        part = effort.within(share, share)
        stage = part.solve(phase, narrowed.minimising(out), 0.0, start)
        hit_time_limit = hit_time_limit or stage.hit_time_limit
        if not stage.values:
            proven = False
            break
        proven = proven and stage.outcome == "optimal"
        best = stage
        most = float(round(stage.objective))
        narrowed = narrowed.with_rows([ConstraintRow(level.name, tuple(out.items()), "<=", most)])
    solution = effort.solve(phase, narrowed, _solver_gap(gap))
    hit_time_limit = hit_time_limit or solution.hit_time_limit
    if not solution.values and best is None:
        late = hit_time_limit or not solution.failed
        return replace(_greedy_answer(problem, program, quick, solution), hit_time_limit=late)
    if not solution.values and best is not None:
        found = replace(best, hit_time_limit=not solution.failed)
        answer = _answer(problem, formulation, narrowed, found, proven=proven)
        answer = replace(answer, bound_usd=floor_usd(problem, answer.runs))
    else:
        answer = _answer(problem, formulation, narrowed, solution, proven=proven)
    return replace(answer, hit_time_limit=hit_time_limit or answer.hit_time_limit)


def solve_again(
    problem: PlacementProblem,
    formulation: Formulation,
    program: Program,
    effort: Effort,
    gap: float,
    before: PlacementSolution,
) -> PlacementSolution | None:
    """Return another answer under more rows, with ``before``'s bound and stages; None when none was found."""
    solution = effort.solve(_STAYING, program, _solver_gap(gap))
    if not solution.values:
        return None
    answer = _answer(problem, formulation, program, solution, proven=before.stage_one_proven)
    return replace(
        answer,
        stage_two=before.stage_two,
        bound_usd=before.bound_usd,
        hit_time_limit=before.hit_time_limit or solution.hit_time_limit,
    )


def with_full_bound(answer: PlacementSolution, shortlist: Shortlist) -> PlacementSolution:
    """Return the answer with the bound that holds for all candidates.

    That no other job can be placed is then proven only if no job is left out.
    """
    left_out = len(answer.problem.jobs) - len(answer.runs)
    bound = usd_below(shortlist.bound(left_out))
    return replace(answer, bound_usd=bound, stage_one_proven=answer.stage_one_proven and not any(answer.rank))


def better_answer(before: PlacementSolution, answer: PlacementSolution, *, complete: bool) -> PlacementSolution:
    """Return the better of two answers.

    Over a ``complete`` choice of candidates the second one's own bound holds for all: a candidate that was left out of
    it cannot be part of a plan cheaper than the first. Otherwise only the first one's bound does.
    """
    if not answer.runs or answer.rank > before.rank:
        return before
    same = answer.rank == before.rank
    if same and answer.spent > before.spent and not complete:
        return before
    better = answer if not same or answer.spent <= before.spent else before
    proven = answer.stage_one_proven and (complete or not any(answer.rank))
    floor = min(answer.bound_usd, better.spent) if complete else Usd(0)
    least = before.bound_usd if same else Usd(0)
    return replace(better, bound_usd=max(floor, least), stage_one_proven=proven, hit_time_limit=answer.hit_time_limit)


def _solver_gap(gap: float) -> float:
    """Return the gap to ask the solver for, so that cost <= bound x (1 + gap) too.

    The solver measures its gap against the plan's cost, so a little more has to be asked.
    """
    return gap / (1 + gap)


def _empty_answer(problem: PlacementProblem, program: Program, *, proven: bool) -> PlacementSolution:
    return PlacementSolution(problem, program, {}, {}, Usd(0), Usd(0), proven, not proven)


def _answer(
    problem: PlacementProblem, formulation: Formulation, program: Program, solution: Solution, *, proven: bool
) -> PlacementSolution:
    holdings = compacted(problem, holdings_of(problem, formulation.layout, solution.values))
    runs = _runs(problem, holdings)
    return PlacementSolution(
        problem=problem,
        stage_two=program,
        runs=runs,
        holdings=holdings,
        bound_usd=usd_below(solution.bound),
        threshold=threshold_of(problem, runs),
        stage_one_proven=proven,
        hit_time_limit=solution.hit_time_limit,
    )


def _runs(problem: PlacementProblem, holdings: Holdings) -> dict[str, tuple[ScheduledRun, ...]]:
    return {name: runs_of(problem, problem.job[name], holds) for name, holds in holdings.items()}


def compacted(problem: PlacementProblem, holdings: Holdings) -> dict[str, tuple[SlotHold, ...]]:
    """Return the same jobs on the same candidates, never later, and with no less of their cost covered.

    Where moving all would lose some cover, jobs that use committed spend stay at their times.
    """
    earlier = compact_holdings(problem, holdings)
    if not has_cover(problem.limits):
        return earlier
    if covered_usd(problem, _runs(problem, earlier)) >= covered_usd(problem, _runs(problem, holdings)):
        return earlier
    return compact_holdings(problem, holdings, committed_jobs(problem, holdings))


def _greedy_answer(
    problem: PlacementProblem, program: Program, holdings: dict[str, tuple[SlotHold, ...]], late: Solution
) -> PlacementSolution:
    """Return the plan made without the program, with the bound that the program's search has proven so far."""
    runs = {name: runs_of(problem, problem.job[name], holds) for name, holds in holdings.items()}
    everybody = len(runs) == len(problem.jobs)
    return PlacementSolution(
        problem=problem,
        stage_two=program,
        runs=runs,
        holdings=holdings,
        bound_usd=max(usd_below(late.bound) if everybody else Usd(0), floor_usd(problem, runs)),
        threshold=threshold_of(problem, runs),
        stage_one_proven=False,
        hit_time_limit=not late.failed,
    )


def floor_usd(problem: PlacementProblem, placed: Container[str], partly: Container[str] = ()) -> Usd:
    """Return a bound that needs no solver, for plans that leave out as many jobs of each priority.

    Each job costs at least what it costs alone on its cheapest candidate, moves apart; the dearest may be left out.
    Of a job that was looked at ``partly`` nothing is known.
    """
    total = 0.0
    for tier in {job.priority for job in problem.jobs}:
        jobs = [job for job in problem.jobs if job.priority == tier]
        floors = sorted(
            0.0 if job.name in partly else min((_least_usd(job, c) for c in problem.candidates[job.name]), default=0.0)
            for job in jobs
        )
        total += sum(floors[: sum(job.name in placed for job in jobs)])
    return usd_below(max(0.0, total - most_covered(problem).dollars()))


def _least_usd(job: Job, c: Candidate) -> float:
    """Return what all steps of the job cost on the candidate with one start, without one where it runs there."""
    steps = steps_to_do(job, running=c.running)
    return c.usd_per_step * steps if c.running else c.expected_usd(steps)


def threshold_of(problem: PlacementProblem, runs: Mapping[str, tuple[ScheduledRun, ...]]) -> Usd:
    """Return ``min_saving`` for every start beyond the free ones."""
    total = 0
    for name, found in runs.items():
        job = problem.job[name]
        more = max(0.0, starts_of(found) - free_starts(job))
        total += round(more * job.gang.min_saving.nanos)
    return Usd(total)


def with_holdings(answer: PlacementSolution, holdings: Mapping[str, tuple[SlotHold, ...]]) -> PlacementSolution:
    """Return the answer with other holdings of the same jobs; bound and stages stay."""
    problem = answer.problem
    runs = {
        name: answer.runs[name] if holds is answer.holdings.get(name) else runs_of(problem, problem.job[name], holds)
        for name, holds in holdings.items()
    }
    return replace(answer, runs=runs, holdings=holdings, threshold=threshold_of(problem, runs))
