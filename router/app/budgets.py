"""Compute how much of each budget of a month is used, and the budgets that plans must keep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.money import Usd
from router.app.bill_views import BooksView, budgets_in, view_of
from router.app.month_books import has_bills, open_month_books
from router.controller.plans import BudgetConstraints, fill_recent_use
from router.jobs.limits import Limits
from router.ledger.budget import Budget, BudgetStatus, Scope, budgets_in_force, spent_of
from router.ledger.entry import CURRENCY
from router.ledger.month import Month
from router.showback.report.query import BudgetUse, ReportContext, ReportInputs, ReportQuery
from router.showback.report.totals import ForecastCosts, query_forecast_costs

if TYPE_CHECKING:
    from router.state.records import NodeRecord
    from router.state.store import StateStore

_NANOS = 10**9
CostOwner = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class MonthBudgets:
    """The use of a month's budgets.

    ``others``: costs of the month in other currencies, by currency: they are in no budget.
    """

    standings: tuple[BudgetStatus, ...]
    others: Mapping[str, Decimal]


def month_budgets(store: StateStore, query: ReportQuery, extracts: Path, bills: Path) -> MonthBudgets:
    """Return every budget in force in the month, with the figures of its report (:mod:`router.app.showback`)."""
    if not budgets_in(view_of(store, bills, query.month, query.as_of), store, query.month):
        return MonthBudgets((), {})
    with open_month_books(store, query, extracts, bills) as books:
        setting = ReportContext(books.rollups, query, ReportInputs(origin="", input_hash="", past=books.past))
        rows = setting.sum_by("currency", "cost", where=f"{setting.spent} AND currency <> '{CURRENCY}'")
        others = {row["currency"]: row["cost"] for row in rows if row["cost"] is not None}
        return MonthBudgets(budget_statuses(store, setting, books.view), others)


def budget_statuses(store: StateStore, setting: ReportContext, view: BooksView) -> tuple[BudgetStatus, ...]:
    """Return the use of every budget in force in the requested month, whose view it is."""
    return tuple(standing for standing, _ in _statuses_with_spent(store, setting, view))


def budget_figures(store: StateStore, setting: ReportContext, view: BooksView) -> tuple[BudgetUse, ...]:
    """Return the same for a report (:class:`router.showback.report.query.ReportInputs`)."""
    return tuple(
        BudgetUse(
            scope=each.budget.title,
            currency=CURRENCY,
            budget=_decimal(each.usd),
            hard=each.budget.hard,
            spent=spent,
            running=None if each.running is None else _decimal(each.running),
            forecast=None if each.forecast is None else _decimal(each.forecast),
        )
        for each, spent in _statuses_with_spent(store, setting, view)
    )


def _statuses_with_spent(
    store: StateStore, setting: ReportContext, view: BooksView
) -> Iterable[tuple[BudgetStatus, Decimal]]:
    """Return the use of each budget with what is spent, of all digits.

    Of a report of some teams these are budgets of which all rows are theirs: of the teams, and of their own projects.
    The forecast is the report's (:mod:`router.showback.report.forecast`), of what counts for the budget.
    """
    query = setting.query
    budgets = budgets_in(view, store, query.month)
    if not budgets:
        return []
    spent = spent_by_owner(setting)
    running = (
        None if setting.beside.past else running_now(store, query.month, query.now, setting.rollups.invoiced_until)
    )
    if query.teams is not None:
        shared = setting.rollups.shared_projects | {each for team, each in running or () if not query.admits(team)}
        own = {project for _, project in spent} - shared
        budgets = tuple(each for each in budgets if _is_theirs(each, query.teams, own))
    costs = query_forecast_costs(setting)
    return [_standing(budget, spent, running, costs) for budget in budgets]


def _is_theirs(budget: Budget, teams: frozenset[str], projects: Collection[str | None]) -> bool:
    return budget.scope is not Scope.ALL and budget.name in (teams if budget.scope is Scope.TEAM else projects)


def spent_by_owner(setting: ReportContext) -> dict[CostOwner, Decimal]:
    """Return what is spent by team ("" where none is named) and project, in dollars, on the requested basis."""
    spent = f"{setting.spent} AND currency = '{CURRENCY}'"
    rows = setting.sum_by("coalesce(team, '') AS team, project", "cost", where=spent)
    return {(row["team"], row["project"]): row["cost"] or Decimal(0) for row in rows}


def running_now(
    store: StateStore, month: Month, now: datetime, invoiced: Mapping[str, datetime] | None = None
) -> dict[CostOwner, Usd]:
    """Return by team and project what machines that still run have cost so far in the month.

    No entry has these costs yet; until the moment by attempt in ``invoiced`` bills have them.
    """
    billed = invoiced or {}
    costs: dict[CostOwner, Usd] = {}
    if month != Month.of(now):
        return costs
    attempts, nodes = store.overview.alive()
    owners = {attempt.id: (attempt.team, attempt.project) for attempt in attempts}
    for node in nodes:
        owner, since = owners[node.attempt], max(month.begins, billed.get(node.attempt, month.begins))
        costs[owner] = costs.get(owner, Usd(0)) + _cost(node, since, now)
    return costs


def spent_now(
    store: StateStore, month: Month, now: datetime, places: BooksFolders | None = None
) -> dict[CostOwner, Usd]:
    """Return by team and project what budgets count: the month's costs as its report states them, and what runs.

    Without a bill of the month that is the ledger's alone, and no bill is read.
    """
    if places is not None and has_bills(store, places.bills, month):
        query = ReportQuery(month=month, now=now)
        with open_month_books(store, query, places.extracts, places.bills) as books:
            setting = ReportContext(books.rollups, query, ReportInputs(origin="", input_hash=""))
            spent = {whose: _usd(amount) for whose, amount in spent_by_owner(setting).items()}
            invoiced = books.rollups.invoiced_until
    else:
        spent, invoiced = store.budgets.spent(month), {}
    for whose, usd in running_now(store, month, now, invoiced).items():
        spent[whose] = spent.get(whose, Usd(0)) + usd
    return spent


@dataclass(frozen=True, slots=True)
class BooksFolders:
    """The folders of the ledger's extract and of imported bills."""

    extracts: Path
    bills: Path


