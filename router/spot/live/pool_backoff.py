"""How long a pool is left alone that took machines back or could not be had: longer each time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from router.spot.live.policy_adapter import Steered
from router.spot.policies.deadline_guard import SafetyNet
from router.spot.policies.interface import Policy

REMEMBERED = timedelta(hours=6)
_LONGEST = timedelta(hours=6)
_MOST_DOUBLINGS = 10
# A stretch that ends less than that share later is not worth remembering.
_MUCH_LONGER = 0.1
Stretch = tuple[datetime, datetime]


def models_availability(policy: Policy) -> bool:
    """Whether the policy reckons itself with how often pools are lost and come back, and so decides about them."""
    inner = policy.inner if isinstance(policy, SafetyNet) else policy
    return isinstance(inner, Steered) and inner.apart


def is_closed(stretch: Stretch, now: datetime, first: timedelta, *, modelled: bool) -> bool:
    """Whether a pool is left alone ``now``; under a policy that models availability for ``first`` at most."""
    at, until = stretch
    return now < (min(until, at + first) if modelled else until)


def until_left_alone(lately: Iterable[Stretch], now: datetime, first: timedelta) -> datetime | None:
    """Until when a pool is left alone that was lost ``now``; None where it is left alone for about as long already.
    ``lately``: stretches, from and until, that began in the last :data:`REMEMBERED`; ``first``: the first time's."""
    times, until = _times(lately, now)
    length = min(_LONGEST, first * (1 << min(times, _MOST_DOUBLINGS)))
    return now + length if length and now + length - until > length * _MUCH_LONGER else None


def _times(lately: Iterable[Stretch], now: datetime) -> tuple[int, datetime]:
    """How many times that are past by now it was left alone, and until when it is (now: it is not)."""
    past, until = 0, None
    for at, its in sorted(lately):
        if until is not None and at >= until:
            past += 1
        until = its if until is None else max(until, its)
    if until is None:
        return 0, now
    return (past + 1, now) if until <= now else (past, until)
