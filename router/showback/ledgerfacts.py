"""Facts of the ledger: its rows as plain text and numbers become columns, without an entry made of any. Pure.

Amounts of the ledger are whole nano-dollars, so that money here has nine places. Quantities are fractions there and
decimals here: 18 places, rounded half to even.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pricing.money import divide_half_even
from pricing.places import Market
from router.ledger.entry import HOURS, Kind, What
from router.showback.facts import AMOUNT, COLUMNS, MOMENT, TEXT, Source, State
from router.state.ledger_rows import NAMES, Row

# Of the ledger: whole nano-dollars.
NANOS: Final = pa.decimal128(38, 9)
ORIGIN: Final = "ledger"
CURRENCY: Final = "USD"
USEFUL_UNIT: Final = "Steps"
_PLACES = AMOUNT.scale
_WHOLE = pa.decimal128(38, 0)
_WIDE = Context(prec=80)
_SOURCES = {Kind.PLANNED.value: Source.PLANNED.value, Kind.METERED.value: Source.METERED.value}
# What FOCUS calls them, as router.showback.charging does, which takes long to import.
CATEGORIES: Final = {
    Kind.METERED: "Usage",
    Kind.FEE: "Purchase",
    Kind.CREDIT: "Credit",
    Kind.TAX: "Tax",
    Kind.ADJUSTMENT: "Adjustment",
}
_USAGE = "Usage"

# The columns of the ledger's facts, narrower than those of files: money has nine places.
SCHEMA: Final = pa.schema(
    [
        field.with_type(NANOS) if field.name in ("billed", "effective", "list", "on_demand") else field
        for field in COLUMNS
    ]
)


def facts_of(rows: Sequence[Row], names: Sequence[str] = NAMES) -> pa.Table:
    """A fact for each row (``(seq, *values, previous, hash)``, a value for each of ``names``), with :data:`SCHEMA`.

    ``planned`` facts are no money spent. ``billed``, ``effective`` and ``list`` are what the ledger says; all are null,
    like ``on_demand``, where the row is unpriced. What an on-demand machine cost is its own on-demand price where the
    ledger has none. ``state``: Estimated, but Invoiced of what people added with a document's name."""
    if not rows:
        return SCHEMA.empty_table()
    columns = list(zip(*rows, strict=True))
    given = dict(zip(names, columns[1:-2], strict=True))
    said = _Said(given, len(rows))
    made = {
        "row": pa.array(columns[0], pa.int64()),
        "origin": pa.repeat(ORIGIN, len(rows)),
        "currency": pa.repeat(CURRENCY, len(rows)),
        **_words(said),
        **_amounts(said),
    }
    return pa.table([_fit(made[field.name], field) for field in SCHEMA], schema=SCHEMA)


