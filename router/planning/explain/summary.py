"""Summarise each job: result, probability of being on time, alternatives, dropped offers; and list unplaced jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from pricing.money import NANOS_PER_CENT, Usd
from pricing.places import SIMULATED_CLOUDS, Market, mixes_simulated_and_real
from pricing.risk import TOLD_HOURS
from router.jobs.quantities import LONGEST_RUN
from router.jobs.spec import Job
from router.planning.document.costing import (
    Volumes,
    amortised_per_step,
    job_cost,
    moved_volumes,
    rise_beside,
    volumes_without,
)
from router.planning.document.external_costs import doubts_of_external, external_of_job, external_usd_of
from router.planning.document.plan import DroppedOffers, JobSummary, Line, PlannedMove, Unplaced
from router.planning.document.plan_facts import EXPECTED_ONLY
from router.planning.explain.alternatives import alternatives_of, runner_up
from router.planning.explain.price_doubts import price_doubts
from router.planning.explain.relaxations import (
    LEAVE_GROUP,
    MOVE_MAINTENANCE,
    constraint_costs,
    place_and_finish,
    relaxations_of,
)
from router.planning.find.affinity import affinity_of
from router.planning.find.allowances import own_allowance
from router.planning.find.candidate import Candidate
from router.planning.find.dropped_listings import DroppedListing
from router.planning.improve.preemption import preemptions
from router.planning.problem.commitments import has_cover
from router.planning.problem.on_time import on_time_probability_of
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun
from router.planning.program.effort import Effort
from router.planning.program.planning_input import NOT_LOOKED_AT, PARTLY_LOOKED_AT, PlanningInput
from router.planning.program.single_runs import JobContext, best_single_run, contexts_of
from router.planning.program.solve import PlacementSolution
from router.planning.rules.egress_caps import CAP_WORDS

_PHASE = "explanations"


def summarise(
    planning_input: PlanningInput,
    answer: PlacementSolution,
    lines: Sequence[Line],
    moves: Sequence[PlannedMove],
    effort: Effort | None,
) -> tuple[tuple[JobSummary, ...], tuple[Unplaced, ...]]:
    """Return summaries of all jobs and the unplaced ones, both by name.

    Costs of rules, and relaxations, are left out from where the time of ``effort`` is over; all where it is None.
    """
    summaries: list[JobSummary] = []
    unplaced: list[Unplaced] = []
    problem = planning_input.problem
    preempted = preemptions(answer, moves)
    moved = moved_volumes(problem, answer.runs)
    for here in contexts_of(planning_input.jobs, problem, answer):
        job = here.job
        late = effort is None or effort.late(_PHASE)
        summary = _summary(here, answer, lines, moves, planning_input)
        if job.name in answer.runs and not late:
            summary = _with_rule_costs(here, answer, summary, lines, moved, planning_input)
        summaries.append(replace(summary, preemption=preempted.get(job.name)) if job.name in preempted else summary)
        if job.name not in answer.runs:
            unplaced.append(_unplaced(replace(here, moved=moved), planning_input, late=late))
    return tuple(summaries), tuple(unplaced)


def _summary(
    here: JobContext,
    answer: PlacementSolution,
    lines: Sequence[Line],
    moves: Sequence[PlannedMove],
    findings: PlanningInput,
) -> JobSummary:
    problem, job = here.problem, here.job
    runs = answer.runs.get(job.name, ())
    candidates = problem.all_candidates[job.name]
    dropped = findings.dropped.get(job.name, ())
    own_moves = [m for m in moves if m.job == job.name]
    cost = job_cost(lines, moves, job.name)
    own_lines = [line for line in lines if line.job == job.name]
    chosen = frozenset(run.candidate.key for run in runs)
    found = alternatives_of(here, chosen, candidates, findings.advisory.get(job.name, ()))
    return JobSummary(
        job=job.name,
        job_digest=job.digest,
        team=job.team,
        project=job.project,
        cost_usd=cost,
        usd_per_step=amortised_per_step(runs, own_moves) if runs else None,
        steps=sum(run.steps for run in runs),
        start=runs[0].start if runs else None,
        finish=max(run.end for run in runs) if runs else None,
        deadline=job.deadline.at(problem.now) if job.deadline else None,
        confidence=job.confidence,
        on_time_probability=on_time_probability_of(job, runs),
        runner_up=runner_up(found, cost + external_usd_of(own_lines)) if runs else None,
        alternatives=found,
        constraint_costs=(),
        dropped=_dropped(dropped),
        notes=(
            *((PARTLY_LOOKED_AT,) if runs and job.name in findings.partly else ()),
            *_notes(problem, job, runs),
            *_ceiling_notes(job, own_lines),
            *_made_up_notes(job, lines),
            *doubts_of_external(own_lines),
        ),
        **external_of_job(problem, own_lines),
    )


def _with_rule_costs(
    here: JobContext,
    answer: PlacementSolution,
    summary: JobSummary,
    lines: Sequence[Line],
    moved: Volumes,
    findings: PlanningInput,
) -> JobSummary:
    """Return the summary with the costs of the job's rules, and with the better place that its plan missed, if any.

    All are compared beside the other jobs: a move costs by how much it raises the bill of what these move.
    """
    problem, job = here.problem, here.job
    own = moved_volumes(problem, {job.name: answer.runs[job.name]})
    beside = replace(here, moved=volumes_without(moved, own))
    cost = job_cost(lines, (), job.name) + rise_beside(problem, beside.moved or {}, own)
    candidates = problem.all_candidates[job.name]
    better = best_single_run(beside, candidates, below=cost)
    least = cost if better is None else better.cost
    dropped = findings.dropped.get(job.name, ())
    costs = constraint_costs(beside, least, candidates, dropped, findings.finder)
    notes = summary.notes
    if better is not None and _is_within_gap(answer, job, cost - least):
        place = place_and_finish(better)
        saving = f"${(cost - least).dollars():,.2f}"
        notes = (*notes, f"a better place lies within the plan's gap: {place}, {saving} less, other jobs held in place")
    return replace(summary, constraint_costs=costs, notes=notes)


def _is_within_gap(answer: PlacementSolution, job: Job, saving: Usd) -> bool:
    """Return whether the plan's bound leaves room for a saving of a cent or more.

    A running job may stay because moving saves too little, and what a commitment covers is not the job's saving.
    """
    if (job.status is not None and job.status.running is not None) or has_cover(answer.problem.limits):
        return False
    return NANOS_PER_CENT <= saving.nanos <= (answer.spent - answer.bound_usd).nanos


def _dropped(dropped: Sequence[DroppedListing]) -> tuple[DroppedOffers, ...]:
    """Return one row for each reason, most offers first."""
    by_code: dict[str, list[DroppedListing]] = {}
    for drop in dropped:
        by_code.setdefault(drop.code, []).append(drop)
    rows = []
    for code, found in by_code.items():
        cheapest = min(
            found,
            key=lambda d: (d.listing.offer.usd_per_hour.nanos / d.listing.machine.accelerator_count, d.listing.name),
        )
        rows.append(DroppedOffers(code, len(found), f"{cheapest.listing.name}: {cheapest.reason}"))
    return tuple(sorted(rows, key=lambda r: (-r.offers, r.reason)))


def _notes(problem: PlacementProblem, job: Job, runs: Sequence[ScheduledRun]) -> tuple[str, ...]:
    """Return what the reader must know to trust the figures: estimates and weak prices."""
    notes = []
    for run in runs[:1]:
        notes += _late_start_notes(job, run, problem.now)
    for run in runs:
        c = run.candidate
        if not c.speed_basis.startswith("measured"):
            notes.append(f"speed on {c.accelerators} {c.accelerator} is {c.speed_basis}, ±{c.risk.relative_error:.0%}")
        if c.weak:
            notes.append(f"{c.key}: {c.weak}")
        notes += price_doubts(problem, c)
        if c.risk_basis and any(part.offer.market is Market.SPOT for part in c.parts):
            notes.append(f"{c.key}: {_expected_interruptions(c)}{c.risk_basis}")
        notes += _ways_out(c)
    if job.checkpoint is None and runs:
        notes.append("no checkpoint: an interruption starts it over")
    return tuple(dict.fromkeys(notes))


_TOLD_CHANGE = 0.01  # how likely a gang leaves its pool, from which on it is told
_TOLD_DEARER = 1.005  # how many hours one in the next pool counts as, from which on it is told


def _ways_out(c: Candidate) -> Iterator[str]:
    """Yield what a spot gang is taken to do where its pool fails too often."""
    if c.guard is None:
        return
    if c.guard.changes >= _TOLD_CHANGE:
        hours = f": an hour there counts as {c.next_pool_hours:.2f} here" if c.next_pool_hours >= _TOLD_DEARER else ""
        yield (
            f"{c.key}: where its pool fails too often it is taken to leave it ({c.guard.changes:.0%} likely) for "
            f"{c.next_pool}, at the price and risk there{hours}"
        )
    if c.fallback is None:
        not_done = f"{c.guard.probability:.1%} of its runs are not done in {LONGEST_RUN.days} days"
        yield f"{c.key}: nothing but spot is behind it: {not_done}, and what they cost after that is not counted"


_BAD_POOLS = 1.5  # times the interruptions that the stated rate brings, from which on bad pools bring the rest


def _expected_interruptions(c: Candidate) -> str:
    """Return how many interruptions the job is expected to see on a guarded gang, and whether bad pools have most."""
    if c.guard is None:
        return ""
    usual = c.gang_risk.per_hour_over(TOLD_HOURS) * c.guard.interruptions / c.risk.interruptions_per_hour
    bad = ", most of them where the pool is a bad one" if usual * _BAD_POOLS < c.guard.interruptions else ""
    return f"{c.guard.interruptions:,.1f} interruptions expected of the job{bad}; "


_WORTH_TELLING = 1.02


def _late_start_notes(job: Job, run: ScheduledRun, now: datetime) -> list[str]:
    """Return what a guarded run costs where it starts late: less is left then for spot to come back."""
    guard = run.candidate.guard
    if guard is None or not guard.costs or job.deadline is None:
        return []
    left = (job.deadline.at(now) - run.start - run.startups * run.candidate.startup) / timedelta(hours=1)
    windows, usd = (list(column) for column in zip(*guard.costs, strict=True))
    expected = float(np.interp(left, windows, usd))
    if expected < usd[-1] * _WORTH_TELLING:
        return []
    more = (expected / usd[-1] - 1) * 100
    return [
        f"its cost is that of a start at once; begun as late as here it is {more:.0f} % more, with less time to wait"
    ]


def _ceiling_notes(job: Job, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return a note where a job may come to cost more than its budget, which holds for what is expected."""
    most = Usd.total(line.at_risk_usd for line in lines)
    allowed = own_allowance(job)
    if allowed is None or most <= allowed:
        return ()
    own, ceiling = (f"${usd.dollars():,.2f}" for usd in (allowed, most))
    return (f"its budget of {own} {EXPECTED_ONLY}: at the ceilings of its prices it may cost up to {ceiling}",)


