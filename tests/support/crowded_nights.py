"""Bench nights in which small jobs crowd into few machines, so that limits are worth something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from router.planning.planner import PlanRequest
from tests.bench.hundred_jobs import many_jobs
from tests.bench.nights import mid_size_request


def crowded_request(seed: int, kinds: int, count: int, **knobs: Any) -> PlanRequest:
    """The mid-size night of that seed with one machine of each offer.

    ``count`` copies of its first ``kinds`` jobs with a deadline that fit a machine are planned.
    """
    request = mid_size_request(seed, **knobs)
    small = [j for j in request.jobs if j.deadline and min(o.count for o in j.gang.options) <= 8]
    limits = request.limits.model_copy(update={"default_cap_machines": 1})
    return replace(request, limits=limits, jobs=many_jobs(small[:kinds], count, request.now))
