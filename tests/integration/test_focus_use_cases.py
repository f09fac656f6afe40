"""The published use cases of FOCUS 1.4, as SQL, over our export: all run, and to those whose answer can be worked out
by hand from the head of tests/golden/focus/november.csv they give that answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from router.showback.focus.charge_files import write_parquet
from router.showback.focus_from_ledger import ClosedBooks, charges_of_entries
from tests.support.focus_tools import use_cases
from tests.support.golden_charges import END, START, golden_charges
from tests.support.metered_month import ACCOUNTS, OCTOBER, month

pytestmark = pytest.mark.slow
ALL = 66
FROM, TO = START - timedelta(days=31), END + timedelta(seconds=1)
ASKED = {
    "Application": "asr", "PricingCurrency": "USD", "PricingUnit": "USD", "ResourceId": "i-a1",
    "ServiceName": "Amazon EC2", "ServiceProviderName": "AWS", "SubAccountID": "000044445555",
    "SubAccountId": "000044445555",
}  # fmt: skip
AWS, GOOGLE, NEBIUS = "AWS", "Google Cloud", "Nebius"
BILLED = {AWS: Decimal("646.3"), GOOGLE: Decimal("516.5"), NEBIUS: Decimal("215.985")}
# Of AWS, without what is below zero: all but nobody's and the shared node's has a team; all of it.
TAGGED, POSITIVE = Decimal("305.3") + 90 + 30 + 125 + 5, Decimal("646.3") + 50 + 10

# By query: the columns looked at, and their rows in any order. Amounts of one currency never meet another's here.
ANSWERS: dict[str, tuple[tuple[str, ...], set[tuple[Any, ...]]]] = {
    "analyze_credit_memos": (("ServiceProviderName", "TotalBilledCost"), {(AWS, Decimal(-50))}),
    "analyze_capacity_reservations_on_compute_costs": (
        ("Status", "ServiceProviderName", "TotalBilledCost"),
        {
            ("Unused Capacity Reservation", GOOGLE, Decimal(120)),
            ("Compute using Capacity Reservation", GOOGLE, Decimal(120)),
            ("Compute without Capacity Reservation", GOOGLE, Decimal("270.5")),
            ("Compute without Capacity Reservation", AWS, Decimal(611)),
            ("Compute without Capacity Reservation", NEBIUS, Decimal("214.485")),
        },
    ),
    "analyze_total_cost_by_allocated_resource": (
        ("AllocatedResourceId", "OriginResourceId", "TotalEffectiveCost", "ChargeCount"),
        {
            ("whisper-eval", "i-s1", Decimal("41.6666667"), 2),
            ("vit-eval", "i-s1", Decimal("31.66666665"), 2),
            ("rank-eval", "i-s1", Decimal("26.66666665"), 2),
        },
    ),
    "calculate_unit_economics": (
        ("ChargePeriodDate", "CostPerGB"),
        {(datetime(2026, 11, 3).date(), 0.09), (datetime(2026, 11, 9).date(), 0.12)},  # noqa: DTZ001  days
    ),
    "cash_vs_accrual_comparison_by_billing_period": (("CostBasisDifference",), set()),
    "commitment_discount_purchases": (
        ("CommitmentDiscountId", "ChargeFrequency", "TotalBilledCost"),
        {("sp-1", "Recurring", Decimal(120))},
    ),
    "effective_savings_rate_services": (
        ("ServiceName", "ContractedCost", "EffectiveCost"),
        {
            ("Amazon EC2", Decimal(791), Decimal(611)),
            ("Compute Engine", Decimal("510.5"), Decimal("510.5")),
            ("Compute Cloud", Decimal("214.485"), Decimal("214.485")),
            ("Amazon S3", Decimal("2.3"), Decimal("2.3")),
            ("Amazon EBS", Decimal(4), Decimal(4)),
            ("AWS Data Transfer", Decimal(9), Decimal(9)),
            ("Networking", Decimal(6), Decimal(6)),
            ("Amazon Bedrock", Decimal(5), Decimal(5)),
            ("Support", Decimal(15), Decimal(15)),
            ("Object Storage", Decimal("1.5"), Decimal("1.5")),
        },
    ),
    "identify_resources_with_shared_cost_allocation": (
        ("ResourceId", "AllocatedMethodId"),
        {("i-s1", "gpu-seconds-v1")},
    ),
    "identify_sources_of_billed_cost": (
        ("ServiceProviderName", "InvoiceId", "TotalBilledCost"),
        {(AWS, None, BILLED[AWS]), (GOOGLE, None, BILLED[GOOGLE]), (NEBIUS, "NB-2026-11", BILLED[NEBIUS])},
    ),
    "identify_unused_capacity_reservations": (
        ("CapacityReservationId", "TotalBilledCost", "TotalEffectiveCost"),
        {("cr-1", Decimal(120), Decimal(120))},
    ),
    "identify_unused_commitments": (
        ("CommitmentDiscountId", "TotalBilledCost", "TotalEffectiveCost"),
        {("sp-1", Decimal(0), Decimal(30))},
    ),
    "report_corrections": (("ServiceProviderName", "TotalBilledCost"), {(AWS, Decimal(-10))}),
    "resource_component_costs": (("ResourceId", "TotalEffectiveCost"), {("i-a1", Decimal(80))}),
    "update_budgets": (("ServiceProviderName", "TotalBilledCost"), set(BILLED.items())),
    "verify_accuracy_of_service_provider_invoices": (
        ("ServiceProviderName", "BillingCurrency", "TotalBilledCost"),
        {(AWS, "USD", BILLED[AWS]), (GOOGLE, "USD", BILLED[GOOGLE]), (NEBIUS, "EUR", BILLED[NEBIUS])},
    ),
}


@pytest.fixture(scope="module")
def queries() -> dict[str, str]:
    return use_cases("1.4")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("golden") / "november.parquet"
    write_parquet(path, golden_charges())
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW focus_data_table AS SELECT * FROM read_parquet('{path}')")
        yield connection


def answer(table: duckdb.DuckDBPyConnection, sql: str, asked: dict[str, str]) -> list[dict[str, Any]]:
    """Of a query: from October to the end of November, and what ``asked`` says where it wants a name."""
    # Through Arrow: DuckDB's own rows need pytz for a moment with a zone.
    relation = table.sql(sql, params=list(_parameters(sql, asked)))
    found: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()
    return found


def _parameters(sql: str, asked: dict[str, str]) -> Iterator[Any]:
    for mark in re.finditer(r"\?", sql):
        before = re.search(r"(\w+)['\")\s]*(>=|<=|<|=)\s*$", sql[: mark.start()])
        if before is None:
            yield "team"  # the key of a tag
        elif before[1].endswith(("Start", "End")):
            yield (FROM if before[2] == ">=" else TO).astimezone(UTC)
        else:
            yield asked[before[1]]


def test_there_are_as_many_as_there_were(queries: dict[str, str]) -> None:
    assert len(queries) == ALL


def test_all_run(queries: dict[str, str], table: duckdb.DuckDBPyConnection) -> None:
    failed = {}
    for name, sql in queries.items():
        try:
            answer(table, sql, ASKED)
        except duckdb.Error as error:
            failed[name] = str(error)
    assert failed == {}


def test_all_run_on_what_was_metered(queries: dict[str, str], tmp_path: Path) -> None:
    write_parquet(tmp_path / "metered.parquet", charges_of_entries(month(), ACCOUNTS, ClosedBooks(closed=OCTOBER)))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW focus_data_table AS FROM read_parquet('{tmp_path / 'metered.parquet'}')")
        for sql in queries.values():
            answer(connection, sql, ASKED)
        corrections = answer(connection, queries["report_corrections"], ASKED)
    assert {(row["ChargeCategory"], row["TotalBilledCost"]) for row in corrections} == {("Usage", 24), ("Credit", -10)}


@pytest.mark.parametrize("name", list(ANSWERS))
def test_what_can_be_worked_out_by_hand_is_the_answer(
    name: str, queries: dict[str, str], table: duckdb.DuckDBPyConnection
) -> None:
    columns, expected = ANSWERS[name]
    rows = answer(table, queries[name], ASKED)
    assert {tuple(row[column] for column in columns) for row in rows} == expected
    assert len(rows) == len(expected)


def test_coverage_of_a_tag(queries: dict[str, str], table: duckdb.DuckDBPyConnection) -> None:
    ((share,),) = (row.values() for row in answer(table, queries["analyze_tag_coverage"], ASKED))
    assert share == pytest.approx(float(TAGGED / POSITIVE * 100))
