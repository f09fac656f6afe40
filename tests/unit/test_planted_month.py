"""A known amount put into each reason and each kind of waste comes back as exactly that amount, in every format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest

from router.ledger.entry import CostBasis
from router.ledger.month import Month
from router.render.showback_text import as_wide
from router.render.tables import Screen
from router.showback.reconcile.findings import FindingKind, ReconcileTolerance, collect_findings
from router.showback.reconcile.outcome import ExchangeRate, MatchOutcome, convert_currencies, read_outcome
from router.showback.reconcile.variance import (
    FactAggregate,
    VarianceBridge,
    VarianceBucket,
    aggregate_facts,
    compute_variances,
)
from router.showback.report.rollup_tables import planned_relation
from router.showback.report.values import ShowbackReport
from tests.support.planted import planted
from tests.support.reconciled import connected, facts
from tests.support.showback_reports import BESIDE, Rows, exact_rows, report_of, short_forms

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
P, Q, M, W, U, C, T = VarianceBucket
# By job, as the head of the file has them: planned, actual, and the buckets that are not 0.
JOBS: dict[str, tuple[str, str, dict[VarianceBucket, str]]] = {
    "price": ("100", "115", {P: "15"}),
    "quantity": ("100", "120", {Q: "20"}),
    "short": ("100", "70", {Q: "-30"}),
    "mix": ("100", "160", {M: "60"}),
    "blend": ("160", "190", {M: "30"}),
    "waste": ("100", "182.5", {W: "82.5"}),
    "extras": ("100", "115.3", {U: "15.3"}),
    "money": ("100", "75", {C: "-25"}),
    "euros": ("60", "0", {C: "-60"}),
    "late": ("100", "100", {T: "-30"}),
    "both": ("100", "146", {P: "12", Q: "20", W: "11", U: "3"}),
    "surprise": ("0", "20", {U: "20"}),
    "": ("0", "130.77", {W: "100", U: "30.77", T: "-8"}),
}
WASTE = {
    "startup": "16", "failed_launch": "2.5", "checkpoint_overhead": "10", "restart_lost_work": "20",
    "idle_allocated": "15", "overrun": "30", "commitment_unused": "40", "reservation_unused": "60",
}  # fmt: skip


@pytest.fixture(scope="module")
def month() -> Iterator[duckdb.DuckDBPyConnection]:
    with connected(planted()) as connection:
        yield connection


@pytest.fixture(scope="module")
def summed(month: duckdb.DuckDBPyConnection) -> tuple[FactAggregate, ...]:
    """The aggregates of November, all of whose plan has passed."""
    planned_facts = planned_relation(month, "facts", [Month(2026, 11)], END)
    return aggregate_facts(month, CostBasis.BILLED, planned=planned_facts, month="2026-11")


@pytest.fixture(scope="module")
def came_to(month: duckdb.DuckDBPyConnection) -> MatchOutcome:
    return read_outcome(month, CostBasis.BILLED, "2026-11")


def of(found: tuple[VarianceBridge, ...], *group: str | None, currency: str = "USD") -> VarianceBridge:
    return next(each for each in found if each.group == group and each.currency == currency)


def said(variance: VarianceBridge) -> dict[VarianceBucket, Decimal]:
    return {bucket: amount for bucket, amount in variance.buckets.items() if amount}


@pytest.mark.parametrize("job", JOBS)
def test_each_job_has_what_was_planted(summed: tuple[FactAggregate, ...], job: str) -> None:
    found = of(compute_variances(summed, ["job"]), job or None)
    planned, actual, buckets = JOBS[job]
    assert said(found) == {bucket: Decimal(amount) for bucket, amount in buckets.items()}
    assert (found.planned, found.actual) == (Decimal(planned), Decimal(actual))
    assert found.invoiced == found.actual + Decimal(buckets.get(T, 0))


def test_the_month_is_its_jobs(summed: tuple[FactAggregate, ...]) -> None:
    found = of(compute_variances(summed, []))
    amounts = (found.planned, found.metered, found.actual, found.invoiced)
    assert amounts == tuple(map(Decimal, ("1120", "1332.5", "1424.57", "1386.57")))
    want = {P: "27", Q: "10", M: "90", W: "193.5", U: "69.07", C: "-85", T: "-38"}
    assert said(found) == {bucket: Decimal(amount) for bucket, amount in want.items()}
    kinds = {kind: amount for (bucket, kind), amount in found.kinds.items() if bucket is W}
    assert kinds == {kind: Decimal(amount) for kind, amount in WASTE.items()}
    other = {kind: amount for (bucket, kind), amount in found.kinds.items() if bucket is C}
    want_other = {"credit": "-50", "tax": "36", "adjustment": "-1", "correction": "-10", "currency": "-60"}
    assert other == {kind: Decimal(amount) for kind, amount in want_other.items()}


def test_teams_are_their_jobs(summed: tuple[FactAggregate, ...]) -> None:
    found = of(compute_variances(summed, ["team"]), "speech")
    assert said(found) == {P: Decimal(27), Q: Decimal(10), M: Decimal(60), W: Decimal(11), U: Decimal(23)}


def test_attempts_use_the_plan_up(summed: tuple[FactAggregate, ...]) -> None:
    found = of(compute_variances(summed, ["job", "attempt"]), "both", "both-1")
    assert (found.planned, said(found)) == (
        Decimal(100),
        {P: Decimal(12), Q: Decimal(20), W: Decimal(11), U: Decimal(3)},
    )


def test_euros_stand_apart_until_somebody_names_a_rate(summed: tuple[FactAggregate, ...]) -> None:
    assert said(of(compute_variances(summed, []), currency="EUR")) == {C: Decimal(54)}
    rate = ExchangeRate("USD", Decimal("1.25"), date(2026, 11, 30), "treasury")
    found = of(compute_variances(convert_currencies(summed, {"EUR": rate}), ["job"]), "euros")
    # 6 hours at 11.25 dollars where 10 were planned.
    assert said(found) == {P: Decimal("7.5")}


def test_levels_hold_the_bills_sum(came_to: MatchOutcome) -> None:
    found = {(each.level.value, each.currency): each.amount for each in came_to.levels}
    want = {"resource": "956.5", "tags": "117.3", "sku_day": "190", "none": "122.77"}
    assert found == {**{(level, "USD"): Decimal(v) for level, v in want.items()}, ("resource", "EUR"): Decimal(54)}


def test_both_sides_list_what_stands_alone(came_to: MatchOutcome) -> None:
    assert [(each.what, each.amount) for each in came_to.unmatched] == [
        ("other", Decimal(15)),
        ("machine", Decimal("7.77")),
    ]  # what a commitment or reservation left unused is waste: that explains it
    (late,) = came_to.unbilled
    assert (late.job, late.amount, late.start, late.due) == (
        "late",
        Decimal(30),
        datetime(2026, 11, 9, 7, tzinfo=UTC),
        True,
    )
    assert came_to.estimated == {"USD": Fraction(30) / Fraction("1424.57"), "EUR": Fraction(0)}
    assert [each.through for each in came_to.reaches] == [datetime(2026, 11, 13, 1, tzinfo=UTC)]


def test_what_exceeds_a_hundredth_and_five_dollars_is_a_finding(
    summed: tuple[FactAggregate, ...], came_to: MatchOutcome
) -> None:
    found = collect_findings(compute_variances(summed, ["job"]), came_to, ReconcileTolerance())
    assert [(f.kind, f.where, f.difference) for f in found if f.kind is not FindingKind.PLAN] == [
        (FindingKind.PRICE, "speech price", Decimal(15)),
        (FindingKind.PRICE, "speech both", Decimal(13)),
        (FindingKind.CURRENCY, "search euros", None),
        (FindingKind.UNMATCHED, "aws - other", Decimal(15)),
        (FindingKind.UNMATCHED, "aws - machine", Decimal("7.77")),
        (FindingKind.UNBILLED, "aws - machine", Decimal(30)),
    ]
    plans = {f.where: f.why for f in found if f.kind is FindingKind.PLAN}
    assert plans["waste"] == "mostly waste (overrun)"
    assert plans["surprise"] == "mostly unplanned (machine)"
    assert set(plans) == set(JOBS) - {"late", ""}
    lenient = collect_findings(compute_variances(summed, ["job"]), came_to, ReconcileTolerance(amount=Decimal(1000)))
    assert [f.kind for f in lenient] == [FindingKind.CURRENCY]


FORMATS = ("json", "csv", "parquet", "xlsx", "html")
COLUMNS = ("price", "quantity", "mix", "waste", "unplanned", "credit", "timing")


@pytest.fixture(scope="module")
def reported(summed: tuple[FactAggregate, ...]) -> ShowbackReport:
    return report_of(facts(planted()), beside=replace(BESIDE, aggregates=summed), basis=CostBasis.BILLED)


@pytest.fixture(scope="module")
def read(reported: ShowbackReport) -> dict[str, Rows]:
    return {form: dict(sections)["variance"] for form, sections in exact_rows(reported).items()}


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


def test_what_people_read_has_them_to_the_cent(reported: ShowbackReport) -> None:
    for text in (short_forms(reported)["markdown"], as_wide(reported, Screen(160))):
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


def test_styled_headings_change_no_column(reported: ShowbackReport) -> None:
    for width in (80, 130):
        styled = as_wide(reported, Screen(width, lambda heading: f"<{heading}>"))
        assert styled.count("\n<") > 5
        assert re.sub(r"(?m)^<(.*)>$", r"\1", styled) == as_wide(reported, Screen(width))


def test_a_narrow_table_says_what_it_leaves_out(reported: ShowbackReport) -> None:
    part = as_wide(reported)[as_wide(reported).index("PLANNED, METERED, INVOICED") :]
    assert "left out: Metered, " in part
    assert max(map(len, part.splitlines())) <= 80
