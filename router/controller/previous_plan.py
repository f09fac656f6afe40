"""Remember the last plan that was written or applied, for the next one to keep to."""

from __future__ import annotations

from router.planning.plan import Plan
from router.planning.plan_json import plan_from_json
from router.state.store import StateStore

_KEY = "last plan"


def store_last_plan(store: StateStore, text: str) -> None:
    """Store the text of a plan that was written to a file; it replaces the one before."""
    store.values.set(*last_plan_value(text))


def last_plan_value(text: str) -> tuple[str, str]:
    """Return name and value under which the text of the last plan is stored."""
    return _KEY, text


def last_plan(store: StateStore) -> Plan | None:
    """Return the later one of the last plan that was written and the last that was applied; None without any.

    Later is the plan made for the later moment. Raises InvalidInputError for a plan that this version cannot read.
    """
    texts = [text for text in (store.values.get(_KEY), store.plans.newest()) if text is not None]
    plans = [plan_from_json(text, "the last plan in the state") for text in texts]
    return max(plans, key=lambda plan: plan.as_of, default=None)
