"""Months whose books are closed: once, for good, in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, select

from pricing.money import Usd
from router.ledger.entry import Kind
from router.ledger.month import Month
from router.state.database import Database
from router.state.errors import ExistsError, StateError
from router.state.forms import kept
from router.state.ledger_table import last_of
from router.state.rows import last_seq
from router.state.tables import LEDGER, LEDGER_ARCHIVES, LEDGER_PERIODS


@dataclass(frozen=True, slots=True)
class Closing:
    """``who`` closed the books of a month, when, and all before it; ``head`` and ``hash``: the last row then."""

    period: Month
    closed_at: datetime
    who: str
    head: int
    hash: str


@dataclass(frozen=True, slots=True)
class Sum:
    """What the books of a month hold of a kind, archived entries included."""

    period: Month
    kind: Kind
    entries: int
    usd: Usd
    archived: int


class Periods:
    """The months of a ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def closings(self) -> tuple[Closing, ...]:
        """All of them, in order."""
        with self._database.read() as connection:
            return all_closings(connection)

    def close(self, period: Month, *, who: str, at: datetime) -> Closing:
        """Closes the books of a month, for good. ExistsError when they are; StateError before the month is over, or
        while an earlier one that has entries is open."""
        with self._database.write(LEDGER.name) as connection:
            closed = closed_through(connection)
            if closed is not None and period <= closed:
                raise ExistsError(f"the books of {period} are closed already", "see `stepfare ledger periods`")
            if at < period.ends:
                raise StateError(f"{period} is not over", f"close it after {period.ends:%Y-%m-%d %H:%M} UTC")
            earlier = LEDGER.c.period < str(period)
            if closed is not None:
                earlier &= LEDGER.c.period > str(closed)
            first = connection.execute(select(func.min(LEDGER.c.period)).where(earlier)).scalar()
            if first is not None:
                raise StateError(f"{first} has entries and is open", f"close it first: `stepfare ledger close {first}`")
            head, this = last_of(connection)
            row = Closing(period, at, kept(who), head, this)
            seq = last_seq(connection, LEDGER_PERIODS) + 1
            values = {"seq": seq, "period": str(period), "closed_at": at, "who": row.who, "head": head, "hash": this}
            connection.execute(insert(LEDGER_PERIODS), values)
            return row

    def sums(self) -> tuple[Sum, ...]:
        """What is in the books, by month and kind."""
        with self._database.snapshot() as connection:
            found: dict[tuple[str, str], list[int]] = {}
            query = select(LEDGER.c.period, LEDGER.c.kind, func.count(), func.sum(LEDGER.c.usd_nanos))
            for month, kind, count, nanos in connection.execute(query.group_by(LEDGER.c.period, LEDGER.c.kind)):
                found[month, kind] = [count, int(nanos), 0]
            for totals in connection.execute(select(LEDGER_ARCHIVES.c.totals)).scalars():
                for month, kind, count, nanos in totals:
                    known = found.setdefault((month, kind), [0, 0, 0])
                    found[month, kind] = [known[0] + count, known[1] + nanos, known[2] + count]
        ordered = sorted(found.items(), key=lambda item: (item[0][0], list(Kind).index(Kind(item[0][1]))))
        return tuple(
            Sum(Month.parse(month), Kind(kind), count, Usd(nanos), gone)
            for (month, kind), (count, nanos, gone) in ordered
        )

    def unpriced(self) -> dict[tuple[Month, Kind], int]:
        """How many entries of a month and kind are in no sum, for nobody knows their price; archived ones not
        included."""
        query = select(LEDGER.c.period, LEDGER.c.kind, func.count()).where(LEDGER.c.unpriced == 1)
        with self._database.read() as connection:
            rows = connection.execute(query.group_by(LEDGER.c.period, LEDGER.c.kind)).all()
        return {(Month.parse(month), Kind(kind)): count for month, kind, count in rows}


def closed_through(connection: Connection) -> Month | None:
    """The last month that is closed, and with it all before; None where none is."""
    last = connection.execute(select(func.max(LEDGER_PERIODS.c.period))).scalar()
    return None if last is None else Month.parse(last)


def all_closings(connection: Connection) -> tuple[Closing, ...]:
    """Every closing, in order."""
    rows = connection.execute(select(LEDGER_PERIODS).order_by(LEDGER_PERIODS.c.seq))
    return tuple(Closing(Month.parse(row.period), row.closed_at, row.who, row.head, row.hash) for row in rows)
