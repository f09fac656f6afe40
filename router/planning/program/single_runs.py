"""Evaluate a run of one job on one candidate while the other jobs stay in place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.limits import Maintenance
from router.jobs.spec import Job
from router.planning.document.costing import Volumes, amortised_usd, cost_beside
from router.planning.find.affinity import affinity_of
from router.planning.find.candidate import SURELY, Candidate, steps_to_do
from router.planning.find.shared_limits import LimitCounter, Load
from router.planning.problem.egress_to_date import allowance_left, already_moved
from router.planning.problem.problem import (
    PlacementProblem,
    Slot,
    clip_slots,
    make_slots,
    most_starts,
    slots_within_dates,
    window,
)
from router.planning.problem.run_costs import compute_usd
from router.planning.problem.schedule import SlotHold, runs_of
from router.planning.program.left_shift import earliest_run
from router.planning.program.solve import PlacementSolution
from router.planning.rules.budgets import counted_usd, dearest_moves, excess_of, team_left
from router.planning.rules.egress_caps import full_cap
from router.planning.rules.job_groups import mates_region
from router.planning.rules.load import add_load, load_of, load_without

TRIED = 16
FARTHEST = timedelta(days=60)
MAY_NOT_MOVE = "max_moves: 0 keeps it where it runs"
_NOTHING = 1e-9  # of a limit's unit


@dataclass(frozen=True)
class JobContext:
    """One job with its placement problem and with the use of the limits by all other jobs.

    ``team_left`` is what the other jobs leave of its team's budget, as budgets count; None when that sets no bound.
    ``mates_region`` is where the placed jobs of its group are; None when that sets no bound.
    ``moved`` is what they move: a run then costs by how much their bill rises. None prices moves as if nothing else
    moved.
    """

    problem: PlacementProblem
    job: Job
    load: Load
    team_left: Usd | None = None
    mates_region: RegionId | None = None
    moved: Volumes | None = None

    def with_candidates(self, candidates: Iterable[Candidate]) -> JobContext:
        """Return the same context with other candidates known for the job."""
        known = tuple(candidates)
        problem, team = self.problem, self.job.team
        fresh = [c for c in known if (self.job.name, c.key) not in problem.use]
        use, shared = problem.use, problem.shared
        if fresh:
            counter = LimitCounter(problem.limits)
            use = {**use, **{(self.job.name, c.key): counter.use(c, team) for c in fresh}}
            shared = {**shared, **counter.amounts((team, c) for c in fresh)}
        all_candidates = {**problem.all_candidates, self.job.name: known}
        return replace(self, problem=replace(problem, all_candidates=all_candidates, use=use, shared=shared))


def job_context(
    problem: PlacementProblem, job: Job, holdings: Mapping[str, Sequence[SlotHold]], team_left: Usd | None = None
) -> JobContext:
    """Return the job's context under the holdings of a plan."""
    region = mates_region(problem, job, holdings)
    return JobContext(problem, job, load_without(problem, holdings, job.name), team_left, region)


def context_beside(
    problem: PlacementProblem, job: Job, holds: Sequence[SlotHold], total: Load, team_left: Usd | None
) -> JobContext:
    """Return the job's context where the use by all jobs together is known; ``holds`` is what the job holds itself."""
    load = dict(total)
    add_load(load, problem, job, holds, -1.0)
    # Rounding may leave a trace of what the job held alone.
    load = {place: amount for place, amount in load.items() if amount > _NOTHING}
    return JobContext(problem, job, load, team_left)


@dataclass(frozen=True, slots=True)
class SingleRun:
    """All remaining steps of the job in one run on one candidate.

    ``finish`` is None when the run does not fit; ``lacks`` then says why. ``cost`` is what would be paid, ``counted``
    what budgets count: moves at the dearest tier of their tariff.
    """

    candidate: Candidate
    cost: Usd
    counted: Usd
    amortised: Usd | None
    finish: datetime | None
    lacks: str
    billed: timedelta

    @property
    def external_usd(self) -> Usd:
        """Return what the run costs others, which nobody pays; nothing where the limits weigh none of it."""
        external = self.candidate.external
        return Usd(0) if external is None else external.usd_per_hour.over(self.billed)

    @property
    def objective_usd(self) -> Usd:
        """Return the cost with what the run costs others."""
        return self.cost + self.external_usd


