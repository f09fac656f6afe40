"""Summarise each job: result, probability of being on time, alternatives, dropped offers; and list unplaced jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from pricing.money import Usd
from pricing.places import SIMULATED_CLOUDS, Market, mixes_simulated_and_real
from router.jobs import goodput
from router.jobs.goodput import GangRunRisk
from router.jobs.spec import Job
from router.planning.alternatives import JobContext, alternatives_of, context_beside, dearest_moves, runner_up
from router.planning.candidates import DroppedListing
from router.planning.costing import amortised_per_step, job_cost, moved_volumes
from router.planning.effort import Effort
from router.planning.gang_rates import GUARD_MARGIN_HOURS
from router.planning.job_groups import mates_region
from router.planning.left_shift import load_of
from router.planning.plan import DroppedOffers, JobSummary, Line, PlannedMove, Unplaced
from router.planning.plan_facts import OVER_BUDGET
from router.planning.planning_input import NOT_LOOKED_AT, PARTLY_LOOKED_AT, PlanningInput
from router.planning.preemption import preemptions
from router.planning.problem import PlacementProblem
from router.planning.relaxations import EGRESS_CAP, LEAVE_GROUP, MOVE_MAINTENANCE, constraint_costs, relaxations_of
from router.planning.schedule import ScheduledRun
from router.planning.solve import PlacementSolution

_PHASE = "explanations"


def on_time_probability_of(job: Job, runs: Sequence[ScheduledRun], until: datetime | None = None) -> float | None:
    """Return the probability that the job is done within its reserved time, or within what lies before ``until``.

    None without a deadline or when the job is left out. Of a guarded run it is what its guard leaves to chance; runs on
    several candidates are late if any of them is. A guard that acts at its last moment leaves its margin, of which the
    controller needs half: the other half is there for runs without a guard.
    """
    if job.deadline is None or not runs:
        return None
    in_time = until is None or all(run.end <= until for run in runs)
    guards = {c.key: c.guard for c in (run.candidate for run in runs) if c.guard is not None and in_time}
    late = float(sum(1 - guard.on_time_probability for guard in guards.values()))
    alone = [run for run in runs if run.candidate.key not in guards]
    if guards:
        late += 1 - _alone_probability(alone, until, GUARD_MARGIN_HOURS / 2) if alone else 0.0
        return max(0.0, round(1 - late, 12))
    return _alone_probability(runs, until)


def _alone_probability(runs: Sequence[ScheduledRun], until: datetime | None, spare_hours: float = 0.0) -> float:
    """Return the probability that runs without a guard are done in the time reserved, or in what of it is before.

    ``spare_hours`` are there for them beside that.
    """
    steps: dict[str, float] = {}
    risks: dict[str, GangRunRisk] = {}
    for run in runs:
        key = run.candidate.key
        steps[key] = steps.get(key, 0.0) + run.steps
        risks[key] = run.candidate.risk
    hours = sum(_productive_until(run, until).total_seconds() for run in runs) / 3600
    if hours <= 0:
        return 0.0
    parts = tuple((risks[key], count) for key, count in sorted(steps.items()) if count > 0)
    return min(1.0, round(goodput.on_time_probability_in_turn(parts, hours + spare_hours), 12))


def _productive_until(run: ScheduledRun, until: datetime | None) -> timedelta:
    """Return the run's time of work before a moment, after its start-up; all of it where the moment is None."""
    if until is None or run.end <= until:
        return run.productive
    held = max(timedelta(0), until - run.start) * run.share
    return min(run.productive, max(timedelta(0), held - run.startups * run.candidate.startup))


