"""Count what has left each cloud this month before the plan: on the meters, and of the free allowance."""

from __future__ import annotations

from pricing.egress import INTERNET, Tariff
from pricing.units import gb_to_bytes
from router.planning.problem.problem import PlacementProblem


def already_moved(problem: PlacementProblem, tariff: Tariff, month: str) -> int:
    """Return the bytes that count on the meter before this plan.

    That is the limits file's figure, this month, on internet meters.
    """
    return moved_before(problem, tariff.cloud, month) if tariff.scope == INTERNET else 0


def allowance_left(problem: PlacementProblem, cloud: str, month: str) -> int:
    """Return the bytes that the account may still move free in the month."""
    return max(0, problem.book.egress.allowances.get(cloud, 0) - moved_before(problem, cloud, month))


def moved_before(problem: PlacementProblem, cloud: str, month: str) -> int:
    """Return the bytes that left the cloud before this plan, as the limits file says; nothing in later months."""
    return gb_to_bytes(problem.limits.egress_month_to_date_gb.get(cloud, 0)) if month == problem.month else 0