class _Said:
    """The columns of some rows by name; a name that the ledger does not have (yet) says nothing."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        self._columns = columns
        self.rows = rows

    def values(self, name: str) -> Sequence[Any]:
        found = self._columns.get(name)
        return [None] * self.rows if found is None else found

    def text(self, name: str) -> pa.Array:
        """Null where nothing stands."""
        values = self.values(name)
        distinct = set(values)
        if len(distinct) == 1:  # many columns say one thing a thousand times
            word = values[0] or None
            return pa.nulls(self.rows, TEXT) if word is None else pa.repeat(pa.scalar(word, TEXT), self.rows)
        found = pa.array(values, TEXT)
        return pc.if_else(pc.equal(found, ""), None, found) if "" in distinct else found

    def moment(self, name: str) -> pa.Array:
        return pc.cast(pa.array(self.values(name), TEXT), MOMENT)

    def number(self, name: str) -> pa.Array:
        return pa.array(self.values(name), pa.int64())


def _words(said: _Said) -> dict[str, Any]:
    kind, use = said.text("kind"), said.text("use")
    added = pc.invert(pc.is_in(kind, pa.array(list(_SOURCES), TEXT)))
    reference = said.text("reference")
    same = (
        "key", "team", "project", "cost_center", "job", "job_digest", "plan", "gang", "attempt", "cloud", "region",
        "zone", "instance_type", "market", "accelerator", "resource", "unit", "what", "price_as_of", "price_source",
        "reason", "who", "corrects",
    )  # fmt: skip
    return {
        **{name: said.text(name) for name in same},
        "use": use,
        "source": _mapped(kind, lambda word: _SOURCES.get(word, Source.ADDED.value)),
        "state": pc.if_else(pc.and_(added, pc.is_valid(reference)), State.INVOICED.value, State.ESTIMATED.value),
        "category": _mapped(kind, lambda word: CATEGORIES.get(Kind(word), _USAGE)),
        "month": said.text("period"),
        "start": said.moment("start_at"),
        "end": said.moment("end_at"),
        "recorded_at": said.moment("recorded_at"),
        "rank": said.number("rank"),
        "reference": reference,
    }


def _amounts(said: _Said) -> dict[str, Any]:
    unpriced = pc.cast(said.number("unpriced"), pa.bool_())
    usd = pc.if_else(unpriced, None, nanos(said.number("usd_nanos")))
    machine = pc.and_(pc.equal(said.text("what"), What.MACHINE.value), pc.equal(said.text("unit"), HOURS))
    quantities = said.values("quantity")
    hours = _products(quantities, said.values("machines"), None)
    # What is planned has the accelerators of all its machines together, as a plan's lines do.
    counts = [
        1 if kind == Kind.PLANNED.value else count
        for kind, count in zip(said.values("kind"), said.values("machines"), strict=True)
    ]
    gpus = _products(quantities, counts, said.values("accelerators"))
    steps, lost = said.number("steps"), said.number("lost_steps")
    useful = pc.if_else(pc.greater(steps, 0), steps, None)
    lost = pc.if_else(pc.greater(lost, 0), lost, None)
    some = pc.or_(pc.is_valid(useful), pc.is_valid(lost))
    return {
        "quantity": _products(quantities, None, None),
        "hours": pc.if_else(machine, hours, None),
        "gpu_hours": pc.if_else(machine, gpus, None),
        "useful": useful,
        "lost": lost,
        "useful_unit": pc.if_else(some, pa.scalar(USEFUL_UNIT), None),
        "unpriced": unpriced,
        "billed": usd,
        "effective": usd,
        "list": usd,
        "on_demand": _on_demand(said, usd, pc.and_(machine, pc.invert(unpriced))),
        "split_origin": pa.nulls(said.rows, TEXT),
        "split_method": pa.nulls(said.rows, TEXT),
        "account": said.text("account"),
        "sku": pa.nulls(said.rows, TEXT),
    }


def _on_demand(said: _Said, usd: pa.Array, priced: pa.Array) -> pa.Array:
    bought = pc.fill_null(pc.equal(said.text("market"), Market.ON_DEMAND.value), fill_value=False)
    rates = said.values("on_demand_usd_per_hour_nanos")
    if any(rate is not None for rate in rates):
        counts = (1 if count is None else count for count in said.values("machines"))
        whole = [
            None if rate is None else _over(rate * count, quantity)
            for rate, count, quantity in zip(rates, counts, said.values("quantity"), strict=True)
        ]
        worth = pa.array(whole, NANOS)
    else:
        worth = pa.nulls(said.rows, NANOS)
    return pc.if_else(priced, pc.coalesce(worth, pc.if_else(bought, usd, None)), None)


def _over(rate: int, quantity: str) -> Decimal:
    """A price for so long may be more than 64 bits of nano-dollars, which money in the ledger never is."""
    top, _, bottom = quantity.partition("/")
    return _WIDE.scaleb(Decimal(divide_half_even(rate * int(top), int(bottom or 1))), -NANOS.scale)


def nanos(whole: pa.Array) -> pa.Array:
    """Whole nano-dollars (int64) as dollars with nine places, exactly."""
    wide = pc.cast(whole, _WHOLE)
    # The same 128 bits, read with the point nine places further left.
    return pa.Array.from_buffers(NANOS, len(wide), wide.buffers(), offset=wide.offset)


def _products(quantities: Sequence[Any], times: Sequence[Any] | None, more: Sequence[Any] | None) -> pa.Array:
    """Of fractions such as ``7/2`` with whole numbers; each different one is reckoned once."""
    ones: Iterable[Any] = [1] * len(quantities)
    keys = list(zip(quantities, times or ones, more or ones, strict=True))
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    made = [_product(*key) for key in places]
    return pa.array(made, AMOUNT).take(pa.array([places[key] for key in keys], pa.int32()))


def _product(text: str, first: int, second: int) -> Decimal:
    top, _, bottom = text.partition("/")
    whole = divide_half_even(int(top) * first * second * 10**_PLACES, int(bottom or 1))
    return _WIDE.scaleb(Decimal(whole), -_PLACES)


def _mapped(words: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """Each different word once."""
    encoded = words.dictionary_encode()
    there = pa.array([None if word is None else change(word) for word in encoded.dictionary.to_pylist()], TEXT)
    return there.take(encoded.indices)


def _fit(column: Any, field: pa.Field) -> Any:
    return column if column.type == field.type else pc.cast(column, field.type)
