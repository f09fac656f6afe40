"""Closed months: the books are closed once, for good, in order, each with a seal over the sources of its report.

The hash of a seal is over the closing (month, time, who, the number and hash of the last entry), the seal, and the hash
of the seal before. One hash that is noted elsewhere therefore attests to all entries, bills, budgets and figures before
it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Index, func, insert, select

from pricing.money import Usd
from router.ledger.entry import LedgerEntryKind
from router.ledger.month import Month
from router.state.columns import canonical_json, storable_text
from router.state.errors import ConcurrentChangeError, ExistsError, StateError
from router.state.ledger_rows import BEGINNING
from router.state.ledger_table import read_head
from router.state.records import AuditEntry
from router.state.rows import StatePart, read_last_seq, read_records, record_values
from router.state.tables import BUDGETS, LEDGER, LEDGER_ARCHIVES, record_table, row_number


@dataclass(frozen=True, slots=True)
class PeriodClosing:
    """A month whose books ``who`` closed at ``closed_at``, with all months before it.

    ``head`` and ``hash``: the last row at that time. ``seal``: JSON text of the sources of its report beside the
    entries, "" where it was closed without one.
    """

    period: Month
    closed_at: datetime
    who: str
    head: int
    hash: str
    seal: str = ""
    seal_hash: str = ""

    @property
    def sealed(self) -> Mapping[str, Any]:
        """The content of the seal; empty if there is none."""
        seal: Mapping[str, Any] = json.loads(self.seal) if self.seal else {}
        return seal


LEDGER_PERIODS = record_table(
    "ledger_periods", PeriodClosing, row_number(), Index("ledger_periods_by_period", "period", unique=True)
)


@dataclass(frozen=True, slots=True)
class PeriodTotal:
    """The total of one kind of entry in the books of a month, archived entries included."""

    period: Month
    kind: LedgerEntryKind
    entries: int
    usd: Usd
    archived: int


class LedgerPeriods(StatePart):
    """The months of a ledger."""

    def closings(self) -> tuple[PeriodClosing, ...]:
        """Return all closings, in order."""
        with self._database.read() as connection:
            return read_closings(connection)

    def closable(self, period: Month, at: datetime) -> None:
        """Check that the books of a month can be closed.

        ExistsError if they are closed; StateError before the month is over, or while an earlier one that has entries is
        open.
        """
        with self._database.read() as connection:
            _check_closable(connection, period, at)

    def close(
        self, period: Month, *, who: str, at: datetime, seal: Mapping[str, Any] | None = None, head: int | None = None
    ) -> PeriodClosing:
        """Close the books of a month, for good.

        ``seal``: the sources of its report, JSON data; the budgets that hold are added to it. ConcurrentChangeError
        unless ``head`` is the last entry's number; otherwise the errors of :meth:`closable`.
        """
        with self._database.write(LEDGER.name) as connection:
            _check_closable(connection, period, at)
            last, this = read_head(connection)
            if head is not None and head != last:
                raise ConcurrentChangeError(f"the ledger has {last} entries now, not {head}", "close it again")
            row = PeriodClosing(period, at, storable_text(who), last, this)
            if seal is not None:
                text = canonical_json({**seal, "budgets": read_budgets(connection, period)})
                before = next(
                    (one.seal_hash for one in reversed(read_closings(connection)) if one.seal_hash), BEGINNING
                )
                row = replace(row, seal=text, seal_hash=hash_seal(replace(row, seal=text), before))
            seq = read_last_seq(connection, LEDGER_PERIODS) + 1
            connection.execute(insert(LEDGER_PERIODS), {"seq": seq, **record_values(row)})
            return row

    def sums(self) -> tuple[PeriodTotal, ...]:
        """Return the totals of the books, by month and kind."""
        with self._database.snapshot() as connection:
            found: dict[tuple[str, str], list[int]] = {}
            query = select(LEDGER.c.period, LEDGER.c.kind, func.count(), func.sum(LEDGER.c.usd_nanos))
            for month, kind, count, nanos in connection.execute(query.group_by(LEDGER.c.period, LEDGER.c.kind)):
                found[month, kind] = [count, int(nanos), 0]
            for totals in connection.execute(select(LEDGER_ARCHIVES.c.totals)).scalars():
                for month, kind, count, nanos in totals:
                    known = found.setdefault((month, kind), [0, 0, 0])
                    found[month, kind] = [known[0] + count, known[1] + nanos, known[2] + count]
        ordered = sorted(
            found.items(), key=lambda item: (item[0][0], list(LedgerEntryKind).index(LedgerEntryKind(item[0][1])))
        )
        return tuple(
            PeriodTotal(Month.parse(month), LedgerEntryKind(kind), count, Usd(nanos), archived)
            for (month, kind), (count, nanos, archived) in ordered
        )

    def unpriced(self) -> dict[tuple[Month, LedgerEntryKind], int]:
        """Return how many entries of a month and kind are in no total, because their price is unknown.

        Archived entries are not counted.
        """
        query = select(LEDGER.c.period, LEDGER.c.kind, func.count()).where(LEDGER.c.unpriced == 1)
        rows = self._rows(query.group_by(LEDGER.c.period, LEDGER.c.kind))
        return {(Month.parse(month), kind): count for month, kind, count in rows}


def last_closed_month(connection: Connection) -> Month | None:
    """Return the last closed month, before which all are closed; None if there is none."""
    last: Month | None = connection.execute(select(func.max(LEDGER_PERIODS.c.period))).scalar()
    return last


def read_last_closing(connection: Connection) -> PeriodClosing | None:
    """Return the last closing; None if no month is closed."""
    last = select(LEDGER_PERIODS).order_by(LEDGER_PERIODS.c.seq.desc()).limit(1)
    return next(iter(read_records(connection, LEDGER_PERIODS, last, PeriodClosing)), None)


def closing_name(closing: PeriodClosing | None) -> str:
    """Return a closing's name in later entries: its month and the hash of its seal; "" for None.

    That hash covers all closings before it. Where the month was closed without a seal, it is that of the last entry.
    """
    return "" if closing is None else f"{closing.period} {closing.seal_hash or closing.hash}"


def read_closings(connection: Connection) -> tuple[PeriodClosing, ...]:
    """Return every closing, in order."""
    query = select(LEDGER_PERIODS).order_by(LEDGER_PERIODS.c.seq)
    return tuple(read_records(connection, LEDGER_PERIODS, query, PeriodClosing))


def read_budgets(connection: Connection, period: Month) -> list[dict[str, Any]]:
    """Return every budget that was ever set for the month or one before it, as JSON data."""
    query = select(BUDGETS).where(BUDGETS.c.since <= str(period))
    rows = connection.execute(query.order_by(BUDGETS.c.scope, BUDGETS.c.name, BUDGETS.c.since, BUDGETS.c.at))
    return [{**row._asdict(), "at": _format_moment(row.at)} for row in rows]


def hash_seal(closing: PeriodClosing, before: str) -> str:
    """Return the SHA-256 in hex over a closing and its seal, after the seal whose hash is ``before``."""
    content = [
        before,
        str(closing.period),
        _format_moment(closing.closed_at),
        closing.who,
        closing.head,
        closing.hash,
        closing.seal,
    ]
    return hashlib.sha256(canonical_json(content).encode("ascii")).hexdigest()


def find_seal_problems(closings: Iterable[PeriodClosing]) -> Iterator[str]:
    """Yield a message for each seal that was changed or does not follow the one before."""
    before = BEGINNING
    for one in closings:
        if not one.seal and not one.seal_hash:
            continue
        if one.seal_hash != hash_seal(one, before):
            yield f"the seal of {one.period} is not what was written: somebody changed or removed one"
        before = one.seal_hash


def _format_moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _check_closable(connection: Connection, period: Month, at: datetime) -> None:
    closed = last_closed_month(connection)
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


# What the audit log calls the closing of a month.
CLOSE_ACTION: Final = "ledger close"


@dataclass(frozen=True, slots=True)
class ClosingCheck:
    """The differences between closings and audit log: a closing that is deleted would open a month again.

    ``problems`` are closings that are gone or changed. ``notes`` are closings that the log does not know: as after a
    restored backup, whose audit log is its own, or where the command ended between the two.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...]


def compare_closings(closings: Iterable[PeriodClosing], entries: Iterable[AuditEntry]) -> ClosingCheck:
    """Return what the closings and the entries of :data:`CLOSE_ACTION` say differently."""
    known = {str(closing.period): closing for closing in closings}
    logged = {str(entry.details.get("period")): entry for entry in entries if entry.what == CLOSE_ACTION}
    problems = []
    for month, entry in sorted(logged.items()):
        when = f"{entry.who} closed {month} on {entry.at:%Y-%m-%d} (entry {entry.seq} of the audit log)"
        closing = known.get(month)
        if closing is None:
            problems.append(f"{when}, and its closing is gone: the month is open again")
            continue
        written = (entry.digest, entry.details.get("head"), entry.details.get("seal", ""))
        if (closing.hash, closing.head, closing.seal_hash) != written:
            problems.append(f"{when}, and its closing has another last entry or seal now")
    notes = [
        f"{month} stands as closed by {known[month].who}, and the audit log has no entry of that"
        for month in sorted(known.keys() - logged.keys())
    ]
    return ClosingCheck(tuple(problems), tuple(notes))
