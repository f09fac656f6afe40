"""Budgets of a month as the state knows them: how far each is, and what plans are held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from pricing.money import Usd
from router.jobs.limits import Limits
from router.ledger.budget import Budget, Standing, holding, spent_of
from router.ledger.month import Month
from router.running.budgets import with_hard, with_spent
from router.showback.report.asked import Budgeted
from router.showback.report.forecast import forecast

if TYPE_CHECKING:
    from router.state.records import NodeRecord
    from router.state.store import Store

_DAY = timedelta(days=1)
# Days that a forecast looks back, as a report's does.
_DAYS = 28
_CURRENCY = "USD"
Whose = tuple[str, str | None]


def spent_now(store: Store, month: Month, now: datetime) -> dict[Whose, Usd]:
    """By team and project: the ledger's entries of the month, and what machines that still run have cost in it."""
    spent = store.budgets.spent(month)
    if month != Month.of(now):
        return spent
    attempts, nodes = store.overview.alive()
    whose = {attempt.id: (attempt.team, attempt.project) for attempt in attempts}
    for node in nodes:
        key = whose[node.attempt]
        spent[key] = spent.get(key, Usd(0)) + _cost(node, month, now)
    return spent


def standings(store: Store, month: Month, now: datetime) -> tuple[Standing, ...]:
    """Of every budget that holds in the month. The forecast is a report's: what is spent, and for the rest of the month
    the daily mean of what was metered on up to 28 days before ``now``; of the current month alone."""
    budgets = holding(store.budgets.all(), month)
    if not budgets:
        return ()
    spent = spent_now(store, month, now)
    daily = _daily(store, now) if month == Month.of(now) else []
    return tuple(_standing(budget, spent, daily, month, now) for budget in budgets)


@dataclass(frozen=True, slots=True)
class Held:
    """What plans are held to: budgets of the month of now, and what is spent by now."""

    budgets: tuple[Budget, ...] = ()
    spent: Mapping[Whose, Usd] = field(default_factory=dict)

    def limits(self, limits: Limits) -> Limits:
        """With the hard budgets of teams, and with what teams have spent where the file does not say it."""
        return with_spent(with_hard(limits, self.budgets), self.spent)


def held_to(store: Store, now: datetime) -> Held:
    """As the state knows it."""
    month = Month.of(now)
    return Held(holding(store.budgets.all(), month), spent_now(store, month, now))


def budgeted(store: Store, month: Month, now: datetime) -> tuple[Budgeted, ...]:
    """The same for a report (:class:`router.showback.report.asked.Beside`)."""
    return tuple(
        Budgeted(
            scope=each.budget.title,
            currency=_CURRENCY,
            budget=_decimal(each.usd),
            hard=each.budget.hard,
            spent=_decimal(each.spent),
            forecast=None if each.forecast is None else _decimal(each.forecast),
        )
        for each in standings(store, month, now)
    )


def _standing(
    budget: Budget, spent: Mapping[Whose, Usd], daily: Sequence[Mapping[Whose, Usd]], month: Month, now: datetime
) -> Standing:
    used = spent_of(budget, spent)
    days = [_decimal(spent_of(budget, day)) for day in daily]
    first = next((number for number, usd in enumerate(days) if usd), len(days))
    likely = forecast(_decimal(used), days[first:], now, month).middle
    return Standing(budget, budget.usd or Usd(0), used, None if likely is None else _usd(likely))


def _daily(store: Store, now: datetime) -> list[dict[Whose, Usd]]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return store.budgets.metered_daily(today - _DAYS * _DAY, _DAYS)


def _cost(node: NodeRecord, month: Month, now: datetime) -> Usd:
    if node.made_at is None:
        return Usd(0)
    since = max(node.made_at, month.begins)
    return node.usd_per_hour.over(max((node.gone_at or now) - since, timedelta(0)))


def _decimal(usd: Usd) -> Decimal:
    return Decimal(str(usd))


def _usd(dollars: Decimal) -> Usd:
    return Usd.parse(f"{dollars:f}")
