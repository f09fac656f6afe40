"""Check rules about the cells of one row together. Pure; each function yields violations in a typed batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from router.showback.focus import words
from router.showback.focus.columns import COSTS, UNIT_OF
from router.showback.focus.rules import RuleViolation
from router.showback.focus.texts import read_json
from router.showback.focus.typed_rows import TypedBatch

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
