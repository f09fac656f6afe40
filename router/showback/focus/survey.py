"""Survey a file in one pass: typed batches for the caller, and every fault in a tally.

Rules of several rows keep a few numbers for each row that they check (44 bytes; a group of parts about a kilobyte).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pricing.problems import InvalidInputError
from router.showback.focus.columns import (
    BY_NAME,
    CATEGORY_OF,
    COSTS,
    UNIT_OF,
    ColumnRequirement,
    FocusColumnKind,
    bare_name,
    columns_of,
    detect_version,
    match_columns,
)
from router.showback.focus.feed import Batch, Feed, open_feed
from router.showback.focus.rules import FindingTally, FocusFinding, RuleViolation, quote_cell
from router.showback.focus.texts import read_json
from router.showback.focus.typed_rows import TypedBatch, convert_batch, true_indices

if TYPE_CHECKING:
    import pandas as pd

# One resource may be billed for one moment by several meters, at several prices, and partly by a commitment.
_METER = (
    "ServiceProviderName",
    "SubAccountId",
    "ResourceId",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "PricingCategory",
    "PricingUnit",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "CapacityReservationId",
    "CapacityReservationStatus",
)
_ORIGIN = (
    "BillingAccountId",
    "SubAccountId",
    "ResourceId",
    "SkuPriceId",
    "ChargeCategory",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "PricingCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "AllocatedMethodId",
)

_BY_TIME = "(?i)(second|minute|hour|day|week|month|year)s?$"


class OverlapCheck:
    """Find usage of one resource, on one meter and price, that is billed twice for a moment.

    Only usage metered by time is checked: two transfers may well run at once.
    """

    def __init__(self) -> None:
        self._seen: list[pd.DataFrame] = []

    def add(self, batch: Batch, rows: TypedBatch) -> None:
        """Add the rows of a batch. Corrections and parts of a split charge may share a moment."""
        start, end = rows.column("ChargePeriodStart"), rows.column("ChargePeriodEnd")
        metered = pc.and_(pc.equal(rows.column("ChargeCategory"), "Usage"), pc.less(start, end))
        for name in ("ChargeClass", "AllocatedMethodId", "x_SplitOriginId"):
            metered = pc.and_(metered, pc.is_null(rows.column(name)))
        by_time = pc.match_substring_regex(rows.column("PricingUnit"), _BY_TIME)
        metered = pc.and_(metered, pc.fill_null(by_time, True))
        at = true_indices(pc.and_(metered, rows.column("ResourceId").is_valid()))
        if not len(at):
            return
        where = pa.array(at)
        parts = [rows.column(name).take(where) for name in _METER]
        keys = pc.binary_join_element_wise(*parts, "\x1f", null_handling="replace", null_replacement="\x00")
        lines = np.zeros(len(at), np.int64) if batch.lines is None else np.asarray(batch.lines, np.int64)[at]
        # pandas takes a second to import: commands that check no file do not wait for it.
        import pandas as pd

        self._seen.append(
            pd.DataFrame(
                {
                    "key": pd.util.hash_array(keys.to_numpy(zero_copy_only=False), categorize=False),
                    "start": start.take(where).cast(pa.int64()).to_numpy(),
                    "end": end.take(where).cast(pa.int64()).to_numpy(),
                    "row": batch.first + at,
                    "line": lines,
                }
            )
        )

    def findings(self) -> Iterator[FocusFinding]:
        """Yield a finding for each row that begins before an earlier one of its meter has ended."""
        import pandas as pd

        if not self._seen:
            return
        usage = pd.concat(self._seen).sort_values(["key", "start", "row"], ignore_index=True)
        longest = usage.groupby("key")["end"].cummax()
        blocking_row = usage["row"].where(usage["end"] == longest).ffill().shift()
        end_before = longest.shift().where(usage["key"] == usage["key"].shift())
        overlapping = usage.assign(other=blocking_row)[usage["start"] < end_before].sort_values("row")
        for row, line, other in zip(overlapping["row"], overlapping["line"], overlapping["other"], strict=True):
            yield FocusFinding("overlap", "ResourceId", int(row), int(line) or None, f"row {int(other)}")


_WIDE = Context(prec=100)


@dataclass(slots=True)
class _Split:
    name: str
    row: int
    line: int | None
    ratio: Decimal = Decimal(0)
    cost: Decimal = Decimal(0)
    origin: Decimal | None = None
    whole: bool = True


class SplitCheck:
    """Sum the ratios and the costs of split charges, by what they were split from.

    That is x_SplitOriginId or, where a file has none, what the parts share.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[Any, ...], _Split] = {}

    def add(self, batch: Batch, rows: TypedBatch) -> None:
        """Add the parts among the rows of a batch; corrections, which have ratios of their own, are left out."""
        part = pc.and_(rows.column("AllocatedMethodId").is_valid(), pc.is_null(rows.column("ChargeClass")))
        at = true_indices(part)
        if not len(at):
            return
        where = pa.array(at)
        keys = [rows.column(name).take(where).to_pylist() for name in _ORIGIN]
        names, ratios, costs, origins = (
            rows.column(name).take(where).to_pylist()
            for name in ("x_SplitOriginId", "AllocatedMethodDetails", "BilledCost", "x_SplitOriginCost")
        )
        for i, index in enumerate(at.tolist()):
            key = (names[i],) if names[i] is not None else tuple(column[i] for column in keys)
            group = self._groups.get(key)
            if group is None:
                line = None if batch.lines is None else batch.lines[index]
                resource = keys[_ORIGIN.index("ResourceId")][i]
                group = self._groups[key] = _Split(quote_cell(names[i] or resource or ""), batch.first + index, line)
            ratio = _ratio(ratios[i])
            group.whole = group.whole and ratio is not None and costs[i] is not None
            # The usual context of decimals keeps 28 digits, of which 24 are behind the point.
            group.ratio = _WIDE.add(group.ratio, ratio or 0)
            group.cost = _WIDE.add(group.cost, costs[i] or 0)
            group.origin = origins[i] if group.origin is None else group.origin

    def findings(self) -> Iterator[FocusFinding]:
        """Yield a finding at the first part of each charge whose parts are not the whole.

        Where a part is incomplete, another rule reports it.
        """
        for group in self._groups.values():
            if group.whole and group.ratio != 1:
                yield FocusFinding("split-ratio", "AllocatedMethodDetails", group.row, group.line, group.name)
            if group.whole and group.origin is not None and group.cost != group.origin:
                yield FocusFinding("split-sum", "BilledCost", group.row, group.line, group.name)


