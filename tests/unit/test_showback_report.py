"""What a report says, by small facts made by hand."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import openpyxl
import pytest

from router.ledger.entry import CostBasis
from router.ledger.month import Month
from router.render.showback_page import page
from router.render.showback_text import as_markdown, as_table, as_wide
from router.render.showback_view import month_page_of
from router.render.tables import Screen
from router.showback.apportion import sum_known
from router.showback.reconcile.variance import FactAggregate, FactSide
from router.showback.report.change import SeriesDay, ThingCost, explain_change, find_anomaly
from router.showback.report.export import report_to_csv, report_to_workbook
from router.showback.report.query import (
    BudgetUse,
    JobDue,
    QuoteResult,
    ReportInputs,
    ReportQuery,
)
from router.showback.report.values import CellKind, ShowbackReport, short_text
from router.showback.shared_costs import SharingMethod
from tests.support.showback_reports import (
    BESIDE,
    NOVEMBER,
    OVER,
    cost,
    exact_rows,
    one,
    report_of_rows,
    rows_of,
    short_forms,
)

FORMATS = ("json", "csv", "parquet", "xlsx", "html")
NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


def usage(amount: str, day: datetime = NOON, **said: Any) -> dict[str, Any]:
    """An hour of eight accelerators."""
    given: dict[str, Any] = {
        "team": "research", "job": "llama", "cloud": "aws", "market": "spot", "hours": Decimal(1), "unit": "Hours",
        "gpu_hours": Decimal(8), "quantity": Decimal(1), "start": day, "end": day + timedelta(hours=1),
        "month": f"{day:%Y-%m}", **said,
    }  # fmt: skip
    return cost(amount, **given)


def test_two_currencies_are_never_added() -> None:
    report = report_of_rows([usage("10"), usage("7", currency="EUR")])
    assert {row["currency"]: row["billed"] for row in report.section("totals").records()} == {"USD": 10, "EUR": 7}
    for section in report.sections:
        names = [column.name for column in section.columns]
        money = [column for column in section.columns if column.kind in ("money", "rate")]
        assert not money or "currency" in names or section.name == "quotes", section.name


def test_both_bases_stand_side_by_side_and_one_is_reckoned_with() -> None:
    covered = {**usage("0"), "effective": Decimal(30)}
    accrual, cash = (report_of_rows([covered], basis=basis) for basis in (CostBasis.EFFECTIVE, CostBasis.BILLED))
    for report in (accrual, cash):
        row = one(report, "groups")
        assert (row["billed"], row["effective"]) == (0, 30)
    assert one(accrual, "jobs")["per_accelerator_hour"] == Decimal("3.75")
    assert one(cash, "jobs")["per_accelerator_hour"] == 0


def test_what_has_no_price_is_counted_and_in_no_sum() -> None:
    disk = {"what": "disk", "unpriced": True, "team": "research", "unit": "GiB-Hours", "quantity": Decimal(200)}
    report = report_of_rows([usage("10"), disk])
    row = one(report, "totals")
    assert (row["billed"], row["facts"], row["unpriced"]) == (10, 2, 1)
    assert "Sums leave out unpriced rows" in " ".join(report.section("totals").notes)
    moved = one(report, "movement", what="disk")
    assert (moved["billed"], moved["quantity"], moved["unpriced"]) == (None, 200, 1)


@pytest.mark.parametrize("form", ["wide", "markdown"])
def test_unknown_never_prints_as_nothing(form: str) -> None:
    """SkyPilot #6680: machines of one's own showed as $0.00."""
    own = {"what": "machine", "unpriced": True, "team": "lab", "job": "toy", "hours": Decimal(5), "cloud": "static"}
    text = short_forms(report_of_rows([own]))[form].replace("|", " ")
    line = next(line for line in text.splitlines() if line.split()[:1] == ["lab"])
    assert "0.00" not in line
    assert "-" in line.split()


def test_planned_is_no_money_spent() -> None:
    planned = usage("40", source="planned", plan="p1", state="Estimated")
    report = report_of_rows([planned, usage("50", plan="p1")])
    assert one(report, "totals")["billed"] == 50
    job = one(report, "jobs")
    assert (job["planned"], job["billed"], job["off_plan"]) == (40, 50, 10)
    plan = one(report, "plans")
    assert (plan["planned"], plan["actual"], plan["difference"]) == (40, 50, 10)


