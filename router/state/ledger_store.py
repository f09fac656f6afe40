"""The ledger in the database: entries are appended after a known head, each key once, none into closed books."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from router.ledger.booking import booked
from router.ledger.entry import Entry, Kind
from router.ledger.month import Month
from router.state.canonical_form import kept
from router.state.database import Database
from router.state.errors import ConflictError, MovedError
from router.state.ledger_checking import Checked, check
from router.state.ledger_columns import Columns
from router.state.ledger_rows import Row, Value, entry_of, happening, key_of, period_of, raw, sealed
from router.state.ledger_table import (
    archived_keys,
    columns_after,
    hash_of_row,
    insert_rows,
    known_rows,
    last_of,
    rows_after,
    rows_of,
    selected,
)
from router.state.periods import closed_through
from router.state.tables import LEDGER

# The default number of rows in one read: some ten megabytes.
_BATCH = 10_000
_ARCHIVED = Month(1, 1)


@dataclass(frozen=True, slots=True)
class _NewEntry:
    entry: Entry
    values: tuple[Value, ...]


class LedgerStore:
    """The ledger of a database. Its entries are numbered 1, 2, 3 ...; the number of the last is the head."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def head(self) -> int:
        """Return the number of the last entry, archived or not; 0 if there is none."""
        with self._database.read() as connection:
            return last_of(connection)[0]

    def append(self, entries: Sequence[Entry], *, after: int) -> int:
        """Append all entries, or none, and return the new head. An entry that exists is skipped.

        An entry exists if the same event was recorded, whenever (:func:`router.state.ledger_rows.event_values`), or its
        key was archived. What was planned or metered in a closed month goes into the books of an open one
        (:func:`router.ledger.booking.booked`).

        ConcurrentChangeError unless ``after`` is the head; ConflictError for a key that exists, or is given twice, with
        other content; ClosedError for what a person adds to a closed month, or a correction of nothing that exists;
        ValueError for money above nine billion dollars.
        """
        return self._append(entries, after)

    def add(self, entries: Sequence[Entry]) -> int:
        """Append after the current head; otherwise like :meth:`append`."""
        return self._append(entries, None)

    def entries(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        kind: Kind | None = None,
        job: str | None = None,
        attempt: str | None = None,
        team: str | None = None,
        period: Month | None = None,
    ) -> tuple[Entry, ...]:
        """Return the entries whose time overlaps ``since`` until before ``until``, in order, without archived ones.

        Only those of the given kind, job, attempt, team and month of the books; None: of any.
        """
        with self._database.read() as connection:
            query = selected(connection).order_by(LEDGER.c.seq)
            if since is not None:
                query = query.where(LEDGER.c.end_at > since)
            if until is not None:
                query = query.where(LEDGER.c.start_at < until)
            month = None if period is None else str(period)
            for name, wanted in (("kind", kind), ("job", job), ("attempt", attempt), ("team", team), ("period", month)):
                query = query if wanted is None else query.where(LEDGER.c[name] == wanted)
            return tuple(entry_of(row[1:-2]) for row in rows_of(connection, query))

    def batches(self, after: int = 0, *, size: int = _BATCH, period: Month | None = None) -> Iterator[list[Row]]:
        """Yield rows with a number above ``after``, in order, up to ``size`` at a time, without archived ones.

        They are as :mod:`router.state.ledger_rows` writes them, and as of the time when each batch was read.
        ``period``: only those in the books of that month.
        """
        only = None if period is None else LEDGER.c.period == str(period)
        while True:
            with self._database.read() as connection:
                rows = rows_after(connection, after, last_of(connection)[0], size, only)
            if not rows:
                return
            yield rows
            after = rows[-1][0]

    def columns(self, after: int = 0, *, size: int = _BATCH) -> Iterator[Columns]:
        """Yield the rows of :meth:`batches` as columns, without the hashes, in less than half the time."""
        while True:
            with self._database.read() as connection:
                found = columns_after(connection, after, last_of(connection)[0], size)
            if found is None:
                return
            yield found
            after = found.seqs[-1]

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of the entry with that number, archived or not; None if there is none.

        Number and hash together tell whether this is the ledger that a reader saw before.
        """
        with self._database.read() as connection:
            return hash_of_row(connection, seq)

    def months_of(self, keys: Sequence[str]) -> dict[str, Month]:
        """Return the months in whose books the entries of these keys stand, for the keys that exist.

        For archived entries it is a month before all that are here.
        """
        with self._database.read() as connection:
            found = dict.fromkeys(archived_keys(connection, keys), _ARCHIVED)
            return found | {key: Month.parse(period_of(row)) for key, row in known_rows(connection, keys).items()}

    def verify(self) -> Checked:
        """Check that every row is unchanged and follows the one before, and that no closed month was added to."""
        with self._database.snapshot() as connection:
            return check(connection)

    def _append(self, entries: Sequence[Entry], after: int | None) -> int:
        candidates = [_NewEntry(entry, raw(entry)) for entry in entries]
        with self._database.write(LEDGER.name) as connection:
            head, last = last_of(connection)
            if after is not None and after != head:
                raise MovedError(f"the ledger has {head} entries now, not {after}", "read it again")
            new = _select_new(connection, candidates)
            if new:
                insert_rows(connection, list(sealed(_book_values(connection, new), head, last)))
            return head + len(new)


def _select_new(connection: Connection, candidates: Sequence[_NewEntry]) -> list[_NewEntry]:
    """Return the entries to write, each key once. ConflictError."""
    keys = [str(one.values[0]) for one in candidates]
    archived = archived_keys(connection, keys)
    seen = {key: happening(row[1:-2]) for key, row in known_rows(connection, keys).items()}
    new = []
    for key, one in zip(keys, candidates, strict=True):
        if key in archived:
            continue
        this = happening(one.values)
        before = seen.setdefault(key, this)
        if before is this:
            new.append(one)
        elif before != this:
            raise ConflictError(f"the ledger has {key} with other content")
    return new


def _book_values(connection: Connection, new: Sequence[_NewEntry]) -> list[tuple[Value, ...]]:
    """Return the values to write. ClosedError."""
    closed = closed_through(connection)
    _check_corrections(connection, [one.entry for one in new], closed)
    written = []
    for one in new:
        entry = booked(one.entry, closed)
        written.append(one.values if entry is one.entry else raw(entry))
    return written


def _check_corrections(connection: Connection, entries: Collection[Entry], closed: Month | None) -> None:
    named = {kept(entry.corrects): entry for entry in entries if entry.corrects}
    keys = sorted(name for name in named if not _is_closed(name, closed))
    there = {key_of(row) for row in known_rows(connection, keys).values()} | archived_keys(connection, keys)
    there |= {kept(entry.key) for entry in entries}
    for name in keys:
        if name not in there:
            raise ConflictError(
                f"{named[name].key} corrects {name!r}, which is neither the key of an entry nor a closed month"
            )


def _is_closed(name: str, closed: Month | None) -> bool:
    try:
        return closed is not None and Month.parse(name) <= closed
    except ValueError:
        return False
