"""Compute how much of each budget of a month is used, and the budgets that plans must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.money import Usd
from router.app.bill_views import View, budgets_in, view_of
from router.app.showback import bills_stand, month_books
from router.controller.budgets import with_hard, with_spent
from router.jobs.limits import Limits
from router.ledger.budget import Budget, Standing, holding, spent_of
from router.ledger.month import Month
from router.showback.report.context import Setting
from router.showback.report.forecast import daily_by_owner, every_day, forecast
from router.showback.report.query import Asked, Beside, Budgeted

if TYPE_CHECKING:
    from router.state.records import NodeRecord
    from router.state.store import Store

CURRENCY = "USD"
_NANOS = 10**9
Whose = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Far:
    """The use of a month's budgets.

    ``others``: costs of the month in other currencies, by currency: they are in no budget.
    """

    standings: tuple[Standing, ...]
    others: Mapping[str, Decimal]


def how_far(store: Store, asked: Asked, extracts: Path, bills: Path) -> Far:
    """Return every budget in force in the month, with the figures of its report (:mod:`router.app.showback`)."""
    if not budgets_in(view_of(store, bills, asked.month, asked.as_of), store, asked.month):
        return Far((), {})
    with month_books(store, asked, extracts, bills) as books:
        setting = Setting(books.cubes, asked, Beside(origin="", input_hash="", past=books.past))
        rows = setting.cubes.ask(
            f"SELECT currency, sum({setting.cost}) AS cost FROM sums WHERE {setting.spent} "
            f"AND currency <> '{CURRENCY}' GROUP BY ALL HAVING cost IS NOT NULL ORDER BY currency"
        )
        return Far(standings(store, setting, books.view), {row["currency"]: row["cost"] for row in rows})


def standings(store: Store, setting: Setting, view: View) -> tuple[Standing, ...]:
    """Return the use of every budget in force in the requested month, whose view it is."""
    return tuple(standing for standing, _ in _statuses_with_spent(store, setting, view))


def budgeted(store: Store, setting: Setting, view: View) -> tuple[Budgeted, ...]:
    """Return the same for a report (:class:`router.showback.report.query.ReportInputs`)."""
    return tuple(
        Budgeted(
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


def _statuses_with_spent(store: Store, setting: Setting, view: View) -> Iterable[tuple[Standing, Decimal]]:
    """Return the use of each budget with what is spent, of all digits.

    The forecast is the report's: what is spent and runs, and for the rest of the month the daily mean of usage on up to
    28 days before now; of the current month alone.
    """
    asked = setting.asked
    budgets = budgets_in(view, store, asked.month)
    if not budgets:
        return []
    spent = spent_by_owner(setting)
    running = None if setting.beside.past else running_now(store, asked.month, asked.now)
    daily, today = daily_by_owner(setting, CURRENCY)
    return [_standing(budget, setting, spent, running, daily, today) for budget in budgets]


def spent_by_owner(setting: Setting) -> dict[Whose, Decimal]:
    """Return what is spent by team ("" where none is named) and project, in dollars, on the requested basis."""
    rows = setting.cubes.ask(
        f"SELECT coalesce(team, '') AS team, project, sum({setting.cost}) AS cost FROM sums "
        f"WHERE {setting.spent} AND currency = '{CURRENCY}' GROUP BY ALL"
    )
    return {(row["team"], row["project"]): row["cost"] or Decimal(0) for row in rows}


def running_now(store: Store, month: Month, now: datetime) -> dict[Whose, Usd]:
    """Return by team and project what machines that still run have cost so far in the month.

    No entry has these costs yet.
    """
    costs: dict[Whose, Usd] = {}
    if month != Month.of(now):
        return costs
    attempts, nodes = store.overview.alive()
    owners = {attempt.id: (attempt.team, attempt.project) for attempt in attempts}
    for node in nodes:
        owner = owners[node.attempt]
        costs[owner] = costs.get(owner, Usd(0)) + _cost(node, month, now)
    return costs


def spent_now(store: Store, month: Month, now: datetime, places: Places | None = None) -> dict[Whose, Usd]:
    """Return by team and project what budgets count: the month's costs as its report states them, and what runs.

    Without a bill of the month that is the ledger's alone, and no bill is read.
    """
    if places is not None and bills_stand(store, places.bills, month):
        asked = Asked(month=month, now=now)
        with month_books(store, asked, places.extracts, places.bills) as books:
            setting = Setting(books.cubes, asked, Beside(origin="", input_hash=""))
            spent = {whose: _usd(amount) for whose, amount in spent_by_owner(setting).items()}
    else:
        spent = store.budgets.spent(month)
    for whose, usd in running_now(store, month, now).items():
        spent[whose] = spent.get(whose, Usd(0)) + usd
    return spent


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of the ledger's extract and of imported bills."""

    extracts: Path
    bills: Path


@dataclass(frozen=True, slots=True)
class Held:
    """The budgets in force in the current month, and what is spent by now."""

    budgets: tuple[Budget, ...] = ()
    spent: Mapping[Whose, Usd] = field(default_factory=dict)

    def limits(self, limits: Limits) -> Limits:
        """Return the limits with the hard budgets of teams added.

        What teams have spent is added too, where the file does not state it.
        """
        return with_spent(with_hard(limits, self.budgets), self.spent)


def held_to(store: Store, now: datetime, places: Places | None = None) -> Held:
    """Return the budgets as the state knows them, with the bills of the month where ``places`` are given."""
    month = Month.of(now)
    return Held(holding(store.budgets.all(), month), spent_now(store, month, now, places))


def _standing(
    budget: Budget,
    setting: Setting,
    spent: Mapping[Whose, Decimal],
    running: Mapping[Whose, Usd] | None,
    daily: Mapping[Whose, Mapping[int, Decimal]],
    today: int,
) -> tuple[Standing, Decimal]:
    used = sum((amount for whose, amount in spent.items() if budget.counts(*whose)), Decimal(0))
    runs = None if running is None else spent_of(budget, running)
    days: dict[int, Decimal] = {}
    for whose, costs in daily.items():
        for day, cost in costs.items() if budget.counts(*whose) else ():
            days[day] = days.get(day, Decimal(0)) + cost
    booked = used + _decimal(runs or Usd(0))
    likely = forecast(booked, every_day(days, today), setting.asked.now, setting.asked.month).middle
    expected = None if likely is None else _usd(likely)
    return Standing(budget, budget.usd or Usd(0), _usd(used), runs, expected), used


def _cost(node: NodeRecord, month: Month, now: datetime) -> Usd:
    if node.made_at is None:
        return Usd(0)
    since = max(node.made_at, month.begins)
    return node.usd_per_hour.over(max((node.gone_at or now) - since, timedelta(0)))


def _decimal(usd: Usd) -> Decimal:
    return Decimal(str(usd))


def _usd(dollars: Decimal) -> Usd:
    return Usd(round(Fraction(dollars) * _NANOS))
