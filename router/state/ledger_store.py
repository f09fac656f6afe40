"""The ledger in the database: entries are appended after a known head, each key once, none into closed books."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from router.ledger.entry import LedgerEntry, LedgerEntryKind, book_entry
from router.ledger.month import Month
from router.state.canonical_form import storable_text
from router.state.errors import ConcurrentChangeError, ConflictError
from router.state.ledger_checking import LedgerCheck, check_ledger
from router.state.ledger_rows import (
    Row,
    Value,
    chain_rows,
    entry_values,
    event_values,
    parse_entry,
    row_key,
    row_period,
    with_closing,
)
from router.state.ledger_table import (
    LedgerColumns,
    fetch_rows,
    find_archived_keys,
    find_rows,
    insert_rows,
    read_columns_after,
    read_head,
    read_row_hash,
    read_rows_after,
    select_rows,
)
from router.state.periods import closing_name, read_last_closing
from router.state.rows import StatePart
from router.state.tables import LEDGER

# The default number of rows in one read: some ten megabytes.
_BATCH = 10_000
_ARCHIVED = Month(1, 1)


@dataclass(frozen=True, slots=True)
class _NewEntry:
    entry: LedgerEntry
    values: tuple[Value, ...]


class LedgerStore(StatePart):
    """The ledger of a database. Its entries are numbered 1, 2, 3 ...; the number of the last is the head."""

    def head(self) -> int:
        """Return the number of the last entry, archived or not; 0 if there is none."""
        with self._database.read() as connection:
            return read_head(connection)[0]

    def append(self, entries: Sequence[LedgerEntry], *, after: int | None) -> int:
        """Append all entries, or none, and return the new head. An entry that exists is skipped.

        An entry exists if the same event was recorded, whenever (:func:`router.state.ledger_rows.event_values`), or its
        key was archived. What was planned or metered in a closed month goes into the books of an open one
        (:func:`router.ledger.entry.book_entry`).

        ConcurrentChangeError unless ``after`` is the head, or None; ConflictError for a key that exists, or is given
        twice, with other content; ClosedError for what a person adds to a closed month, or a correction of nothing that
        exists; ValueError for money above nine billion dollars.
        """
        candidates = [_NewEntry(entry, entry_values(entry)) for entry in entries]
        with self._database.write(LEDGER.name) as connection:
            head, last = read_head(connection)
            if after is not None and after != head:
                raise ConcurrentChangeError(f"the ledger has {head} entries now, not {after}", "read it again")
            new = _select_new(connection, candidates)
            if new:
                insert_rows(connection, list(chain_rows(_book_values(connection, new), head, last)))
            return head + len(new)

    def add(self, entries: Sequence[LedgerEntry]) -> int:
        """Append after the current head; otherwise like :meth:`append`."""
        return self.append(entries, after=None)

    def entries(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        kind: LedgerEntryKind | None = None,
        job: str | None = None,
        attempt: str | None = None,
        team: str | None = None,
        period: Month | None = None,
    ) -> tuple[LedgerEntry, ...]:
        """Return the entries whose time overlaps ``since`` until before ``until``, in order, without archived ones.

        Only those of the given kind, job, attempt, team and month of the books; None: of any.
        """
        with self._database.read() as connection:
            query = select_rows(connection).order_by(LEDGER.c.seq)
            if since is not None:
                query = query.where(LEDGER.c.end_at > since)
            if until is not None:
                query = query.where(LEDGER.c.start_at < until)
            month = None if period is None else str(period)
            for name, wanted in (("kind", kind), ("job", job), ("attempt", attempt), ("team", team), ("period", month)):
                query = query if wanted is None else query.where(LEDGER.c[name] == wanted)
            return tuple(parse_entry(row[1:-2]) for row in fetch_rows(connection, query))

    def batches(self, after: int = 0, *, size: int = _BATCH, period: Month | None = None) -> Iterator[list[Row]]:
        """Yield rows with a number above ``after``, in order, up to ``size`` at a time, without archived ones.

        They are as :mod:`router.state.ledger_rows` writes them, and as of the time when each batch was read.
        ``period``: only those in the books of that month.
        """
        only = None if period is None else LEDGER.c.period == str(period)
        while True:
            with self._database.read() as connection:
                rows = read_rows_after(connection, after, read_head(connection)[0], size, only)
            if not rows:
                return
            yield rows
            after = rows[-1][0]

    def columns(self, after: int = 0, *, size: int = _BATCH) -> Iterator[LedgerColumns]:
        """Yield the rows of :meth:`batches` as columns, without the hashes, in less than half the time."""
        while True:
            with self._database.read() as connection:
                found = read_columns_after(connection, after, read_head(connection)[0], size)
            if found is None:
                return
            yield found
            after = found.seqs[-1]

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of the entry with that number, archived or not; None if there is none.

        Number and hash together tell whether this is the ledger that a reader saw before.
        """
        with self._database.read() as connection:
            return read_row_hash(connection, seq)

    def months_of(self, keys: Sequence[str]) -> dict[str, Month]:
        """Return the months in whose books the entries of these keys stand, for the keys that exist.

        For archived entries it is a month before all that are here.
        """
        with self._database.read() as connection:
            found = dict.fromkeys(find_archived_keys(connection, keys), _ARCHIVED)
            return found | {key: Month.parse(row_period(row)) for key, row in find_rows(connection, keys).items()}

    def verify(self) -> LedgerCheck:
        """Check that every row is unchanged and follows the one before, and that no closed month was added to."""
        with self._database.snapshot() as connection:
            return check_ledger(connection)


def _select_new(connection: Connection, candidates: Sequence[_NewEntry]) -> list[_NewEntry]:
    """Return the entries to write, each key once. ConflictError."""
    keys = [str(one.values[0]) for one in candidates]
    archived = find_archived_keys(connection, keys)
    seen = {key: event_values(row[1:-2]) for key, row in find_rows(connection, keys).items()}
    new = []
    for key, one in zip(keys, candidates, strict=True):
        if key in archived:
            continue
        this = event_values(one.values)
        before = seen.setdefault(key, this)
        if before is this:
            new.append(one)
        elif before != this:
            raise ConflictError(f"the ledger has {key} with other content")
    return new


def _book_values(connection: Connection, new: Sequence[_NewEntry]) -> list[tuple[Value, ...]]:
    """Return the values to write. ClosedError."""
    closing = read_last_closing(connection)
    closed, name = (None if closing is None else closing.period), closing_name(closing)
    _check_corrections(connection, [one.entry for one in new], closed)
    written = []
    for one in new:
        entry = book_entry(one.entry, closed)
        values = one.values if entry is one.entry else entry_values(entry)
        written.append(with_closing(values, name))
    return written


def _check_corrections(connection: Connection, entries: Collection[LedgerEntry], closed: Month | None) -> None:
    named = {storable_text(entry.corrects): entry for entry in entries if entry.corrects}
    keys = sorted(name for name in named if not _is_closed(name, closed))
    there = {row_key(row) for row in find_rows(connection, keys).values()} | find_archived_keys(connection, keys)
    there |= {storable_text(entry.key) for entry in entries}
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
