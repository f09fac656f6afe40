"""The page of tonight's plan: every bar is a line of the plan, every figure one of its totals, all text escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from pricing.money import Usd
from router.controller.plans import orders_of
from router.planning.document.plan import Plan, ShadowPrice
from router.planning.document.plan_usage import COST_TERMS, LimitUsage, PlanUsage, TeamUsage, UseStep
from router.render.cost_terms_text import SHORT_COLUMNS
from router.render.drawing import text_width
from router.render.figures import cents, chance, money, percent
from router.render.gantt import gantt_of, runs_of
from router.render.tonight_page import tonight_of, tonight_page
from tests.support.night import nightly_plan
from tests.support.nights import HOUR, NOW, a_line, a_night
from tests.support.page_reader import Element, check_landmarks, read_page
from tests.support.scenes import NORTH, NORTH_SPOT, a_job, plan_of

BarKey = tuple[str, str, str, str, str, str, str]
AWKWARD = "a<b>&\"c'</title><script>"


def bars_of(drawing: Element) -> list[BarKey]:
    """The bars as place, job, market, size, start, end and kind; one that crosses the horizon is there once."""
    found = []
    for each in drawing.every(lambda element: "data-job" in element.attributes):
        a = each.attributes
        kind = "outlook" if "out" in a["class"].split() else "order"
        found.append(
            (a["data-place"], a["data-job"], a["data-market"], a["data-size"], a["data-start"], a["data-end"], kind)
        )
    return found


def wanted_bars(plan: Plan) -> list[BarKey]:
    """The same from the lines: sizes of a gang added up, stretches that touch joined."""
    sizes: dict[tuple[str, ...], tuple[int, datetime, datetime]] = {}
    for x in plan.lines:
        key = (f"{x.cloud}/{x.region}", x.job, x.market, x.accelerator, x.kind, x.gang, str(x.start), str(x.end))
        sizes[key] = (sizes.get(key, (0,))[0] + x.accelerators, x.start, x.end)
    stretches: dict[tuple[str, ...], list[list[datetime]]] = {}
    for (place, job, market, accelerator, kind, *_), (size, start, end) in sizes.items():
        stretches.setdefault((place, job, market, f"{size:,} {accelerator}", kind), []).append([start, end])
    wanted = []
    for (place, job, market, size_words, kind), pieces in stretches.items():
        joined: list[list[datetime]] = []
        for start, end in sorted(pieces):
            if joined and joined[-1][1] == start:
                joined[-1][1] = end
            else:
                joined.append([start, end])
        for start, end in joined:
            wanted.append((place, job, market, size_words, stamp(start), stamp(end), kind))
    return wanted


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def drawings(page: Element) -> list[Element]:
    found = [svg for svg in page.tags("svg") if svg.attributes.get("role") == "img"]
    assert len(found) == 3
    return found


def test_every_line_has_its_bar_and_there_is_no_other() -> None:
    plan = nightly_plan()
    page = read_page(tonight_page(plan))
    for drawing in drawings(page):
        assert sorted(bars_of(drawing)) == sorted(wanted_bars(plan))
        lines = sum(int(e.attributes["data-lines"]) for e in drawing.every(lambda e: "data-job" in e.attributes))
        assert lines == len(plan.lines)


def test_bars_lie_in_time_order_within_the_picture() -> None:
    plan = a_night([a_line("a", 0, 6), a_line("b", 6, 24), a_line("c", 12, 12.01), a_line("d", 30, 90)])
    for drawing in drawings(read_page(tonight_page(plan))):
        boxes = {
            e.attributes["data-job"]: (float(e.attributes["x"]), float(e.attributes["width"]))
            for e in drawing.every(lambda e: "data-job" in e.attributes)
        }
        width = float(drawing.attributes["viewbox"].split()[2])
        assert boxes["a"][0] + boxes["a"][1] <= boxes["b"][0] + 0.1
        assert boxes["b"][0] + boxes["b"][1] < boxes["d"][0]
        assert boxes["b"][1] == pytest.approx(3 * boxes["a"][1], rel=0.05)
        assert boxes["c"][1] >= 1
        assert all(x >= 0 and x + w <= width for x, w in boxes.values())


def test_bars_and_labels_of_a_lane_never_meet() -> None:
    for drawing in drawings(read_page(tonight_page(nightly_plan()))):
        lanes: dict[int, tuple[list[tuple[float, float]], list[tuple[float, float]]]] = {}
        for e in drawing.every(lambda e: "data-job" in e.attributes):
            x, width = float(e.attributes["x"]), float(e.attributes["width"])
            lanes.setdefault(round(float(e.attributes["y"]) + 12.25), ([], []))[0].append((x, x + width))
        for label in drawing.tags("text"):
            if re.match("[SDR]  ", label.words):
                x, width = float(label.attributes["x"]), text_width(label.words)
                left = x - width if "e" in label.attributes.get("class", "").split() else x
                lanes[round(float(label.attributes["y"]))][1].append((left, left + width))
        assert sum(len(labels) for _, labels in lanes.values()) == len(runs_of(nightly_plan().lines))
        for bars, labels in lanes.values():
            for found in (bars, labels):
                assert all(a[1] <= b[0] + 2 for a, b in pairwise(sorted(found)))
            for left, right in labels:
                inside = [bar for bar in bars if bar[0] <= left and right <= bar[1]]
                assert inside or all(right <= bar[0] or bar[1] <= left for bar in bars)


def test_tiles_are_totals_of_the_plan_to_the_cent() -> None:
    plan = nightly_plan()
    page = read_page(tonight_page(plan))
    (sentence,) = page.tags("h1")
    assert [data.attributes["value"] for data in sentence.tags("data")] == [
        cents(plan.cost_usd),
        cents(plan.orders_usd),
    ]
    assert sentence.words.startswith(f"{len(plan.jobs)} of {len(plan.jobs)} jobs placed for $")
    (tiles,) = page.of_class("kpis")
    values = [data.attributes["value"] for data in tiles.tags("data")]
    at_risk = Usd.total(order.at_risk_usd for order in orders_of(plan))
    assert values == [cents(plan.orders_usd), cents(at_risk)]
    assert all(re.fullmatch(r"\d+\.\d\d", value) for value in values)


def test_the_table_has_every_job_and_ends_with_the_total() -> None:
    plan = nightly_plan()
    page = read_page(tonight_page(plan))
    (table,) = (t for t in page.tags("table") if t.attributes.get("aria-labelledby") == "jobs")
    rows = table.tags("tr")
    assert len(rows) == len(plan.jobs) + 2
    assert money(plan.cost_usd) in rows[-1].words
    for job in plan.jobs:
        (row,) = (r for r in rows if r.tags("th")[0].pieces[:1] == [job.job])
        assert money(job.cost_usd) in row.words


def test_the_columns_of_each_cost_and_of_the_total_add_up_to_it() -> None:
    plan = nightly_plan()
    assert plan.usage is not None
    assert plan.usage.cost_terms
    assert any(terms.fallback_usd.nanos for terms in plan.usage.cost_terms)
    night = tonight_of(plan)
    assert night.all_costs is not None
    assert night.all_costs.together_usd == plan.cost_usd
    for terms in (*night.costs, night.all_costs):
        assert Usd.total(column.amount(terms) for column in SHORT_COLUMNS) == terms.together_usd, terms.job
    page = read_page(tonight_page(plan))
    (table,) = (t for t in page.tags("table") if t.attributes.get("aria-labelledby") == "cost")
    header, *rows = table.tags("tr")
    assert [cell.words for cell in header.tags("th")] == ["Job", *(each.title for each in SHORT_COLUMNS), "Cost"]
    assert len(rows) == len(night.costs) + 1
    for line in rows:
        *amounts, cost = (Decimal(re.sub(r"[$,]", "", cell.words)) for cell in line.tags("td"))
        # Each amount is rounded to the cent by itself.
        assert abs(sum(amounts) - cost) <= Decimal("0.01") * len(amounts) / 2, line.words


def test_each_term_is_in_one_column_of_a_table() -> None:
    assert sorted(name for column in SHORT_COLUMNS for name in column.terms) == sorted(COST_TERMS)


def limit(amount: int, **more: object) -> LimitUsage:
    steps = (UseStep(NOW, NOW + 4 * HOUR, amount), UseStep(NOW + 4 * HOUR, NOW + 8 * HOUR, amount / 4))
    known: dict[str, object] = {"cloud": "aws", "region": "us-east-1", "market": "spot", "full": True, "use": steps}
    return LimitUsage(**{"limit": "east p5", "kind": "quota", "unit": "vcpus", "amount": amount, **known, **more})  # type: ignore[arg-type]


def test_ceilings_say_the_amount_and_strips_are_in_its_proportion() -> None:
    usage = PlanUsage("2026-11", Usd(0), (limit(768), limit(3, limit="all of aws", region=None, unit="machines")), ())
    price = ShadowPrice("east p5", Usd.parse("2.5"), "vcpus", "resolved", 192, 1, "p5.48xlarge", Usd.parse("480"), 0)
    plan = replace(a_night([a_line("a", 0, 8)], usage=usage), shadow_prices=(price,))
    page = read_page(tonight_page(plan))
    for drawing in drawings(page):
        strips = [float(e.attributes["height"]) for e in drawing.of_class("use")]
        assert strips == [13.0, pytest.approx(13 / 4, abs=0.1)] * 2
        words = " ".join(text.words for text in drawing.tags("text"))
        assert "Ceiling: east p5, 768 vCPUs; one machine more would save $480.00" in words
        assert "Ceiling: all of aws, 3 machines; full at times; no worth was found" in words
        assert "all regions" in words
    assert "One limit costs money: east p5." in page.words


def test_a_limit_that_no_bar_uses_is_kept_for_fallbacks() -> None:
    behind = plan_of([a_job("a", deadline="+8h")], [NORTH_SPOT, NORTH]).lines[0].fallback
    assert behind is not None
    usage = replace(
        limit(8),
        cloud=behind.cloud,
        region=behind.region,
        market="on_demand",
        use=(UseStep(NOW, NOW + HOUR, 8),),
    )
    spot = replace(a_line("a", 0, 2), market="spot", fallback=replace(behind, reserved=True))
    sure = replace(a_line("b", 0, 2), cloud=behind.cloud, region=behind.region, market="on_demand")
    later = replace(sure, start=NOW + 3 * HOUR, end=NOW + 4 * HOUR)
    for lines, words in (
        ([spot], "in use: kept for fallbacks; "),
        ([spot, later], "in use: kept for fallbacks where no bar is; "),
        ([spot, sure], ""),
        ([replace(spot, fallback=replace(behind, reserved=False))], ""),
        ([sure], ""),
    ):
        night = a_night(lines, usage=PlanUsage("2026-11", Usd(0), (usage,), ()))
        said = read_page(tonight_page(night)).words
        assert f"; {words}full at times" in said
        assert ("kept for fallbacks" in said) == bool(words)


def test_the_ceilings_of_the_examples_are_the_amounts_of_their_limits() -> None:
    plan = nightly_plan()
    assert plan.usage is not None
    shown = {(c.name, c.limit.amount): c for row in gantt_of(plan).rows for c in row.ceilings}
    assert len(shown) == len(plan.usage.limits) > 2
    assert shown["use1 p5 until June", 1].size == "1 machine"


def test_budgets_show_every_amount_and_say_which_are_passed() -> None:
    def team(name: str, budget: str, spent: str) -> TeamUsage:
        return TeamUsage(name, Usd.parse(budget), Usd.parse(spent), Usd.parse("10"), Usd.parse("5.25"))

    teams = (
        team("fine", "100", "20"),
        team("over", "30", "20"),
        TeamUsage("zero", Usd(0), Usd(0), Usd(0), Usd(0)),
        team("none", "0", "0"),
    )
    page = read_page(tonight_page(a_night([a_line("a", 0, 8)], usage=PlanUsage("2026-11", Usd(0), (), teams))))
    rows = {row.attributes["data-team"]: row.words for row in page.every(lambda e: "data-team" in e.attributes)}
    assert list(rows) == ["none", "over", "fine", "zero"]
    assert "over" not in rows["fine"]
    assert rows["fine"].split("of $100")[0].endswith("$20.00$10.00~$5.25~35% ")
    assert rows["none"].endswith("more than all of $0.00 over")
    assert rows["over"].endswith("~118% of $30.00 over")
    assert "2 teams pass their budgets" in page.words
    bars = [e for e in page.tags("svg") if e.attributes.get("width") == "100%"]
    for bar in bars:
        ends = [
            float(r.attributes.get("x", "0%").rstrip("%")) + float(r.attributes["width"].rstrip("%"))
            for r in bar.tags("rect")
        ]
        assert max(ends) <= 100.02


def test_budgets_say_what_they_count() -> None:
    night = a_night([a_line("a", 0, 4)], usage=PlanUsage("2026-11", Usd(0), (), (TeamUsage("t", *[Usd(1)] * 4),)))
    words = read_page(tonight_page(night)).words
    assert "Spent is what the limits said as planned at 21 Nov 18:00 UTC, without what gangs that ran then" in words


def test_late_and_less_sure_jobs_are_named() -> None:
    late = read_page(tonight_page(a_night([a_line("tardy", 0, 9)], deadline=6.5)))
    assert "1 late" in late.tags("h1")[0].words
    assert "late by 2.5 h" in late.words
    unsure = read_page(tonight_page(a_night([a_line("doubtful", 0, 9)], probability=0.8)))
    assert "nothing late" in unsure.tags("h1")[0].words
    assert "less sure than asked" in unsure.words
    assert "doubtful, 80%, 95% asked" in unsure.words


def test_words_of_users_are_escaped_everywhere() -> None:
    plan = a_night([a_line(AWKWARD, 0, 8), a_line(AWKWARD, 30, 60)], left_out=[f"{AWKWARD}2"])
    text = tonight_page(plan)
    assert "<script" not in text
    assert text.count("</title>") == 1 + 3 * 2
    page = read_page(text)
    for drawing in drawings(page):
        assert {bar[1] for bar in bars_of(drawing)} == {AWKWARD}
    assert AWKWARD in page.words
    assert "no room <here> & now" in page.words


def test_nothing_is_fetched_and_nothing_runs() -> None:
    text = tonight_page(nightly_plan())
    page = read_page(text)
    assert not [e.tag for e in page.every(lambda e: e.tag in ("script", "img", "iframe", "object", "embed"))]
    assert not re.findall(r"https?://|@import|url\((?!#)", text)
    assert not page.every(lambda e: any(name.startswith("on") for name in e.attributes))
    assert [e.attributes["href"] for e in page.tags("link")] == ["data:,"]


def test_headings_landmarks_and_tables_are_what_readers_of_screens_need() -> None:
    page = read_page(tonight_page(nightly_plan()))
    assert page.tags("html")[0].attributes["lang"] == "en"
    check_landmarks(page)


def test_a_plan_without_jobs() -> None:
    page = read_page(tonight_page(a_night([])))
    assert page.tags("h1")[0].words == "No jobs to place."
    assert "Nothing runs." in page.words
    assert "There was no job." in page.words


def test_a_plan_that_places_nothing_says_what_would_place_each() -> None:
    page = read_page(tonight_page(a_night([], left_out=["x", "y"])))
    assert page.tags("h1")[0].words == "None of 2 jobs could be placed."
    rows = page.every(lambda e: "data-unplaced" in e.attributes)
    assert [row.attributes["data-unplaced"] for row in rows] == ["x", "y"]
    assert all("+3 h: of its deadline ($5.00)" in row.words for row in rows)


def test_a_thousand_jobs_fold_their_small_places_and_stay_small() -> None:
    lines = [a_line(f"job-{i:04}", i % 20, i % 20 + 3, f"aws/region-{i % 40}") for i in range(1000)]
    lines.append(replace(a_line("whale", 0, 24, "gcp/us-west4"), cost_usd=Usd.parse("9000")))
    plan = a_night(lines)
    text = tonight_page(plan)
    assert len(text.encode()) < 3_000_000
    gantt = gantt_of(plan)
    assert [(row.cloud, row.region) for row in gantt.rows if row.region == "us-west4"] == [("gcp", "us-west4")]
    assert sum(len(row.runs) for row in gantt.rows) <= 40
    folded = gantt.folded
    assert folded is not None
    assert folded.jobs + len({run.job for row in gantt.rows for run in row.runs}) == 1001
    page = read_page(text)
    said = f"{folded.jobs:,} small jobs in {folded.places} places"
    for drawing in drawings(page):
        assert said in " ".join(text.words for text in drawing.tags("text"))
    assert all(f">job-{i:04}<" in text for i in range(1000))


def test_a_thousand_jobs_that_cannot_fold_stay_under_three_megabytes() -> None:
    lines = [a_line(f"{'long-name-' * 5}{i:013}", i % 20, i % 20 + 3) for i in range(1000)]
    lines.append(a_line("whale", 0, 24, market="on_demand"))
    plan = replace(a_night(lines), orders_usd=Usd.parse("100"))
    assert gantt_of(plan).folded is None
    assert len(tonight_page(plan).encode()) < 3_000_000


def test_a_name_of_63_characters_loses_its_middle_in_the_picture_alone() -> None:
    name = "n" * 30 + "-middle-" + "z" * 25
    assert len(name) == 63
    page = read_page(tonight_page(a_night([a_line(name, 10, 11), a_line(name, 40, 50)])))
    for drawing in drawings(page):
        labels = [text.words for text in drawing.tags("text")]
        assert not any(name in label for label in labels)
        assert any("…" in label for label in labels)
        assert {bar[1] for bar in bars_of(drawing)} == {name}
    assert name in [e.pieces[0] for e in page.tags("th")]


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert tonight_page(nightly_plan()) == tonight_page(replace(nightly_plan()))


@pytest.mark.parametrize(
    ("usd", "exact", "shown"),
    [
        ("0", "0.00", "$0.00"),
        ("1234.565", "1234.56", "$1,234.56"),
        ("1234.575", "1234.58", "$1,234.58"),
        ("-0.004", "0.00", "$0.00"),
        ("-231.76", "-231.76", "−$231.76"),
        ("999999.999999999", "1000000.00", "$1,000,000.00"),
    ],
)
def test_money_is_rounded_half_even_and_never_minus_zero(usd: str, exact: str, shown: str) -> None:
    amount = Usd.parse(Decimal(usd))
    assert (cents(amount), money(amount)) == (exact, shown)


def test_a_chance_is_never_a_certainty() -> None:
    assert [chance(p) for p in (0.5, 0.99, 0.995, 1.0, None)] == ["50%", "99%", ">99%", ">99%", "no deadline"]
    assert percent(0.0043, 2) == "0.43%"


def test_a_gang_in_two_zones_is_one_bar() -> None:
    one, two = (replace(a_line("a", 0, 8, gang="a/1"), zone=zone) for zone in ("use1-az1", "use1-az2"))
    (row,) = gantt_of(a_night([one, two])).rows
    (run,) = row.runs
    assert (run.size, [(bar.lines, bar.end - bar.start) for bar in run.bars]) == ("16 H100", [(2, timedelta(hours=8))])


def test_stretches_of_a_job_that_overlap_lie_in_lanes_of_their_own() -> None:
    plan = a_night([a_line("a", 0, 8, gang="a/1"), a_line("a", 4, 12, gang="a/2"), a_line("a", 8, 10, gang="a/3")])
    (row,) = gantt_of(plan).rows
    spans = [[((bar.start - NOW) / HOUR, (bar.end - NOW) / HOUR) for bar in run.bars] for run in row.runs]
    assert spans == [[(0, 10)], [(4, 12)]]
    for drawing in drawings(read_page(tonight_page(plan))):
        tops = [e.attributes["y"] for e in drawing.every(lambda e: "data-job" in e.attributes)]
        assert len(set(tops)) == 2
