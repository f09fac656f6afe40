"""Small planning problems over the made-up book, gathered as far as a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pricing.offers import Offer
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning import planner
from router.planning.document.plan import Plan
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import candidates_for
from router.planning.find.dropped_listings import DroppedListing
from router.planning.planner import PlanRequest, make_plan
from router.planning.problem.problem import PlacementProblem
from router.planning.program.effort import Effort
from router.planning.program.planning_input import PlanningInput
from router.planning.program.solve import PlacementSolution
from router.planning.program.solver import PulpSolver
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits, simple_job

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
HOUR = timedelta(hours=1)
NORTH = offer("aws/north-1", "p9.48xlarge", "on_demand", "60")
NORTH_SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "24")
SOUTH = offer("aws/south-1", "p9.48xlarge", "on_demand", "50")
ALPS = offer("aws/alps-1", "p9.48xlarge", "on_demand", "45")
LAKE = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "40")
BAY = offer("lambda/bay-1", "gpu_8x_h9", "on_demand", "20")
#: The transformer of a job file of 7B parameters.
SHAPE: dict[str, Any] = {
    "parameters": "7B",
    "layers": 32,
    "hidden": 4096,
    "sequence_length": 4096,
    "tokens_per_step": 2**20,
}


RUNNING_IN_NORTH = {
    "cloud": "aws",
    "region": "north-1",
    "instance_type": "p9.48xlarge",
    "market": "on_demand",
    "accelerators": 8,
}


def a_job(name: str = "a", *, steps: int = 300, **more: Any) -> Job:
    """Eight H100 at 100 steps an hour, surely known; resumes, and starts up in 12 minutes."""
    more.setdefault("checkpoint", {"size_gib": 10})
    more.setdefault("startup_minutes", 12)
    return simple_job(name, ("H100", 8), steps=steps, steps_per_hour=100, **more)


def a_request(jobs: Sequence[Job], offers: Sequence[Offer], limits: Any = None, **knobs: Any) -> PlanRequest:
    """A request with a horizon of eight hours; ``limits`` as in a limits file."""
    known = limits if isinstance(limits, Limits) else make_limits(limits or {})
    knobs.setdefault("gap", 0.0)
    knobs.setdefault("horizon", 8 * HOUR)
    return PlanRequest(jobs=tuple(jobs), book=book(offers), limits=known, now=knobs.pop("now", NOW), **knobs)


def plan_of(jobs: Sequence[Job], offers: Sequence[Offer], limits: Any = None, **knobs: Any) -> Plan:
    return make_plan(a_request(jobs, offers, limits, **knobs))


def input_of(request: PlanRequest) -> PlanningInput:
    return _built(request, Effort(PulpSolver(), timedelta(0)))[1]


def problem_of(request: PlanRequest) -> PlacementProblem:
    return input_of(request).problem


def answer_of(request: PlanRequest) -> PlacementSolution:
    return planner._search(*_built(request, Effort(PulpSolver(), timedelta(seconds=30))))


def _built(request: PlanRequest, effort: Effort) -> tuple[planner.PlanningRun, PlanningInput]:
    looking = Effort(PulpSolver(), timedelta(hours=1))
    run = planner.PlanningRun(request, effort, effort, looking, looking, planner._silent, planner.Timings())
    return run, planner._build_problem(run, tuple(sorted(request.jobs, key=lambda j: j.name)), {})


def found_for(
    job: Job, offers: Sequence[Offer], limits: Any = None, *, advisory: bool = False
) -> tuple[dict[str, Candidate], list[DroppedListing]]:
    known = limits if isinstance(limits, Limits) else make_limits(limits or {})
    kept, dropped = candidates_for(job, book(offers), known, NOW, advisory)
    return {c.key: c for c in kept}, list(dropped)


def places(plan: Plan) -> dict[str, str]:
    """By job the place and market of its lines, each once, in order."""
    return {
        job.job: ", ".join(dict.fromkeys(f"{x.cloud}/{x.region} {x.market}" for x in plan.lines if x.job == job.job))
        for job in plan.jobs
    }
