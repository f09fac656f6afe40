"""Budgets, and the spending that the ledger records against them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, delete, func, insert, select

from pricing.money import Usd
from router.ledger.budget import Budget, Scope
from router.ledger.entry import ClosedError, LedgerEntryKind
from router.ledger.month import Month
from router.state.columns import storable_text
from router.state.periods import last_closed_month
from router.state.rows import StatePart
from router.state.tables import ATTEMPTS, BUDGETS, LEDGER


class Budgets(StatePart):
    """The budgets of a database."""

    def all(self) -> tuple[Budget, ...]:
        """Return every budget that was set or removed in any month; by scope, name, month and time of setting."""
        query = select(BUDGETS).order_by(BUDGETS.c.scope, BUDGETS.c.name, BUDGETS.c.since, BUDGETS.c.at)
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
            for row in self._rows(query)
        )

    def put(self, budget: Budget) -> None:
        """Set a budget. ClosedError if it would hold in a month that is closed.

        An earlier setting of the same scope, name and month stays, for what was known then; one of the same moment is
        replaced.
        """
        key = {
            "scope": budget.scope.value,
            "name": storable_text(budget.name),
            "since": str(budget.since),
            "at": budget.at,
        }
        values = {
            **key,
            "usd_nanos": None if budget.usd is None else budget.usd.nanos,
            "hard": int(budget.hard),
            "warn": list(budget.warn),
            "who": storable_text(budget.who),
        }
        # Writers of the ledger take this lock too, so no month is closed meanwhile.
        with self._database.write(LEDGER.name) as connection:
            closed = last_closed_month(connection)
            if closed is not None and budget.since <= closed:
                raise ClosedError(
                    f"{budget.title}: the books of {closed} are closed, and a budget from {budget.since} on would hold "
                    f"in them; `--from {closed.next}` is the first open month"
                )
            connection.execute(delete(BUDGETS).where(and_(*(BUDGETS.c[name] == value for name, value in key.items()))))
            connection.execute(insert(BUDGETS), [values])

    def knows_owner(self, scope: Scope, name: str) -> bool:
        """Return whether an entry of the ledger, or an attempt, is of the team or project."""
        columns = [table.c[scope.value] for table in (ATTEMPTS, LEDGER)]
        return any(self._rows(select(column).where(column == name).limit(1)) for column in columns)

    def spent(self, month: Month) -> dict[tuple[str, str | None], Usd]:
        """Return the spending in the books of a month, by team and project, as reports count it.

        It is what was metered and added by people. Archived entries are not counted.
        """
        team, project = LEDGER.c.team, LEDGER.c.project
        which = and_(LEDGER.c.kind != LedgerEntryKind.PLANNED, LEDGER.c.period == str(month))
        query = select(team, project, func.sum(LEDGER.c.usd_nanos)).where(which).group_by(team, project)
        return {(team, project): Usd(int(nanos)) for team, project, nanos in self._rows(query)}

    def used_since(self, since: datetime) -> tuple[tuple[str, datetime, Usd], ...]:
        """Return team, end and dollars of what was metered and ended after ``since``.

        Archived entries are not counted.
        """
        team, end = LEDGER.c.team, LEDGER.c.end_at
        which = and_(LEDGER.c.kind == LedgerEntryKind.METERED, end > since)
        query = select(team, end, func.sum(LEDGER.c.usd_nanos)).where(which).group_by(team, end).order_by(team, end)
        return tuple((team, end, Usd(int(nanos))) for team, end, nanos in self._rows(query))
