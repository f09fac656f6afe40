"""One mistake among good rows: found, with its rule, its row, its line and its column; and good rows are left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.problems import InvalidInputError
from router.showback.focus.charge_files import WRITERS
from router.showback.focus.rules import RULES
from router.showback.focus.survey import FocusCheck, check_file
from tests.support.charge_files import Change, cell, changed, nine, renamed, without
from tests.support.golden_charges import golden_charges

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
ORIGIN = "x_SplitOriginId"

# The seeded mistakes of the published trial, in its order: what is done, and the rule that says so.
TABLE: dict[str, tuple[Change, str, str]] = {
    "PricingCategory = Spot": (cell("PricingCategory", "Spot"), "word", "PricingCategory"),
    "ListCost not price x quantity": (cell("ListCost", "5.01"), "list-cost", "ListCost"),
    "ContractedCost not price x quantity": (cell("ContractedCost", "5.01"), "contracted-cost", "ContractedCost"),
    "local time without Z": (cell("ChargePeriodStart", "2026-11-03T05:00:00"), "time", "ChargePeriodStart"),
    "bad currency code": (cell("BillingCurrency", "US$"), "currency", "BillingCurrency"),
    "tags not JSON": (cell("Tags", "team=speech"), "json", "Tags"),
    "category and subcategory disagree": (cell("ServiceCategory", "Storage"), "subcategory", "ServiceSubcategory"),
    "unit without quantity": (cell("ConsumedQuantity", ""), "unit-alone", "ConsumedUnit"),
    "SKU details without SKU price": (cell("SkuPriceId", ""), "sku-details", "SkuPriceDetails"),
    "ChargePeriodEnd before start": (
        cell("ChargePeriodEnd", "2026-11-03T04:59:00Z"), "charge-period", "ChargePeriodEnd",
    ),
    "BillingPeriodEnd before start": (
        cell("BillingPeriodEnd", "2026-10-01T00:00:00Z"), "billing-period", "BillingPeriodEnd",
    ),
}  # fmt: skip

MORE: dict[str, tuple[Change, str, str]] = {
    "nothing where something must be": (cell("ServiceName", ""), "null", "ServiceName"),
    "NULL in words": (cell("ResourceName", "NULL"), "null-word", "ResourceName"),
    "a word for unknown": (cell("RegionName", "Unassigned"), "missing-word", "RegionName"),
    "a plus sign": (cell("BilledCost", "+5"), "number", "BilledCost"),
    "a small e": (cell("x_GpuHours", "2e0"), "number", "x_GpuHours"),
    "no number": (cell("EffectiveCost", "five"), "unreadable", "EffectiveCost"),
    "no time": (cell("ChargePeriodStart", "2026-11-31T00:00:00Z"), "unreadable", "ChargePeriodStart"),
    "more decimals than are kept": (
        cell("x_OnDemandEquivalentCost", f"0.{'3' * 30}"), "rounded", "x_OnDemandEquivalentCost",
    ),
    "a price below zero": (
        cell("PricingCurrencyListUnitPrice", "-20"), "negative-price", "PricingCurrencyListUnitPrice",
    ),
    "a number as unit": (cell("ConsumedUnit", "1000"), "unit", "ConsumedUnit"),
    "a key twice": (cell("Tags", '{"team":"a","team":"b"}'), "json", "Tags"),
    "a list as tags": (cell("Tags", "[]"), "key-values", "Tags"),
    "NaN in JSON": (cell("Tags", '{"a":NaN}'), "json", "Tags"),
    "an own key": (cell("SkuPriceDetails", '{"GpuModel":"H100"}'), "json-key", "SkuPriceDetails"),
    "no price": (cell("ListUnitPrice", ""), "price-missing", "ListUnitPrice"),
    "a meter of no SKU": (cell("SkuId", ""), "sku-meter", "SkuMeter"),
    "quantity without unit": (cell("PricingUnit", ""), "quantity-alone", "PricingQuantity"),
    "purchase by use": (cell("ChargeCategory", "Purchase"), "purchase-frequency", "ChargeFrequency"),
    "status of nothing": (cell("CommitmentDiscountStatus", "Used"), "status-alone", "CommitmentDiscountStatus"),
    "before its billing period": (
        cell("ChargePeriodStart", "2026-10-31T23:00:00Z"), "outside-period", "ChargePeriodStart",
    ),
    "after its billing period": (cell("ChargePeriodEnd", "2026-12-01T00:00:01Z"), "outside-period", "ChargePeriodEnd"),
    "the same time twice": (cell("ChargePeriodStart", "2026-11-03T05:14:59Z", 6), "overlap", "ResourceId"),
    "tax with a price": (cell("ChargeCategory", "Tax"), "tax-price", "ListUnitPrice"),
    "waste of no kind": (cell("x_WasteKind", "coffee"), "word", "x_WasteKind"),
}  # fmt: skip


def rules(checked: FocusCheck) -> set[tuple[str, str]]:
    return set(checked.counts)


@pytest.mark.parametrize("mistake", [*TABLE, *MORE])
def test_a_mistake_is_found_where_it_is(mistake: str, tmp_path: Path) -> None:
    change, rule, column = (TABLE | MORE)[mistake]
    checked = check_file(changed(tmp_path / "f.csv", change))
    found = [each for each in checked.findings if (each.rule, each.column) == (rule, column)]
    assert len(found) == 1
    wrong = 6 if mistake == "the same time twice" else 5
    assert (found[0].row, found[0].line) == (wrong, wrong + 1)
    assert found[0].what
    assert found[0].why


@pytest.mark.parametrize("mistake", list(TABLE))
def test_the_older_version_is_held_against_the_same_table(mistake: str, tmp_path: Path) -> None:
    change, rule, column = TABLE[mistake]
    assert (rule, column) in rules(check_file(changed(tmp_path / "f.csv", change, version="1.2")))


def test_a_column_of_ones_own_without_the_prefix(tmp_path: Path) -> None:
    checked = check_file(changed(tmp_path / "f.csv", renamed("x_JobId", "JobId")))
    assert rules(checked) == {("unknown-column", "JobId")}


def test_a_mandatory_column_that_is_not_there(tmp_path: Path) -> None:
    assert rules(check_file(changed(tmp_path / "f.csv", without("InvoiceIssuerName")))) == {
        ("missing-column", "InvoiceIssuerName")
    }


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("version", ["1.4", "1.2"])
def test_golden_charges_keep_every_rule(form: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / f"golden.{form}"
    WRITERS[form](path, golden_charges(), version)
    checked = check_file(path, NOVEMBER)
    assert (checked.version, checked.rows, checked.counts) == (version, 60, {})


def test_a_correction_is_of_a_closed_period(tmp_path: Path) -> None:
    path = changed(tmp_path / "f.csv", lambda rows: None, golden_charges())
    assert check_file(path, NOVEMBER).counts == {}
    october = datetime(2026, 10, 1, tzinfo=UTC)
    assert check_file(path, october).counts == {("open-correction", "ChargeClass"): 1}


def test_ratios_of_a_split_sum_to_one(tmp_path: Path) -> None:
    def change(rows: list[dict[str, str]]) -> None:
        part = next(row for row in rows if row["x_SplitOriginId"])
        part["AllocatedMethodDetails"] = part["AllocatedMethodDetails"].replace("0.5", "0.499999999")

    checked = check_file(changed(tmp_path / "f.csv", change, golden_charges()))
    assert rules(checked) == {("split-ratio", "AllocatedMethodDetails")}


def test_parts_of_a_split_add_up_to_the_last_digit(tmp_path: Path) -> None:
    charges = list(golden_charges())
    at = next(i for i, each in enumerate(charges) if each.x_split_origin_id)
    charges[at] = replace(charges[at], billed_cost=charges[at].billed_cost + Decimal("1E-18"))
    assert rules(check_file(changed(tmp_path / "f.csv", lambda rows: None, charges))) == {("split-sum", "BilledCost")}


def test_parts_of_a_split_are_told_apart_without_an_origin(tmp_path: Path) -> None:
    def change(rows: list[dict[str, str]]) -> None:
        for row in rows:
            del row[ORIGIN]

    assert check_file(changed(tmp_path / "f.csv", change, golden_charges())).counts == {}


@pytest.mark.parametrize(
    ("column", "rule"),
    [("AllocatedTags", "split-tags"), ("AllocatedResourceId", "split-part"), ("AllocatedMethodDetails", "split-part")],
)
def test_a_part_of_a_split_says_whose_it_is(column: str, rule: str, tmp_path: Path) -> None:
    charges = golden_charges()
    at = next(i for i, each in enumerate(charges, 1) if each.x_split_origin_id)
    checked = check_file(changed(tmp_path / "f.csv", cell(column, "", at), charges))
    assert (rule, column) in rules(checked)


def test_a_credit_has_four_equal_costs_and_a_tax_two(tmp_path: Path) -> None:
    charges = golden_charges()
    rows = {each.charge_category: i for i, each in enumerate(charges, 1)}
    for category, columns in {
        "Credit": ("EffectiveCost", "ListCost", "ContractedCost"),
        "Tax": ("EffectiveCost",),
    }.items():
        for column in columns:
            path = changed(tmp_path / "f.csv", cell(column, "-7", rows[category]), charges)
            assert rules(check_file(path)) == {("costs-differ", column)}


def test_an_overlap_with_a_row_long_before_is_found(tmp_path: Path) -> None:
    first = nine()[0]
    long = replace(first, charge_period_end=first.charge_period_start.replace(hour=12))
    other = replace(first, resource_id="i-other")
    later = [
        replace(
            first,
            charge_period_start=first.charge_period_start.replace(hour=hour),
            charge_period_end=first.charge_period_start.replace(hour=hour, minute=1),
        )
        for hour in (6, 7, 12)
    ]
    checked = check_file(changed(tmp_path / "f.csv", lambda rows: None, [long, other, *later]))
    assert [(each.row, each.what) for each in checked.findings] == [(3, "overlaps row 1"), (4, "overlaps row 1")]


@pytest.mark.parametrize(("unit", "found"), [("Hours", 1), ("GB-Months", 1), ("GB", 0), ("Requests", 0)])
def test_only_what_is_metered_by_time_overlaps(unit: str, found: int, tmp_path: Path) -> None:
    first = replace(nine()[0], pricing_unit=unit)
    checked = check_file(changed(tmp_path / "f.csv", lambda rows: None, [first, first]))
    assert sum(each.rule == "overlap" for each in checked.findings) == found


def test_more_findings_than_are_kept_are_counted(tmp_path: Path) -> None:
    def change(rows: list[dict[str, str]]) -> None:
        for row in rows:
            row["BillingCurrency"] = "dollars"

    checked = check_file(changed(tmp_path / "f.csv", change), keep=2)
    assert checked.counts == {("currency", "BillingCurrency"): 9}
    assert [each.row for each in checked.findings] == [1, 2]
    assert checked.total == 9


def test_what_a_file_says_is_shown_without_control_characters(tmp_path: Path) -> None:
    checked = check_file(changed(tmp_path / "f.csv", cell("BillingCurrency", "\x1b[2J" + "x" * 500)))
    assert "\x1b" not in checked.findings[0].what
    assert len(checked.findings[0].what) < 100


def test_another_data_set_is_named(tmp_path: Path) -> None:
    path = tmp_path / "contracts.csv"
    path.write_text("ContractCommitmentId,ContractId\na,b\n")
    with pytest.raises(InvalidInputError, match=r"contracts\.csv:1: is FOCUS Contract Commitment, not Cost and Usage"):
        check_file(path)


def test_every_rule_is_seen_to_be_broken_here() -> None:
    """But for those that only a bill of a cloud breaks, which the tests of imports see."""
    here = {rule for _, rule, _ in (TABLE | MORE).values()}
    others = {
        "unknown-column",
        "missing-column",
        "open-correction",
        "split-ratio",
        "split-sum",
        "split-tags",
        "split-part",
        "costs-differ",
    }
    assert set(RULES) - here - others == {"absent-column", "binary-fraction", "column-name"}
