"""The plan with every spot pool at the lower end of its interval, beside the plan: total, rows, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.hazard import LOW
from pricing.money import Usd
from router.app.plan_rerun import compare_lower_end
from router.planning.document.plan_json import plan_content, plan_from_json, plan_to_json
from router.planning.document.plan_schema import plan_schema
from router.planning.planner import PlanRequest, make_plan
from router.planning.what_if.what_if_comparison import VariantResult
from router.render.plan_diff_text import optimistic_text, with_optimistic
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, SOUTH, a_job, a_request

# One job that spot serves anyway, one that only spot on a calm pool makes cheaper, and one that may not use spot.
JOBS = [
    a_job("always", deadline="+20h"),
    a_job("sometimes", deadline="+5h"),
    a_job("never", deadline="+20h", spot="never"),
]
REQUEST = a_request(JOBS, [NORTH, offer("aws/north-1", "p9.48xlarge", "spot", "48"), SOUTH])


@pytest.fixture(scope="module")
def lower() -> VariantResult:
    return compare_lower_end(REQUEST, make_plan(REQUEST))


def test_it_is_the_plan_of_the_same_request_with_calm_pools(lower: VariantResult) -> None:
    assert lower.plan == make_plan(replace(REQUEST, risk_quantile=LOW, explained=False))
    assert lower.plan.cost_usd < make_plan(REQUEST).cost_usd
    assert lower.difference == lower.plan.cost_usd - make_plan(REQUEST).cost_usd


def test_jobs_whose_place_or_cost_changes_have_a_row_each(lower: VariantResult) -> None:
    plan = make_plan(REQUEST)
    text = optimistic_text(plan, lower)
    rows = {line.split()[0]: line for line in text.split("\n\n")[1].splitlines()[1:]}
    assert set(rows) == {"always", "sometimes"}
    before = {job.job: job.cost_usd for job in plan.jobs}
    after = {job.job: job.cost_usd for job in lower.plan.jobs}
    for name, row in rows.items():
        assert f"${before[name].dollars():,.2f}" in row
        assert row.endswith(f"${after[name].dollars():,.2f}")
    assert text.startswith(f"total ${plan.cost_usd.dollars():,.2f} now, ${lower.plan.cost_usd.dollars():,.2f} with")
    assert max(map(len, text.splitlines())) <= 80


def test_without_spot_nothing_changes() -> None:
    request: PlanRequest = replace(REQUEST, jobs=(JOBS[2],))
    plan = make_plan(request)
    found = compare_lower_end(request, plan)
    assert (found.plan, found.moves) == (make_plan(replace(request, explained=False)), ())
    assert optimistic_text(plan, found).endswith("\n\nno job has another place or cost then\n")


def test_json_has_it_under_a_key_that_is_no_part_of_the_plan(lower: VariantResult) -> None:
    plan = make_plan(REQUEST)
    text = with_optimistic(plan, lower)
    document = json.loads(text)
    found = document.pop("optimistic")
    assert document == plan_content(plan)
    assert plan_to_json(plan_from_json(text)) == plan_to_json(plan)
    assert list(Draft202012Validator(plan_schema()).iter_errors(json.loads(text))) == []
    assert Usd.parse(found["cost_usd"]) - Usd.parse(document["cost_usd"]) == Usd.parse(found["difference_usd"])
    assert [row["job"] for row in found["jobs"]] == [move.job for move in lower.moves if not move.quiet]
