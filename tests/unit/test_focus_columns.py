"""The columns, held against the FOCUS 1.4 data model that another project publishes, and the charge against the
columns."""

from __future__ import annotations

import dataclasses
import typing
from datetime import datetime
from decimal import Decimal

import pytest
from focus_data_toolkit.model import load_model
from focus_data_toolkit.schema import registry

from router.showback.focus.columns import (
    CATEGORY_OF,
    FOCUS_COLUMNS,
    NEWEST,
    OWN_COLUMNS,
    VERSIONS,
    Charge,
    ColumnRequirement,
    FocusColumnKind,
    columns_of,
    detect_version,
    match_columns,
    written_columns,
)

MODEL = load_model()["datasets"]["Cost and Usage"]["columns"]
KINDS = {"Decimal": {FocusColumnKind.DECIMAL}, "Date/Time": {FocusColumnKind.MOMENT}, "JSON": {FocusColumnKind.JSON}}
TEXTS = {FocusColumnKind.TEXT, FocusColumnKind.WORD, FocusColumnKind.UNIT, FocusColumnKind.CURRENCY}
PYTHON = {FocusColumnKind.DECIMAL: Decimal, FocusColumnKind.MOMENT: datetime}


@pytest.mark.parametrize(("version", "count"), [("1.0", 43), ("1.1", 50), ("1.2", 57), ("1.3", 65), ("1.4", 65)])
def test_each_version_has_as_many_columns_as_it_says(version: str, count: int) -> None:
    assert len(columns_of(version)) == count


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4"])
def test_columns_of_a_version_are_those_of_the_model(version: str) -> None:
    assert {column.name for column in columns_of(version)} == registry.version_columns("Cost and Usage", version)


@pytest.mark.parametrize("column", columns_of(NEWEST), ids=lambda column: column.name)
def test_a_column_is_what_the_model_says(column: typing.Any) -> None:
    said = MODEL[column.name]
    assert column.level.value == said["feature_level"].lower()
    assert column.nullable == said["allows_nulls"]
    assert column.negative == ("non-negative" not in said["value_format"])
    assert column.kind in KINDS.get(said["data_type"], TEXTS)
    assert (column.kind is FocusColumnKind.CURRENCY) == (said["value_format"] == "Currency")
    assert (column.kind is FocusColumnKind.UNIT) == (said["value_format"] == "Unit")
    assert column.words == frozenset(said["allowed_values"] or ())
    assert column.since == {"0.5": "1.0"}.get(said["version"], said["version"])


def test_each_subcategory_has_the_parent_that_the_model_gives_it() -> None:
    assert load_model()["service_subcategory_parents"] == CATEGORY_OF


@pytest.mark.parametrize("version", VERSIONS)
def test_a_whole_header_tells_its_version(version: str) -> None:
    assert detect_version([column.name for column in columns_of(version)]) == version


def test_a_header_without_the_old_names_is_of_the_version_that_dropped_them() -> None:
    names = {column.name for column in columns_of("1.4")} - {"CommitmentProgramEligibilityDetails", "InvoiceDetailId"}
    assert detect_version(names) == "1.4"
    assert detect_version(names | {"ProviderName"}) == "1.3"


def test_another_data_set_has_no_version_here() -> None:
    assert detect_version(["ContractCommitmentId", "ContractId", "BillingCurrency"]) is None


def test_old_names_fill_what_replaced_them_and_only_where_that_is_missing() -> None:
    assert match_columns(["ProviderName", "PublisherName"]) == {
        "ServiceProviderName": "ProviderName",
        "HostProviderName": "PublisherName",
    }
    assert match_columns(["ProviderName", "ServiceProviderName"]) == {"ServiceProviderName": "ServiceProviderName"}


def test_a_charge_has_a_field_for_each_column_and_no_other() -> None:
    fields = {field.name: field for field in dataclasses.fields(Charge)}
    kinds = typing.get_type_hints(Charge)
    assert list(fields) == [column.field for column in written_columns(NEWEST)]
    for column in written_columns(NEWEST):
        assert (fields[column.field].default is None) == column.nullable
        wanted = PYTHON.get(column.kind, str)
        if column.kind is not FocusColumnKind.JSON:
            assert kinds[column.field] == (wanted | None if column.nullable else wanted)


def test_own_columns_come_last_and_say_that_they_are_own() -> None:
    assert written_columns(NEWEST)[-len(OWN_COLUMNS) :] == OWN_COLUMNS
    assert all(column.name.startswith("x_") and column.level is ColumnRequirement.OWN for column in OWN_COLUMNS)
    assert not any(column.name.startswith("x_") for column in FOCUS_COLUMNS)