def _ratio(text: str | None) -> Decimal | None:
    try:
        elements = read_json(text or "").get("Elements")
        return sum((Decimal(each["AllocatedRatio"]) for each in elements or ()), Decimal(0)) if elements else None
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError):
        return None


# Of a cost (at least of 1): the tolerance of the official validator, for prices on a bill are rounded.
_TOLERANCE = Decimal("1e-9")
# Products of floats this near are right; the others are computed exactly.
_SURELY = 1e-12
_PRODUCTS = (("list-cost", "ListCost", "ListUnitPrice"), ("contracted-cost", "ContractedCost", "ContractedUnitPrice"))
_TAXLESS = ("PricingCategory", "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId")
_STATUS_OF = {"CommitmentDiscountStatus": "CommitmentDiscountId", "CapacityReservationStatus": "CapacityReservationId"}
_UNRELATED = ("Credit", "Adjustment")
_PARENTS = pa.array(list(CATEGORY_OF.values()))
_CHILDREN = pa.array(list(CATEGORY_OF))
Mask = NDArray[np.bool_]


def find_row_violations(rows: TypedBatch, closed_until: datetime | None) -> Iterator[RuleViolation]:
    """Yield the violations of all rules below, columns by their name in the newest version.

    ``closed_until`` is the end of the closed periods; None where it is not known, and corrections are not checked.
    """
    for rule in _RULES:
        for name, column, mask in rule(rows):
            if mask.any():
                yield RuleViolation(name, column, np.flatnonzero(mask))
    if closed_until is not None:
        late = _is_one_of(rows, "ChargeClass", "Correction") & _to_mask(
            pc.greater_equal(rows.column("ChargePeriodStart"), closed_until)
        )
        if late.any():
            yield RuleViolation("open-correction", "ChargeClass", np.flatnonzero(late))


RuleMasks = Iterator[tuple[str, str, Mask]]


def _to_mask(mask: pa.Array) -> Mask:
    filled: Mask = pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False)
    return filled


def _is_given(rows: TypedBatch, name: str) -> Mask:
    return _to_mask(rows.column(name).is_valid())


def _is_one_of(rows: TypedBatch, name: str, *values: str) -> Mask:
    return _to_mask(pc.is_in(rows.column(name), pa.array(values)))


def _correction(rows: TypedBatch) -> Mask:
    return _is_one_of(rows, "ChargeClass", "Correction")


def _products(rows: TypedBatch) -> RuleMasks:
    quantity = rows.column("PricingQuantity")
    for rule, cost_name, price_name in _PRODUCTS:
        cost, price = rows.column(cost_name), rows.column(price_name)
        complete = (
            _is_given(rows, cost_name)
            & _is_given(rows, price_name)
            & _is_given(rows, "PricingQuantity")
            & ~_correction(rows)
        )
        if not complete.any():
            continue
        costs, product = _floats(cost), _floats(price) * _floats(quantity)
        doubtful = complete & ~(np.abs(product - costs) <= _SURELY * np.abs(costs))
        for index in np.flatnonzero(doubtful):
            exact, value = price[index].as_py() * quantity[index].as_py(), cost[index].as_py()
            doubtful[index] = abs(exact - value) > _TOLERANCE * max(abs(value), Decimal(1))
        yield rule, cost_name, doubtful


