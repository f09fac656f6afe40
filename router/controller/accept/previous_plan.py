"""Find the last plan of a name that was written or applied, for the next one to keep to."""

from __future__ import annotations

from datetime import datetime, timedelta

from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json
from router.state.store import StateStore

_NO_TIME = timedelta(microseconds=1)


def last_plan(store: StateStore, name: str, now: datetime) -> Plan | None:
    """Return the later one of the last plan of a name that was written and the last that was applied; None without any.

    Later is the plan made for the later moment; those for moments after ``now`` do not count. Raises InvalidInputError
    for a plan that this version cannot read.
    """
    written = store.made_plans.newest(1, before=now + _NO_TIME, name=name)
    texts = [store.made_plans.text(row.digest) for row in written]
    applied = store.plans.newest()
    plans = [plan_from_json(text, "the last plan in the state") for text in texts if text is not None]
    if applied is not None:
        plan = plan_from_json(applied, "the last applied plan in the state")
        plans += [plan] if plan.name == name and plan.as_of <= now else []
    return max(plans, key=lambda plan: plan.as_of, default=None)