def summarise(
    planning_input: PlanningInput,
    answer: PlacementSolution,
    lines: Sequence[Line],
    moves: Sequence[PlannedMove],
    effort: Effort,
) -> tuple[tuple[JobSummary, ...], tuple[Unplaced, ...]]:
    """Return summaries of all jobs and the unplaced ones, both by name.

    Costs of rules, and relaxations, are left out from where the time of ``effort`` is over.
    """
    summaries: list[JobSummary] = []
    unplaced: list[Unplaced] = []
    problem = planning_input.problem
    preempted = preemptions(answer, moves)
    moved = moved_volumes(problem, answer.runs)
    for here in contexts_of(planning_input.jobs, problem, answer, lines):
        job = here.job
        late = effort.late(_PHASE)
        summary = _summary(here, answer, lines, moves, planning_input, late=late)
        summaries.append(replace(summary, preemption=preempted.get(job.name)) if job.name in preempted else summary)
        if job.name not in answer.runs:
            unplaced.append(_unplaced(replace(here, moved=moved), planning_input, late=late))
    return tuple(summaries), tuple(unplaced)


def contexts_of(
    jobs: Sequence[Job], problem: PlacementProblem, answer: PlacementSolution, lines: Sequence[Line]
) -> Iterator[JobContext]:
    """Yield the context of each job beside what the others hold and spend in the answer, by name."""
    own_lines: dict[str, list[Line]] = {}
    for line in lines:
        own_lines.setdefault(line.job, []).append(line)
    counted = {name: _counted(runs, own_lines.get(name, [])) for name, runs in answer.runs.items()}
    total = load_of(problem, answer.holdings)
    for job in sorted(jobs, key=lambda j: j.name):
        own = answer.holdings.get(job.name, ())
        here = context_beside(problem, job, own, total, _team_left(job, problem, counted))
        yield replace(here, mates_region=mates_region(problem, job, answer.holdings))


def _counted(runs: Sequence[ScheduledRun], lines: Sequence[Line]) -> Usd:
    """Return a placed job's cost as budgets count it: its lines, and moves into each region at their dearest tier."""
    regions = {run.candidate.region: run.candidate for run in runs}
    return Usd.total([*(x.cost_usd for x in lines), *(dearest_moves(c) for c in regions.values())])


def _team_left(job: Job, problem: PlacementProblem, counted: Mapping[str, Usd]) -> Usd | None:
    """Return what the team's other placed jobs leave of its budget; None when it has none."""
    team = next((t for t in problem.limits.teams if t.team == job.team), None)
    if team is None:
        return None
    others = (usd for name, usd in counted.items() if name != job.name and problem.job[name].team == job.team)
    return team.budget - team.spent - Usd.total(others)


def _summary(
    here: JobContext,
    answer: PlacementSolution,
    lines: Sequence[Line],
    moves: Sequence[PlannedMove],
    findings: PlanningInput,
    *,
    late: bool,
) -> JobSummary:
    problem, job = here.problem, here.job
    runs = answer.runs.get(job.name, ())
    candidates = problem.all_candidates[job.name]
    dropped = findings.dropped.get(job.name, ())
    own_moves = [m for m in moves if m.job == job.name]
    cost = job_cost(lines, moves, job.name)
    own_lines = [line for line in lines if line.job == job.name]
    carbon = None if here.problem.emissions is None else Usd.total(x.carbon_usd for x in own_lines if x.carbon_usd)
    grams = None if carbon is None else sum(x.grams_co2e or 0 for x in own_lines)
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
        runner_up=runner_up(found, cost if carbon is None else cost + carbon) if runs else None,
        alternatives=found,
        constraint_costs=constraint_costs(here, cost, candidates, dropped, findings.finder)
        if runs and not late
        else (),
        dropped=_dropped(dropped),
        notes=(
            *((PARTLY_LOOKED_AT,) if runs and job.name in findings.partly else ()),
            *_notes(job, runs, problem.now),
            *_budget_notes(job, own_lines),
            *_made_up_notes(job, lines),
            *_carbon_notes(own_lines),
        ),
        grams_co2e=grams,
        carbon_usd=carbon,
    )


