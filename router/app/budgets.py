"""Budgets of a month as the state knows them: how far each is, and what plans are held to."""

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
    """How far the budgets of a month are. ``others``: what else the month came to, by currency: it is in no budget."""

    standings: tuple[Standing, ...]
    others: Mapping[str, Decimal]


def how_far(store: Store, asked: Asked, extracts: Path, bills: Path) -> Far:
    """Of every budget that holds in the month, with the figures of its report (:mod:`router.app.showback`)."""
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
    """Of every budget that holds in the month that was asked for, whose view it is."""
    return tuple(standing for standing, _ in _found(store, setting, view))


def budgeted(store: Store, setting: Setting, view: View) -> tuple[Budgeted, ...]:
    """The same for a report (:class:`router.showback.report.query.Beside`)."""
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
        for each, spent in _found(store, setting, view)
    )


def _found(store: Store, setting: Setting, view: View) -> Iterable[tuple[Standing, Decimal]]:
    """Each with what is spent, of all digits. The forecast is a report's: what is spent and runs, and for the rest of
    the month the daily mean of usage on up to 28 days before now; of the current month alone."""
    asked = setting.asked
    budgets = budgets_in(view, store, asked.month)
    if not budgets:
        return []
    spent = spent_by_owner(setting)
    running = None if setting.beside.past else running_now(store, asked.month, asked.now)
    daily, today = daily_by_owner(setting, CURRENCY)
    return [_standing(budget, setting, spent, running, daily, today) for budget in budgets]


def spent_by_owner(setting: Setting) -> dict[Whose, Decimal]:
    """By team ("" where nobody is named) and project, in dollars, on the basis that is asked for."""
    rows = setting.cubes.ask(
        f"SELECT coalesce(team, '') AS team, project, sum({setting.cost}) AS cost FROM sums "
        f"WHERE {setting.spent} AND currency = '{CURRENCY}' GROUP BY ALL"
    )
    return {(row["team"], row["project"]): row["cost"] or Decimal(0) for row in rows}


def running_now(store: Store, month: Month, now: datetime) -> dict[Whose, Usd]:
    """By team and project what machines that still run have cost so far in the month; no entry has them yet."""
    found: dict[Whose, Usd] = {}
    if month != Month.of(now):
        return found
    attempts, nodes = store.overview.alive()
    whose = {attempt.id: (attempt.team, attempt.project) for attempt in attempts}
    for node in nodes:
        key = whose[node.attempt]
        found[key] = found.get(key, Usd(0)) + _cost(node, month, now)
    return found


def spent_now(store: Store, month: Month, now: datetime, places: Places | None = None) -> dict[Whose, Usd]:
    """By team and project what budgets count: what the month came to, as its report says it, and what runs. Without a
    bill of the month that is the ledger's alone, and no bill is looked at."""
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
    """Where the extract of ledgers and imported bills lie."""

    extracts: Path
    bills: Path


@dataclass(frozen=True, slots=True)
class Held:
    """What plans are held to: budgets of the month of now, and what is spent by now."""

    budgets: tuple[Budget, ...] = ()
    spent: Mapping[Whose, Usd] = field(default_factory=dict)

    def limits(self, limits: Limits) -> Limits:
        """With the hard budgets of teams, and with what teams have spent where the file does not say it."""
        return with_spent(with_hard(limits, self.budgets), self.spent)


def held_to(store: Store, now: datetime, places: Places | None = None) -> Held:
    """As the state knows it, and the bills of the month where ``places`` are given."""
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
