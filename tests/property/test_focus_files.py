"""What is written is read again, whatever it is; the older version keeps what it has columns for; bytes are the same
again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.showback.focus.charge_files import WRITERS
from router.showback.focus.columns import NEWEST, RENAMED_COLUMNS, Charge, columns_of, written_columns
from tests.support.charge_reader import read_charges
from tests.support.made_up_charges import charges

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
