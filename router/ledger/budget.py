"""Define what a company, a team or a project may spend in a month, and its use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from pricing.money import ZERO, Usd
from router.ledger.month import Month

WARN = (50, 80, 100)
#: What the audit log calls setting a budget, and removing one.
BUDGET_SET, BUDGET_REMOVE = "budget set", "budget remove"
_HUNDRED = 100
_NANO = 10**9
# Money by team and project, as in the ledger.
SpentByOwner = Mapping[tuple[str, str | None], Usd]


class Scope(StrEnum):
    """The owner whose money counts."""

    ALL = "all"
    TEAM = "team"
    PROJECT = "project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """An amount in dollars for each month from ``since`` on, until a later one of the same ``scope`` and ``name``.

    ``name`` is "" for a budget of all. ``usd`` None: the budget ends. ``hard``: plans and orders that exceed it are
    refused. ``warn``: percents at which people are warned. ValueError when that does not hold.
    """

    scope: Scope
    name: str
    since: Month
    usd: Usd | None
    hard: bool = False
    warn: tuple[int, ...] = WARN
    who: str = ""
    at: datetime

    def __post_init__(self) -> None:
        if (self.scope is Scope.ALL) != (self.name == ""):
            raise ValueError("a budget is of all, or of a team or project with a name")
        if self.usd is not None and self.usd < ZERO:
            raise ValueError("a budget is not below zero")
        if list(self.warn) != sorted(set(self.warn)) or any(percent < 1 for percent in self.warn):
            raise ValueError("warnings are at percents above zero, rising, each once")

    @property
    def title(self) -> str:
        """Return the name for people: ``team research``, ``all``."""
        return f"{self.scope.value} {self.name}".strip()

    def counts(self, team: str, project: str | None) -> bool:
        return self.scope is Scope.ALL or self.name == (team if self.scope is Scope.TEAM else project)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The use of a budget in a month.

    ``running``: what machines cost that no entry has yet; ``forecast``: what the month is likely to come to; None where
    that is not known.
    """

    budget: Budget
    usd: Usd
    spent: Usd
    running: Usd | None = None
    forecast: Usd | None = None

    @property
    def used(self) -> Usd:
        """Return what is spent, and what runs."""
        return self.spent + (self.running or ZERO)

    @property
    def percent(self) -> int | None:
        """Return whole percents used, cut; None of a budget of nothing."""
        return _HUNDRED * self.used.nanos // self.usd.nanos if self.usd.nanos else None

    @property
    def share(self) -> Decimal | None:
        """Return the part used, to nine places, half to even; None of a budget of nothing."""
        return Decimal(round(Fraction(self.used.nanos * _NANO, self.usd.nanos))) / _NANO if self.usd.nanos else None

    @property
    def passed(self) -> tuple[int, ...]:
        """Return the percents of warnings that are reached."""
        return tuple(mark for mark in self.budget.warn if _HUNDRED * self.used.nanos >= mark * self.usd.nanos)

    @property
    def is_over(self) -> bool:
        return self.used > self.usd

    @property
    def will_be_over(self) -> bool:
        """Return whether it is not over, and is likely to be at the month's end."""
        return not self.is_over and self.forecast is not None and self.forecast > self.usd


def parse_percents(text: str) -> tuple[int, ...]:
    """Return the whole percents of a text such as ``50, 80 %``; ValueError for another."""
    try:
        return tuple(int(each.strip().removesuffix("%")) for each in text.split(",") if each.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no list of percents") from None


def budgets_set_by(budgets: Iterable[Budget], moment: datetime | None) -> tuple[Budget, ...]:
    """Return the budgets that were set until the moment; all where it is None."""
    return tuple(each for each in budgets if moment is None or each.at <= moment)


def budgets_in_force(budgets: Iterable[Budget], month: Month) -> tuple[Budget, ...]:
    """Return the budgets in force in a month: all, then teams, then projects.

    For each scope and name that is the latest that had begun; of several of one month the one that was set last.
    """
    in_force: dict[tuple[Scope, str], Budget] = {}
    for budget in sorted(budgets, key=lambda change: (change.since, change.at)):
        if budget.since <= month:
            in_force[budget.scope, budget.name] = budget
    order = list(Scope)
    ordered = sorted(in_force.values(), key=lambda change: (order.index(change.scope), change.name))
    return tuple(each for each in ordered if each.usd is not None)


def budgets_removed(budgets: Iterable[Budget], month: Month) -> tuple[tuple[Budget, Budget], ...]:
    """Return the budgets that end with a month: the removal that holds, and the budget that it ended."""
    own: dict[tuple[Scope, str], list[Budget]] = {}
    for budget in sorted(budgets, key=lambda change: (change.since, change.at)):
        if budget.since <= month:
            own.setdefault((budget.scope, budget.name), []).append(budget)
    ended = [(each[-1], next((b for b in reversed(each) if b.usd is not None), None)) for each in own.values()]
    return tuple((last, before) for last, before in ended if last.usd is None and last.since == month and before)


def spent_of(budget: Budget, spent: SpentByOwner) -> Usd:
    """Return the part of the money that counts towards the budget."""
    return Usd.total(usd for (team, project), usd in spent.items() if budget.counts(team, project))
