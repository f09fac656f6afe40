"""Decide which month's books an entry goes into once some are closed. Pure."""

from __future__ import annotations

from dataclasses import replace

from router.ledger.entry import LedgerEntry
from router.ledger.month import Month


class ClosedError(ValueError):
    """The books of that month are closed, and the entry does not say which entry or month it corrects."""


def book_entry(entry: LedgerEntry, closed: Month | None) -> LedgerEntry:
    """Return the entry as it may be appended when all months up to ``closed`` are closed (None: no month is).

    An entry that was planned or metered in a closed month, and is known only now, goes into the books of the month in
    which it was recorded, the first open one at the earliest, and says which month it corrects. ClosedError for an
    entry that a person adds: that person decides which month it belongs to, and says what it corrects.
    """
    if closed is None or entry.period > closed:
        return entry
    if entry.kind.is_added or entry.corrects:
        raise ClosedError(
            f"{entry.key}: the books of {entry.period} are closed; "
            f"`period: {closed.next}` with `corrects: {entry.period}` puts it into open ones"
        )
    return replace(entry, period=max(closed.next, Month.of(entry.recorded_at)), corrects=str(entry.period))
