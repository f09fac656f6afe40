"""The ledger in the database: appended after a known head, each key once, none into closed books; and its checks."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from router.ledger.entry import LedgerEntry, LedgerEntryKind, book_entry
from router.ledger.month import Month
from router.state.columns import storable_text
from router.state.errors import ConcurrentChangeError, ConflictError
from router.state.ledger_rows import (
    Row,
    RowChain,
    Value,
    chain_rows,
    entry_values,
    event_values,
    parse_entry,
    row_closing,
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
    iterate_archived_rows,
    iterate_rows,
    read_columns_after,
    read_head,
    read_row_hash,
    read_rows_after,
    select_rows,
)
from router.state.periods import (
    PeriodClosing,
    closing_name,
    find_seal_problems,
    read_budgets,
    read_closings,
    read_last_closing,
)
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


AT_ONCE = 5000
# More problems would tell a reader nothing new.
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """The result of a check.

    ``entries`` here and ``archived`` ones; ``head`` with its ``hash``, to be noted elsewhere: otherwise rows that are
    missing at the end do not show. ``problems`` says what is wrong; empty if nothing is.
    """

    entries: int
    archived: int
    head: int
    hash: str
    problems: tuple[str, ...] = ()


class LedgerChecker:
    """Checks the rows of a ledger, which it is given in order; archived ones as ``(seq, key, previous, hash)``."""

    def __init__(self, closings: Sequence[PeriodClosing]) -> None:
        self._chain = RowChain()
        self._closings = tuple(closings)
        self._at_head: dict[int, list[PeriodClosing]] = {}
        for closing in closings:
            self._at_head.setdefault(closing.head, []).append(closing)
        self._closed: PeriodClosing | None = None
        self._closing_name = ""
        self._wrong_names: set[tuple[str, str]] = set()
        self._entries = self._archived = 0
        self._problems: list[str] = []
        self._check_closings()

    def follow(self, row: Row, *, is_here: bool) -> None:
        """Check the next row."""
        if is_here:
            self._entries += 1
            self._chain.row(row)
            if self._closed is not None and row_period(row) <= str(self._closed.period):
                self._add_problem(f"entry {row[0]} was put into the books of {row_period(row)} after they were closed")
            self._check_name(row[0], row_closing(row))
        else:
            self._archived += 1
            self._chain.archived(row[0], row[2], row[3])
        self._check_closings()

    def checked(self) -> LedgerCheck:
        """Return the result, after the last row."""
        problems = list(self._problems)
        if self._chain.broken is not None:
            what = "is not what was written: somebody changed or removed one"
            problems.insert(0, f"entry {self._chain.broken} {what}")
        late = [closing for closing in self._closings if closing.head > self._chain.seq]
        problems += [
            f"when {one.period} was closed there were {one.head} entries, now {self._chain.seq}" for one in late
        ]
        problems += find_seal_problems(self._closings)
        return LedgerCheck(self._entries, self._archived, self._chain.seq, self._chain.hash, tuple(problems))

    def _check_closings(self) -> None:
        for closing in self._at_head.get(self._chain.seq, ()):
            self._closed, self._closing_name = closing, closing_name(closing)
            if closing.hash != self._chain.hash:
                self._add_problem(f"when {closing.period} was closed, entry {closing.head} was another one")

    def _check_name(self, seq: int, name: str) -> None:
        """Compare the closing that an entry names with the last one before it."""
        if name == self._closing_name or (name, self._closing_name) in self._wrong_names:
            return  # The first of a series of entries is enough.
        self._wrong_names.add((name, self._closing_name))
        month = name.partition(" ")[0]
        if month:
            self._add_problem(f"entry {seq} was written after {month} was closed, and that closing is gone or changed")
        else:
            self._add_problem(f"entry {seq} names no closing, and there was one before it")

    def _add_problem(self, text: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(text)


def check_ledger(connection: Connection) -> LedgerCheck:
    """Check the whole ledger, in a transaction that sees one moment, and the seals as far as the database can."""
    closings = read_closings(connection)
    follower = LedgerChecker(closings)
    for row, is_here in iterate_all_rows(connection):
        follower.follow(row, is_here=is_here)
    found = follower.checked()
    budgets = [
        f"budgets of {one.period} are not those that it was closed with"
        for one in closings
        if one.seal and one.sealed.get("budgets") != read_budgets(connection, one.period)
    ]
    return replace(found, problems=(*found.problems, *budgets))


def iterate_all_rows(connection: Connection) -> Iterator[tuple[Row, bool]]:
    """Yield all rows by number, each with whether it is here, not archived."""
    here = ((row, True) for row in iterate_rows(connection, read_head(connection)[0], AT_ONCE))
    gone = ((row, False) for row in iterate_archived_rows(connection, AT_ONCE))
    return heapq.merge(here, gone, key=lambda pair: pair[0][0])
