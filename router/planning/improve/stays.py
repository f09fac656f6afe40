"""Decide which running jobs keep their places whatever others would gain: those that cannot resume.

A stay is one unbroken run from now on the machines that the job holds. Design note rules-of-the-plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold, runs_of
from router.planning.program.left_shift import run_from
from router.planning.rules.budgets import counted_usd
from router.planning.rules.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Stay:
    """The unbroken run of a job that goes on where it runs, and what budgets count of it."""

    job: Job
    holds: tuple[SlotHold, ...]
    counted: Usd


def keep_running(problem: PlacementProblem) -> PlacementProblem:
    """Return the problem in which running jobs that cannot resume may only go on where they run.

    As many of them stay as fit together, taken by priority, then by name. Late jobs displace nobody: they are none.
    """
    unable = (job for job in problem.jobs if job.checkpoint is None and job.name not in problem.late)
    stays = [stay for job in unable if (stay := stay_of(problem, job)) is not None]
    return _pinned(problem, (stay.job.name for stay in fitting_together(problem, stays)))


def _pinned(problem: PlacementProblem, names: Iterable[str]) -> PlacementProblem:
    """Return the problem in which these jobs may only go on where they run."""
    chosen = frozenset(names)
    if not chosen:
        return problem
    candidates = {
        name: tuple(c for c in found if c.running or name not in chosen) for name, found in problem.candidates.items()
    }
    return replace(problem, candidates=candidates, stays=problem.stays | chosen)


def stay_of(problem: PlacementProblem, job: Job) -> Stay | None:
    """Return the job's stay; None where its window, limits or budgets do not allow it even if the job were alone."""
    here = _here(problem, job)
    if here is None:
        return None
    slots = problem.slots_for(job, here)
    if not slots or slots[0].index != 0 or slots[0].start != problem.now:
        return None
    holds = run_from(problem, job, here, {}, slots)
    if holds is None:
        return None
    counted = counted_usd(runs_of(problem, job, holds))
    if not Occupancy(problem).allows_cost(job, counted):
        return None
    return Stay(job, holds, counted)


def fitting_together(problem: PlacementProblem, stays: Iterable[Stay]) -> tuple[Stay, ...]:
    """Return the stays that the limits file and groups of jobs allow together, taken by priority, then by name."""
    occupancy = Occupancy(problem)
    kept = []
    for stay in sorted(stays, key=lambda s: (-s.job.priority, s.job.name)):
        if occupancy.allows(stay.job, stay.holds, stay.counted):
            occupancy.add(stay.job, stay.holds, stay.counted)
            kept.append(stay)
    return tuple(kept)


def _here(problem: PlacementProblem, job: Job) -> Candidate | None:
    """Return the candidate on which the job runs now."""
    return next((c for c in problem.candidates[job.name] if c.running), None)
