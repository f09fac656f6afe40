"""Budgets of a month, what counts towards each, and setting or removing one, each within what may be seen or done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pricing.money import ZERO
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.ledger.budget import BUDGET_REMOVE, BUDGET_SET, Budget, Scope, budgets_in_force, budgets_removed
from router.prices.data_folders import bills_folder, extract_folder

if TYPE_CHECKING:
    from datetime import datetime

    from router.app.budgets import MonthBudgets
    from router.ledger.month import Month
    from router.showback.report.query import ReportQuery


#: What is said of a budget whose team or project :func:`owner_is_known` does not know.
UNKNOWN_OWNER = "nobody has spent or planned under that name so far"


class NoBudgetError(Exception):
    """No budget holds that could be removed; the message names it."""


def budget_progress(context: QueryContext, query: ReportQuery) -> MonthBudgets:
    """Return how much of each budget of the month is spent, as its report counts it, of those that may be seen.

    Who sees some teams sees the budgets of these, and of projects that are theirs alone. Raises StateError,
    InvalidInputError, OSError.
    """
    # These take a while to import, which setting a budget has no need of.
    from router.app.budgets import month_budgets
    from router.app.queries.spend import seen_teams

    seen = seen_teams(context)
    if seen is not None:
        query = replace(query, teams=seen if query.teams is None else query.teams & seen)
    return month_budgets(context.store, query, extract_folder(), bills_folder())


def may_set(context: QueryContext, scope: Scope, name: str) -> bool:
    """Return whether who asks may set that budget: of a team with a grant for it, of others with one for all."""
    teams = context.identity.teams(Permission.SET_BUDGETS)
    return teams.is_all or (scope is Scope.TEAM and teams.admits(name))


def require_set(context: QueryContext, scope: Scope, name: str) -> None:
    """Raise AccessDeniedError unless who asks may set that budget."""
    if scope is Scope.TEAM:
        context.identity.require(Permission.SET_BUDGETS, name)
    else:
        context.identity.require_for_all(Permission.SET_BUDGETS)


def set_budget(context: QueryContext, budget: Budget) -> None:
    """Set a budget, with an entry in the audit log. ClosedError where it would hold in closed books."""
    require_set(context, budget.scope, budget.name)
    store = context.store
    store.budgets.put(budget)
    store.audit.add(
        context.identity.name,
        BUDGET_SET,
        "",
        budget.usd or ZERO,
        budget.at,
        budget=budget.title,
        since=str(budget.since),
        hard=budget.hard,
        warn=list(budget.warn),
    )


def owner_is_known(context: QueryContext, scope: Scope, name: str) -> bool:
    """Return whether the ledger or an attempt names that team or project; a budget of all needs none."""
    return scope is Scope.ALL or context.store.budgets.knows_owner(scope, name)


def remove_budget(context: QueryContext, budget: Budget) -> None:
    """Let a budget (without dollars) end, with an entry in the audit log. NoBudgetError, ClosedError."""
    require_set(context, budget.scope, budget.name)
    store = context.store
    in_force = budgets_in_force(store.budgets.all(), budget.since)
    if not any((each.scope, each.name) == (budget.scope, budget.name) for each in in_force):
        raise NoBudgetError(f"no budget of {budget.title} holds in {budget.since}")
    store.budgets.put(budget)
    store.audit.add(
        context.identity.name, BUDGET_REMOVE, "", ZERO, budget.at, budget=budget.title, since=str(budget.since)
    )


def removed_budgets(context: QueryContext, month: Month) -> tuple[tuple[Budget, Budget], ...]:
    """Return the removals that begin to hold in a month, each with the budget that it ended, of what may be set."""
    found = budgets_removed(context.store.budgets.all(), month)
    return tuple(each for each in found if may_set(context, each[0].scope, each[0].name))


def restore_budget(context: QueryContext, scope: Scope, name: str, since: Month, at: datetime) -> None:
    """Set a budget again as it was before its removal. NoBudgetError where none was removed then, ClosedError."""
    require_set(context, scope, name)
    for removal, before in removed_budgets(context, since):
        if (removal.scope, removal.name) == (scope, name):
            set_budget(context, replace(before, since=since, who=context.identity.name, at=at))
            return
    raise NoBudgetError(f"no budget of {f'{scope.value} {name}'.strip()} was removed from {since} on")
