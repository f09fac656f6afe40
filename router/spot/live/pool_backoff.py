"""Backoff of spot pools: how long a pool is avoided after an interruption or a refusal; longer each time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.interface import Policy

BACKOFF_MEMORY = timedelta(hours=6)
_LONGEST = timedelta(hours=6)
_MOST_DOUBLINGS = 10
# A period that ends later by less than this share is not worth storing.
_MUCH_LONGER = 0.1
BackoffPeriod = tuple[datetime, datetime]


def models_availability(policy: Policy) -> bool:
    """Return whether the policy models how often pools are lost and return, and so decides about them."""
    inner = policy.inner if isinstance(policy, DeadlineGuard) else policy
    return isinstance(inner, PolicyAdapter) and inner.live.models_losses


def is_backing_off(stretch: BackoffPeriod, now: datetime, first: timedelta, *, modelled: bool) -> bool:
    """Return whether a pool is avoided ``now``; under a policy that models availability for ``first`` at most."""
    at, until = stretch
    return now < (min(until, at + first) if modelled else until)


def compute_backoff_end(lately: Iterable[BackoffPeriod], now: datetime, first: timedelta) -> datetime | None:
    """Return until when a pool that was lost ``now`` is avoided; None where it is avoided about as long already.

    ``lately`` are the periods, from and until, that began in the last :data:`BACKOFF_MEMORY`; ``first`` is the length
    of the first one.
    """
    times, until = _count_periods(lately, now)
    length = min(_LONGEST, first * (1 << min(times, _MOST_DOUBLINGS)))
    return now + length if length and now + length - until > length * _MUCH_LONGER else None


def _count_periods(lately: Iterable[BackoffPeriod], now: datetime) -> tuple[int, datetime]:
    """Return the number of past periods, and until when the present one lasts (now: there is none)."""
    past, until = 0, None
    for at, end in sorted(lately):
        if until is not None and at >= until:
            past += 1
        until = end if until is None else max(until, end)
    if until is None:
        return 0, now
    return (past + 1, now) if until <= now else (past, until)
