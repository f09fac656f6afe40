"""Committed spend: what it covers by the hour, whom it moves, what plans and explanations say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing.money import Usd
from router.jobs.limits import Limits
from router.planning.document.plan import CommitmentUse, JobCover, Plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.render.explain_text import job_text, plan_text
from router.render.plan_text import table
from tests.support.checker import check_plan
from tests.support.made_up_book import book
from tests.support.scenes import HOUR, NORTH, NORTH_SPOT, NOW, SOUTH, a_job, places, plan_of

BOTH = pytest.mark.parametrize("compact_jobs", [30, 0])


def limits(*commitments: dict[str, Any], **more: Any) -> Limits:
    made = [{"name": "sp", "cloud": "aws", "discount": 0.5, **fields} for fields in commitments]
    return Limits.model_validate({"commitments": made, **more})


def planned(jobs: list[Any], offers: list[Any], stated: Limits, **knobs: Any) -> Plan:
    """The plan, as it comes back from its JSON and found good by the checker."""
    plan = plan_from_json(plan_to_json(plan_of(jobs, offers, stated, **knobs)))
    assert check_plan(plan, jobs, book(offers), stated, slot=HOUR) == []
    return plan


def use_of(plan: Plan) -> CommitmentUse:
    (use,) = plan.commitments
    return use


@BOTH
def test_an_hour_covers_what_is_committed_at_the_discount_and_the_rest_costs_the_on_demand_price(
    compact_jobs: int,
) -> None:
    """The machine uses 60 dollars an hour; 20 committed at half price cover 40 of them. It runs for 3.2 hours or so."""
    plan = planned([a_job(deadline="+5h")], [NORTH], limits({"usd_per_hour": 20}), compact_jobs=compact_jobs)
    (line,) = plan.lines
    billed = line.billed_share * line.on_time_steps_per_hour / line.steps_per_hour
    use = use_of(plan)
    assert use.committed_usd == Usd.parse("160")  # 8 hours of horizon
    in_last_hour = (line.end - line.start) / HOUR - 3
    assert use.covered_usd.dollars() == pytest.approx(3 * 40 + in_last_hour * 60 * billed, abs=1e-6)
    assert use.used_usd.dollars() == pytest.approx(use.covered_usd.dollars() / 2)
    assert use.jobs == (JobCover("a", use.covered_usd),)
    assert plan.objective_usd == plan.cost_usd - use.covered_usd
    assert plan.cost_usd == line.cost_usd


@BOTH
def test_a_job_goes_where_the_spend_is_committed_though_another_place_is_cheaper(compact_jobs: int) -> None:
    jobs = [a_job(deadline="+5h")]
    offers = [NORTH, NORTH_SPOT, SOUTH]
    assert places(plan_of(jobs, offers, compact_jobs=compact_jobs)) == {"a": "aws/north-1 spot"}
    plan = planned(jobs, offers, limits({"usd_per_hour": 25, "region": "south-1"}), compact_jobs=compact_jobs)
    assert places(plan) == {"a": "aws/south-1 on_demand"}


@BOTH
def test_two_jobs_follow_each_other_where_one_hour_covers_one_of_them(compact_jobs: int) -> None:
    jobs = [a_job("a", deadline="+8h"), a_job("b", deadline="+8h")]
    plan = planned(jobs, [NORTH], limits({"usd_per_hour": 30}), compact_jobs=compact_jobs)
    first, second = sorted(plan.lines, key=lambda line: line.start)
    assert second.start >= NOW + 3 * HOUR > first.start
    # In the hour in which one ends and the other begins both use it.
    assert plan.cost_usd.dollars() - use_of(plan).covered_usd.dollars() < 25
    assert {part.job for part in use_of(plan).jobs} == {"a", "b"}


@BOTH
def test_a_job_waits_for_a_commitment_that_begins_later_and_two_of_one_scope_follow_each_other(
    compact_jobs: int,
) -> None:
    jobs = [a_job(deadline="+8h")]
    begins = (NOW + 4 * HOUR).isoformat()
    later = planned(jobs, [NORTH], limits({"usd_per_hour": 30, "from": begins}), compact_jobs=compact_jobs)
    assert later.lines[0].start == NOW + 4 * HOUR
    both = limits({"usd_per_hour": 3, "until": begins}, {"name": "next", "usd_per_hour": 30, "from": begins})
    plan = planned(jobs, [NORTH], both, compact_jobs=compact_jobs)
    assert plan.lines[0].start == NOW + 4 * HOUR
    assert [(use.commitment, use.used_usd.nanos > 0) for use in plan.commitments] == [("sp", False), ("next", True)]


def test_spot_reservations_and_the_outlook_use_nothing() -> None:
    stated = limits({"usd_per_hour": 30})
    spot = planned([a_job(deadline="+5h", spot="only")], [replace(NORTH_SPOT, interruptions_per_hour=0.001)], stated)
    beyond = planned([a_job(earliest_start="+9h", deadline="+14h")], [NORTH], stated)
    for plan in (spot, beyond):
        assert plan.lines
        assert (use_of(plan).covered_usd, use_of(plan).jobs) == (Usd(0), ())
        assert use_of(plan).unused_usd == use_of(plan).committed_usd


def test_budgets_count_on_demand_prices() -> None:
    stated = limits({"usd_per_hour": 30}, teams=[{"team": "red", "budget": 100}])
    assert planned([a_job(deadline="+5h")], [NORTH], stated).unplaced


def test_plans_and_explanations_say_what_is_used_and_lost() -> None:
    plan = planned([a_job(deadline="+5h")], [NORTH, SOUTH], limits({"usd_per_hour": 40, "region": "north-1"}))
    use = use_of(plan)
    words = " ".join(table(plan).split())
    assert f"commitment sp: ${use.used_usd.dollars():,.2f} of $320.00 used" in words
    assert f"${use.unused_usd.dollars():,.2f} lost" in words
    assert f"covered ${use.covered_usd.dollars():,.2f}" in words
    explained = " ".join(job_text(plan, "a").split())
    assert f"commitment sp covers ${use.covered_usd.dollars():,.2f} of it" in explained
    assert "is left to pay here" in " ".join(plan_text(plan).split())


def test_without_commitments_nothing_is_said_and_limits_keep_their_bytes() -> None:
    plan = plan_of([a_job(deadline="+5h")], [NORTH])
    assert "commitments" not in plan_to_json(plan)
    assert "covered" not in table(plan)
    assert "commitments" not in Limits.none().to_json()


def test_the_checker_finds_cover_that_is_not_there() -> None:
    jobs, stated = [a_job(deadline="+5h")], limits({"usd_per_hour": 20})
    plan = plan_of(jobs, [NORTH], stated)
    use = use_of(plan)
    more = use.covered_usd + Usd(1_000_000)
    wrong = replace(use, covered_usd=more, jobs=(JobCover("a", more),))
    found = check_plan(replace(plan, commitments=(wrong,)), jobs, book([NORTH]), stated, slot=HOUR)
    assert any("its slots make" in words for words in found)
