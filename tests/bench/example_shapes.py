"""Derive the shapes of the 24 example jobs, with which they are moved onto recorded pools."""

from __future__ import annotations

from datetime import timedelta

from router.app.plan import PlanOptions, plan_request
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from router.planning.planner import PlanRequest
from router.planning.problem.problem import window
from tests.bench.many_nights import NOW
from tests.bench.pool_promises import JobShape
from tests.support.repository import ROOT

_HOUR = timedelta(hours=1)


def example_night() -> PlanRequest:
    """Return the request of the example night, on the embedded book and under its own limits."""
    nightly = ROOT / "examples" / "nightly"
    return plan_request([str(nightly)], "embedded", nightly / "limits.yaml", NOW, PlanOptions()).request


def find_shape(finder: CandidateFinder, job: Job) -> JobShape | str:
    """Return the shape of a job's cheapest guarded spot gang that a plan may order, or why there is none.

    Prices are of whole gangs, a core on demand included. The fallback may be another machine: the ratio is of prices of
    the same work.
    """
    start, deadline = window(job, finder.now)
    if deadline is None:
        return "no deadline"
    hours = (deadline - start) / _HOUR

    def steps(candidate: Candidate) -> int:
        return steps_to_do(job, running=candidate.running)

    guarded = [
        c
        for c in find_for_plan(finder, job)[0]
        if c.guard is not None and c.provisionable and c.reserved_hours(steps(c)) <= hours
    ]
    if not guarded:
        return "no spot gang under the guard"
    gang = min(guarded, key=lambda c: (c.expected_usd(steps(c)), c.key))
    if gang.fallback is None:
        return "no fallback on demand"
    work_h = steps(gang) / gang.risk.nominal_steps_per_hour
    ratio = _usd_per_step(gang.fallback) / _usd_per_step(gang)
    return JobShape(work_h, hours / work_h, ratio, job)


def _usd_per_step(gang: Candidate) -> float:
    return gang.usd_per_hour.dollars() / gang.risk.nominal_steps_per_hour


def find_example_shapes() -> tuple[tuple[JobShape, ...], dict[str, str]]:
    """Return the shapes of the example jobs, and why others have none, by name."""
    night = example_night()
    finder = night.finder()
    found = {job.name: find_shape(finder, job) for job in night.jobs}
    left_out = {name: shape for name, shape in found.items() if isinstance(shape, str)}
    return tuple(shape for shape in found.values() if isinstance(shape, JobShape)), left_out
