"""Checks of the ledger: the chains of hashes, and that nothing was added to closed books.

Pure except :func:`check_ledger`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from router.state.ledger_rows import Row, RowChain, row_closing, row_period
from router.state.ledger_table import iterate_archived_rows, iterate_rows, read_head
from router.state.periods import PeriodClosing, closing_name, find_seal_problems, read_budgets, read_closings

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