def test_a_job_that_was_planned_and_never_ran_is_there() -> None:
    report = report_of_rows([usage("40", source="planned", job="later"), usage("1")])
    row = one(report, "jobs", job="later")
    assert (row["planned"], row["billed"], row["off_plan"]) == (40, None, None)


def test_a_failed_launch_costs_only_what_was_billed() -> None:
    """SkyPilot #1751: launches that never got capacity showed as $880."""
    report = report_of_rows([usage("2.5", use="failed_launch", attempt="a0"), usage("100", use="work", attempt="a1")])
    assert one(report, "waste")["effective"] == Decimal("2.5")
    assert one(report, "totals")["effective"] == Decimal("102.5")


def test_a_terminal_gets_a_sentence_tiles_and_groups() -> None:
    """A month of 14 cents: 0.12 and a billionth for a job that was planned at 0.10, 0.02 for another."""
    rows = [
        usage("0.10", source="planned", plan="p1"),
        usage("0.120000001", plan="p1"),
        usage("0.02", team="product", job="b", use="startup"),
    ]
    lines = as_table(report_of_rows(rows)).splitlines()
    assert lines[0] == "Showback 2026-11: books not known, no bill, effective cost"
    assert lines[2].startswith("November: $0.14 spent; $0.04 over plan, ")
    tiles = [line.split("  ")[0] for line in lines if line.startswith(("Spent ", "Budget used", "Month end", "Waste"))]
    assert tiles == ["Spent", "Budget used", "Month end", "Waste"]
    groups = [line.split()[:3] for line in lines[lines.index("BY TEAM") + 2 :]]
    assert groups[:3] == [["research", "USD", "0.12"], ["product", "USD", "0.02"], ["all", "USD", "0.14"]]
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert "e-" not in as_wide(report_of_rows(rows)).replace("Pre-", "").replace("use-", "")


def test_wide_in_a_pipe_has_all_rows_and_in_a_terminal_the_first() -> None:
    report = report_of_rows(usage("1", job=f"job-{number:02}") for number in range(30))
    piped, shown = as_wide(report), as_wide(report, Screen(80, lambda text: f"*{text}*"))
    assert "... and" not in piped
    assert "job-29" in piped
    assert "... and 10 more" in shown


def test_a_month_with_nothing_says_so() -> None:
    assert "Nothing is spent in the books of 2026-11, and nothing planned" in as_table(report_of_rows([]))
    planned = usage("40", source="planned", plan="p1")
    assert "yet; -o wide has what was planned" in as_table(report_of_rows([planned]))


@pytest.mark.parametrize(
    ("amount", "kind", "text"),
    [
        ("-0.0000000012", CellKind.MONEY, ">-0.01"),
        ("0.004", CellKind.MONEY, "<0.01"),
        ("0.006", CellKind.MONEY, "0.01"),
        ("0", CellKind.MONEY, "0.00"),
        ("0.0000123", CellKind.RATE, "0.000012"),
        ("0.0042", CellKind.RATE, "0.0042"),
    ],
)
def test_small_amounts_have_no_exponent(amount: str, kind: CellKind, text: str) -> None:
    assert short_text(Decimal(amount), kind) == text


@pytest.mark.parametrize("form", ["wide", "markdown"])
def test_totals_stand_at_the_bottom(form: str) -> None:
    """SkyPilot #1751, #6681: sums at the bottom, of all teams."""
    rows = [usage("10"), usage("5", team="product", job="b"), usage("2", team=None, job=None)]
    lines = short_forms(report_of_rows(rows))[form].splitlines()
    said = [" ".join(line.replace("|", " ").split()) for line in lines]
    heads = [n for n, line in enumerate(said) if line.lstrip("# ").upper() == "TOTALS"]
    assert heads
    assert heads[0] > max(n for n, line in enumerate(said) if line.startswith("research"))
    assert any(line.startswith("USD 17.00 17.00") for line in said[heads[0] :])
    assert any(line.startswith("all USD 17.00 17.00") for line in said)


IDLE: dict[str, Any] = {"use": "idle_allocated", "team": None, "job": None}


FIXED = {("research",): Decimal("0.2"), ("product",): Decimal("0.6")}


