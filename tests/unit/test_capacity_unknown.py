"""Machines of which nobody said how many there are: the plan takes them as unlimited and marks each line."""

from __future__ import annotations

from typing import Any

import pytest

from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.render.plan_text import table, wide
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.scenes import NORTH, plan_of

CAPPED = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=300)
QUOTA = {"name": "north", "cloud": "aws", "amount": 2000, "unit": "accelerators"}
ELSEWHERE = {"name": "lake", "cloud": "gcp", "amount": 8, "unit": "accelerators"}


def planned(offers: list[Any], limits: dict[str, Any] | None = None) -> Plan:
    job = simple_job("a", ("H100", 1600), steps=300, steps_per_hour=100, checkpoint={"size_gib": 10})
    return plan_of([job], offers, limits)


def test_gpus_without_a_limits_file_are_marked_on_the_line_and_below_the_table() -> None:
    plan = planned([NORTH])
    assert [line.capacity for line in plan.lines] == ["unknown"]
    assert plan_content(plan)["lines"][0]["capacity"] == "unknown"
    assert plan_from_json(plan_to_json(plan)) == plan
    words = " ".join(table(plan).split())
    assert "1 job on 1,600 accelerators of which nobody said how many there are" in words
    assert "default_cap_machines" in words
    assert " 200? " in wide(plan)


@pytest.mark.parametrize(
    ("offers", "limits"),
    [
        ([CAPPED], None),
        ([NORTH], {"default_cap_machines": 250}),
        ([NORTH], {"limits": [QUOTA]}),
    ],
)
def test_what_anything_bounds_is_not_marked(offers: list[Any], limits: dict[str, Any] | None) -> None:
    plan = planned(offers, limits)
    assert [line.capacity for line in plan.lines] == [""]
    assert "capacity" not in plan_content(plan)["lines"][0]
    assert "nobody said" not in table(plan)


def test_a_limit_of_another_place_bounds_nothing_here() -> None:
    assert [line.capacity for line in planned([NORTH], {"limits": [ELSEWHERE]}).lines] == ["unknown"]
