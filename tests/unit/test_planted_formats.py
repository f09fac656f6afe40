"""The planted month, reported: each reason for a difference has its amount in every format, read again."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest

from router.ledger.entry import CostBasis
from router.render.showback_text import as_wide
from router.render.tables import Screen
from router.showback.report.values import ShowbackReport
from tests.support.planted import planted
from tests.support.reconciled import connected, facts
from tests.support.showback_reports import BESIDE, Rows, exact_rows, report_of, short_forms
from tests.unit.test_planted_month import JOBS, november

FORMATS = ("json", "csv", "parquet", "xlsx", "html")
COLUMNS = ("price", "quantity", "mix", "waste", "unplanned", "credit", "timing")


@pytest.fixture(scope="module")
def month() -> ShowbackReport:
    with connected(planted()) as connection:
        beside = replace(BESIDE, aggregates=november(connection))
    return report_of(facts(planted()), beside=beside, basis=CostBasis.BILLED)


@pytest.fixture(scope="module")
def read(month: ShowbackReport) -> dict[str, Rows]:
    return {form: dict(sections)["variance"] for form, sections in exact_rows(month).items()}


@pytest.mark.parametrize("form", FORMATS)
def test_each_reason_has_its_amount(read: dict[str, Rows], form: str) -> None:
    rows = {row["job"]: row for row in read[form] if row["currency"] == "USD"}
    assert rows.keys() == {job or "__unallocated__" for job in JOBS}
    for job, (planned, _, buckets) in JOBS.items():
        row, wanted = rows[job or "__unallocated__"], {b.value: Decimal(usd) for b, usd in buckets.items()}
        found = {name: Decimal(row[f"by_{name}"] or 0) for name in COLUMNS}
        assert {name: usd for name, usd in found.items() if usd} == wanted, job
        assert Decimal(row["planned"] or 0) == Decimal(planned)
        assert Decimal(row["invoiced"] or 0) == Decimal(planned) + sum(found.values(), Decimal(0))


def test_what_people_read_has_them_to_the_cent(month: ShowbackReport) -> None:
    for text in (short_forms(month)["markdown"], as_wide(month, Screen(160))):
        part = text[text.upper().index("PLANNED, METERED, INVOICED") :]
        rows = [re.split(r"[ |]+", line.strip(" |").replace("\\", "")) for line in part.splitlines()]
        head = next(row for row in rows if row[0].upper() == "JOB")
        found = {
            (row[0], row[1]): dict(zip([name.lower() for name in head], row, strict=True))
            for row in rows
            if len(row) == len(head)
        }
        for job, (_, _, buckets) in JOBS.items():
            row, wanted = found[job or "__unallocated__", "USD"], {b.value: Decimal(usd) for b, usd in buckets.items()}
            for name in COLUMNS:
                cell = row[name]
                assert Decimal("0" if cell == "-" else cell.replace(",", "")) == wanted.get(name, 0), (job, name)


def test_styled_headings_change_no_column(month: ShowbackReport) -> None:
    for width in (80, 130):
        styled = as_wide(month, Screen(width, lambda heading: f"<{heading}>"))
        assert styled.count("\n<") > 5
        assert re.sub(r"(?m)^<(.*)>$", r"\1", styled) == as_wide(month, Screen(width))


def test_a_narrow_table_says_what_it_leaves_out(month: ShowbackReport) -> None:
    part = as_wide(month)[as_wide(month).index("PLANNED, METERED, INVOICED") :]
    assert "left out: Metered, " in part
    assert max(map(len, part.splitlines())) <= 80
