"""Store what a plan was made of, so that applying, comparing and the next plan need only the state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from router.controller.plan_limits import store_limits, store_made_limits
from router.jobs.job_json import job_json
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.state.store import StateStore


def store_plan_inputs(
    store: StateStore, jobs: Sequence[Job], digest: str, limits: Limits | None, moment: datetime
) -> None:
    """Store the specifications of jobs by their digests, and the limits of the plan of that digest."""
    store.plans.put_jobs({job.digest: job_json(job) for job in jobs}, moment)
    store_made_limits(store, digest, Limits.none() if limits is None else limits)
    if limits is not None:
        store_limits(store, digest, limits)