def _dropped(dropped: Sequence[DroppedListing]) -> tuple[DroppedOffers, ...]:
    """Return one row for each reason, most offers first."""
    groups: dict[str, list[DroppedListing]] = {}
    for drop in dropped:
        groups.setdefault(drop.code, []).append(drop)
    rows = []
    for code, found in groups.items():
        cheapest = min(
            found,
            key=lambda d: (d.listing.offer.usd_per_hour.nanos / d.listing.machine.accelerator_count, d.listing.name),
        )
        rows.append(DroppedOffers(code, len(found), f"{cheapest.listing.name}: {cheapest.reason}"))
    return tuple(sorted(rows, key=lambda r: (-r.offers, r.reason)))


def _notes(job: Job, runs: Sequence[ScheduledRun], now: datetime) -> tuple[str, ...]:
    """Return what the reader must know to trust the figures: estimates and weak prices."""
    notes = []
    for run in runs[:1]:
        notes += _late_start_notes(job, run, now)
    for run in runs:
        c = run.candidate
        if not c.speed_basis.startswith("measured"):
            notes.append(f"speed on {c.accelerators} {c.accelerator} is {c.speed_basis}, ±{c.risk.relative_error:.0%}")
        if c.weak:
            notes.append(f"{c.key}: {c.weak}")
        if c.risk_basis and any(part.offer.market is Market.SPOT for part in c.parts):
            notes.append(f"{c.key}: {c.risk_basis}")
    if job.checkpoint is None and runs:
        notes.append("no checkpoint: an interruption starts it over")
    return tuple(dict.fromkeys(notes))


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


def _budget_notes(job: Job, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return a note where a job may come to cost more than its budget, which holds for what is expected."""
    most = Usd.total(line.at_risk_usd for line in lines)
    if job.budget is None or most <= job.budget:
        return ()
    own, ceiling = (f"${usd.dollars():,.2f}" for usd in (job.budget, most))
    return (f"its budget of {own} {OVER_BUDGET}: at the ceilings of its prices it may cost up to {ceiling}",)


def _made_up_notes(job: Job, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return a note where a job is on a made-up cloud while others of its plan are on real ones."""
    clouds = sorted({line.cloud for line in lines if line.job == job.name} & SIMULATED_CLOUDS)
    if not clouds or not mixes_simulated_and_real(line.cloud for line in lines):
        return ()
    return (f"{', '.join(clouds)} is made up, and this plan mixes it with real clouds: its prices are nobody's",)


def _carbon_notes(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the figures of carbon that stand in for unknown ones."""
    return tuple(dict.fromkeys(line.carbon_doubt for line in lines if line.carbon_doubt))


def _unplaced(here: JobContext, findings: PlanningInput, *, late: bool) -> Unplaced:
    job = here.job
    candidates, dropped = here.problem.all_candidates[job.name], findings.dropped.get(job.name, ())
    reason = findings.infeasible.get(job.name)
    if reason == NOT_LOOKED_AT:
        return Unplaced(job.name, job.team, job.priority, reason, ())
    relaxations = () if late else relaxations_of(here, candidates, dropped, findings.finder)
    if reason is None:
        reason = "together with the other jobs it fits no limit, budget or deadline"
        alone = next((r for r in relaxations if r.change.startswith("+$")), None)
        if alone is not None:
            reason = f"too little money: {alone.detail.split(',')[0]}"
        closed = next((r for r in relaxations if r.change.startswith(MOVE_MAINTENANCE)), None)
        if closed is not None:
            reason = f"no machines during maintenance {closed.change.removeprefix(MOVE_MAINTENANCE)}"
        if any(r.change.startswith(LEAVE_GROUP) for r in relaxations):
            reason = f"its group {job.group} is in {here.mates_region}, where it finds no room"
        egress = next((r for r in relaxations if EGRESS_CAP in r.change), None)
        if egress is not None:
            reason = f"too much leaves {egress.change.rpartition(EGRESS_CAP)[2]} in a month: {egress.change} would do"
    elif not candidates:
        drops = _dropped(dropped)
        reason = "no offer passes the job's rules"
        if drops:
            reason += ": " + ", ".join(f"{d.reason} drops {d.offers}" for d in drops[:4])
    return Unplaced(job.name, job.team, job.priority, reason, relaxations)