@cache
def shared_month(method: SharingMethod) -> ShowbackReport:
    """Research cost 60, product 30; an idle machine 9 and a tax of 6 are nobody's. Made once for all forms."""
    tax = cost("6", category="Tax", what="other")
    rows = [usage("60"), usage("30", team="product", job="b"), usage("9", **IDLE), tax]
    return report_of_rows(rows, share=method, fixed=FIXED if method is SharingMethod.FIXED else None)


def test_idle_is_a_line_of_its_own_where_nothing_is_shared() -> None:
    report = shared_month(SharingMethod.NONE)
    assert {row["team"]: row["after"] for row in report.section("groups").records()} == {
        "research": 60,
        "product": 30,
        "__unallocated__": 15,
    }


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        (SharingMethod.WEIGHTED, {"research": "70", "product": "35"}),  # 15 x 60/90, 15 x 30/90
        (SharingMethod.EVEN, {"research": "67.5", "product": "37.5"}),
        (SharingMethod.FIXED, {"research": "63", "product": "39"}),
    ],
    ids=["weighted", "even", "fixed"],
)
def test_shared_costs_are_in_every_format(form: str, method: SharingMethod, wanted: dict[str, str]) -> None:
    """Kubecost #665, #1367, #2318, #2319: shared costs were missing from CSV, PDF and mails."""
    report = shared_month(method)
    found = dict(exact_rows(report)[form])
    groups = {row["team"]: row for row in found["groups"] if not row["pot"]}
    assert {team: row["after"] for team, row in groups.items()} == wanted
    assert {team: row["effective"] for team, row in groups.items()} == {"research": "60", "product": "30"}
    pots = {row["pot"]: row["effective"] for row in found["groups"] if row["pot"]}
    assert pots == {"idle": "9", "tax": "6"}
    handed = {(row["pot"], row["group"]): row for row in found["shared"]}
    row = handed["idle", "research"]
    assert (row["method"], row["pot_amount"], row["before"], row["after"]) == (method, "9", "60", wanted["research"])
    total = sum(Decimal(row["after"]) for row in found["groups"])
    assert total == Decimal(105)


@pytest.mark.parametrize("form", ["wide", "markdown"])
def test_shared_costs_are_in_what_is_mailed(form: str) -> None:
    text = short_forms(shared_month(SharingMethod.WEIGHTED))[form].replace("|", " ")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(re.match(r"research USD - 60\.00 60\.00 (57\.1% )?(- )?10\.00 70\.00", line) for line in lines), text
    assert any("idle" in line and "research" in line and "weighted" in line and "6.00" in line for line in lines)


def test_a_change_is_explained_to_the_last_digit() -> None:
    """By hand: 10 h at 2 and 10 h at 4 become 30 h at 3 and 10 h at 4. C0 = 60, mean 3; C1 = 130.
    volume (40 - 20) x 3 = 60; price (3 - 2) x 30 = 30; mix 130 - 60 - 60 - 30 = -20. A fee of 5 is other."""
    a, b, fee = (
        ("machine", "aws", "r", "a", "spot"),
        ("machine", "gcp", "r", "b", "spot"),
        ("other", None, None, None, None),
    )
    before = [ThingCost(a, "Hours", Decimal(20), Decimal(10)), ThingCost(b, "Hours", Decimal(40), Decimal(10))]
    now = [
        ThingCost(a, "Hours", Decimal(90), Decimal(30)),
        ThingCost(b, "Hours", Decimal(40), Decimal(10)),
        ThingCost(fee, None, Decimal(5), None),
    ]
    assert explain_change(before, now) == {"volume": 60, "price": 30, "mix": -20, "other": 5}


def test_the_change_of_a_report_is_that_of_its_totals() -> None:
    october = datetime(2026, 10, 6, 12, tzinfo=UTC)
    rows = [
        usage("20", october),
        usage("25"),
        usage("25"),
        usage("7", market="on_demand"),
        cost("3", category="Tax", what="other"),
    ]
    report = report_of_rows(rows)
    total = one(report, "totals")
    assert (total["last_month"], total["change"]) == (20, 40)
    buckets: dict[Any, Any] = {row["bucket"]: row["amount"] for row in report.section("change").records()}
    assert buckets == {"volume": 40, "price": 10, "mix": -13, "other": 3}
    assert sum_known(buckets.values()) == total["change"]


