"""Count what a plan's runs use of committed spend and what is covered of their cost, exact in nano-dollars."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TypedDict

from pricing.money import ZERO, Usd, divide_half_even
from router.jobs.limits import Commitment
from router.planning.document.plan import CommitmentUse, JobCover, Plan
from router.planning.problem.commitments import (
    Place,
    buyable_by_place,
    cover_rate,
    exact_hours,
    has_cover,
    is_open,
    open_commitment,
)
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import Holdings, ScheduledRun


@dataclass(frozen=True, slots=True)
class _Use:
    """Dollars of on-demand price that a run uses of a pool in a slot."""

    job: str
    place: Place
    usd: Usd


def _uses_of(problem: PlacementProblem, runs: Iterable[ScheduledRun]) -> list[_Use]:
    """Return what the runs use, by slot, rounded down to the nano-dollar; no run uses more than it costs."""
    uses = []
    for run in runs:
        rate = cover_rate(problem.limits, run.candidate) if run.order else None
        if rate is None:
            continue
        left = rate.usd_per_hour.over(run.billed).nanos  # its times are rounded to the microsecond
        for slot in problem.slots:
            held = min(run.end, slot.end) - max(run.start, slot.start)
            if held > timedelta(0):
                exact = rate.usd_per_hour.nanos * Fraction(rate.billed) * exact_hours(held)
                usd = Usd(min(int(exact), left))
                left -= usd.nanos
                uses.append(_Use(run.job, (rate.pool, slot.index), usd))
    return uses


def covered_by_place(problem: PlacementProblem, uses: Iterable[_Use]) -> Mapping[Place, Usd]:
    """Return what is covered in every slot: what is used, and at most what the slot's commitment buys."""
    used: dict[Place, int] = {}
    for use in uses:
        used[use.place] = used.get(use.place, 0) + use.usd.nanos
    bought = buyable_by_place(problem)
    covered = {place: min(nanos, bought[place].nanos) for place, nanos in used.items() if place in bought}
    return {place: Usd(nanos) for place, nanos in covered.items()}


def covered_usd(problem: PlacementProblem, runs: Mapping[str, Sequence[ScheduledRun]]) -> Usd:
    """Return the on-demand dollars of these runs that commitments cover; nothing where there are none."""
    if not has_cover(problem.limits):
        return Usd(0)
    uses = _uses_of(problem, (run for found in runs.values() for run in found))
    return Usd.total(covered_by_place(problem, uses).values())


def committed_jobs(problem: PlacementProblem, holdings: Holdings) -> frozenset[str]:
    """Return the jobs that hold a candidate that uses committed spend."""
    limits = problem.limits
    return frozenset(
        name
        for name, holds in holdings.items()
        if any(cover_rate(limits, problem.candidate(name, key)) is not None for key in {h.key for h in holds})
    )


class CoverFigures(TypedDict):
    """Fields of a plan."""

    commitments: tuple[CommitmentUse, ...]


def cover_of_plan(problem: PlacementProblem, runs: Mapping[str, Sequence[ScheduledRun]]) -> CoverFigures:
    """Return what of each commitment the runs use within the horizon, in the order of the limits file.

    The cover of a slot is split over its jobs by what they use, so that the parts add up to it.
    """
    limits = problem.limits
    uses = _uses_of(problem, (run for _, found in sorted(runs.items()) for run in found))
    jobs: dict[str, dict[str, int]] = {item.name: {} for item in limits.commitments}
    for place, covered in sorted(covered_by_place(problem, uses).items()):
        commitment = open_commitment(limits, place[0], problem.slots[place[1]])
        own = [use for use in uses if use.place == place]
        if commitment is None or covered.nanos == 0:
            continue
        for use, part in zip(own, covered.split([use.usd.nanos for use in own]), strict=True):
            by_job = jobs[commitment.name]
            by_job[use.job] = by_job.get(use.job, 0) + part.nanos
    return {"commitments": tuple(_use_of(problem, item, jobs[item.name]) for item in limits.commitments)}


def cover_of_part(plan: Plan, kept: Collection[str]) -> CoverFigures:
    """Return what commitments cover of these jobs; the dollars committed, used and unused are of all jobs."""
    uses = []
    for use in plan.commitments:
        covers = tuple(cover for cover in use.jobs if cover.job in kept)
        if covers:
            covered = Usd.total(cover.covered_usd for cover in covers)
            uses.append(CommitmentUse(use.commitment, ZERO, ZERO, ZERO, covered, covers))
    return {"commitments": tuple(uses)}


def _use_of(problem: PlacementProblem, commitment: Commitment, jobs: Mapping[str, int]) -> CommitmentUse:
    open_hours = sum((exact_hours(s.length) for s in problem.slots if s.order and is_open(commitment, s)), Fraction(0))
    exact = commitment.usd_per_hour.nanos * open_hours
    committed = Usd(divide_half_even(exact.numerator, exact.denominator))
    covered = Usd(sum(jobs.values()))
    paid = covered.nanos * commitment.paid_share
    used = min(committed, Usd(divide_half_even(paid.numerator, paid.denominator)))
    return CommitmentUse(
        commitment=commitment.name,
        committed_usd=committed,
        used_usd=used,
        unused_usd=committed - used,
        covered_usd=covered,
        jobs=tuple(JobCover(job, Usd(nanos)) for job, nanos in sorted(jobs.items()) if nanos),
    )