def _floats(amounts: pa.Array) -> NDArray[np.float64]:
    filled: NDArray[np.float64] = pc.fill_null(amounts.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    return filled


def _prices_missing(rows: TypedBatch) -> RuleMasks:
    priced = _is_given(rows, "SkuPriceId") & ~_correction(rows) & ~_is_one_of(rows, "ChargeCategory", "Tax")
    for name in ("ListUnitPrice", "ContractedUnitPrice"):
        if name in rows.columns:
            yield "price-missing", name, priced & ~_is_given(rows, name)


def _pairs(rows: TypedBatch) -> RuleMasks:
    for quantity, unit in UNIT_OF.items():
        has_quantity, has_unit = _is_given(rows, quantity), _is_given(rows, unit)
        yield "unit-alone", unit, has_unit & ~has_quantity
        if unit in rows.columns:
            yield "quantity-alone", quantity, has_quantity & ~has_unit


def _sku_details(rows: TypedBatch) -> RuleMasks:
    yield "sku-details", "SkuPriceDetails", _is_given(rows, "SkuPriceDetails") & ~_is_given(rows, "SkuPriceId")
    yield "sku-meter", "SkuMeter", _is_given(rows, "SkuMeter") & ~_is_given(rows, "SkuId")


def _subcategories(rows: TypedBatch) -> RuleMasks:
    parents = _PARENTS.take(pc.index_in(rows.column("ServiceSubcategory"), _CHILDREN))
    yield "subcategory", "ServiceSubcategory", _to_mask(pc.not_equal(parents, rows.column("ServiceCategory")))


def _taxes(rows: TypedBatch) -> RuleMasks:
    tax = _is_one_of(rows, "ChargeCategory", "Tax")
    for name in _TAXLESS if tax.any() else ():
        yield "tax-price", name, tax & _is_given(rows, name)


def _equal_costs(rows: TypedBatch) -> RuleMasks:
    """Yield costs that differ.

    A tax may be computed on list prices too, so that only its effective cost is compared.
    """
    related = _correction(rows) | _is_given(rows, "CommitmentDiscountId")
    unrelated, tax = (
        _is_one_of(rows, "ChargeCategory", *_UNRELATED) & ~related,
        _is_one_of(rows, "ChargeCategory", "Tax") & ~related,
    )
    for name in COSTS[1:]:
        concerned = unrelated | tax if name == "EffectiveCost" else unrelated
        if concerned.any():
            yield "costs-differ", name, concerned & _to_mask(pc.not_equal(rows.column(name), rows.column(COSTS[0])))


def _purchases(rows: TypedBatch) -> RuleMasks:
    wrong = _is_one_of(rows, "ChargeCategory", "Purchase") & _is_one_of(rows, "ChargeFrequency", "Usage-Based")
    yield "purchase-frequency", "ChargeFrequency", wrong


def _statuses(rows: TypedBatch) -> RuleMasks:
    for status, identity in _STATUS_OF.items():
        yield "status-alone", status, _is_given(rows, status) & ~_is_given(rows, identity)


def _periods(rows: TypedBatch) -> RuleMasks:
    start, end = rows.column("ChargePeriodStart"), rows.column("ChargePeriodEnd")
    opens, closes = rows.column("BillingPeriodStart"), rows.column("BillingPeriodEnd")
    yield "charge-period", "ChargePeriodEnd", _to_mask(pc.less_equal(end, start))
    yield "billing-period", "BillingPeriodEnd", _to_mask(pc.less_equal(closes, opens))
    # A purchase covers a term, a correction an earlier period.
    inside = _is_one_of(rows, "ChargeCategory", "Usage") & ~_correction(rows) & _to_mask(pc.greater(closes, opens))
    yield "outside-period", "ChargePeriodStart", inside & _to_mask(pc.less(start, opens))
    yield "outside-period", "ChargePeriodEnd", inside & _to_mask(pc.greater(end, closes))


def _split_parts(rows: TypedBatch) -> RuleMasks:
    split = _is_given(rows, "AllocatedMethodId") | _is_given(rows, "AllocatedResourceId")
    if not split.any():
        return
    for name in ("AllocatedMethodId", "AllocatedMethodDetails", "AllocatedResourceId"):
        yield "split-part", name, split & ~_is_given(rows, name)
    tags, allocated = rows.column("Tags"), rows.column("AllocatedTags")
    lacking = np.zeros(rows.rows, dtype=np.bool_)
    for index in np.flatnonzero(split & _is_given(rows, "Tags")):
        lacking[index] = not _covers(allocated[index].as_py(), tags[index].as_py())
    yield "split-tags", "AllocatedTags", lacking


def _covers(allocated: str | None, tags: str) -> bool:
    try:
        return read_json(tags).items() <= read_json(allocated or "{}").items()
    except (ValueError, TypeError):
        return True  # Not JSON, or not flat: another rule reports that.


_RULES: tuple[Callable[[TypedBatch], RuleMasks], ...] = (
    _products,
    _prices_missing,
    _pairs,
    _sku_details,
    _subcategories,
    _taxes,
    _equal_costs,
    _purchases,
    _statuses,
    _periods,
    _split_parts,
)


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
