"""What is written is read again, whatever it is; the older version keeps what it has columns for; bytes are the same
again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.showback.focus.charge_files import WRITERS
from router.showback.focus.columns import (
    NEWEST,
    RENAMED_COLUMNS,
    Charge,
    FocusColumn,
    FocusColumnKind,
    columns_of,
    written_columns,
)
from tests.support.charge_files import read_charges

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


LOST = {column.field for column in columns_of(NEWEST)} - {
    column.field for column in columns_of("1.2")
}  # no column of 1.2 has that name
KEPT_BY_OLD_NAME = {column.field for column in columns_of(NEWEST) if column.name in RENAMED_COLUMNS.values()}
SOME = st.lists(charges(), min_size=1, max_size=3)
OFTEN = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def written(some: list[Charge], form: str, version: str) -> tuple[list[Charge], bytes]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"charges.{form}"
        assert WRITERS[form](path, some, version) == len(some)
        return list(read_charges(path)), path.read_bytes()


@pytest.mark.parametrize("form", sorted(WRITERS))
@OFTEN
@given(some=SOME)
def test_written_and_read_is_equal(form: str, some: list[Charge]) -> None:
    assert written(some, form, NEWEST)[0] == some


@pytest.mark.parametrize("form", sorted(WRITERS))
@OFTEN
@given(some=SOME)
def test_the_older_version_loses_what_it_has_no_columns_for_and_nothing_else(form: str, some: list[Charge]) -> None:
    lost: dict[str, Any] = dict.fromkeys(LOST - KEPT_BY_OLD_NAME)
    assert written(some, form, "1.2")[0] == [replace(each, **lost) for each in some]


@OFTEN
@given(some=SOME)
def test_the_same_charges_give_the_same_bytes(some: list[Charge]) -> None:
    assert written(some, "csv", NEWEST)[1] == written(list(some), "csv", NEWEST)[1]


def test_nothing_is_a_header() -> None:
    found, content = written([], "csv", NEWEST)
    assert found == []
    assert content.decode().split(",")[0] == written_columns(NEWEST)[0].name
    assert written([], "parquet", NEWEST)[0] == []
