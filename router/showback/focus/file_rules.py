"""Check rules about rows: the cells of one row together, and several rows of a file. Pure.

Rules of several rows keep a few numbers for each row that they check (44 bytes; a group of parts about a kilobyte).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from router.showback.focus import words
from router.showback.focus.columns import COSTS, UNIT_OF
from router.showback.focus.feed import Batch
from router.showback.focus.rules import FocusFinding, RuleViolation, quote_cell
from router.showback.focus.texts import read_json
from router.showback.focus.typed_rows import TypedBatch, true_indices

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
_PARENTS = pa.array(list(words.CATEGORY_OF.values()))
_CHILDREN = pa.array(list(words.CATEGORY_OF))
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