def budget_constraints(store: StateStore, now: datetime, places: BooksFolders | None = None) -> BudgetConstraints:
    """Return the budgets as the state knows them, with the bills of the month where ``places`` are given."""
    month = Month.of(now)
    return BudgetConstraints(budgets_in_force(store.budgets.all(), month), spent_now(store, month, now, places))


_HALF_LIVES = 10  # what is older counts for less than a thousandth


def recent_use(store: StateStore, limits: Limits, now: datetime) -> Limits:
    """Return the limits with the recent use of teams from the ledger, and from machines that still run.

    As they are where no shares are stated.
    """
    if limits.fair_share is None:
        return limits
    used = store.budgets.used_since(now - _HALF_LIVES * limits.fair_share.half_life)
    running = running_now(store, Month.of(now), now)
    present = [(team, now, usd) for (team, _), usd in running.items()]
    return fill_recent_use(limits, (*used, *present), now)


def _standing(
    budget: Budget,
    spent: Mapping[CostOwner, Decimal],
    running: Mapping[CostOwner, Usd] | None,
    costs: ForecastCosts,
) -> tuple[BudgetStatus, Decimal]:
    used = sum((amount for whose, amount in spent.items() if budget.counts(*whose)), Decimal(0))
    runs = None if running is None else spent_of(budget, running)
    parts = costs.forecast(CURRENCY, {"booked": used, "running": _decimal(runs or Usd(0))}, budget.counts)
    expected = _usd(parts[-1].middle) if parts else None
    return BudgetStatus(budget, budget.usd or Usd(0), _usd(used), runs, expected), used


def _cost(node: NodeRecord, since: datetime, now: datetime) -> Usd:
    if node.made_at is None:
        return Usd(0)
    return node.usd_per_hour.over(max((node.gone_at or now) - max(node.made_at, since), timedelta(0)))


def _decimal(usd: Usd) -> Decimal:
    return Decimal(str(usd))


def _usd(dollars: Decimal) -> Usd:
    return Usd(round(Fraction(dollars) * _NANOS))
