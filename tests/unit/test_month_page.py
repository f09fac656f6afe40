"""The page of a month says what the report has, to the cent, and adds no currencies."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pytest

from router.render.axes import tick_unit
from router.render.figures import amount_in
from router.render.showback_page import page
from router.render.showback_text import as_markdown, as_table
from router.showback.report.export import report_to_json
from router.showback.report.query import BudgetUse
from router.showback.shared_costs import SharingMethod
from tests.support.month_pages import amounts_between, full_month, machine
from tests.support.page_reader import check_landmarks, read_page
from tests.support.showback_reports import BESIDE, cost, report_of_rows


def cents(amount: str | Decimal | None) -> Decimal:
    return Decimal(amount or 0).quantize(Decimal("0.01"), ROUND_HALF_EVEN)


@pytest.fixture(scope="module")
def made() -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """The page, and the rows of the report's JSON by section."""
    report = full_month()
    sections = json.loads(report_to_json(report))["sections"]
    return page(report), {name: section["rows"] for name, section in sections.items()}


def dollars(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["currency"] == "USD"]


def test_the_first_sentence_is_the_answer(made: tuple[str, dict[str, Any]]) -> None:
    text, _ = made
    sentence = re.sub(r"<[^>]+>", "", text[text.index("<h1>") : text.index("</h1>")])
    assert sentence == (
        "November: $5,547.96 spent, 55% of the budget; $1,457.96 over plan, 69% of it longer runs (research/llama); "
        "research is over its budget."
    )


def test_tiles_are_the_totals(made: tuple[str, dict[str, Any]]) -> None:
    text, sections = made
    (total,) = dollars(sections["totals"])
    (euros,) = [row for row in sections["totals"] if row["currency"] == "EUR"]
    said = amounts_between(text, '<dl class="kpis', "</dl>")
    waste = sum((Decimal(row["effective"]) for row in dollars(sections["waste"])), Decimal(0))
    assert said[:2] == [cents(total["effective"]), cents(euros["effective"])]
    assert cents(total["change"]) in said
    assert cents(total["last_month"]) in said
    assert cents(waste) in said
    assert Decimal("64.00") in said  # metered and on no bill yet


def test_drivers_and_their_reasons_are_the_reports(made: tuple[str, dict[str, Any]]) -> None:
    text, sections = made
    shown = re.findall(r'<li><b><data value="([^"]+)">', text)
    assert [Decimal(each) for each in shown] == [cents(row["difference"]) for row in sections["drivers"]][
        -len(dollars(sections["drivers"])) :
    ] + [cents(row["difference"]) for row in sections["drivers"] if row["currency"] == "EUR"]
    why = amounts_between(text, 'id="why"')
    for row in dollars(sections["driver_reasons"]):
        assert cents(row["amount"]) in why, row


def test_the_bridge_is_drawn_written_and_tabled_with_the_same_figures(made: tuple[str, dict[str, Any]]) -> None:
    text, sections = made
    rows = dollars(sections["bridge"])
    level = {row["step"]: cents(row["sum"]) for row in rows}
    words = amounts_between(text, '<p class="sub top0">', "</p>")
    stations = ["planned", "metered", "spent", "invoiced"]
    assert [words[0], *words[2::2]] == [level[name] for name in stations]
    drawn = text[text.index('aria-label="Waterfall') : text.index("</svg>", text.index('aria-label="Waterfall'))]
    for row in rows:
        amount = cents(row["amount"])
        if amount or row["step"] in stations:
            assert amount_in(amount, "USD", signed=row["step"] not in stations) in drawn, row
            assert amount in amounts_between(text, '<table class="stack" role="table" aria-label="Bridge', "</table>")


def test_teams_and_waste_are_the_reports(made: tuple[str, dict[str, Any]]) -> None:
    text, sections = made
    who = amounts_between(text, 'id="who"')
    for row in sections["teams"]:
        assert row["cost"] is None or not Decimal(row["cost"]) or cents(row["cost"]) in who, row
    wasted = amounts_between(text, 'id="wst"')
    for row in dollars(sections["waste"]):
        assert cents(row["effective"]) in wasted
        assert cents(row["most"]) in wasted
        assert row["action"] in text


