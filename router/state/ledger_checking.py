"""Whether the ledger is what was written: the chain of hashes, and that nothing was put into closed books."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from router.state.ledger_rows import Chain, Row, period_of
from router.state.ledger_table import all_rows, archived_rows, last_of
from router.state.periods import Closing, all_closings

_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class Checked:
    """``entries`` here and ``archived`` ones; ``head`` with its ``hash``, to be noted elsewhere: rows that are missing at
    the end do not show otherwise. ``problems`` says what is wrong; empty: nothing."""

    entries: int
    archived: int
    head: int
    hash: str
    problems: tuple[str, ...] = ()


def check(connection: Connection) -> Checked:
    """Reads all of it. In a transaction that sees one moment."""
    head = last_of(connection)[0]
    here = all_rows(connection, head, _AT_ONCE)
    return checked(here, archived_rows(connection, _AT_ONCE), all_closings(connection))


def checked(rows: Iterable[Row], archived: Iterable[Row], closings: Sequence[Closing]) -> Checked:
    """As :func:`check`, of rows and of ``(seq, key, previous, hash)`` of those that were archived, each in order. Pure."""
    chain, counts = Chain(), [0, 0]
    at_head = {closing.head: closing for closing in closings}
    problems: list[str] = []
    closed: Closing | None = at_head.get(0)
    for row, is_here in _merged(rows, archived):
        counts[not is_here] += 1
        if is_here:
            chain.row(row)
            if closed is not None and period_of(row) <= str(closed.period):
                problems.append(f"entry {row[0]} was put into the books of {period_of(row)} after they were closed")
        else:
            chain.archived(row[0], row[2], row[3])
        if (now := at_head.get(row[0])) is not None:
            closed = now
            if now.hash != chain.hash:
                problems.append(f"when {now.period} was closed, entry {row[0]} was another one")
    if chain.broken is not None:
        problems.insert(0, f"entry {chain.broken} is not what was written: somebody changed or removed one")
    late = [closing for closing in closings if closing.head > chain.seq]
    problems += [f"when {one.period} was closed there were {one.head} entries, now {chain.seq}" for one in late]
    return Checked(counts[0], counts[1], chain.seq, chain.hash, tuple(problems))


def _merged(rows: Iterable[Row], archived: Iterable[Row]) -> Iterator[tuple[Row, bool]]:
    here = ((row, True) for row in rows)
    gone = ((row, False) for row in archived)
    return heapq.merge(here, gone, key=lambda pair: pair[0][0])
