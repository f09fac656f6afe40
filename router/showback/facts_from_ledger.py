"""Build facts of the ledger: columns of its plain rows, without making an entry of any. Pure.

Amounts of the ledger are whole nano-dollars, so that money here has nine places. Quantities are fractions there and
decimals here: 18 places, rounded half to even.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pricing.money import divide_half_even
from pricing.places import Market
from router.ledger.entry import CURRENCY, HOURS, STEPS, CostItem, LedgerEntryKind
from router.showback.facts import AMOUNT, COLUMNS, MOMENT, TEXT, FactSource, fit_column
from router.showback.focus.words import CATEGORY_OF_ENTRY, RecordState
from router.state.ledger_table import REPEATED, LedgerColumns

# The type of the ledger's money: whole nano-dollars.
NANOS: Final = pa.decimal128(38, 9)
ORIGIN: Final = "ledger"
_Fraction = tuple[int, int]
_PLACES = AMOUNT.scale
_WHOLE = pa.decimal128(38, 0)
_UNIT = 10**_PLACES
_LARGEST = 10**38
_SOURCES = {
    LedgerEntryKind.PLANNED.value: FactSource.PLANNED.value,
    LedgerEntryKind.METERED.value: FactSource.METERED.value,
}
_USAGE = "Usage"
# Text that many rows of the ledger share, and that facts have under the same name.
_SHARED_TEXTS: Final = tuple(field.name for field in COLUMNS if field.type == TEXT and field.name in REPEATED)
# The columns of the ledger's facts, narrower than those of files: money has nine places.
SCHEMA: Final = pa.schema(
    [
        field.with_type(NANOS) if field.name in ("billed", "effective", "list", "on_demand") else field
        for field in COLUMNS
    ]
)


def facts_of_rows(rows: LedgerColumns) -> pa.Table:
    """Return a fact for each row, with :data:`SCHEMA`.

    ``planned`` facts are no money spent. ``billed``, ``effective`` and ``list`` are what the ledger says; all are null,
    like ``on_demand``, where the row is unpriced. The on-demand price of an on-demand machine is its own where the
    ledger has none. ``state`` is Estimated, but Invoiced for what people added with a document's name.
    """
    count, shared = len(rows.seqs), _shared_columns(rows)
    columns = {
        "row": pa.array(rows.seqs, pa.int64()),
        "origin": pa.repeat(ORIGIN, count),
        "currency": pa.repeat(CURRENCY, count),
        "key": _text(rows.single["key"]),
        "resource": _text(rows.single["resource"]),
        "rank": pa.array(rows.single["rank"], pa.int64()),
        "start": _moments(rows.single["start_at"]),
        "end": _moments(rows.single["end_at"]),
        "recorded_at": _moments(rows.single["recorded_at"]),
        **shared,
        **_amounts(rows, shared),
    }
    nothing = pa.nulls(count, TEXT)
    return pa.table([fit_column(columns.get(field.name, nothing), field) for field in SCHEMA], schema=SCHEMA)


def _shared_columns(rows: LedgerColumns) -> dict[str, pa.Array]:
    kinds = rows.said("kind")
    columns = {name: _text(rows.said(name)) for name in _SHARED_TEXTS}
    added = pa.array([kind not in _SOURCES for kind in kinds])
    invoiced = pc.and_(added, pc.is_valid(columns["reference"]))
    columns |= {
        "source": pa.array([_SOURCES.get(kind, FactSource.ADDED.value) for kind in kinds], TEXT),
        "state": pc.if_else(invoiced, RecordState.INVOICED.value, RecordState.ESTIMATED.value),
        "category": pa.array([CATEGORY_OF_ENTRY.get(LedgerEntryKind(kind), _USAGE) for kind in kinds], TEXT),
        "month": _text(rows.said("period")),
        "unpriced": pa.array(rows.said("unpriced"), pa.int64()).cast(pa.bool_()),
    }
    places = pa.array(rows.places, pa.int32())
    return {name: column.take(places) for name, column in columns.items()}


def _amounts(rows: LedgerColumns, shared: dict[str, pa.Array]) -> dict[str, Any]:
    usd = pc.if_else(shared["unpriced"], None, dollars_of_nanos(pa.array(rows.single["usd_nanos"], pa.int64())))
    machine = pc.and_(pc.equal(shared["what"], CostItem.MACHINE.value), pc.equal(shared["unit"], HOURS))
    quantities = [_fraction(text) for text in rows.single["quantity"]]
    counts = [1 if count is None else count for count in rows.said("machines")]
    # A planned row has the accelerators of all its machines together, as a plan's lines do.
    accelerators = [
        (1 if kind == LedgerEntryKind.PLANNED.value else count) * (1 if each is None else each)
        for kind, count, each in zip(rows.said("kind"), counts, rows.said("accelerators"), strict=True)
    ]
    quantity = _products(quantities, itertools.repeat(1))
    hours = quantity if set(counts) == {1} else _products(quantities, [counts[place] for place in rows.places])
    steps, lost_steps = (pa.array(rows.single[name], pa.int64()) for name in ("steps", "lost_steps"))
    useful = pc.if_else(pc.greater(steps, 0), steps, None)
    lost_steps = pc.if_else(pc.greater(lost_steps, 0), lost_steps, None)
    has_steps = pc.or_(pc.is_valid(useful), pc.is_valid(lost_steps))
    return {
        "quantity": quantity,
        "hours": pc.if_else(machine, hours, None),
        "gpu_hours": pc.if_else(machine, _products(quantities, [accelerators[place] for place in rows.places]), None),
        "useful": useful,
        "lost": lost_steps,
        "useful_unit": pc.if_else(has_steps, pa.scalar(STEPS), None),
        "billed": usd,
        "effective": usd,
        "list": usd,
        "on_demand": _on_demand(rows, quantities, counts, shared, pc.if_else(machine, usd, None)),
    }


def _on_demand(
    rows: LedgerColumns,
    quantities: Sequence[_Fraction],
    counts: Sequence[int],
    shared: dict[str, pa.Array],
    usd: pa.Array,
) -> pa.Array:
    """Return the on-demand cost of machines with a price.

    Reserved capacity at no cost has none, for savings against it would be invented.
    """
    rates = rows.said("on_demand_usd_per_hour_nanos")
    on_demand = pc.if_else(
        pc.fill_null(pc.equal(shared["market"], Market.ON_DEMAND.value), fill_value=False), usd, None
    )
    if any(rate is not None for rate in rates):
        all_of_it = [None if rate is None else rate * count for rate, count in zip(rates, counts, strict=True)]
        each = [all_of_it[place] for place in rows.places]
        # The product may be more than 64 bits of nano-dollars, which money in the ledger never is.
        whole = [
            divide_half_even((rate or 0) * top, bottom) for rate, (top, bottom) in zip(each, quantities, strict=True)
        ]
        rated = pc.if_else(pa.array([rate is not None for rate in each]), _decimals(whole, NANOS), None)
        on_demand = pc.coalesce(rated, on_demand)
    # Reserved capacity at 0 is sunk, or was written down before its price was known: nothing is saved by it.
    reserved = pc.fill_null(pc.equal(shared["market"], Market.RESERVED.value), fill_value=False)
    free_reserved = pc.and_(reserved, pc.fill_null(pc.equal(usd, 0), fill_value=True))
    return pc.if_else(pc.and_(pc.is_valid(usd), pc.invert(free_reserved)), on_demand, None)


def dollars_of_nanos(whole: pa.Array) -> pa.Array:
    """Return whole nano-dollars (int64) as dollars with nine places, exactly."""
    wide = pc.cast(whole, _WHOLE)
    # These are the same 128 bits, read with the point nine places further left.
    return pa.Array.from_buffers(NANOS, len(wide), wide.buffers(), offset=wide.offset)


def _text(words: Sequence[Any]) -> pa.Array:
    return pa.array([word or None for word in words], TEXT)


def _moments(texts: Sequence[Any]) -> pa.Array:
    return pc.cast(pa.array(texts, TEXT), MOMENT)


def _fraction(text: Any) -> _Fraction:
    top, _, bottom = text.partition("/")
    return int(top), int(bottom or 1)


def _products(quantities: Iterable[_Fraction], times: Iterable[int]) -> pa.Array:
    pairs = zip(quantities, times, strict=False)
    return _decimals([divide_half_even(top * count * _UNIT, bottom) for (top, bottom), count in pairs], AMOUNT)


def _decimals(whole: Sequence[int], kind: pa.Decimal128Type) -> pa.Array:
    """Return whole numbers of the last place as decimals.

    They are made from 128 bits each, which takes a tenth of the time of Python decimals.
    """
    if max(map(abs, whole)) >= _LARGEST:
        raise ValueError(f"{max(whole, key=abs)}: an amount of more than 38 digits")
    data = b"".join([number.to_bytes(16, "little", signed=True) for number in whole])
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(data)])
