"""Store the limits that a plan was accepted with; a job that has to move stays within them."""

from __future__ import annotations

from router.jobs.limits import Limits
from router.state.store import StateStore


def store_limits(store: StateStore, plan: str, limits: Limits) -> None:
    """Store the limits of a plan; a later acceptance of the same plan replaces them."""
    store.values.set(_store_key(plan), limits.model_dump_json())


def has_limits(store: StateStore, plan: str) -> bool:
    """Return whether limits are stored for the plan."""
    return store.values.get(_store_key(plan)) is not None


def limits_json(store: StateStore, plan: str) -> str:
    """Return the stored limits as JSON, or empty limits where none are stored.

    The same limits always give the same text.
    """
    return store.values.get(_store_key(plan)) or Limits.none().model_dump_json()


def _store_key(plan: str) -> str:
    return f"limits {plan}"
