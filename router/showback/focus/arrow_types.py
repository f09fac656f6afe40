"""Map columns to Parquet types: exact decimals, moments in UTC, the rest as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from router.showback.focus.columns import FocusColumn, FocusColumnKind

# Places out of 38 digits. Costs and prices: bills print a double's 17 digits of a thousandth of a cent; 14 digits stay
# before the point. Quantities: bytes and their sums need more room before it.
MONEY_PLACES = 24
QUANTITY_PLACES = 18
_DIGITS = 38
MONEY = pa.decimal128(_DIGITS, MONEY_PLACES)
QUANTITY = pa.decimal128(_DIGITS, QUANTITY_PLACES)
MOMENT = pa.timestamp("us", tz="UTC")


def arrow_type(column: FocusColumn) -> pa.DataType:
    """Return the type of one column."""
    if column.kind is FocusColumnKind.DECIMAL:
        return MONEY if column.name.endswith(("Cost", "Price")) else QUANTITY
    return MOMENT if column.kind is FocusColumnKind.MOMENT else pa.string()


def arrow_schema(columns: Iterable[FocusColumn]) -> pa.Schema:
    """Return the schema of a file with those columns; each may be null, for bills leave out what they must not."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in columns])
