"""Budgets, and what the ledger says was spent of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select

from pricing.money import Usd
from router.ledger.budget import Budget, Scope
from router.ledger.entry import Kind
from router.ledger.month import Month
from router.state.database import Database
from router.state.forms import kept
from router.state.tables import BUDGETS, LEDGER

_ADDED = tuple(kind for kind in Kind if kind.is_added)
_DAY = timedelta(days=1)


class Budgets:
    """The budgets of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Budget, ...]:
        """Every one that was set, or taken away, in any month; by scope, name and month."""
        query = select(BUDGETS).order_by(BUDGETS.c.scope, BUDGETS.c.name, BUDGETS.c.since)
        with self._database.read() as connection:
            return tuple(
                Budget(
                    scope=Scope(row.scope),
                    name=row.name,
                    since=Month.parse(row.since),
                    usd=None if row.usd_nanos is None else Usd(row.usd_nanos),
                    hard=bool(row.hard),
                    warn=tuple(row.warn),
                    who=row.who,
                    at=row.at,
                )
                for row in connection.execute(query)
            )

    def put(self, budget: Budget) -> None:
        """Sets it; one of the same scope, name and month is replaced."""
        key = {"scope": budget.scope.value, "name": kept(budget.name), "since": str(budget.since)}
        values = {
            **key, "usd_nanos": None if budget.usd is None else budget.usd.nanos, "hard": int(budget.hard),
            "warn": list(budget.warn), "who": kept(budget.who), "at": budget.at,
        }  # fmt: skip
        with self._database.write(BUDGETS.name) as connection:
            connection.execute(delete(BUDGETS).where(and_(*(BUDGETS.c[name] == value for name, value in key.items()))))
            connection.execute(insert(BUDGETS), [values])

    def spent(self, month: Month) -> dict[tuple[str, str | None], Usd]:
        """By team and project: what was metered in the month, whenever it was written down, and what people put into
        its books. Archived entries are not counted."""
        metered = and_(LEDGER.c.kind == Kind.METERED, _begun(month.begins, month.ends))
        added = and_(LEDGER.c.kind.in_(_ADDED), LEDGER.c.period == str(month))
        return self._sums(or_(metered, added))

    def metered_daily(self, since: datetime, days: int) -> list[dict[tuple[str, str | None], Usd]]:
        """By team and project, of each day from ``since`` on: what was metered of time that began in it."""
        begins = [since + number * _DAY for number in range(days)]
        return [self._sums(and_(LEDGER.c.kind == Kind.METERED, _begun(day, day + _DAY))) for day in begins]

    def _sums(self, which: ColumnElement[bool]) -> dict[tuple[str, str | None], Usd]:
        team, project = LEDGER.c.team, LEDGER.c.project
        query = select(team, project, func.sum(LEDGER.c.usd_nanos)).where(which).group_by(team, project)
        with self._database.read() as connection:
            return {(row[0], row[1]): Usd(int(row[2])) for row in connection.execute(query)}


def _begun(since: datetime, until: datetime) -> ColumnElement[bool]:
    return and_(LEDGER.c.start_at >= since, LEDGER.c.start_at < until)
