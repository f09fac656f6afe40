"""Survey a file in one pass: typed batches for the caller, and every fault in a tally. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pricing.problems import InvalidInputError
from router.showback.focus.batches import Batch, Feed
from router.showback.focus.columns import BY_NAME, Kind, Level
from router.showback.focus.counts import Finding, Tally
from router.showback.focus.file_rules import Overlaps, Splits
from router.showback.focus.row_rules import row_marks
from router.showback.focus.typed_rows import Typed, typed
from router.showback.focus.versions import columns_of, detect, sources

# Columns of other FOCUS data sets, to name the one of a file that is no Cost and Usage.
_OTHER_SETS = {
    "ContractCommitmentId": "Contract Commitment",
    "BillingPeriodStatus": "Billing Period",
    "InvoiceDetailGrain": "Invoice Detail",
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is Cost and Usage: its version, and which of its columns fills which of the newest version."""

    version: str
    sources: dict[str, str]
    unknown: tuple[str, ...]


def recognised(feed: Feed, path: str) -> Opened:
    """Return the layout of the file. InvalidInputError for a file that is no Cost and Usage."""
    version = detect(feed.header)
    if version is None:
        other_set = next((name for column, name in _OTHER_SETS.items() if column in feed.header), None)
        what = f"is FOCUS {other_set}, not Cost and Usage" if other_set else "has no FOCUS Cost and Usage columns"
        remedy = "BilledCost, EffectiveCost, ChargePeriodStart, ChargePeriodEnd and ChargeCategory tell it"
        raise InvalidInputError.single(what, where=f"{path}:1", remedy=remedy)
    unknown = tuple(name for name in feed.header if name not in BY_NAME)
    return Opened(version, sources(feed.header), unknown)


def survey(
    feed: Feed, opened: Opened, tally: Tally, closed_until: datetime | None = None, *, absent: bool = False
) -> Iterator[tuple[Batch, Typed]]:
    """Yield each batch with its typed columns; when all are read, ``tally`` is complete.

    ``absent``: also count the columns that a file of its version may leave out.
    """
    for finding in _header_findings(feed, opened, absent=absent):
        tally.add(finding)
    overlaps, splits = Overlaps(), Splits()
    for batch in feed.batches:
        rows = typed(batch, opened.sources)
        for mark in (*rows.marks, *row_marks(rows, closed_until)):
            tally.add_mark(mark, batch, opened.sources)
        overlaps.add(batch, rows)
        splits.add(batch, rows)
        yield batch, rows
    for finding in (*overlaps.findings(), *splits.findings()):
        tally.add(finding)


def _header_findings(feed: Feed, opened: Opened, *, absent: bool) -> Iterator[Finding]:
    present = frozenset(feed.header)
    replaced = {source for target, source in opened.sources.items() if target != source}
    for column in columns_of(opened.version):
        if column.name in present or (column.removed is not None and not replaced and opened.version == "1.3"):
            continue
        if column.level is Level.MANDATORY:
            yield Finding("missing-column", column.name)
        elif absent:
            yield Finding("absent-column", column.name)
    for name in opened.unknown:
        if not name.startswith("x_"):
            yield Finding("unknown-column", name)
    for name in sorted(feed.floats):
        if name in BY_NAME and BY_NAME[name].kind is Kind.DECIMAL:
            yield Finding("binary-fraction", name)
