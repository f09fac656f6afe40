"""Run the planning pipeline.

Its phases: find candidates and check them, prune, formulate, solve in stages, schedule, price exactly, explain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.units import format_count
from router.jobs.experience import Experience
from router.jobs.limits import Limits
from router.jobs.quantities import PLANNING_SPAN
from router.jobs.spec import Job
from router.planning.columns.search import solve_by_columns
from router.planning.document.cost_terms import cost_terms_of
from router.planning.document.costing import lines_of, moves_of
from router.planning.document.cover import cover_of_plan, covered_usd
from router.planning.document.external_costs import external_of_plan, external_usd_of
from router.planning.document.fair_share import team_standings
from router.planning.document.gang_speeds import gang_speeds
from router.planning.document.inputs import LimitSource, plan_inputs
from router.planning.document.plan import VALID_FOR, Plan, PlanStatus
from router.planning.document.plan_terms import PlanTerms
from router.planning.document.plan_usage import PlanUsage
from router.planning.document.usage_totals import egress_used, limits_used, month_of, orders_cost, teams_used
from router.planning.explain.shadow_prices import shadow_prices
from router.planning.explain.summary import summarise
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import Found, find_for_plan, planned_type
from router.planning.find.dropped_listings import DroppedListing, no_offer_reason
from router.planning.find.listings import stated_dates
from router.planning.find.shared_limits import LimitCounter, LimitUse, binding_limits
from router.planning.improve.early_starts import start_early
from router.planning.improve.late_jobs import JobOrder, LatePlan, may_be_late, order_problem, plan_late_jobs
from router.planning.improve.split_jobs import CONFIDENCE, replan_jobs, tighter_confidence, unsplit_jobs, without_jobs
from router.planning.improve.stability import keep_previous
from router.planning.improve.stay_put import keep_places
from router.planning.improve.stays import keep_running
from router.planning.problem.commitments import has_cover
from router.planning.problem.dominance import drop_dominated
from router.planning.problem.on_time import unsure_jobs
from router.planning.problem.problem import PlacementProblem, last_use, make_slots
from router.planning.program.column_generation import (
    MAX_FULL_SHARES,
    MAX_WIDE_SHARES,
    Shortlist,
    build_shortlist,
    count_slot_shares,
)
from router.planning.program.effort import Clock, Effort
from router.planning.program.formulation import Formulation, formulate
from router.planning.program.infeasible_jobs import infeasible_reason
from router.planning.program.local_search import improve_places
from router.planning.program.planning_input import NOT_LOOKED_AT, PlannedJobs, PlanningInput
from router.planning.program.solve import (
    PlacementSolution,
    better_answer,
    compacted,
    floor_usd,
    gap_to_keep,
    solve_in_stages,
    with_full_bound,
    with_holdings,
)
from router.planning.program.solver import PulpSolver, Solver

_SEARCHING = 0.85  # share of the time limit; the rest is for pricing and explaining
_OFFERS = "offers"
_GLANCING, _GLANCED_SPOT = 4, 4  # time limits after which no offers are looked at any more, and spot offers until then
_FARTHEST = 2 * PLANNING_SPAN  # the longest wait from the latest start
_ANY_ORDER = JobOrder()
_WIDER = "wider search"
_IN_TIME = 2 / 3  # share of the effort for jobs in time where some job may be late


@dataclass(frozen=True, slots=True)
class PlanRequest(PlanTerms):
    """Everything that a plan depends on.

    ``now`` is aware. ``resolve_limits`` is the number of shadow prices to re-solve; ``confidence_rounds`` is how
    often to re-solve when a job split over offers falls short of its confidence (0: such jobs stay as they are). Up
    to ``few_jobs`` jobs are placed by one program, up to ``compact_jobs`` where it is small, more by columns. With
    ``previous``, a job that has not started keeps its place and start of that plan unless moving saves
    ``least_saving`` (None: the larger of $1 and 1 % of its cost). ``limit_sources`` says which limits were read from
    clouds; it decides nothing. ``experience``: what earlier runs say of speeds and interruptions. With
    ``risk_quantile`` the interruptions of each spot pool count as known, at this quantile of what is believed of
    them. ``beside``: what other jobs take of limits meanwhile (:func:`router.planning.problem.current_use.peak_use`),
    which is not there for these. Where a plan is not ``explained``, it says neither what rules cost its jobs, nor
    on what their speeds rest, nor what would place those that are left out.
    """

    jobs: tuple[Job, ...]
    book: PriceBook
    limits: Limits
    now: datetime
    resolve_limits: int = 5
    confidence_rounds: int = 2
    compact_jobs: int = 30
    few_jobs: int = 12
    previous: Plan | None = None
    least_saving: Usd | None = None
    limit_sources: tuple[LimitSource, ...] = ()
    experience: Experience | None = None
    risk_quantile: float | None = None
    beside: LimitUse = field(default_factory=dict)
    explained: bool = True

    def finder(self) -> CandidateFinder:
        """Return a finder of candidates; it also finds those that are shown and never chosen."""
        return CandidateFinder(
            self.book,
            self.limits,
            self.now,
            advisory=True,
            experience=self.experience,
            orders_advisory=self.advisory,
            risk_quantile=self.risk_quantile,
        )


@dataclass(slots=True)
class Timings:
    """Wall seconds by phase, for benchmarks and progress; never part of a plan."""

    feasibility: float = 0.0
    build: float = 0.0
    solve: float = 0.0
    price: float = 0.0


Progress = Callable[[str], None]


def _silent(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class PlanningRun:
    """The values that all phases of one call of :func:`make_plan` share.

    ``budget`` is the whole effort, of which ``search`` is the part for the searches, and ``looking`` the time limit
    again for the offers of the jobs; later jobs are only glanced at, and none once ``glancing`` is over. ``findings``
    has by job and confidence what was found: rounds ask for most jobs again as they were.
    """

    request: PlanRequest
    budget: Effort
    search: Effort
    looking: Effort
    glancing: Effort
    progress: Progress
    timings: Timings
    findings: dict[tuple[str, float], tuple[Job, Found]] = field(default_factory=dict)


def make_plan(
    request: PlanRequest,
    *,
    solver: Solver | None = None,
    progress: Progress = _silent,
    timings: Timings | None = None,
    clock: Clock = time.monotonic,
    began: float | None = None,
) -> Plan:
    """Return the plan of a request.

    The same request gives the same plan, unless the time limit cut in (then the plan says where). The time limit runs
    from ``began`` on ``clock`` (now, where that is None) and covers everything done here. Raises InvalidInputError for
    a solver that is not available or a reservation that the book does not know. Jobs that may be late and find no place
    in time are planned again beside the others (:mod:`router.planning.improve.late_jobs`).
    """
    timings = timings if timings is not None else Timings()
    engine = solver if solver is not None else PulpSolver(request.solver)
    budget = Effort(engine, request.time_limit, clock=clock, began=began)
    search = budget.within(_SEARCHING, _SEARCHING)
    looking, glancing = (budget.from_now(times * request.time_limit) for times in (1, _GLANCING))
    run = PlanningRun(request, budget, search, looking, glancing, progress, timings)
    jobs = tuple(sorted((job for job in request.jobs if job.steps_left > 0), key=lambda j: j.name))
    if may_be_late(jobs):
        return _assemble_plan(run, _plan_with_late_jobs(run, jobs))
    return _assemble_plan(run, LatePlan(_plan_jobs(run, jobs, {})))


def _plan_jobs(
    run: PlanningRun, jobs: tuple[Job, ...], tightened_confidence: dict[str, float], order: JobOrder = _ANY_ORDER
) -> PlannedJobs:
    """Place the jobs so that each that is split over offers is as sure as it asks.

    Where it is not, it runs on one offer, or is placed again beside the others with more time; where both cost more
    than the gap allows, all are placed again. After the last round what is not sure enough on one offer is left out;
    a dearer plan with all of them on one offer goes before one that leaves a job out for being placed again. A search
    that ended before the gap would again: then either may cost the gap more. Columns hold none that is not sure; what
    they leave out for that is placed beside the others with more time.
    ``tightened_confidence`` gets what was asked instead.
    """
    request, search, rounds = run.request, run.search, 0
    dearer: PlannedJobs | None = None
    while True:
        run.progress(f"filtering {len(request.book.offers):,} offers for {len(jobs)} jobs")
        planning_input = _build_problem(run, jobs, tightened_confidence, order)
        answer = _search(run, planning_input)
        short = unsure_jobs(jobs, answer.runs) if request.confidence_rounds else ()
        if not short:
            break
        enough = gap_to_keep(answer.gap, request.gap)
        unsplit, without = unsplit_jobs(answer, short)
        if not without and unsplit.gap <= max(request.gap, answer.gap):
            answer = unsplit
            break
        on_one_offer = None if without else PlannedJobs(planning_input, unsplit)
        dearer = dearer or on_one_offer
        is_late = search.late(CONFIDENCE)
        if rounds >= request.confidence_rounds or is_late:
            if not is_late:
                search.stopped(CONFIDENCE)
            answer = without_jobs(unsplit, without)
            break
        rounds += 1
        tightened_confidence.update(
            {job.name: tighter_confidence(tightened_confidence.get(job.name, job.confidence)) for job in short}
        )
        tightened = _build_problem(run, jobs, tightened_confidence, order)
        replanned = replan_jobs(answer, tightened.problem, short, search)
        repaired = [] if on_one_offer is None else [on_one_offer]
        if replanned is not None and not unsure_jobs(jobs, replanned.runs):
            repaired.append(PlannedJobs(tightened, replanned))
        cheapest = min(repaired, key=lambda planned: planned.answer.gap, default=None)
        if cheapest is not None and cheapest.answer.gap <= enough:
            return cheapest
        if dearer is not None and any(job.name in tightened.infeasible for job in short):
            return dearer  # with more time than it asks for, such a job has no place at all
    if dearer is not None and dearer.answer.runs.keys() - answer.runs.keys():
        return dearer
    planned = PlannedJobs(planning_input, answer)
    left_out = [job for job in jobs if job.name in answer.unsure_left_out - answer.runs.keys()]
    for job in sorted(left_out, key=lambda j: (-j.priority, j.name)):
        planned = _place_with_more_time(run, jobs, planned, job, tightened_confidence, order)
    return planned


def _place_with_more_time(
    run: PlanningRun,
    jobs: tuple[Job, ...],
    planned: PlannedJobs,
    job: Job,
    tightened_confidence: dict[str, float],
    order: JobOrder,
) -> PlannedJobs:
    """Return the plan with the job placed beside all others with more time than it asks for; as it was if it cannot."""
    if run.request.confidence_rounds == 0 or run.search.late(CONFIDENCE):
        return planned
    asked = tightened_confidence.get(job.name, job.confidence)
    tightened = {**tightened_confidence, job.name: tighter_confidence(asked)}
    planning_input = _build_problem(run, jobs, tightened, order)
    answer = replan_jobs(planned.answer, planning_input.problem, (job,), run.search)
    if answer is None or unsure_jobs((job,), answer.runs):
        return planned
    tightened_confidence.update(tightened)
    return PlannedJobs(planning_input, answer)


def _plan_with_late_jobs(run: PlanningRun, jobs: tuple[Job, ...]) -> LatePlan:
    """Place the jobs in time with a part of the effort, and those left out that may be late with what is left of it."""
    search = run.search
    tightened_confidence: dict[str, float] = {}
    first = _plan_jobs(replace(run, search=search.within(_IN_TIME, _IN_TIME)), jobs, tightened_confidence)

    def plan_again(moved: tuple[Job, ...], order: JobOrder) -> PlannedJobs:
        run.progress(f"planning {format_count(len(order.late), 'late job')} beside {len(order.in_time)} in time")
        part = replace(run, search=search.within(1 / 2, 1 / 2))
        return _plan_jobs(part, moved, dict(tightened_confidence), order)

    return plan_late_jobs(first, plan_again, search, run.request.slot)


def _build_problem(
    run: PlanningRun,
    jobs: tuple[Job, ...],
    tightened_confidence: Mapping[str, float],
    order: JobOrder = _ANY_ORDER,
) -> PlanningInput:
    """Find the candidates of every job and build the placement problem.

    Jobs that no candidate could ever serve are set aside with the reason.
    """
    began, request = time.perf_counter(), run.request
    finder = request.finder()
    usable: dict[str, tuple[Candidate, ...]] = {}
    advisory: dict[str, tuple[Candidate, ...]] = {}
    dropped: dict[str, tuple[DroppedListing, ...]] = {}
    infeasible: dict[str, str] = {}
    partly: set[str] = set()
    for job in sorted(jobs, key=lambda job: -job.priority):
        confidence = tightened_confidence.get(job.name)
        wanted = job if confidence is None else job.model_copy(update={"confidence": confidence})
        known = run.findings.get((job.name, wanted.confidence))
        if known is None or known[0] is not job:
            if run.looking.late(_OFFERS) and any(usable.values()):
                partly.add(job.name)
                known = (
                    job,
                    ((), ()) if run.glancing.late(_OFFERS) else find_for_plan(finder, wanted, most_spot=_GLANCED_SPOT),
                )
            else:
                known = run.findings[job.name, wanted.confidence] = (job, find_for_plan(finder, wanted))
        found, dropped[job.name] = known[1]
        usable[job.name] = found if request.advisory else tuple(c for c in found if c.provisionable)
        advisory[job.name] = () if request.advisory else tuple(c for c in found if not c.provisionable)
        if usable[job.name]:
            reason = infeasible_reason(job, usable[job.name], request.now)
        else:
            reason = no_offer_reason(job, finder.book, dropped[job.name], advisory[job.name])
        if reason is not None:
            infeasible[job.name] = NOT_LOOKED_AT if job.name in partly else reason
    placeable = tuple(job for job in jobs if job.name not in infeasible)
    problem = order_problem(_placement_problem(request, jobs, placeable, usable, advisory), order)
    problem = keep_running(problem)
    run.timings.feasibility += time.perf_counter() - began
    return PlanningInput(jobs, finder, problem, advisory, dropped, infeasible, frozenset(partly))


def _placement_problem(
    request: PlanRequest,
    jobs: tuple[Job, ...],
    placeable: tuple[Job, ...],
    usable: Mapping[str, tuple[Candidate, ...]],
    advisory: Mapping[str, tuple[Candidate, ...]],
) -> PlacementProblem:
    """Return the placement problem of the placeable jobs; ``usable`` and ``advisory`` have those of all jobs.

    The use of limits is counted for advisory candidates too, which alternatives show.
    """
    by_columns = len(placeable) > request.compact_jobs
    everything = {job.name: usable[job.name] for job in jobs}
    counter = LimitCounter(request.limits)
    found = [(job, c) for job in jobs for c in (*usable[job.name], *advisory[job.name])]
    use = {(job.name, c.key): counter.use(c, job.team) for job, c in found}
    shared = {
        name: replace(limit, amount=max(0, limit.amount - request.beside.get(name, 0)))
        for name, limit in counter.amounts((job.team, c) for job, c in found).items()
    }
    tight = binding_limits({job.name: usable[job.name] for job in placeable}, use, shared)
    ends = [last_use(job, usable[job.name], request.now, steps_to_do(job, running=False)) for job in jobs]
    if has_cover(request.limits):  # what a commitment has in the last slot does not depend on the jobs
        ends.append(request.now + request.horizon)
    # Jobs stored by another version may be due later than a file may say today; they are planned this far.
    last = min(max([*ends, request.now + request.slot]), request.now + _FARTHEST)
    slots = make_slots(request.now, request.slot, request.horizon, stated_dates(request.limits), last)
    return PlacementProblem(
        jobs=placeable,
        now=request.now,
        book=request.book,
        limits=request.limits,
        slots=slots,
        candidates={
            # Columns need no dominance: what is dear is never looked at, and the matrix costs more than it saves.
            job.name: usable[job.name]
            if by_columns
            else drop_dominated(job, usable[job.name], use, tight, request.limits)
            for job in placeable
        },
        all_candidates=everything,
        use=use,
        shared=shared,
        binding=tight,
        bands={standing.team: standing.band for standing in team_standings(request.limits, (j.team for j in jobs))},
    )


def _search(run: PlanningRun, planning_input: PlanningInput) -> PlacementSolution:
    """Return the best answer found, repaired and started early.

    Where one program would be large, columns go first: they are faster, and where they miss the gap it may reach it.
    """
    request, effort, timings = run.request, run.search, run.timings
    problem, began, built = planning_input.problem, time.perf_counter(), timings.build
    if len(problem.jobs) > request.compact_jobs:
        answer, _ = _keep_previous(run, _by_columns(run, problem))
        timings.solve += time.perf_counter() - began
        return answer
    shares = count_slot_shares(problem)
    columns = _by_columns(run, problem) if shares > MAX_FULL_SHARES and len(problem.jobs) > request.few_jobs else None
    if columns is None:
        answer = _by_one_program(run, planning_input, shares)
    elif _reaches(columns, request.gap) or effort.is_spent(_WIDER):
        answer = columns
    else:
        answer = better_answer(columns, _by_one_program(run, planning_input, shares), complete=True)
    answer, unmoved = _keep_previous(run, answer)
    if answer is not columns:
        answer = start_early(answer, effort, unmoved)
    timings.solve += time.perf_counter() - began - (timings.build - built)
    return answer


def _reaches(answer: PlacementSolution, gap: float) -> bool:
    """Return whether an answer places all jobs within the gap."""
    slack = (answer.spent - answer.bound_usd).dollars()
    return not any(answer.rank) and slack <= gap * answer.spent.dollars()


def _by_columns(run: PlanningRun, problem: PlacementProblem) -> PlacementSolution:
    """Return the answer by columns, which are improved and started early in their own search."""
    request = run.request
    keeps_confidence = request.confidence_rounds > 0
    answer = solve_by_columns(problem, run.search, request.gap, run.progress, keeps_confidence=keeps_confidence)
    if request.limits.maintenance:
        # Pieces between two windows are no single runs, which alone are started early there.
        answer = with_holdings(answer, compacted(problem, answer.holdings))
    return answer


def _by_one_program(run: PlanningRun, planning_input: PlanningInput, shares: int) -> PlacementSolution:
    """Return the answer of one program, improved; a large one is first solved over a shortlist."""
    request, effort, timings = run.request, run.search, run.timings
    problem, shortlist = planning_input.problem, None
    if shares > MAX_FULL_SHARES:
        run.progress(f"choosing columns, {shares:,} shares of slots in all")
        shortlist = build_shortlist(problem, effort.within(1 / 2, 1 / 2), request.gap)
        problem = shortlist.problem
    began = time.perf_counter()
    formulation = formulate(problem)
    timings.build += time.perf_counter() - began
    run.progress(f"solving {len(formulation.program.variables):,} variables, {len(formulation.program.rows):,} rows")
    # The shortlist uses up half of the gap; the other half is for the search.
    search_gap = request.gap if shortlist is None else request.gap / 2
    answer = solve_in_stages(problem, formulation, effort, search_gap)
    if shortlist is not None:
        answer = with_full_bound(answer, shortlist)
        answer, formulation = _search_wider(run, planning_input.problem, shortlist, answer, formulation)
    run.progress(f"improving a plan of ${answer.spent.dollars():,.2f}, bound ${answer.bound_usd.dollars():,.2f}")
    return improve_places(keep_places(answer.problem, formulation, effort, request.gap, answer), effort)


def _keep_previous(run: PlanningRun, answer: PlacementSolution) -> tuple[PlacementSolution, frozenset[str]]:
    """Return the answer near the previous plan, if there is one, and the jobs that are at their places of it.

    It takes seconds, and a search that used up its time needs it most: it has the time of the whole planning.
    """
    request = run.request
    if request.previous is None:
        return answer, frozenset()
    return keep_previous(answer, request.previous, request.least_saving, request.gap, run.budget)


def _search_wider(
    run: PlanningRun, whole: PlacementProblem, shortlist: Shortlist, answer: PlacementSolution, formulation: Formulation
) -> tuple[PlacementSolution, Formulation]:
    """Return the answer over the shortlist, or a better one over everything that could close the gap that it leaves."""
    effort, gap = run.search, run.request.gap
    if _reaches(answer, gap):
        return answer, formulation
    slack = (answer.spent - answer.bound_usd).dollars()
    all_placed = not any(answer.rank)
    if not effort.affords(_WIDER, formulation.program):
        return replace(answer, hit_time_limit=True), formulation
    run.progress(f"closing a gap of ${slack:,.2f} to the bound")
    reach = slack * (1 + 1e-9) if all_placed else math.inf
    wide, complete = shortlist.within(whole, reach, MAX_WIDE_SHARES)
    again = formulate(wide)
    better = better_answer(answer, solve_in_stages(wide, again, effort, gap, _WIDER), complete=complete)
    return better, again if better.problem is wide else formulation


def _assemble_plan(run: PlanningRun, late_plan: LatePlan) -> Plan:
    """Price and explain the answer, and assemble the plan."""
    request, budget, timings = run.request, run.budget, run.timings
    planning_input, answer = late_plan.planned.planning_input, late_plan.planned.answer
    began = time.perf_counter()
    run.progress("pricing and explaining")
    problem = planning_input.problem
    lines = tuple(line for name in sorted(answer.runs) for line in lines_of(problem, answer.runs[name]))
    moves = moves_of(problem, answer.runs)
    cost = Usd.total([*(line.cost_usd for line in lines), *(move.cost_usd for move in moves)])
    summaries, unplaced = summarise(planning_input, answer, lines, moves, budget if request.explained else None)
    summaries, unplaced = late_plan.summaries(summaries), late_plan.unplaced(unplaced)
    timings.price += time.perf_counter() - began
    began = time.perf_counter()
    shadow = shadow_prices(answer, problem, run.search, request.resolve_limits)
    timings.solve += time.perf_counter() - began
    covered = covered_usd(problem, answer.runs)
    objective = cost - covered + answer.threshold + external_usd_of(lines)
    bound = min(answer.bound_usd, objective)
    if not planning_input.looked_at_all:
        bound = min(bound, floor_usd(problem, answer.runs, partly=planning_input.partly))
    gap = (objective - bound).nanos / objective.nanos if objective.nanos > 0 else 0.0
    proven = answer.stage_one_proven and planning_input.looked_at_all
    status = _status(answer, gap, request, proven=proven)
    return Plan(
        as_of=request.now,
        expires_at=request.now + VALID_FOR,
        book_digest=request.book.digest,
        book_as_of=request.book.as_of,
        horizon_start=request.now,
        horizon_end=request.now + request.horizon,
        status=status,
        stage_one_proven=proven,
        time_limit_hit=status == "time_limit" or any(cut.by == "time" for cut in budget.cuts),
        cost_usd=cost,
        orders_usd=orders_cost(lines, moves),
        threshold_usd=answer.threshold,
        bound_usd=bound,
        gap=gap,
        gap_asked=request.gap,
        solver=budget.solver.name,
        lines=lines,
        moves=moves,
        unplaced=unplaced,
        shadow_prices=shadow,
        jobs=summaries,
        cuts=budget.cuts,
        **external_of_plan(request.limits, lines),
        **cover_of_plan(problem, answer.runs),
        fair_share=team_standings(request.limits, (job.team for job in request.jobs)),
        learned=request.experience,
        inputs=plan_inputs(request.limits, problem, answer.runs, request.limit_sources),
        usage=PlanUsage(
            month=month_of(request.now),
            at_risk_usd=Usd.total(line.at_risk_usd for line in lines if line.orderable),
            limits=limits_used(problem, (run for runs in answer.runs.values() for run in runs), shadow),
            teams=teams_used(request.limits.teams, summaries, lines, moves, request.now),
            egress=egress_used(request.limits, moves, request.now),
            cost_terms=cost_terms_of({job.name: job for job in problem.jobs}, answer.runs, lines, moves),
            speeds=gang_speeds(
                {job.name: job for job in problem.jobs},
                answer.runs,
                lines,
                problem.all_candidates,
                planning_input.finder,
            )
            if request.explained
            else (),
            placement_types=tuple(
                planned_type(
                    planning_input.finder, job, problem.all_candidates[job.name], planning_input.dropped[job.name]
                )
                for job in planning_input.jobs
            ),
        ),
    )


def _status(answer: PlacementSolution, gap: float, request: PlanRequest, *, proven: bool) -> PlanStatus:
    """Return optimal only with stage one proven and the gap reached, infeasible when no job at all could be placed."""
    if not answer.runs and (proven or answer.hit_time_limit):
        return "infeasible" if proven else "time_limit"
    tolerance = max(request.gap, 1e-6)
    return "optimal" if proven and gap <= tolerance + 1e-12 else "feasible"