def evaluate_single_run(here: JobContext, candidate: Candidate, slots: Sequence[Slot] | None = None) -> SingleRun:
    """Return cost and finish of one run on the candidate, as early as the limits allow.

    Money is exact; moves are priced as the context says.
    """
    problem, job = here.problem, here.job
    holds = earliest_run(problem, job, candidate, here.load, slots)
    moves, dearest = move_cost(problem, candidate), dearest_moves(candidate)
    if holds is None:
        steps = steps_to_do(job, running=candidate.running)
        compute = Usd(round(candidate.expected_usd(steps) * 1e9))
        lacks = candidate.order_refusal or _no_room(here, candidate)
        billed = timedelta(hours=candidate.startup_hours + steps * candidate.billed_share / candidate.steps_per_hour)
        return SingleRun(candidate, compute + moves, compute + dearest, compute + moves, None, lacks, billed)
    runs = runs_of(problem, job, holds)
    if here.moved is not None:
        moves = cost_beside(problem, here.moved, f"{runs[0].start:%Y-%m}", candidate.transfers)
    compute = compute_usd(runs)
    run_costs = [amortised_usd(run) for run in runs]
    amortised = (
        None
        if any(usd is None for usd in run_costs)
        else Usd.total([moves, *(usd for usd in run_costs if usd is not None)])
    )
    counted = compute + dearest
    lacks = _lacks(here, candidate, counted)
    billed = sum((run.billed for run in runs), timedelta(0))
    return SingleRun(candidate, compute + moves, counted, amortised, runs[-1].end, lacks, billed)


def without_maintenance(candidate: Candidate, windows: Collection[Maintenance]) -> Candidate:
    """Return the candidate as if these maintenance windows were not."""
    parts = []
    for part in candidate.parts:
        still_closed = tuple(window for window in part.listing.closed if window not in windows)
        parts.append(replace(part, listing=replace(part.listing, closed=still_closed)))
    return replace(candidate, parts=tuple(parts))


def _closed_reason(here: JobContext, candidate: Candidate) -> str:
    """Return which maintenance alone keeps the candidate from carrying the job ("" where none does)."""
    for closing in candidate.closed:
        if earliest_run(here.problem, here.job, without_maintenance(candidate, (closing,)), here.load) is not None:
            return (
                f"maintenance {closing.name} from {closing.start:%Y-%m-%d %H:%MZ} until {closing.until:%Y-%m-%d %H:%MZ}"
            )
    if candidate.closed:
        opened = without_maintenance(candidate, candidate.closed)
        if earliest_run(here.problem, here.job, opened, here.load) is not None:
            return f"maintenance {', '.join(closing.name for closing in candidate.closed)}"
    return ""


def _no_room(here: JobContext, candidate: Candidate) -> str:
    """Explain why the run of an orderable candidate does not fit."""
    problem, job = here.problem, here.job
    if most_starts(job) == 0 and not candidate.running:
        return MAY_NOT_MOVE
    window = problem.window(job)
    full = full_cap(problem, candidate, here.load, window[0].month) if window else None
    if full is not None:
        return f"over the egress cap of {full[0]} by {full[1]:,.1f} GB"
    closed = _closed_reason(here, candidate)
    if closed:
        return closed
    start, until = candidate.dates
    hours = sum(slot.hours for slot in slots_within_dates(candidate, window))
    if (start, until) == (None, None) or hours >= candidate.reserved_hours(steps_to_do(job, running=candidate.running)):
        return "no room in its limits, or not on time"
    begins = f"from {start:%Y-%m-%d %H:%MZ} " if start is not None and start > problem.now else ""
    ends = f"until {until:%Y-%m-%d %H:%MZ}" if until is not None else ""
    return f"reserved {begins}{ends}".rstrip() + ": too short for the whole of it"


def _lacks(here: JobContext, candidate: Candidate, counted: Usd) -> str:
    """Return what forbids the run although it fits ("" when nothing does): not orderable, or over a budget."""
    if candidate.order_refusal:
        return candidate.order_refusal
    if here.mates_region not in (None, candidate.region):
        return f"group {affinity_of(here.job)} is in {here.mates_region}"
    return excess_of(here.job, counted, here.team_left)


def move_cost(problem: PlacementProblem, candidate: Candidate) -> Usd:
    """Return the cost of moving to the candidate's region this month if nothing else of the plan moved."""
    month = problem.month
    total = Usd(0)
    for transfer in candidate.transfers:
        tariff = transfer.tariff
        already = already_moved(problem, tariff, month)
        free = min(allowance_left(problem, tariff.cloud, month), tariff.allowance_bytes)
        total += tariff.cost_of(already, transfer.volume_bytes, free)
    return total


