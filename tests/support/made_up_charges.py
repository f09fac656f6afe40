"""Charges that nobody would make by hand, for properties: any text, amounts, moments and JSON that a file may hold."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from router.showback.focus.columns import NEWEST, Charge, FocusColumn, FocusColumnKind, written_columns

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
_AMOUNT = st.decimals(-(10**9), 10**9, places=9) | st.sampled_from([Decimal("0.000000000000000001"), Decimal("1E+3")])
_FROM, _TO = (datetime(1970, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001  the strategy adds the zone
_MOMENT = st.datetimes(_FROM, _TO, timezones=st.just(UTC))
_LEAF = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | _AMOUNT | _TEXT
_JSON = st.dictionaries(_TEXT, _LEAF | st.lists(st.dictionaries(_TEXT, _LEAF, max_size=2), max_size=2), max_size=3)
_OF = {FocusColumnKind.DECIMAL: _AMOUNT, FocusColumnKind.MOMENT: _MOMENT, FocusColumnKind.JSON: _JSON}


def _values(column: FocusColumn) -> st.SearchStrategy[Any]:
    if column.words:
        found: st.SearchStrategy[Any] = st.sampled_from(sorted(column.words))
    else:
        found = _OF.get(column.kind, _TEXT)
    return st.none() | found if column.nullable else found


def charges() -> st.SearchStrategy[Charge]:
    """Each field whatever its column may hold; the fields of one charge need not agree with each other."""
    return st.builds(Charge, **{column.field: _values(column) for column in written_columns(NEWEST)})
