"""The pipeline: gather, sieve, prune, formulate, solve in stages, schedule, price exactly, explain."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pricing.book import PriceBook
from pricing.money import Usd
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.candidates import Candidate, CandidateFinder, Dropped, steps_to_do
from router.planning.costing import lines_of, moves_of
from router.planning.dominance import undominated
from router.planning.formulation import formulate
from router.planning.plan import VALID_FOR, Line, Move, Plan, Status
from router.planning.polish import polished
from router.planning.scene import Scene, last_use, window
from router.planning.schedule import Run
from router.planning.shared import amounts, binding, use_of
from router.planning.shortlist import LARGE, WIDEST, shortlisted, size
from router.planning.slots import make_slots
from router.planning.solver import PulpSolver, Solver
from router.planning.stages import Answer, over_all_candidates, solve_in_stages, widened
from router.planning.steadiness import keep_places
from router.planning.summary import Findings, on_time_of, summarise

_SEARCHING = 0.85  # of the time limit: the rest is for pricing and explaining
_WORTH_ANOTHER = 5.0  # seconds: with less left no second program is begun


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything a plan depends on. ``now`` aware; ``gap`` relative; ``resolve_limits`` how many shadow prices to
    re-solve; ``confidence_rounds`` how often to re-solve when a job split over offers falls short of its confidence."""

    jobs: tuple[Job, ...]
    book: PriceBook
    limits: Limits
    now: datetime
    horizon: timedelta = timedelta(hours=24)
    slot: timedelta = timedelta(hours=1)
    gap: float = 0.005
    time_limit: timedelta = timedelta(seconds=60)
    solver: str = "highs"
    advisory: bool = False
    resolve_limits: int = 5
    confidence_rounds: int = 2


@dataclass(slots=True)
class Timings:
    """Wall seconds by phase, for benchmarks and progress; never part of a plan."""

    sieve: float = 0.0
    build: float = 0.0
    solve: float = 0.0
    price: float = 0.0


Progress = Callable[[str], None]


def _silent(_: str) -> None:
    return None


def make_plan(
    request: PlanRequest,
    *,
    solver: Solver | None = None,
    progress: Progress = _silent,
    timings: Timings | None = None,
) -> Plan:
    """The plan. Same request, same plan, unless the time limit cut in (then the plan says so).

    Raises InvalidInputError for a solver that is not there or a reservation that the book does not know.
    """
    clock = timings if timings is not None else Timings()
    engine = solver if solver is not None else PulpSolver(request.solver)
    deadline = time.monotonic() + _SEARCHING * request.time_limit.total_seconds()
    jobs = tuple(sorted((job for job in request.jobs if job.steps_left > 0), key=lambda j: j.name))
    surer: dict[str, float] = {}
    rounds = 0
    while True:
        progress(f"sieving {len(request.book.offers):,} offers for {len(jobs)} jobs")
        gathered = _gather(request, jobs, surer, clock)
        answer = _answer(request, gathered, engine, deadline, progress, clock)
        short = _short_of_confidence(jobs, answer.runs)
        if not short or rounds >= request.confidence_rounds:
            break
        rounds += 1
        surer.update({job.name: 1 - (1 - surer.get(job.name, job.confidence)) / 2 for job in short})
    return _finish(request, gathered, answer, engine, deadline, progress, clock)


@dataclass(frozen=True)
class _Gathered:
    jobs: tuple[Job, ...]
    finder: CandidateFinder
    scene: Scene
    advisory: Mapping[str, tuple[Candidate, ...]]
    dropped: Mapping[str, tuple[Dropped, ...]]
    hopeless: Mapping[str, str]


