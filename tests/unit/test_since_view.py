"""Arrange the changes since an earlier plan for a page: totals by kind, reasons, an exact sum."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

from pricing.money import Usd, UsdPerHour
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_to_json
from router.planning.document.plan_usage import COST_TERMS
from router.planning.explain.changes import plan_diff
from router.planning.explain.cost_changes import changes_by_kind
from router.render.figures import cents, signed_money
from router.render.plan_csv import changes_csv, jobs_csv
from router.render.plan_diff_text import diff_json
from router.render.plan_text import wide
from router.render.since_view import SHOWN_CHANGES, SinceView, bridge_of, plan_diff_page
from router.render.tonight_page import tonight_page
from tests.support.made_up_book import offer
from tests.support.night import nightly_plan
from tests.support.nights import HOUR, NOW, a_line, a_night
from tests.support.page_reader import check_landmarks, read_page
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job, plan_of

CHEAP = offer("aws/south-1", "p9.48xlarge", "on_demand", "40")
YESTERDAY = replace(
    plan_of([a_job("stays"), a_job("goes", steps=500), a_job("moves", steps=400)], [NORTH]), as_of=NOW - 24 * HOUR
)
TODAY = plan_of([a_job("stays"), a_job("comes", steps=700), a_job("moves", steps=400)], [NORTH, CHEAP])


def view_of(before: Plan, after: Plan) -> SinceView:
    return SinceView(plan_diff(before, after), before, "0" * 64, after)


def test_the_kinds_add_up_to_the_difference_of_the_plans_exactly() -> None:
    view = view_of(YESTERDAY, TODAY)
    together = Usd.total(row.together_usd for row in view.kinds)
    assert together == view.more_usd == TODAY.cost_usd - YESTERDAY.cost_usd
    assert [(row.kind, row.jobs) for row in view.kinds] == [("new", 1), ("moved", 2), ("gone", 1)]
    assert all(row.more_usd.nanos >= 0 >= row.less_usd.nanos for row in view.kinds)
    assert bridge_of(view)[-1].level * 10**9 == together.nanos
    assert view.sentence == "1 job is new, 1 is gone, 2 moved"


def test_the_json_of_a_comparison_has_the_same_totals() -> None:
    diff = plan_diff(YESTERDAY, TODAY)
    content = json.loads(diff_json(diff))
    told = [(row["change"], row["jobs"], row["more_usd"], row["less_usd"]) for row in content["by_kind"]]
    assert told == [(x.kind, x.jobs, str(x.more_usd), str(x.less_usd)) for x in changes_by_kind(diff)]


def test_the_page_tells_what_came_went_and_moved_with_reasons_below_the_picture() -> None:
    view = view_of(YESTERDAY, TODAY)
    text = tonight_page(TODAY, since=view)
    page = read_page(text)
    check_landmarks(page)
    titles = [heading.words for heading in page.tags("h2")]
    assert titles[:2] == ["What runs where", "Since yesterday"]
    rows = {row.attributes["data-change"]: row.words for row in page.every(lambda e: "data-change" in e.attributes)}
    assert rows.keys() == {"comes", "goes", "moves", "stays"}
    assert "new job" in rows["comes"]
    assert "no longer among the jobs" in rows["goes"]
    assert "from aws/north-1" in rows["moves"]
    assert "the old place would now cost" in rows["moves"]
    assert f'<data value="{cents(view.more_usd)}">{signed_money(view.more_usd)}</data>' in text
    (first,) = (each.words for each in page.tags("p") if each.words.startswith("Since yesterday"))
    assert first == f"Since yesterday: {signed_money(view.more_usd)}. 1 job is new, 1 is gone, 2 moved."


def test_without_an_earlier_plan_the_page_has_no_such_section() -> None:
    assert "Since" not in [heading.words.split()[0] for heading in read_page(tonight_page(TODAY)).tags("h2")]


def test_two_equal_plans_have_nothing_to_tell() -> None:
    view = view_of(replace(TODAY, as_of=NOW - 72 * HOUR), TODAY)
    assert (view.title, view.sentence, view.kinds, view.changes) == ("Since 18 Nov", "No job changed", (), ())
    assert "the same." in read_page(plan_diff_page(TODAY, "0" * 64, view)).tags("h1")[0].words


def test_a_job_that_stays_is_dearer_by_its_price_and_not_by_its_time() -> None:
    """A day later every start has passed, so only the cost tells which job has another price."""
    dearer = replace(NORTH, usd_per_hour=UsdPerHour.parse("63"))
    before = plan_of([a_job("a")], [NORTH], now=NOW - 24 * HOUR)
    view = view_of(before, plan_of([a_job("a")], [dearer]))
    (row,) = (row for row in view.kinds if row.together_usd.nanos)
    assert (view.kind_words(row.kind), row.kind, row.together_usd) == ("other price", "price", view.more_usd)
    (change,) = view.changes
    assert (change.words, change.why) == (
        "other price",
        "aws/north-1 p9.48xlarge on_demand x8 rose: $60.00 -> $63.00 an hour",
    )
    assert view.sentence == "1 job has another price"


def test_jobs_that_changed_in_time_alone_are_told_where_nothing_else_did() -> None:
    view = view_of(plan_of([a_job("a")], [NORTH], now=NOW - 24 * HOUR), plan_of([a_job("a")], [NORTH]))
    assert (view.sentence, view.more_usd) == ("1 job changed in time alone", Usd(0))
    assert [step.name for step in bridge_of(view)] == ["all changes"]


def test_what_moves_most_money_comes_first() -> None:
    view = view_of(a_night([]), plan_of([a_job("a", steps=100), a_job("b", steps=500)], [NORTH]))
    assert [row.job for row in view.changes] == ["b", "a"]


def test_one_row_more_is_shown_and_not_folded() -> None:
    view = view_of(a_night([]), a_night([a_line(f"job-{i:02}", 0, 2) for i in range(SHOWN_CHANGES + 1)]))
    assert (len(view.first_changes), view.other_changes) == (SHOWN_CHANGES + 1, ())


def test_many_changes_are_folded_and_all_are_there() -> None:
    view = view_of(a_night([]), a_night([a_line(f"job-{i:02}", 0, 2) for i in range(40)]))
    page = read_page(plan_diff_page(TODAY, "0" * 64, view))
    folded = page.tags("details")[0].every(lambda e: "data-change" in e.attributes)
    assert len(folded) == 40 - SHOWN_CHANGES
    assert len(page.every(lambda e: "data-change" in e.attributes)) == 40


def test_the_csv_of_jobs_has_exact_costs_and_words_for_what_is_not_known() -> None:
    plan = plan_of([a_job("a"), a_job("huge", steps=10**7, deadline="2026-11-22T00:00Z")], [NORTH, SOUTH])
    header, *rows = (line.split(",") for line in jobs_csv(plan).splitlines())
    cells = [dict(zip(header, row, strict=False)) for row in rows]
    assert [row["state"] for row in cells] == ["placed", "left out"]
    assert [row["cost_usd"] for row in cells] == [str(plan.jobs[0].cost_usd), "none"]
    assert cells[1]["cloud"] == "none"
    assert {row["fallback"] for row in cells} == {"none"}
    assert "comes,new," in changes_csv(plan_diff(YESTERDAY, TODAY))


def test_terms_of_a_cost_add_up_to_it_in_csv_and_json() -> None:
    plan = nightly_plan()
    header, *rows = (line.split(",") for line in jobs_csv(plan).splitlines())
    placed = [cells for row in rows if (cells := dict(zip(header, row, strict=False)))["state"] != "left out"]
    assert placed
    assert any(Decimal(cells["fallback_usd"]) for cells in placed if cells["fallback_usd"] != "none")
    for cells in placed:
        terms = [Decimal(cells[name]) for name in COST_TERMS if cells[name] != "none"]
        assert sum(terms) == Decimal(cells["cost_usd"]), cells["job"]
    usage = json.loads(plan_to_json(plan))["usage"]["cost_terms"]
    costs = {job.job: Decimal(job.cost_usd.nanos) / 10**9 for job in plan.jobs}
    assert {each["job"]: sum(Decimal(each[name]) for name in COST_TERMS if name in each) for each in usage} == costs


def test_the_csv_of_jobs_has_what_stands_behind_spot() -> None:
    plan = plan_of([a_job("a", deadline="+8h")], [NORTH_SPOT, NORTH])
    behind = plan.lines[0].fallback
    assert behind is not None
    header, row = (line.split(",") for line in jobs_csv(plan).splitlines())
    cells = dict(zip(header, row, strict=True))
    assert (cells["market"], cells["fallback"]) == ("spot", "aws/north-1/p9.48xlarge")
    assert (cells["fallback_probability"], cells["fallback_usd"]) == (str(behind.probability), str(behind.cost_usd))


def test_wide_shows_the_fallback_in_a_column_where_there_is_one() -> None:
    plan = plan_of([a_job("a", deadline="+8h")], [NORTH_SPOT, NORTH])
    behind = plan.lines[0].fallback
    assert behind is not None
    head, shown = wide(plan).split("\n\n")[1].splitlines()
    assert head.split()[-1] == "FALLBACK"
    assert shown.endswith(f" aws/north-1 1x p9.48xlarge {behind.probability:.0%}")
    head, _ = wide(plan_of([a_job("a")], [NORTH])).split("\n\n")[1].splitlines()
    assert head.split()[-2:] == ["PRICED", "SPEED"]
