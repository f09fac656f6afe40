"""What a company, a team or a project may spend in a month, and how far it is. Pure."""

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
_HUNDRED = 100
_NANO = 10**9
# Team and project of money, as the ledger has them.
Spent = Mapping[tuple[str, str | None], Usd]


class Scope(StrEnum):
    """Whose money counts."""

    ALL = "all"
    TEAM = "team"
    PROJECT = "project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """So many dollars a month from ``since`` on, until a later one of the same ``scope`` and ``name`` ("" of all).
    ``usd`` None: there is none any more. ``hard``: plans and orders that go over it are refused. ``warn``: percents at
    which people are told. ValueError when that does not hold."""

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
        """As people say it: ``team research``, ``all``."""
        return f"{self.scope.value} {self.name}".strip()

    def counts(self, team: str, project: str | None) -> bool:
        """Whether money of these counts."""
        return self.scope is Scope.ALL or self.name == (team if self.scope is Scope.TEAM else project)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a budget is in a month. ``running``: what machines cost that no entry has yet; ``forecast``: what the
    month is likely to come to; None where nobody knows."""

    budget: Budget
    usd: Usd
    spent: Usd
    running: Usd | None = None
    forecast: Usd | None = None

    @property
    def used(self) -> Usd:
        """What is spent, and what runs."""
        return self.spent + (self.running or ZERO)

    @property
    def percent(self) -> int | None:
        """Whole percents used, cut; None of a budget of nothing."""
        return _HUNDRED * self.used.nanos // self.usd.nanos if self.usd.nanos else None

    @property
    def share(self) -> Decimal | None:
        """The part used, to nine places, half to even; None of a budget of nothing."""
        return Decimal(round(Fraction(self.used.nanos * _NANO, self.usd.nanos))) / _NANO if self.usd.nanos else None

    @property
    def passed(self) -> tuple[int, ...]:
        """The percents of warnings that are reached."""
        return tuple(mark for mark in self.budget.warn if _HUNDRED * self.used.nanos >= mark * self.usd.nanos)

    @property
    def is_over(self) -> bool:
        """More is spent than was to be."""
        return self.used > self.usd

    @property
    def will_be_over(self) -> bool:
        """It is not over, and is likely to be at the month's end."""
        return not self.is_over and self.forecast is not None and self.forecast > self.usd


def set_by(budgets: Iterable[Budget], moment: datetime | None) -> tuple[Budget, ...]:
    """Those that were set until the moment; all where it is None."""
    return tuple(each for each in budgets if moment is None or each.at <= moment)


def holding(budgets: Iterable[Budget], month: Month) -> tuple[Budget, ...]:
    """Those that hold in a month: of each scope and name the latest that had begun, and of several of one month the one
    that was set last; all, then teams, then projects."""
    found: dict[tuple[Scope, str], Budget] = {}
    for budget in sorted(budgets, key=lambda each: (each.since, each.at)):
        if budget.since <= month:
            found[budget.scope, budget.name] = budget
    order = list(Scope)
    ordered = sorted(found.values(), key=lambda each: (order.index(each.scope), each.name))
    return tuple(each for each in ordered if each.usd is not None)


def spent_of(budget: Budget, spent: Spent) -> Usd:
    """What of the money counts towards the budget."""
    return Usd.total(usd for (team, project), usd in spent.items() if budget.counts(team, project))
