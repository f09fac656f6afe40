"""Compare the closed months with the audit log, both ways: a deleted closing would open a month again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from router.state.periods import PeriodClosing
from router.state.records import AuditEntry

CLOSE_ACTION: Final = "ledger close"


@dataclass(frozen=True, slots=True)
class ClosingCheck:
    """The differences between closings and audit log.

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