def test_a_month_that_is_over_has_no_forecast_and_an_open_one_has() -> None:
    days = [usage("10", NOON + timedelta(days=n)) for n in range(8)]
    over = report_of_rows(days)
    assert one(over, "totals")["forecast"] is None
    open_month = report_of_rows(days, now=datetime(2026, 11, 11, tzinfo=UTC))
    assert one(open_month, "totals")["forecast"] == Decimal("80") + 20 * Decimal(10)
    parts = {row["part"]: row["forecast"] for row in rows_of(open_month, "forecast")}
    assert parts == {"booked": 80, "nights": 200, "all": 280}
    assert rows_of(over, "forecast") == []
    assert over.section("forecast").notes == ("No forecast: the month is over.",)


def test_a_reservation_and_a_fee_of_two_months_are_parts_of_the_forecast() -> None:
    """From the third day on, 10 a day on spot and 4 reserved, and 50 on the 28th of both months before."""
    days = [usage("10", NOON + timedelta(days=n)) for n in range(8)]
    days += [usage("4", NOON + timedelta(days=n), market="reserved") for n in range(8)]
    for month in (9, 10):
        begin = datetime(2026, month, 28, tzinfo=UTC)
        said = {"source": "added", "category": "Purchase", "what": "other", "month": f"2026-{month:02d}"}
        days.append(cost("50", start=begin, end=begin + timedelta(days=1), **said))
    report = report_of_rows(days, now=datetime(2026, 11, 11, tzinfo=UTC))
    parts = {row["part"]: row["forecast"] for row in rows_of(report, "forecast")}
    assert parts == {"booked": 112, "charges": 50, "commitments": 80, "nights": 200, "all": 442}


def test_an_unusual_day_and_its_likely_cause() -> None:
    """Tuesdays at 100 (10 machines, an hour, 10 dollars); on 2026-11-24 the price is four times that."""
    tuesdays = [datetime(2026, 11, 24, 12, tzinfo=UTC) - timedelta(weeks=n) for n in range(1, 7)]
    usual = [usage("10", day, rank=n) for day in tuesdays for n in range(10)]
    dear = [usage("40", datetime(2026, 11, 24, 12, tzinfo=UTC), rank=n) for n in range(10)]
    row = one(report_of_rows([*usual, *dear]), "anomalies")
    assert (row["day"], row["team"], row["cost"], row["usual"]) == (date(2026, 11, 24), "research", 400, 100)
    assert (row["cause"], row["times"]) == ("price of an hour", 4)
    many = [usage("10", datetime(2026, 11, 24, 12, tzinfo=UTC), rank=n) for n in range(30)]
    assert one(report_of_rows([*usual, *many]), "anomalies")["cause"] == "number of machines"
    long = [{**usage("30", datetime(2026, 11, 24, 12, tzinfo=UTC), rank=n), "hours": Decimal(3)} for n in range(10)]
    assert one(report_of_rows([*usual, *long]), "anomalies")["cause"] == "run time"


def test_small_sums_and_short_histories_are_no_anomalies() -> None:
    tuesdays = [datetime(2026, 11, 24, 12, tzinfo=UTC) - timedelta(weeks=n) for n in range(1, 7)]
    small = [usage("1", day) for day in tuesdays] + [usage("15", datetime(2026, 11, 24, 12, tzinfo=UTC))]
    assert rows_of(report_of_rows(small), "anomalies") == []
    short = [usage("100", day) for day in tuesdays[:3]] + [usage("900", datetime(2026, 11, 24, 12, tzinfo=UTC))]
    assert rows_of(report_of_rows(short), "anomalies") == []


def test_a_day_without_a_usual_level_is_not_unusual() -> None:
    """A team that runs on some Tuesdays only; the median of the six before is nothing."""
    tuesdays = [datetime(2026, 11, 24, 12, tzinfo=UTC) - timedelta(weeks=n) for n in range(7)]
    rows = [usage("500", tuesdays[0]), usage("400", tuesdays[3]), usage("1", tuesdays[6])]
    assert rows_of(report_of_rows(rows), "anomalies") == []