def _gather(request: PlanRequest, jobs: tuple[Job, ...], surer: Mapping[str, float], clock: Timings) -> _Gathered:
    """Candidates of every job; jobs that no candidate could ever serve are set aside with the reason."""
    began = time.perf_counter()
    finder = CandidateFinder(request.book, request.limits, request.now, advisory=True)
    kept: dict[str, tuple[Candidate, ...]] = {}
    advisory: dict[str, tuple[Candidate, ...]] = {}
    dropped: dict[str, tuple[Dropped, ...]] = {}
    hopeless: dict[str, str] = {}
    for job in jobs:
        sought = job.model_copy(update={"confidence": surer[job.name]}) if job.name in surer else job
        found, gone = finder.find(sought)
        kept[job.name] = found if request.advisory else tuple(c for c in found if c.provisionable)
        advisory[job.name] = () if request.advisory else tuple(c for c in found if not c.provisionable)
        dropped[job.name] = gone
        reason = _hopeless(job, kept[job.name], request.now)
        if reason is not None:
            hopeless[job.name] = reason
    placeable = tuple(job for job in jobs if job.name not in hopeless)
    scene = _scene(request, jobs, placeable, kept)
    clock.sieve += time.perf_counter() - began
    return _Gathered(jobs, finder, scene, advisory, dropped, hopeless)


def _hopeless(job: Job, candidates: tuple[Candidate, ...], now: datetime) -> str | None:
    """Why the job cannot be placed whatever the others do: no candidate, or none fast enough for the whole window."""
    if not candidates:
        return "no offer passes the job's rules"
    first, last = window(job, now)
    if last is None:
        return None
    hours = (last - first) / timedelta(hours=1)
    fastest = max(candidates, key=lambda c: c.on_time_steps_per_hour)
    least = steps_to_do(job, running=any(c.running for c in candidates)) / fastest.on_time_steps_per_hour
    if least <= hours:
        return None
    return f"the deadline is too near: {least:.1f} h needed on the fastest offer ({fastest.key}), {hours:.1f} h left"


def _scene(
    request: PlanRequest, jobs: tuple[Job, ...], placeable: tuple[Job, ...], kept: Mapping[str, tuple[Candidate, ...]]
) -> Scene:
    everything = {job.name: kept[job.name] for job in jobs}
    use = {(name, c.key): use_of(c, request.limits) for name, found in everything.items() for c in found}
    shared = amounts((c for found in everything.values() for c in found), request.limits)
    tight = binding({job.name: kept[job.name] for job in placeable}, use, shared)
    ends = [last_use(job, kept[job.name], request.now, steps_to_do(job, running=False)) for job in jobs]
    edges = [edge for job in jobs for edge in window(job, request.now) if edge is not None]
    slots = make_slots(request.now, request.slot, request.horizon, edges, max([*ends, request.now + request.slot]))
    return Scene(
        jobs=placeable,
        now=request.now,
        book=request.book,
        limits=request.limits,
        slots=slots,
        candidates={job.name: undominated(job, kept[job.name], use, tight) for job in placeable},
        all_candidates=everything,
        use=use,
        shared=shared,
        binding=tight,
    )


def _answer(
    request: PlanRequest, gathered: _Gathered, engine: Solver, deadline: float, progress: Progress, clock: Timings
) -> Answer:
    scene, shortlist = gathered.scene, None
    whole = size(scene)
    if whole > LARGE:
        progress(f"{whole:,} shares of slots: choosing a shortlist by the prices of the limits")
        began = time.perf_counter()
        half = time.monotonic() + max(1.0, deadline - time.monotonic()) / 2
        shortlist = shortlisted(scene, engine, request.gap, half)
        scene = shortlist.scene
        clock.solve += time.perf_counter() - began
    began = time.perf_counter()
    formulation = formulate(scene)
    clock.build += time.perf_counter() - began
    progress(f"solving {len(formulation.program.variables):,} variables, {len(formulation.program.rows):,} rows")
    began = time.perf_counter()
    # Part of the gap is the shortlist's own: what is left of it is for the search.
    inner = request.gap if shortlist is None else request.gap / 2
    answer = solve_in_stages(scene, formulation, engine, inner, deadline)
    if shortlist is not None:
        answer = over_all_candidates(answer, shortlist)
        slack = (answer.spent - answer.bound_usd).dollars()
        everyone = len(answer.runs) == len(scene.jobs)
        if not everyone or slack > request.gap * answer.spent.dollars():
            if deadline - time.monotonic() < _WORTH_ANOTHER:
                answer = replace(answer, hit_time_limit=True)
            else:
                progress("the shortlist leaves a gap: solving again over everything that could close it")
                reach = slack * (1 + 1e-9) if everyone else math.inf
                wide, complete = shortlist.within(gathered.scene, reach, WIDEST)
                again = formulate(wide)
                found = solve_in_stages(wide, again, engine, request.gap, deadline)
                answer = widened(answer, found, complete=complete)
                if answer.scene is wide:
                    scene, formulation = wide, again
    answer = polished(keep_places(scene, formulation, engine, request.gap, deadline, answer))
    clock.solve += time.perf_counter() - began
    return answer


