"""Interruption rates from observations: how often a pool with machines was later observed without any.

The estimate is the posterior mean of a Gamma-Poisson model. Losses in an exposure of T hours are Poisson with mean r T;
before any observation, r is Gamma-distributed with shape ``prior_rate * prior_hours`` and rate ``prior_hours``, so that
its mean is ``prior_rate`` and it weighs as much as ``prior_hours`` hours of observation. After n losses in T hours:

    E[r] = (n + prior_rate * prior_hours) / (T + prior_hours)        per hour

Limits of the model: a probe asks for a fresh machine, and a pool that has none to give may leave running ones alone. In
the four zones where both were recorded, falls of probes and losses of held machines were of the same order (0.35 and
0.45 an hour, docs/design/005-interruption-priors.md), which is the only ground for using one in place of the other. A
cloud's list of what is for sale is no probe at all. Falls between two observations that both found machines are not
counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pricing.units import hours


@dataclass(frozen=True, slots=True)
class Exposure:
    """Hours in which a machine could be obtained (``hours``), and how often that ended (``losses``)."""

    hours: float = 0.0
    losses: int = 0


def measure_exposure(observations: Iterable[tuple[datetime, bool]], longest_gap: timedelta) -> Exposure:
    """Return exposure and losses of one pool, observed at strictly increasing moments (ValueError otherwise).

    An observation holds until the next: an available one counts its whole interval, and a loss when the next is not
    available. An interval longer than ``longest_gap`` counts neither, since nobody observed the pool. At a rate r and a
    gap g the whole interval overstates the time at risk by a factor of about 1 + r g / 2.
    """
    exposed, losses = timedelta(0), 0
    before: tuple[datetime, bool] | None = None
    for at, available in observations:
        if before is not None:
            gap = at - before[0]
            if gap <= timedelta(0):
                raise ValueError(f"observations are not in the order of time at {at.isoformat()}")
            if before[1] and gap <= longest_gap:
                exposed += gap
                losses += not available
        before = (at, available)
    return Exposure(hours(exposed), losses)


def estimate_loss_rate(seen: Exposure, prior_rate: float, prior_hours: float) -> float:
    """Return losses per hour, between the observed rate and ``prior_rate`` (per hour).

    The prior weighs ``prior_hours``. ValueError for a negative rate or a weight that is not above zero. The result is
    above zero whenever ``prior_rate`` is.
    """
    if not (prior_rate >= 0 and prior_hours > 0):
        raise ValueError("the prior needs a rate of at least 0 and a weight above 0 hours")
    return (seen.losses + prior_rate * prior_hours) / (seen.hours + prior_hours)
