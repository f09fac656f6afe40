"""When the job of an attempt had to be done."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from router.controller.workspaces import job_of
from router.state.records import Attempt
from router.state.store import Store


def as_of(store: Store, attempt: Attempt) -> datetime:
    """When the plan of the attempt was made, which is what relative times of its jobs count from; without that plan,
    when the attempt was."""
    plan = store.plan(attempt.plan)
    return attempt.created_at if plan is None else datetime.fromisoformat(json.loads(plan)["as_of"]).astimezone(UTC)


def deadline_of(store: Store, attempt: Attempt) -> datetime | None:
    """None where its job has none, or where its specification is not in the state, or not to be read any more."""
    text = store.job(attempt.job_digest)
    try:
        deadline = None if text is None else job_of(text).deadline
        return None if deadline is None else deadline.at(as_of(store, attempt))
    except (ValueError, KeyError):
        # Machines that are gone are metered all the same.
        return None
