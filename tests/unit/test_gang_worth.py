"""Changes to a job on its spot gang alone: hours of deadline, points of confidence, the ends of the interval."""

from __future__ import annotations

from typing import Any

import pytest

from pricing.money import Usd
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.gang_worth import GangCase, GangFigures, GangWorth, gang_worth
from router.render.explain_text import worth_content, worth_text
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job, a_request

LAKE_SPOT = offer("gcp/lake-1", "a9-highgpu-8g", "spot", "22")
LAKE = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "66")


def worth_of(request: PlanRequest, name: str = "a") -> GangWorth:
    found = gang_worth(request, make_plan(request), name)
    assert found is not None
    return found


def a_worth(offers: Any = (NORTH, NORTH_SPOT), **more: Any) -> GangWorth:
    return worth_of(a_request([a_job(**more)], list(offers)))


def case(worth: GangWorth, kind: str, value: str) -> GangCase:
    return next(c for c in worth.changed if (c.kind, c.value) == (kind, value))


def figures(worth: GangWorth, kind: str = "none", value: str = "") -> GangFigures:
    found = worth.planned if kind == "none" else case(worth, kind, value)
    assert found.figures is not None, found.refused
    return found.figures


@pytest.mark.parametrize("offers", [(NORTH, NORTH_SPOT), (LAKE, LAKE_SPOT), (SOUTH, NORTH_SPOT)])
@pytest.mark.parametrize("hours", [6, 10, 30])
def test_an_hour_more_never_costs_more_and_the_lower_end_no_more_than_the_mean(offers: Any, hours: int) -> None:
    worth = a_worth(offers, deadline=f"+{hours}h")
    planned = figures(worth)
    assert figures(worth, "deadline", "+1h").cost_usd <= planned.cost_usd
    earlier = case(worth, "deadline", "-1h").figures
    assert earlier is None or earlier.cost_usd >= planned.cost_usd
    calm = figures(worth, "interruptions", "low")
    assert calm.cost_usd < planned.cost_usd
    assert calm.interruptions_per_hour < planned.interruptions_per_hour
    hit = figures(worth, "interruptions", "high")
    assert hit.interruptions_per_hour > planned.interruptions_per_hour
    assert hit.cost_usd > calm.cost_usd


def test_where_time_is_short_an_hour_is_worth_money() -> None:
    worth = a_worth(deadline="+6h")
    assert figures(worth).cost_usd - figures(worth, "deadline", "+1h").cost_usd > Usd.parse("0.10")
    later = figures(worth, "deadline", "+1h").fallback_probability
    now = figures(worth).fallback_probability
    assert later is not None
    assert now is not None
    assert later < now


def test_as_planned_it_costs_what_the_plan_says() -> None:
    request = a_request([a_job(deadline="+10h")], [NORTH, NORTH_SPOT])
    plan = make_plan(request)
    worth = gang_worth(request, plan, "a")
    assert worth is not None
    assert worth.gang == "aws/north-1 p9.48xlarge spot x8"
    assert abs((figures(worth).cost_usd - plan.cost_usd).nanos) <= 2
    assert figures(worth).reserved_until == plan.jobs[0].finish


def test_more_confidence_reserves_no_less_time() -> None:
    worth = a_worth(deadline="+30h")
    less, more = (figures(worth, "confidence", value) for value in ("0.94", "0.96"))
    assert less.reserved_until <= figures(worth).reserved_until <= more.reserved_until


def test_what_cannot_be_is_said_in_words() -> None:
    short = a_worth(deadline="+4h", confidence=0.5)
    assert case(short, "deadline", "-1h").refused.startswith("too late by ")
    assert [each.value for each in short.changed if each.kind == "confidence"] == ["0.51"], "none is below 0.5"
    text = worth_text(short)
    assert "\n  deadline an hour earlier: too late by " in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_stated_rate_has_no_ends() -> None:
    worth = a_worth(deadline="+10h", interruptions={"per_hour": 0.1})
    assert {case(worth, "interruptions", end).refused for end in ("low", "high")} == {
        "the rate is stated, and taken as it is"
    }


def test_without_a_deadline_only_the_pool_counts() -> None:
    assert [(c.kind, c.value) for c in a_worth().changed] == [("interruptions", "low"), ("interruptions", "high")]


@pytest.mark.parametrize(
    ("job", "offers"), [(a_job(deadline="+10h"), [NORTH]), (a_job(deadline="+90h", checkpoint=None), [NORTH_SPOT])]
)
def test_a_job_that_nothing_guards_has_no_figures(job: Any, offers: Any) -> None:
    request = a_request([job], offers)
    assert gang_worth(request, make_plan(request), "a") is None


def test_a_later_start_leaves_less_time() -> None:
    """The second job waits for the only machines; its figures are those from its own start on."""
    one = {"limits": [{"name": "one", "cloud": "aws", "market": "spot", "amount": 8, "unit": "accelerators"}]}
    jobs = [a_job("a", deadline="+8h", priority=1), a_job("b", deadline="+60h")]
    worth = worth_of(a_request(jobs, [NORTH, NORTH_SPOT], one), "b")
    alone = worth_of(a_request(jobs[1:], [NORTH, NORTH_SPOT], one), "b")
    assert worth.start > alone.start
    assert figures(worth).reserved_until - worth.start == figures(alone).reserved_until - alone.start


def test_json_has_each_case_with_its_difference() -> None:
    worth = a_worth(deadline="+4h", confidence=0.5)
    content = worth_content(worth)
    rows = {(row["change"], row["to"]): row for row in content["cases"]}
    assert list(rows) == [
        ("none", ""),
        ("deadline", "+1h"),
        ("deadline", "-1h"),
        ("confidence", "0.51"),
        ("interruptions", "low"),
        ("interruptions", "high"),
    ]
    later, planned = rows["deadline", "+1h"], rows["none", ""]
    assert Usd.parse(later["difference_usd"]) == Usd.parse(later["cost_usd"]) - Usd.parse(planned["cost_usd"])
    assert planned["difference_usd"] == "0.00"
    refused = rows["deadline", "-1h"]
    assert refused["refused"]
    assert refused["cost_usd"] is None
