"""Say on what the speeds of planned gangs rest, and which points are worth measuring before money is spent on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pricing.money import Usd
from pricing.units import to_digits
from router.jobs.spec import Job
from router.jobs.speed import UNMEASURED
from router.planning.document.plan import Line
from router.planning.document.plan_usage import GangSpeed, PointToMeasure
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.find.next_points import MeasuringPlan, propose_points
from router.planning.problem.schedule import ScheduledRun

#: From this cost on it pays to measure a speed that is only estimated.
WORTH_MEASURING: Final = Usd(500_000_000_000)
_MAX_POINTS: Final = 2
MOST_ADVISED: Final = 20  # jobs of a plan, the dearest: each takes a few hundredths of a second


def gang_speeds(
    jobs: Mapping[str, Job],
    runs: Mapping[str, Sequence[ScheduledRun]],
    lines: Iterable[Line],
    candidates: Mapping[str, Sequence[Candidate]],
    finder: CandidateFinder,
) -> tuple[GangSpeed, ...]:
    """Return the evidence for the speed of each gang, by job; points to measure for the dearest estimated ones."""
    cost: dict[str, int] = {}
    for line in lines:
        cost[line.job] = cost.get(line.job, 0) + line.cost_usd.nanos
    first = {  # estimated gang of each job
        name: number
        for name, own in runs.items()
        for number, run in reversed(list(enumerate(own, start=1)))
        if run.candidate.speed_evidence in UNMEASURED
    }
    advised = sorted(first, key=lambda name: (-cost[name], name))[:MOST_ADVISED]
    return tuple(
        _gang_speed(
            run.candidate,
            f"{name}/{number}",
            points_worth(jobs[name], run.candidate, candidates[name], finder, Usd(cost[name]))
            if name in advised and number == first[name]
            else (),
        )
        for name in sorted(runs)
        for number, run in enumerate(runs[name], start=1)
    )


def _gang_speed(c: Candidate, gang: str, points: tuple[PointToMeasure, ...]) -> GangSpeed:
    error = to_digits(c.risk.relative_error)
    return GangSpeed(c.job, gang, c.accelerator, c.accelerators, c.speed_evidence, c.speed_basis, error, points)


def points_worth(
    job: Job, best: Candidate, candidates: Sequence[Candidate], finder: CandidateFinder, cost: Usd | None
) -> tuple[PointToMeasure, ...]:
    """Return at most two points to measure before the job runs on ``best``; none where that is measured, or cheap."""
    mixed = len({part.offer.instance_type for part in best.parts}) > 1
    if mixed or best.speed_evidence not in UNMEASURED or (cost is not None and cost < WORTH_MEASURING):
        return ()
    known = finder.with_learned_speeds(job)
    accelerators = finder.book.accelerators
    measuring = propose_points(known, candidates, finder.listings, accelerators, max_points=_MAX_POINTS, best=best)
    return tuple(_points(measuring)) if isinstance(measuring, MeasuringPlan) else ()


def _points(measuring: MeasuringPlan) -> Iterator[PointToMeasure]:
    for point in measuring.proposals:
        name, error = point.listing.accelerator.name, to_digits(point.error_after)
        yield PointToMeasure(name, point.accelerators, point.placement, point.usd, error)
