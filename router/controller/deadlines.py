"""Compute the deadline of an attempt's job."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from router.controller.workspaces import parse_job
from router.state.records import Attempt
from router.state.store import StateStore


def plan_time(store: StateStore, attempt: Attempt) -> datetime:
    """Return when the attempt's plan was made, which the relative times of its jobs count from.

    Without that plan, return when the attempt was created.
    """
    plan = store.plans.plan(attempt.plan)
    return attempt.created_at if plan is None else datetime.fromisoformat(json.loads(plan)["as_of"]).astimezone(UTC)


def deadline_of(store: StateStore, attempt: Attempt) -> datetime | None:
    """Return the deadline of the attempt's job, or None.

    None where the job has none, or where its specification is not in the state or cannot be read any more.
    """
    text = store.plans.job(attempt.job_digest)
    try:
        deadline = None if text is None else parse_job(text).deadline
        return None if deadline is None else deadline.at(plan_time(store, attempt))
    except (ValueError, KeyError):
        # Released machines are metered even without a readable specification.
        return None
