"""Sections of a report for the month's page: drivers, the bridge, teams, who has the waste, months."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from router.ledger.entry import MachineUse
from router.render.showback_view import month_page_of
from router.showback.focus.columns import WASTE_KINDS
from router.showback.report.query import BudgetUse, JobDue, MonthCost
from router.showback.report.spending import WASTE_ACTIONS
from router.showback.report.values import ShowbackReport
from tests.support.showback_reports import BESIDE, cost, one, report_of_rows, rows_of

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
OCTOBER = datetime(2026, 10, 3, 12, tzinfo=UTC)


def hours(amount: str, count: int = 1, **said: Any) -> dict[str, Any]:
    """Hours of one machine of eight accelerators for research/llama, metered where nothing else is said."""
    given: dict[str, Any] = {
        "team": "research", "job": "llama", "cloud": "aws", "region": "us-east-1", "market": "spot", "what": "machine",
        "use": "work", "unit": "Hours", "hours": Decimal(count), "gpu_hours": Decimal(8 * count), "start": NOON,
        "end": NOON + timedelta(hours=count), "source": "metered", "month": "2026-11", **said,
    }  # fmt: skip
    return cost(amount, **given)


def a_month() -> list[dict[str, Any]]:
    """40 planned; five hours metered at 10 and one of start-up; fees, and six other groups with smaller differences."""
    return [
        hours("40", 4, source="planned", plan="p1", use=None),
        hours("50", 5, attempt="a1"),
        hours("10", use="startup", attempt="a1"),
        cost("7", team=None, job=None, what="other", category="Usage", source="added", month="2026-11"),
        *(hours(f"{number}.01", job=f"small-{number}", use="idle_allocated", team="speech") for number in range(1, 7)),
    ]


def amounts(report: ShowbackReport, section: str, **wanted: object) -> list[Decimal]:
    return [row["amount"] for row in rows_of(report, section, **wanted)]


def test_five_drivers_and_their_sum_beside_the_whole() -> None:
    report = report_of_rows(a_month())
    rows = rows_of(report, "drivers")
    assert [(row["job"], row["difference"]) for row in rows] == [
        ("llama", 20),
        ("__unallocated__", 7),
        ("small-6", Decimal("6.01")),
        ("small-5", Decimal("5.01")),
        ("small-4", Decimal("4.01")),
    ]
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[-1]["together"] == sum(row["difference"] for row in rows) == Decimal("42.03")
    assert {row["whole"] for row in rows} == {one(report, "totals")["effective"] - 40}


def test_reasons_add_up_to_their_driver() -> None:
    report = report_of_rows(a_month())
    for row in rows_of(report, "drivers"):
        assert sum(amounts(report, "driver_reasons", number=row["number"])) == row["difference"]
    assert [(row["bucket"], row["kind"], row["amount"]) for row in rows_of(report, "driver_reasons", job="llama")] == [
        ("quantity", None, 10),
        ("waste", "startup", 10),
    ]


def test_a_job_without_machines_did_not_run() -> None:
    """Machines that are there are metered when they are gone; on a reservation they cost nothing."""
    rows = [
        hours("40", 4, source="planned", plan="p1", use=None, job="stayed"),
        hours("40", 4, source="planned", plan="p1", use=None, job="runs"),
        hours("40", 4, source="planned", plan="p1", use=None, job="free"),
        hours("0", 4, job="free"),
    ]
    dues = {name: JobDue(job=name, deadline=None, done_at=None, runs_now=name == "runs") for name in ("stayed", "runs")}
    report = report_of_rows(rows, beside=replace(BESIDE, dues=dues))
    found = {row["job"]: (row["bucket"], row["kind"]) for row in rows_of(report, "driver_reasons")}
    assert found == {"stayed": ("quantity", "not_run"), "runs": ("quantity", None), "free": ("price", None)}
    page = month_page_of(report)
    assert page is not None
    words = {each.who: [reason.words for reason in each.reasons] for each in page.main.drivers}
    assert words["research/stayed"] == ["did not run"]


@pytest.mark.parametrize(
    ("amounts", "cause"),
    [
        (("90", "11"), "90% of it did not run (research/large)"),
        (("51", "50"), "51% of it did not run (research/large)"),
        (("50", "31", "20"), "many reasons, the largest did not run (research/large)"),
    ],
)
def test_a_reason_is_the_cause_where_it_is_most_of_the_difference(amounts: tuple[str, ...], cause: str) -> None:
    """The plan has 101 dollars; one is spent, on what no plan has."""
    jobs = zip(("large", "small", "smallest"), amounts, strict=False)
    rows = [hours(usd, 4, source="planned", plan="p1", use=None, job=job) for job, usd in jobs]
    page = month_page_of(report_of_rows([*rows, hours("1", job="unplanned", use="idle_allocated")]))
    assert page is not None
    assert page.cause == cause


def test_hours_billed_in_another_currency_are_no_driver() -> None:
    rows = [
        hours("40", 4, source="planned", plan="p1", use=None),
        hours("90", 4, source="billed", currency="EUR"),
        hours("3", job="other", use="idle_allocated"),
    ]
    report = report_of_rows(rows)
    assert [(row["currency"], row["job"]) for row in rows_of(report, "drivers")] == [("USD", "other")]
    assert one(report, "bridge", currency="EUR", step="currency", side="bill")["amount"] == 90
    assert one(report, "bridge", currency="USD", step="spent")["amount"] == 3


def test_the_bridge_closes_on_each_side_of_metered() -> None:
    report = report_of_rows(
        [*a_month(), hours("12", 2, source="billed", job="unplanned"), hours("-2", category="Credit")]
    )
    steps = {(row["side"], row["step"]): row for row in rows_of(report, "bridge", currency="USD")}
    level = Decimal(0)
    for (_, step), row in steps.items():
        level = row["amount"] if step in ("planned",) else level + (0 if step in STATIONS else row["amount"])
        assert row["sum"] == level, step
        assert step not in STATIONS or row["amount"] == level
    assert steps["meter", "planned"]["amount"] == 40
    assert steps["meter", "metered"]["amount"] == Decimal("79.06")  # 50 + 10 + 19.06 by hand, less the credit
    assert steps["meter", "quantity"]["amount"] == 10
    assert steps["bill", "unplanned"]["amount"] == 19
    assert steps["bill", "spent"]["amount"] == one(report, "totals")["effective"]
    assert steps["bill", "invoiced"]["amount"] == 12


STATIONS = ("metered", "spent", "invoiced")


def test_without_a_bill_nothing_is_invoiced_and_without_a_plan_there_is_no_driver() -> None:
    report = report_of_rows([hours("5")])
    assert [row["step"] for row in rows_of(report, "bridge") if row["step"] in STATIONS] == ["metered", "spent"]
    assert "No bill has anything of the month yet." in report.section("bridge").notes
    assert report.section("drivers").notes == ("There are no drivers: nothing was planned.",)
    bills = report_of_rows([hours("5", source="billed")])
    assert bills.section("bridge").rows == ()


def test_teams_stand_beside_last_month_and_their_budget() -> None:
    budget = BudgetUse(scope="team research", currency="USD", budget=Decimal(50), hard=False, spent=Decimal(60))
    last = [hours("8", month="2026-10", start=OCTOBER, end=OCTOBER + timedelta(hours=1), team=team) for team in "ab"]
    report = report_of_rows([*a_month(), *last], beside=replace(BESIDE, budgets=(budget,)))
    assert [(row["team"], row["cost"]) for row in rows_of(report, "teams")] == [
        ("research", 60),
        ("speech", Decimal("21.06")),
        ("__unallocated__", 7),
        ("a", 0),
        ("b", 0),
    ]
    research = one(report, "teams", team="research")
    assert (research["budget"], research["budget_used"], research["mark"], research["waste"]) == (
        50,
        Decimal("1.2"),
        "over",
        10,
    )
    assert one(report, "teams", team="a")["last_month"] == 8
    assert sum(row["cost"] for row in rows_of(report, "teams")) == one(report, "totals")["effective"]


def test_waste_has_an_owner_and_an_action() -> None:
    report = report_of_rows([*a_month(), hours("9", use="idle_allocated", team="vision", job="big")])
    row = one(report, "waste", use="idle_allocated")
    assert (row["owner"], row["most_job"], row["most"]) == ("speech", "small-6", Decimal("6.01"))
    assert row["action"] == "Release machines when the job ends"


@pytest.mark.parametrize("use", sorted(WASTE_KINDS))
def test_each_kind_of_waste_has_one_sentence_to_act_on(use: str) -> None:
    assert WASTE_ACTIONS[use]
    assert MachineUse(use).is_waste


def test_months_are_those_that_are_known_and_the_reported_one_last() -> None:
    earlier = (
        MonthCost(month="2026-09", currency="USD", cost=Decimal(3), sealed=True),
        MonthCost(month="2026-10", currency="USD", cost=Decimal(8), sealed=True),
    )
    last = hours("9", month="2026-10", start=OCTOBER, end=OCTOBER + timedelta(hours=1))
    report = report_of_rows([hours("5"), last], beside=replace(BESIDE, months=earlier))
    assert [(row["month"], row["cost"], row["sealed"]) for row in rows_of(report, "months")] == [
        ("2026-09", 3, True),
        ("2026-10", 8, True),
        ("2026-11", 5, False),
    ]
