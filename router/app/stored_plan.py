"""Store what a plan was made of, so that applying, comparing and the next plan need only the state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from router.controller.plan_limits import store_limits, store_made_limits
from router.controller.previous_plan import last_plan_value, store_last_plan
from router.controller.workspaces import job_json
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.state.made_plans import MadePlanEntry
from router.state.store import StateStore
from router.state.tasks import TaskWrites


def store_plan_inputs(
    store: StateStore, jobs: Sequence[Job], digest: str, limits: Limits | None, moment: datetime
) -> None:
    """Store the specifications of jobs by their digests, and the limits of the plan of that digest."""
    store.plans.put_jobs({job.digest: job_json(job) for job in jobs}, moment)
    store_made_limits(store, digest, Limits.none() if limits is None else limits)
    if limits is not None:
        store_limits(store, digest, limits)


def store_made_plan(
    store: StateStore, digest: str, text: str, moment: datetime, *, made_at: datetime, made_by: str
) -> None:
    """Store a plan as the last one that was written; ``moment`` is the one that it is for."""
    store_last_plan(store, text)
    store.made_plans.put(digest, text, moment, made_at, made_by)


def made_plan_writes(digest: str, text: str, moment: datetime, made_by: str) -> TaskWrites:
    """Return what :func:`store_made_plan` stores, for the end of the task, at which the plan is made."""
    entry = MadePlanEntry.of(digest, text, moment, moment, made_by)
    return TaskWrites(plans=(entry,), values=(last_plan_value(text),))
