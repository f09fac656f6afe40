"""The independent checker: everything that a plan promises, worked out again from jobs, book and limits.

It shares no code with the program; design note placement-program is its only authority.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pricing.book import PriceBook
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from tests.support import (
    check_carbon,
    check_commitments,
    check_cost_terms,
    check_money,
    check_place,
    check_precedence,
    check_time,
)
from tests.support.plan_view import View

CHECKS = (
    check_time.check_windows,
    check_time.check_latest_start,
    check_time.check_one_gang,
    check_time.check_shared,
    check_time.check_reservations,
    check_time.check_runs,
    check_time.check_max_moves,
    check_time.check_maintenance,
    check_time.check_lateness,
    check_place.check_places,
    check_place.check_groups,
    check_place.check_placement,
    check_place.check_gangs,
    check_place.check_prices,
    check_place.check_max_price,
    check_place.check_fallbacks,
    check_money.check_line_costs,
    check_money.check_moves,
    check_money.check_egress_caps,
    check_money.check_budgets,
    check_money.check_totals,
    check_money.check_status,
    check_precedence.check_precedence,
    check_precedence.check_preempted,
    check_precedence.check_fair_share,
    check_cost_terms.check_cost_terms,
    check_cost_terms.check_stated_quantities,
    check_carbon.check_carbon,
    check_commitments.check_commitments,
)


def check_plan(
    plan: Plan,
    jobs: Sequence[Job],
    book: PriceBook,
    limits: Limits,
    *,
    advisory: bool = False,
    slot: timedelta | None = None,
) -> list[str]:
    """All violations, in words; none for a plan that keeps its promises. ``slot`` checks slot edges too."""
    view = View(plan, tuple(jobs), book, limits, advisory, slot)
    return [f"{check.__name__}: {violation}" for check in CHECKS for violation in check(view)]