def _made_up_notes(job: Job, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return a note where a job is on a made-up cloud while others of its plan are on real ones."""
    clouds = sorted({line.cloud for line in lines if line.job == job.name} & SIMULATED_CLOUDS)
    if not clouds or not mixes_simulated_and_real(line.cloud for line in lines):
        return ()
    return (f"{', '.join(clouds)} is made up, and this plan mixes it with real clouds: its prices are nobody's",)


def _unplaced(here: JobContext, findings: PlanningInput, *, late: bool) -> Unplaced:
    job = here.job
    candidates, dropped = here.problem.all_candidates[job.name], findings.dropped.get(job.name, ())
    reason = findings.infeasible.get(job.name)
    if reason == NOT_LOOKED_AT:
        return Unplaced(job.name, job.team, job.priority, reason, ())
    relaxations = () if late else relaxations_of(here, candidates, dropped, findings.finder)
    if reason is None:
        together = "together with the other jobs " if len(here.problem.jobs) > 1 else ""
        reason = f"{together}it fits no limit, budget or deadline"
        alone = next((r for r in relaxations if r.change.startswith("+$")), None)
        if alone is not None:
            reason = f"too little money: {alone.detail.split(',')[0]}"
        closed = next((r for r in relaxations if r.change.startswith(MOVE_MAINTENANCE)), None)
        if closed is not None:
            reason = f"no machines during maintenance {closed.change.removeprefix(MOVE_MAINTENANCE)}"
        if any(r.change.startswith(LEAVE_GROUP) for r in relaxations):
            reason = f"its group {affinity_of(job)} is in {here.mates_region}, where it finds no room"
        egress = next((r for r in relaxations if CAP_WORDS in r.change), None)
        if egress is not None:
            reason = f"too much leaves {egress.change.rpartition(CAP_WORDS)[2]} in a month: {egress.change} would do"
    return Unplaced(job.name, job.team, job.priority, reason, relaxations)
