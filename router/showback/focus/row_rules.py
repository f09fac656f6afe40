"""Rules about the cells of one row together. Pure; each function yields marks for a typed batch."""

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
from router.showback.focus.rules import Mark
from router.showback.focus.texts import read_json
from router.showback.focus.typed_rows import Typed

# Of a cost (at least of 1): the tolerance of the official validator, for prices on a bill are rounded.
_TOLERANCE = Decimal("1e-9")
# Floats find what is surely right; what is not is looked at exactly.
_SURELY = 1e-12
_PRODUCTS = (("list-cost", "ListCost", "ListUnitPrice"), ("contracted-cost", "ContractedCost", "ContractedUnitPrice"))
_TAXLESS = ("PricingCategory", "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId")
_STATUS_OF = {"CommitmentDiscountStatus": "CommitmentDiscountId", "CapacityReservationStatus": "CapacityReservationId"}
_UNRELATED = ("Credit", "Adjustment")
_PARENTS = pa.array(list(words.CATEGORY_OF.values()))
_CHILDREN = pa.array(list(words.CATEGORY_OF))
Mask = NDArray[np.bool_]


def row_marks(rows: Typed, closed_until: datetime | None) -> Iterator[Mark]:
    """Marks of all rules below, columns by their name in the newest version. ``closed_until``: the end of the closed
    periods; None where it is not known, and corrections are not looked at."""
    for rule in _RULES:
        for name, column, mask in rule(rows):
            if mask.any():
                yield Mark(name, column, np.flatnonzero(mask))
    if closed_until is not None:
        late = _is(rows, "ChargeClass", "Correction") & _true(
            pc.greater_equal(rows.column("ChargePeriodStart"), closed_until)
        )
        if late.any():
            yield Mark("open-correction", "ChargeClass", np.flatnonzero(late))


Marked = Iterator[tuple[str, str, Mask]]


def _true(mask: pa.Array) -> Mask:
    found: Mask = pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False)
    return found


def _given(rows: Typed, name: str) -> Mask:
    return _true(rows.column(name).is_valid())


def _is(rows: Typed, name: str, *known: str) -> Mask:
    return _true(pc.is_in(rows.column(name), pa.array(known)))


def _correction(rows: Typed) -> Mask:
    return _is(rows, "ChargeClass", "Correction")


def _products(rows: Typed) -> Marked:
    quantity = rows.column("PricingQuantity")
    for rule, cost_name, price_name in _PRODUCTS:
        cost, price = rows.column(cost_name), rows.column(price_name)
        there = (
            _given(rows, cost_name) & _given(rows, price_name) & _given(rows, "PricingQuantity") & ~_correction(rows)
        )
        if not there.any():
            continue
        costs, product = _floats(cost), _floats(price) * _floats(quantity)
        doubtful = there & ~(np.abs(product - costs) <= _SURELY * np.abs(costs))
        for index in np.flatnonzero(doubtful):
            exact, value = price[index].as_py() * quantity[index].as_py(), cost[index].as_py()
            doubtful[index] = abs(exact - value) > _TOLERANCE * max(abs(value), Decimal(1))
        yield rule, cost_name, doubtful