def test_a_factor_below_its_usual_level_is_no_cause() -> None:
    """Price, run time and number of machines are compared with days on which something ran, the cost with all."""
    usual, empty = SeriesDay(Decimal(30), Decimal(3), 3), SeriesDay(Decimal(0), Decimal(0), 0)
    row = find_anomaly({0: usual, 7: usual, 14: usual, 21: usual, 28: replace(usual, cost=Decimal(90))}, 28)
    assert row is not None
    assert (row["cause"], row["times"]) == ("price of an hour", 3)
    one, ten, nine = (SeriesDay(Decimal(10 * count), Decimal(count), count) for count in (1, 10, 9))
    row = find_anomaly({0: ten, 7: empty, 14: ten, 21: one, 28: empty, 35: nine}, 35)
    assert row is not None
    assert (row["usual"], row["cause"], row["times"]) == (10, "not known", 9)


def test_corrections_are_listed_with_their_row() -> None:
    late = usage(
        "-10", datetime(2026, 10, 20, tzinfo=UTC), month="2026-11", corrects="2026-10", reason="refund", row=77
    )
    row = one(report_of_rows([usage("50"), late]), "corrections")
    assert (row["corrects"], row["billed"], row["reason"], row["row"]) == ("2026-10", -10, "refund", 77)


def test_the_days_end_at_the_month_whatever_time_its_costs_are_of() -> None:
    """A late hour of October, a fee of all November in odd digits, support that lasts into December, and 4e-10."""
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    rows = [
        usage("50"),
        usage("-0.0000000004"),
        usage("-10", datetime(2026, 10, 20, tzinfo=UTC), month="2026-11", corrects="2026-10"),
        cost("100.00000000000000000001", what="other", start=begin, end=begin + timedelta(days=30), month="2026-11"),
        cost("31", what="other", start=begin + timedelta(days=28), end=begin + timedelta(days=36), month="2026-11"),
    ]
    report = report_of_rows(rows)
    days, total = rows_of(report, "days"), one(report, "totals")["effective"]
    assert total == Decimal("170.99999999960000000001")
    assert (sum(row["effective"] for row in days), days[-1]["sum"], days[0]["day"]) == (
        total,
        total,
        date(2026, 10, 20),
    )
    figures = month_page_of(report)
    assert figures is not None
    drawn = figures.main.days
    assert (drawn[0][0], drawn[-1]) == (date(2026, 11, 1), (date(2026, 11, 30), total))


def test_the_plan_of_a_job_that_has_ended_does_not_grow() -> None:
    """A plan for four hours at 10 counts 20 after two; once the job has ended it counts 40 at any time, as planned."""
    line = usage(
        "40", datetime(2026, 11, 3, 10, tzinfo=UTC), source="planned", plan="p1", end=NOON + timedelta(hours=2)
    )
    for now, running in ((NOON, 20), (NOON + timedelta(minutes=30), 25), (OVER, 40)):
        assert one(report_of_rows([line], now=now), "jobs")["planned"] == running
        assert one(report_of_rows([line], now=now, cuts={("p1", "llama"): None}), "jobs")["planned"] == 40


def test_what_is_known_beside_the_facts() -> None:
    done = datetime(2026, 11, 4, tzinfo=UTC)
    beside = ReportInputs(
        origin="by hand",
        input_hash="0" * 16,
        closed=True,
        budgets=(
            BudgetUse(scope="all", currency="USD", budget=Decimal(100), hard=True, spent=Decimal(50)),
            BudgetUse(scope="team research", currency="USD", budget=Decimal(40), hard=False, spent=Decimal(50)),
        ),
        dues={"llama": JobDue(job="llama", deadline=done + timedelta(hours=1), done_at=done)},
        quotes=(
            QuoteResult(
                quote="quote-1",
                job="llama",
                deadline=done,
                promised=Decimal("0.9"),
                p50=Decimal(40),
                p90=Decimal(60),
                cost=Decimal(50),
                p50_at=done,
                p90_at=done,
                done_at=done,
            ),
        ),
        aggregates=tuple(
            FactAggregate(
                side=side, currency="USD", job="llama", money=Decimal(money), hours=Decimal(hours), start=done
            )
            for side, money, hours in ((FactSide.PLANNED, 40, 4), (FactSide.METER, 50, 5), (FactSide.BILLED, 51, 5))
        ),
        warnings=("3 entries were archived",),
    )
    report = report_of_rows([usage("50")], beside=beside)
    total = one(report, "totals")
    assert (total["budget"], total["budget_used"]) == (100, Decimal("0.5"))
    assert [row["mark"] for row in report.section("budgets").records()] == ["50%", "over"]
    assert one(report, "jobs")["deadline_met"] is True
    assert one(report, "quotes")["within_p90"] is True
    assert (one(report, "variance")["by_quantity"], one(report, "variance")["by_price"]) == (10, 1)
    assert "warning" in as_table(report)
    assert "3 entries were archived" in page(report)
    nothing = report_of_rows([usage("50")], beside=BESIDE)
    assert nothing.section("variance").notes == ("No bill was reconciled.",)
    assert nothing.section("budgets").notes == ("Budgets were not looked at.",)
    assert one(nothing, "jobs")["deadline_met"] is None


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "＠x"]


