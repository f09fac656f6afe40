"""The picture of a plan in a terminal: within its width, letters by market, the outlook in small ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing.money import Usd
from router.planning.document.plan import Plan, ShadowPrice
from router.planning.document.plan_usage import LimitUsage, PlanUsage, UseStep
from router.render.gantt_text import gantt_text
from router.render.tables import Screen
from tests.support.night import nightly_plan
from tests.support.nights import HOUR, NOW, a_line, a_night


def picture(plan: Plan, width: int) -> list[str]:
    return gantt_text(plan, Screen(width)).splitlines()


def row_of(lines: list[str], job: str) -> str:
    (row,) = (line for line in lines if line.startswith(f"  {job} "))
    return row


@pytest.mark.parametrize("width", [80, 200])
def test_the_examples_fit_and_have_a_line_a_run(width: int) -> None:
    plan = nightly_plan()
    lines = picture(plan, width)
    assert max(map(len, lines)) <= width
    runs = {(x.job, x.cloud, x.region, x.market, x.accelerators) for x in plan.lines}
    drawn = [line for line in lines if line.startswith("  ") and set(line) & set("¦") and "in use" not in line]
    assert len(drawn) == len(runs)
    assert "Ceiling: use1 p5 until June, 1 machine" in " ".join(lines)


@pytest.mark.parametrize("width", [80, 200])
def test_letters_say_the_market_and_small_ones_the_outlook(width: int) -> None:
    plan = a_night(
        [
            a_line("spotty", 0, 24),
            a_line("spotty", 24, 48),
            a_line("demanding", 0, 6, market="on_demand"),
            a_line("settled", 12, 24, market="reserved"),
            a_line("later", 36, 72, market="reserved"),
        ]
    )
    lines = picture(plan, width)

    def letters(job: str) -> str:
        return row_of(lines, job).split("H100", 1)[1]

    spotty = letters("spotty")
    assert set(spotty) == {" ", "S", "¦", "s"}
    assert spotty.index("¦") == spotty.rindex("S") + 1 == spotty.index("s") - 1
    assert letters("demanding").count("D") == pytest.approx(spotty.count("S") / 4, abs=1)
    assert letters("settled").count("R") == pytest.approx(spotty.count("S") / 2, abs=1)
    assert set(letters("later")) == {" ", "¦", "r"}


def test_nothing_is_coloured_but_headings() -> None:
    marked = gantt_text(a_night([a_line("a", 0, 8)]), Screen(80, lambda text: f"*{text}*"))
    assert "*aws us-east-1*" in marked
    assert marked.count("*") == 2
    assert "\x1b" not in marked


def test_a_ceiling_is_drawn_in_heights_of_its_amount() -> None:
    use = (UseStep(NOW, NOW + 12 * HOUR, 8.0), UseStep(NOW + 12 * HOUR, NOW + 24 * HOUR, 1.0))
    limit = LimitUsage("east", "quota", "aws", "us-east-1", "spot", "accelerators", 8, True, use)
    price = ShadowPrice("east", Usd.parse("3"), "accelerators", "lp_estimate")
    plan = a_night([a_line("a", 0, 24)], usage=PlanUsage("2026-11", Usd(0), (limit,), ()))
    lines = picture(replace(plan, shadow_prices=(price,)), 80)
    (strip,) = (line for line in lines if line.startswith("  in use"))
    assert strip.count("█") == pytest.approx(strip.count("▁"), abs=1)
    assert "  Ceiling: east, 8 accelerators; one accelerator more would save ~$3.00" in lines


def test_plans_without_lines_say_so() -> None:
    assert picture(a_night([]), 80)[1] == "nothing runs"
    assert picture(a_night([], left_out=["x"]), 80)[1] == "nothing runs"


@pytest.mark.parametrize("width", [80, 200])
def test_long_names_and_many_jobs_keep_the_width(width: int) -> None:
    long = a_night([a_line("n" * 63, 0, 8, "aws/northamerica-northeast1")])
    many = a_night(
        [
            *(a_line(f"job-{i}", i % 20, i % 20 + 3, f"aws/region-{i % 40}") for i in range(1000)),
            *(a_line(f"whale-{n}", 0, 24, "gcp/us-west4") for n in range(20)),
        ]
    )
    for plan in (long, many):
        assert max(map(len, picture(plan, width))) <= width
    assert any("small jobs in" in line for line in picture(many, width))
