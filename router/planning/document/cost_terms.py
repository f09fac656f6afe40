"""Split the exact cost of each job of a plan into its terms: compute, lost work, checkpoints, starts, idle, moves.

The shares come from the figures of the candidates themselves (design note costs-and-estimates); no other model is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from pricing.money import ZERO, Usd
from router.jobs.goodput import BilledShares, billed_shares
from router.jobs.spec import Job
from router.planning.document.plan import Line, PlannedMove
from router.planning.document.plan_usage import COST_TERMS, JobCostTerms
from router.planning.document.stated_quantities import stated_quantities
from router.planning.problem.schedule import ScheduledRun

_MICRO = timedelta(microseconds=1)
_FINE = 10**12  # shares of billed time are whole numbers of this


def cost_terms_of(
    jobs: Mapping[str, Job],
    runs: Mapping[str, Sequence[ScheduledRun]],
    lines: Sequence[Line],
    moves: Sequence[PlannedMove],
) -> tuple[JobCostTerms, ...]:
    """Return the terms of each placed job, by name; those of a job add up to its cost to the nano-dollar.

    ``lines`` are in the order of the runs and of the parts of their candidates, as costing writes them.
    """
    own_lines: dict[str, list[Line]] = {}
    for line in lines:
        own_lines.setdefault(line.job, []).append(line)
    return tuple(
        _job_terms(jobs[name], runs[name], own_lines.get(name, []), [move for move in moves if move.job == name])
        for name in sorted(runs)
    )


def _job_terms(
    job: Job, runs: Sequence[ScheduledRun], lines: Sequence[Line], moves: Sequence[PlannedMove]
) -> JobCostTerms:
    compute, lost, checkpoints, restarts, startups = (
        Usd.total(shares) for shares in zip(*_split_lines(runs, lines), strict=True)
    )
    restarts, idle_again = _split_idle(job, restarts, job.restart_time)
    startups, idle_once = _split_idle(job, startups, job.start_time)
    fallback = Usd.total(line.fallback.cost_usd for line in lines if line.fallback is not None)
    terms = JobCostTerms(
        job=job.name,
        compute_usd=compute,
        lost_work_usd=lost,
        checkpoints_usd=checkpoints,
        restarts_usd=restarts,
        startups_usd=startups,
        moves_usd=Usd.total(move.cost_usd for move in moves if move.what != "stream"),
        stream_usd=Usd.total(move.cost_usd for move in moves if move.what == "stream"),
        idle_usd=idle_again + idle_once,
        fallback_usd=fallback,
    )
    return replace(terms, stated=tuple(stated_quantities(job, runs)))


def _split_idle(job: Job, usd: Usd, whole: timedelta) -> tuple[Usd, Usd]:
    """Return what of the cost of starts of this length is the start-up, and what waiting for the whole gang."""
    if job.idle is None or not whole:
        return usd, ZERO
    start, idle = usd.split(((whole - job.idle) // _MICRO, job.idle // _MICRO))
    return start, idle


def _split_lines(runs: Sequence[ScheduledRun], lines: Sequence[Line]) -> Iterator[tuple[Usd, ...]]:
    """Yield each line's cost as compute, lost work, checkpoints, restarts, start-ups."""
    parts = ((run, line) for run, line in zip(_by_part(runs), lines, strict=True))
    for run, line in parts:
        guard = run.candidate.guard
        weights = _weights(run, billed_shares(run.candidate.risk) if guard is None else guard.shares)
        own = line.cost_usd if line.fallback is None else line.cost_usd - line.fallback.cost_usd
        yield own.split(weights) if any(weights) else (own, *[ZERO] * 4)


def _by_part(runs: Sequence[ScheduledRun]) -> Iterator[ScheduledRun]:
    for run in runs:
        for _ in run.candidate.parts:
            yield run


def _weights(run: ScheduledRun, shares: BilledShares) -> tuple[int, ...]:
    """Return the billed time of each term, in units that are equal for all five."""
    starting = round(run.candidate.startup / _MICRO * run.startups)
    working = run.billed // _MICRO - starting
    others = [round(share * _FINE) for share in (shares.lost_work, shares.checkpoints, shares.restarts)]
    compute = max(0, _FINE - sum(others))
    return (*(working * part for part in (compute, *others)), starting * _FINE)


def add_terms(terms: Sequence[JobCostTerms], name: str) -> JobCostTerms:
    """Return the sum of one or more jobs' terms under one name, such as a team's."""
    sums = {field: Usd.total(getattr(term, field) for term in terms) for field in COST_TERMS}
    return replace(terms[0], job=name, stated=(), **sums)