def test_nothing_is_a_formula_in_files_for_people() -> None:
    # Teams come in the order of what they cost.
    report = report_of_rows([usage(str(20 - place), team=text) for place, text in enumerate(FORMULAS)])
    rows = list(csv.DictReader(io.StringIO(report_to_csv(report), newline="")))
    assert [row["team"] for row in rows if row["section"] == "groups"] == [f"'{text}" for text in FORMULAS]
    book = openpyxl.load_workbook(io.BytesIO(report_to_workbook(report, OVER)))
    cells = [book[report.section("groups").title][f"A{row}"] for row in range(2, 2 + len(FORMULAS))]
    assert {cell.data_type for cell in cells} == {"s"}
    assert all(str(cell.value).startswith("'") for cell in cells)


def test_negative_amounts_stay_numbers() -> None:
    report = report_of_rows([usage("10"), cost("-4", category="Credit", what="other")])
    rows = [row for row in csv.DictReader(io.StringIO(report_to_csv(report), newline="")) if row["section"] == "groups"]
    assert [row["billed"] for row in rows] == ["10", "-4"]


def test_a_page_opens_offline_and_lets_nothing_in() -> None:
    evil = '<script>alert(1)</script>"&'
    text = page(report_of_rows([usage("10", team=evil, job=evil)]))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
    assert "style-src 'sha256-" in text
    for word in ("http://", "https://", "src=", " style=", "onload", "@import"):
        assert word not in text, word
    assert set(re.findall(r"url\((.)", text)) == {"#"}  # hatches of the page itself


def test_no_column_is_lost_on_paper_or_on_a_narrow_screen() -> None:
    """A table with more columns than fit has each value with its label, and nothing of it is hidden."""
    said: dict[str, Any] = {
        "useful": Decimal(500),
        "useful_unit": "Steps",
        "lost": Decimal(3),
        "on_demand": Decimal(30),
        "attempt": "a",
    }
    text = page(report_of_rows([usage("10", **said), usage("7", currency="EUR", **said)]))
    jobs = text[text.index('id="jobs"') : text.index("</div>", text.index('id="jobs"'))]
    heads = re.findall(r'<th(?: class="r")? scope="col">([^<]+)</th>', jobs)
    assert len(heads) > 13
    assert '<table class="lab flow">' in jobs
    for row in re.findall(r"<tr><td.*?</tr>", jobs):
        assert re.findall(r'data-l="([^"]+)"', row) == heads
    assert not re.search(r"display:none[^}]*}", "".join(re.findall(r"\.flow[^{]*{[^}]*}", text)))
    assert text.count('id="days"') == 1


def test_each_currency_has_its_own_pictures() -> None:
    text = page(report_of_rows([usage("10"), usage("7", currency="EUR")]))
    for currency in ("USD", "EUR"):
        assert text.count(f'aria-label="Waterfall from planned to invoiced, {currency}.') == 3
        assert text.count(f'aria-label="Spent so far by day in {currency},') == 3


def test_markdown_and_terminals_obey_nothing() -> None:
    report = report_of_rows([usage("10", team="a|b`c\x1b[31m*d*")])
    assert "\x1b" not in as_table(report)
    assert "\x1b" not in as_wide(report)
    assert "\x1b" not in as_markdown(report)
    assert "a\\|b\\`c" in as_markdown(report)


def test_wrong_questions_are_refused() -> None:
    for by in ((), ("colour",), ("team", "team")):
        with pytest.raises(ValueError, match=r"group|once"):
            ReportQuery(month=NOVEMBER, now=OVER, by=by)
    with pytest.raises(ValueError, match="fixed"):
        ReportQuery(month=NOVEMBER, now=OVER, share=SharingMethod.FIXED)
    assert ReportQuery(month=Month(2026, 1), now=OVER).before == Month(2025, 12)
