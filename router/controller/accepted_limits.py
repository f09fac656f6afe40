"""The limits that a plan was accepted with: a job that has to move keeps to them."""

from __future__ import annotations

from router.jobs.limits import Limits
from router.state.store import Store


def keep_limits(store: Store, plan: str, limits: Limits) -> None:
    """Remembers the limits of a plan; a later acceptance of it replaces them."""
    store.set_value(_name(plan), limits.model_dump_json())


def has_limits(store: Store, plan: str) -> bool:
    """Whether any are known."""
    return store.value(_name(plan)) is not None


def limits_text(store: Store, plan: str) -> str:
    """Them as JSON, the same text for the same limits; no limits where none are known."""
    return store.value(_name(plan)) or Limits.none().model_dump_json()


def _name(plan: str) -> str:
    return f"limits {plan}"