def _short_of_confidence(jobs: Sequence[Job], runs: Mapping[str, tuple[Run, ...]]) -> tuple[Job, ...]:
    short = []
    for job in jobs:
        probability = on_time_of(job, runs.get(job.name, ()))
        if probability is not None and probability < job.confidence - 0.005:
            short.append(job)
    return tuple(short)


def _finish(
    request: PlanRequest,
    gathered: _Gathered,
    answer: Answer,
    engine: Solver,
    deadline: float,
    progress: Progress,
    clock: Timings,
) -> Plan:
    began = time.perf_counter()
    progress("pricing and explaining")
    scene = gathered.scene
    lines = tuple(line for name in sorted(answer.runs) for line in lines_of(scene, answer.runs[name]))
    moves = moves_of(scene, answer.runs)
    cost = Usd.total([*(line.cost_usd for line in lines), *(move.cost_usd for move in moves)])
    findings = Findings(gathered.advisory, gathered.dropped, gathered.hopeless, gathered.finder)
    summaries, unplaced = summarise(gathered.jobs, scene, answer, lines, moves, findings)
    clock.price += time.perf_counter() - began
    began = time.perf_counter()
    shadow = answer.worth(scene, engine, request.resolve_limits, deadline)
    clock.solve += time.perf_counter() - began
    objective = cost + answer.threshold
    bound = min(answer.bound_usd, objective)
    gap = (objective - bound).nanos / objective.nanos if objective.nanos > 0 else 0.0
    return Plan(
        as_of=request.now,
        expires_at=request.now + VALID_FOR,
        book_digest=request.book.digest,
        book_as_of=request.book.as_of,
        horizon_start=request.now,
        horizon_end=request.now + request.horizon,
        status=_status(answer, gap, request),
        stage_one_proven=answer.stage_one_proven,
        time_limit_hit=answer.hit_time_limit,
        cost_usd=cost,
        orders_usd=_orders(lines, moves),
        threshold_usd=answer.threshold,
        bound_usd=bound,
        gap=gap,
        gap_asked=request.gap,
        solver=engine.name,
        lines=lines,
        moves=moves,
        unplaced=unplaced,
        shadow_prices=shadow,
        jobs=summaries,
    )


def _orders(lines: Sequence[Line], moves: Sequence[Move]) -> Usd:
    """What the orders cost: their lines, and the moves into regions that a job's orders use."""
    orders = [line for line in lines if line.kind == "order"]
    used = {(line.job, f"{line.cloud}/{line.region}") for line in orders}
    return Usd.total([*(x.cost_usd for x in orders), *(m.cost_usd for m in moves if (m.job, m.to) in used)])


def _status(answer: Answer, gap: float, request: PlanRequest) -> Status:
    """Optimal only with stage one proven and the gap kept; infeasible when nothing at all could be placed."""
    if not answer.runs and (answer.stage_one_proven or answer.hit_time_limit):
        return "infeasible" if answer.stage_one_proven else "time_limit"
    tolerance = max(request.gap, 1e-6)
    return "optimal" if answer.stage_one_proven and gap <= tolerance + 1e-12 else "feasible"
