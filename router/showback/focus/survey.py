"""Survey a file in one pass: typed batches for the caller, and every fault in a tally."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pricing.problems import InvalidInputError
from router.showback.focus.columns import (
    BY_NAME,
    ColumnRequirement,
    FocusColumnKind,
    bare_name,
    columns_of,
    detect_version,
    match_columns,
)
from router.showback.focus.feed import Batch, Feed, open_feed
from router.showback.focus.file_rules import OverlapCheck, SplitCheck, find_row_violations
from router.showback.focus.rules import FindingTally, FocusFinding, quote_cell
from router.showback.focus.typed_rows import TypedBatch, convert_batch

# Columns of other FOCUS data sets, to name the one of a file that is no Cost and Usage.
_OTHER_SETS = {
    "ContractCommitmentId": "Contract Commitment",
    "BillingPeriodStatus": "Billing Period",
    "InvoiceDetailGrain": "Invoice Detail",
}


@dataclass(frozen=True, slots=True)
class FocusLayout:
    """A file that is Cost and Usage: its version, and which of its columns fills which of the newest version."""

    version: str
    sources: dict[str, str]
    unknown: tuple[str, ...]


def recognise_layout(feed: Feed, path: str) -> FocusLayout:
    """Return the layout of the file. InvalidInputError for a file that is no Cost and Usage."""
    version = detect_version(feed.header)
    if version is None:
        other_set = next((name for column, name in _OTHER_SETS.items() if column in feed.header), None)
        if (native := find_native_bill(feed.header)) is not None:
            what = f"is {native.name}, which does not say what FOCUS does"
            raise InvalidInputError.single(what, where=f"{path}:1", remedy=native.remedy)
        what = f"is FOCUS {other_set}, not Cost and Usage" if other_set else "has no FOCUS Cost and Usage columns"
        remedy = "BilledCost, EffectiveCost, ChargePeriodStart, ChargePeriodEnd and ChargeCategory tell it"
        raise InvalidInputError.single(what, where=f"{path}:1", remedy=remedy)
    unknown = tuple(name for name in feed.header if name not in BY_NAME)
    return FocusLayout(version, match_columns(feed.header), unknown)


def survey_feed(
    feed: Feed, opened: FocusLayout, tally: FindingTally, closed_until: datetime | None = None, *, absent: bool = False
) -> Iterator[tuple[Batch, TypedBatch]]:
    """Yield each batch with its typed columns; when all are read, ``tally`` is complete.

    ``absent``: also count the columns that a file of its version may leave out.
    """
    for finding in _header_findings(feed, opened, absent=absent):
        tally.add(finding)
    overlaps, splits = OverlapCheck(), SplitCheck()
    for batch in feed.batches:
        rows = convert_batch(batch, opened.sources)
        for mark in (*rows.marks, *find_row_violations(rows, closed_until)):
            tally.add_mark(mark, batch, opened.sources)
        overlaps.add(batch, rows)
        splits.add(batch, rows)
        yield batch, rows
    for finding in (*overlaps.findings(), *splits.findings()):
        tally.add(finding)


def _header_findings(feed: Feed, opened: FocusLayout, *, absent: bool) -> Iterator[FocusFinding]:
    present = frozenset(feed.header)
    replaced = {source for target, source in opened.sources.items() if target != source}
    for column in columns_of(opened.version):
        if column.name in present or (column.removed is not None and not replaced and opened.version == "1.3"):
            continue
        if column.level is ColumnRequirement.MANDATORY:
            yield FocusFinding("missing-column", column.name)
        elif absent:
            yield FocusFinding("absent-column", column.name)
    for name, written in feed.written.items():
        yield FocusFinding("column-name", name, value=quote_cell(written))
    for name in opened.unknown:
        if not name.startswith("x_"):
            yield FocusFinding("unknown-column", name)
    for name in sorted(feed.floats):
        if name in BY_NAME and BY_NAME[name].kind is FocusColumnKind.DECIMAL:
            yield FocusFinding("binary-fraction", name)


# The most findings listed of each rule in each column; the others are counted.
MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class FocusCheck:
    """The result of a check.

    ``findings`` are in the order of rows, the file's own first; ``counts`` is how many there are by rule and column.
    """

    name: str
    form: str
    version: str
    rows: int
    findings: tuple[FocusFinding, ...]
    counts: dict[tuple[str, str], int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def check_file(path: Path, closed_until: datetime | None = None, *, keep: int = MAX_FINDINGS) -> FocusCheck:
    """Check the file in one pass, a batch at a time.

    ``closed_until``: corrections from then on are wrong. InvalidInputError for a file that is no FOCUS Cost and Usage
    at all.
    """
    tally, rows = FindingTally(keep), 0
    with open_feed(path) as feed:
        opened = recognise_layout(feed, str(path))
        for batch, _ in survey_feed(feed, opened, tally, closed_until):
            rows += batch.rows
    findings = sorted(tally.findings, key=lambda finding: finding.row or 0)
    return FocusCheck(path.name, feed.form, opened.version, rows, tuple(findings), tally.counts)


_AWS = (
    "order FOCUS in Billing and Cost Management: Data Exports, Create, Standard data export, the newest table "
    "'FOCUS with AWS columns', Parquet or gzip; then import its folder or its manifest"
)
_AZURE = (
    "order FOCUS in Cost Management: Exports, Create, 'Cost and usage details (FOCUS)', which holds actual and "
    "amortized costs; then import the folder of a run"
)
_GOOGLE = (
    "FOCUS is a BigQuery view over the detailed and the pricing export, which Google publishes for Looker and "
    "BigQuery; make it, then EXPORT DATA of a month to Parquet or CSV"
)
_OCI = "take the files under 'FOCUS Reports' in Billing, Cost and Usage Reports, in place of those under 'reports'"


@dataclass(frozen=True, slots=True)
class NativeBill:
    """A form of bill: it has all columns of ``all_of``, and one of ``any_of`` where there are any."""

    name: str
    remedy: str
    all_of: frozenset[str]
    any_of: frozenset[str] = frozenset()


def _columns(*names: str) -> frozenset[str]:
    return frozenset(bare_name(name) for name in names)


# The first that fits is the one: CUR 2.0 has all columns of the older report that are looked for.
_NATIVE_BILLS = (
    NativeBill(
        "an AWS Cost and Usage Report 2.0",
        _AWS,
        _columns("line_item_usage_start_date"),
        _columns("bill_payer_account_name", "line_item_usage_account_name"),
    ),
    NativeBill(
        "an AWS Cost and Usage Report (legacy)",
        _AWS,
        frozenset(),
        _columns("lineItem/UsageStartDate", "line_item_usage_start_date", "identity/LineItemId"),
    ),
    NativeBill(
        "an Azure usage file of an Enterprise Agreement", _AZURE, _columns("MeterId", "ExtendedCost", "ResourceRate")
    ),
    NativeBill(
        "an Azure actual or amortized cost file",
        _AZURE,
        _columns("MeterId"),
        _columns("CostInBillingCurrency", "PreTaxCost", "Cost", "CostInPricingCurrency"),
    ),
    NativeBill(
        "Google Cloud's detailed or standard usage cost export",
        _GOOGLE,
        _columns("billing_account_id", "usage_start_time", "usage_end_time", "cost"),
    ),
    NativeBill("an OCI cost report", _OCI, _columns("lineItem/referenceNo", "lineItem/intervalUsageStart")),
)


def find_native_bill(header: Collection[str]) -> NativeBill | None:
    """Return the form of a bill that is not FOCUS; None where none is known."""
    names = frozenset(bare_name(name) for name in header)
    return next(
        (each for each in _NATIVE_BILLS if each.all_of <= names and (not each.any_of or each.any_of & names)), None
    )