def _floats(amounts: pa.Array) -> NDArray[np.float64]:
    found: NDArray[np.float64] = pc.fill_null(amounts.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    return found


def _prices_missing(rows: Typed) -> Marked:
    priced = _given(rows, "SkuPriceId") & ~_correction(rows) & ~_is(rows, "ChargeCategory", "Tax")
    for name in ("ListUnitPrice", "ContractedUnitPrice"):
        if name in rows.columns:
            yield "price-missing", name, priced & ~_given(rows, name)


def _pairs(rows: Typed) -> Marked:
    for quantity, unit in UNIT_OF.items():
        has_quantity, has_unit = _given(rows, quantity), _given(rows, unit)
        yield "unit-alone", unit, has_unit & ~has_quantity
        if unit in rows.columns:
            yield "quantity-alone", quantity, has_quantity & ~has_unit


def _sku_details(rows: Typed) -> Marked:
    yield "sku-details", "SkuPriceDetails", _given(rows, "SkuPriceDetails") & ~_given(rows, "SkuPriceId")
    yield "sku-meter", "SkuMeter", _given(rows, "SkuMeter") & ~_given(rows, "SkuId")


def _subcategories(rows: Typed) -> Marked:
    parents = _PARENTS.take(pc.index_in(rows.column("ServiceSubcategory"), _CHILDREN))
    yield "subcategory", "ServiceSubcategory", _true(pc.not_equal(parents, rows.column("ServiceCategory")))


def _taxes(rows: Typed) -> Marked:
    tax = _is(rows, "ChargeCategory", "Tax")
    for name in _TAXLESS if tax.any() else ():
        yield "tax-price", name, tax & _given(rows, name)


def _equal_costs(rows: Typed) -> Marked:
    """A tax may be reckoned on list prices too; what is owed of it is its cost."""
    related = _correction(rows) | _given(rows, "CommitmentDiscountId")
    alone, tax = _is(rows, "ChargeCategory", *_UNRELATED) & ~related, _is(rows, "ChargeCategory", "Tax") & ~related
    for name in COSTS[1:]:
        concerned = alone | tax if name == "EffectiveCost" else alone
        if concerned.any():
            yield "costs-differ", name, concerned & _true(pc.not_equal(rows.column(name), rows.column(COSTS[0])))


def _purchases(rows: Typed) -> Marked:
    wrong = _is(rows, "ChargeCategory", "Purchase") & _is(rows, "ChargeFrequency", "Usage-Based")
    yield "purchase-frequency", "ChargeFrequency", wrong


def _statuses(rows: Typed) -> Marked:
    for status, identity in _STATUS_OF.items():
        yield "status-alone", status, _given(rows, status) & ~_given(rows, identity)


def _periods(rows: Typed) -> Marked:
    start, end = rows.column("ChargePeriodStart"), rows.column("ChargePeriodEnd")
    opens, closes = rows.column("BillingPeriodStart"), rows.column("BillingPeriodEnd")
    yield "charge-period", "ChargePeriodEnd", _true(pc.less_equal(end, start))
    yield "billing-period", "BillingPeriodEnd", _true(pc.less_equal(closes, opens))
    # A purchase covers a term, a correction an earlier period.
    inside = _is(rows, "ChargeCategory", "Usage") & ~_correction(rows) & _true(pc.greater(closes, opens))
    yield "outside-period", "ChargePeriodStart", inside & _true(pc.less(start, opens))
    yield "outside-period", "ChargePeriodEnd", inside & _true(pc.greater(end, closes))


def _split_parts(rows: Typed) -> Marked:
    split = _given(rows, "AllocatedMethodId") | _given(rows, "AllocatedResourceId")
    if not split.any():
        return
    for name in ("AllocatedMethodId", "AllocatedMethodDetails", "AllocatedResourceId"):
        yield "split-part", name, split & ~_given(rows, name)
    tags, given = rows.column("Tags"), rows.column("AllocatedTags")
    lacking = np.zeros(rows.rows, dtype=np.bool_)
    for index in np.flatnonzero(split & _given(rows, "Tags")):
        lacking[index] = not _covers(given[index].as_py(), tags[index].as_py())
    yield "split-tags", "AllocatedTags", lacking


def _covers(given: str | None, tags: str) -> bool:
    try:
        return read_json(tags).items() <= read_json(given or "{}").items()
    except (ValueError, TypeError):
        return True  # not JSON, or not flat: another rule's business


_RULES: tuple[Callable[[Typed], Marked], ...] = (
    _products, _prices_missing, _pairs, _sku_details, _subcategories, _taxes, _equal_costs, _purchases, _statuses,
    _periods, _split_parts,
)  # fmt: skip