def rank_candidates(job: Job, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates by expected cost and external cost, least first, with moves at their dearest tier."""

    def estimate(c: Candidate) -> tuple[float, str]:
        steps = steps_to_do(job, running=c.running)
        return (c.expected_objective(steps) + sum(t.dearest.dollars() for t in c.transfers), c.key)

    return sorted(candidates, key=estimate)


def best_single_run(
    here: JobContext, candidates: Sequence[Candidate], slots: Sequence[Slot] | None = None, below: Usd | None = None
) -> SingleRun | None:
    """Return the run of :func:`fitting_runs` with the least cost and external cost; None when there is none.

    With ``below``, None as well where none costs less than that.
    """
    local, best, most = here.with_candidates(candidates), None, below
    for number, c in _fast_enough(here, candidates, slots):
        if number >= TRIED and best is not None:
            break
        least = c.usd_per_step * steps_to_do(here.job, running=c.running) * SURELY
        if most is not None and c.external is None and least > most.dollars():
            continue
        run = evaluate_single_run(local, c, slots)
        if run.finish is None or run.lacks:
            continue
        if best is None or (run.objective_usd, c.key) < (best.objective_usd, best.candidate.key):
            best, most = run, run.cost if most is None else min(most, run.cost)
    return None if best is None or (below is not None and best.cost >= below) else best


def fitting_runs(
    here: JobContext, candidates: Sequence[Candidate], slots: Sequence[Slot] | None = None
) -> list[SingleRun]:
    """Return the runs on the cheapest candidates on which the job fits and lacks nothing.

    At least a fixed number of candidates is tried; further ones follow in order of cost until one fits.
    """
    local, runs = here.with_candidates(candidates), list[SingleRun]()
    for number, c in _fast_enough(here, candidates, slots):
        if number >= TRIED and runs:
            break
        run = evaluate_single_run(local, c, slots)
        if run.finish is not None and not run.lacks:
            runs.append(run)
    return runs


def _fast_enough(
    here: JobContext, candidates: Sequence[Candidate], slots: Sequence[Slot] | None
) -> Iterator[tuple[int, Candidate]]:
    """Yield the candidates that the slots are long enough for, each with its number among all in order of cost."""
    window = here.problem.window(here.job) if slots is None else slots
    hours = sum(slot.hours for slot in window)
    for number, c in enumerate(rank_candidates(here.job, candidates)):
        if c.reserved_hours(steps_to_do(here.job, running=c.running)) - c.startup_hours <= hours + 1e-6:
            yield number, c


def soonest_run(here: JobContext, candidates: Sequence[Candidate]) -> SingleRun | None:
    """Return the run that finishes first, whatever the deadline; None where each candidate lacks more than time.

    The fastest come first, and the search ends where one could not finish sooner even without the other jobs.
    """
    slots = slots_past_deadline(here, window(here.job, here.problem.now)[0])
    local, steps = here.with_candidates(candidates), steps_to_do(here.job, running=True)
    best: SingleRun | None = None
    for c in sorted(candidates, key=lambda c: (-c.on_time_steps_per_hour, c.usd_per_step, c.key)):
        least = slots[0].start + timedelta(hours=steps / c.on_time_steps_per_hour)
        if best is not None and best.finish is not None and least > best.finish:
            break
        run = evaluate_single_run(local, c, slots)
        if run.finish is not None and not run.lacks and (best is None or _finishes_sooner(run, best)):
            best = run
    return best


def _finishes_sooner(run: SingleRun, other: SingleRun) -> bool:
    if run.finish is None or other.finish is None:
        return run.finish is not None
    return (run.finish, run.cost, run.candidate.key) < (other.finish, other.cost, other.candidate.key)


def slots_past_deadline(here: JobContext, first: datetime) -> tuple[Slot, ...]:
    """Return hours from the job's first instant to well past its deadline.

    Limits count as far as the plan's slots reach.
    """
    slots = here.problem.slots
    return (*clip_slots(slots, first, None), *_hours_after(slots[-1].end, slots[-1].index + 1))


@lru_cache(maxsize=4)  # a plan asks for the same ones again for each job and each of its rules
def _hours_after(end: datetime, index: int) -> tuple[Slot, ...]:
    """Return the hours after the last slot, which are numbered from the index on."""
    hours = make_slots(end, timedelta(hours=1), FARTHEST, (), end + FARTHEST)
    return tuple(Slot(index + s.index, s.start, s.end, s.order) for s in hours)


def contexts_of(jobs: Sequence[Job], problem: PlacementProblem, answer: PlacementSolution) -> Iterator[JobContext]:
    """Yield the context of each job beside what the others hold and spend in the answer, by name."""
    counted = {name: counted_usd(runs) for name, runs in answer.runs.items()}
    total = load_of(problem, answer.holdings)
    for job in sorted(jobs, key=lambda j: j.name):
        own = answer.holdings.get(job.name, ())
        here = context_beside(problem, job, own, total, team_left(problem, job, counted))
        yield replace(here, mates_region=mates_region(problem, job, answer.holdings))