def test_two_currencies_are_never_added_on_the_page(made: tuple[str, dict[str, Any]]) -> None:
    text, sections = made
    sums = [Decimal(row["effective"]) for row in sections["totals"]]
    assert len(sums) == 2
    assert f'"{cents(sum(sums, Decimal(0)))}"' not in text
    assert "kept apart: currencies are not added" in text


def test_months_are_columns_from_three_on(made: tuple[str, dict[str, Any]]) -> None:
    text, sections = made
    assert len(dollars(sections["months"])) == 12
    assert text.count('aria-label="Cost by month in USD.') == 3
    two = page(report_of_rows([machine("5", 1), machine("4", 1, month=10)]))
    assert "2 months on record" in two
    assert "Cost by month" not in two


def test_an_open_month_has_a_forecast_and_a_closed_one_says_what_is_estimated() -> None:
    text = page(full_month(datetime(2026, 11, 20, tzinfo=UTC)))
    assert "November so far:" in text
    assert "~<data" in text
    assert "four times in five" in text
    over = page(full_month())
    assert "no forecast" in over
    assert "1.2% estimated" in over


def test_a_page_without_plan_budget_or_last_month_says_so_in_words() -> None:
    text = page(report_of_rows([machine("5", 1)]))
    assert "Nothing was planned for this month" in text
    assert "no month before it is on record" in text


def test_a_month_of_bills_alone_says_how_far_they_reach() -> None:
    """Nothing was metered, so that nothing says what is on no bill yet; 5.00 of 5.00 is on one."""
    reach = replace(BESIDE, bills_through=datetime(2026, 11, 29, tzinfo=UTC))
    text = as_table(report_of_rows([machine("5", 1)], beside=reach))
    assert "0.0% estimated, bills through 29 Nov" in re.sub(r"\s+", " ", text)
    added = report_of_rows([cost("5", source="added", what="other")])
    assert "0.0% estimated, nothing billed yet" in re.sub(r"\s+", " ", as_table(added))


def test_what_is_charged_for_days_to_come_is_not_spent_so_far() -> None:
    """A fee of 30 for November is 21 by the evening of the 21st; the machine cost 5."""
    begins = datetime(2026, 11, 1, tzinfo=UTC)
    fee = cost("30", category="Purchase", what="other", source="billed", state="Invoiced", team=None)
    rows = [machine("5", 1), {**fee, "start": begins, "end": begins + timedelta(days=30)}]
    report = report_of_rows(rows, now=datetime(2026, 11, 21, 22, 40, tzinfo=UTC))
    text = re.sub(r"\s+", " ", as_table(report))
    assert "November so far: $26.00 spent, $9.00 charged for days to come" in text
    assert "Spent $26.00 with $9.00 charged for days to come $35.00" in text
    shown = page(report)
    chart = shown[shown.index('aria-label="Spent so far by day') :]
    chart = chart[: chart.index("</svg>")]
    assert ">$26.00</text>" in chart
    assert "stroke-dasharray" in chart
    assert "dashed, $9.00 charged for days to come" in plain(shown)
    # Tables and files have the whole: days, groups and total are one sum.
    sections = json.loads(report_to_json(report))["sections"]
    sums = {
        name: sum(Decimal(row["effective"]) for row in sections[name]["rows"]) for name in ("days", "groups", "totals")
    }
    assert sums == dict.fromkeys(sums, Decimal(35))
    over = page(report_of_rows(rows))
    assert "November: $35.00 spent" in plain(over)
    assert "charged for days to come" not in over


def plain(text: str) -> str:
    return re.sub(r"<[^>]+>", "", text)


def test_a_share_of_a_budget_says_what_still_runs() -> None:
    """The budget is $100: 57 are spent, and machines that run have cost 7; research has used 107 of its 100."""
    budgets = (
        BudgetUse(scope="all", currency="USD", budget=Decimal(100), hard=False, spent=Decimal(57), running=Decimal(7)),
        BudgetUse(
            scope="team research",
            currency="USD",
            budget=Decimal(100),
            hard=False,
            spent=Decimal(57),
            running=Decimal(50),
        ),
    )
    report = report_of_rows([machine("57", 1)], beside=replace(BESIDE, budgets=budgets))
    text = plain(page(report))
    assert "$57.00 spent and $7.00 still running: 64% of the budget" in text
    assert "$36.00 left of $100.00 with $7.00 still running" in text
    assert "107% of $100.00with $50.00 still running" in text
    assert "research is over its budget by $7.00." in text
    table = " ".join(as_table(report).split())
    assert "$57.00 spent and $7.00 still running: 64% of the budget" in table
    assert "$36.00 left of $100.00 with $7.00 still running" in table
    assert "| team research | USD | 100.00 | 57.00 | 50.00 | 107.0% |" in as_markdown(report)


def test_budgets_are_unknown_or_none_is_set_and_never_both() -> None:
    for budgets, said, unsaid in (
        (None, ("Budget usedunknownbudgets were not looked at",), ("none set", "no budget for all")),
        (
            (),
            ("no budget for all", "Budget usednone setfor the whole month", "`stepfare budget set`"),
            ("not looked at",),
        ),
    ):
        text = plain(page(report_of_rows([machine("5", 1)], beside=replace(BESIDE, budgets=budgets))))
        front = text[text.index("November") : text.index("Raw fields")]
        assert [words in front.replace("\n", "") for words in said] == [True] * len(said), front[:900]
        assert not [words for words in unsaid if words in front]


def test_an_empty_month_has_a_page() -> None:
    text = page(report_of_rows([]))
    assert "<h1>Nothing is in the books of 2026-11.</h1>" in text


def test_what_was_asked_for_by_others_than_teams_stands_before_the_raw_fields() -> None:
    for asked in ({"by": ("team", "job")}, {"share": SharingMethod.EVEN}):
        text = page(report_of_rows([machine("5", 1), machine("2", 1, team=None, job=None)], **asked))
        assert text.index('id="groups"') < text.index("<details><summary>Raw fields")
    text = page(report_of_rows([machine("5", 1)]))
    assert text.index('id="groups"') > text.index("<details><summary>Raw fields")


def test_the_same_report_gives_the_same_bytes() -> None:
    assert page(full_month()) == page(full_month())


@pytest.mark.parametrize(
    ("amount", "currency", "signed", "said"),
    [
        ("1234.565", "USD", False, "$1,234.56"),
        ("-231.755", "EUR", True, "−€231.76"),
        ("0.001", "USD", True, "<$0.01"),
        ("-0.001", "USD", False, ">−$0.01"),
        ("0", "USD", True, "$0.00"),
        ("5", "CHF", True, "+CHF\u00a05.00"),
    ],
)
def test_amounts_of_any_currency_are_rounded_half_even(amount: str, currency: str, signed: bool, said: str) -> None:
    assert amount_in(Decimal(amount), currency, signed=signed) == said


@pytest.mark.parametrize(("length", "unit"), [(29000, 10000), (9, 5), (0, 1), (0.3, 0.1)])
def test_ticks_are_round(length: float, unit: float) -> None:
    assert tick_unit(length, 4) == pytest.approx(unit)


def test_headings_landmarks_and_tables_are_what_readers_of_screens_need() -> None:
    check_landmarks(read_page(page(full_month())))


def test_a_month_of_cents_has_no_axis_of_zeros() -> None:
    text = page(report_of_rows([machine("0.10", 1, source="planned", plan="p1", use=None), machine("0.14", 1)]))
    assert "November: <data" in text
    assert '<data value="0.14">$0.14</data> spent' in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    labels = [re.findall(r'class="s e">(\$[\d.,]+)</text>', drawing) for drawing in drawings]
    assert any(len(each) > 2 for each in labels)
    assert all(len(set(each)) == len(each) for each in labels)


def test_what_is_folded_stays_folded_on_paper() -> None:
    """Raw fields that nobody opened are not printed: they were nine of 14 pages."""
    text = page(full_month())
    assert "<details><summary>Raw fields" in text
    assert "content-visibility:visible" not in text
