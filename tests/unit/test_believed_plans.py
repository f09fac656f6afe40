"""Plans and quotes that two readers of made-up jobs did not believe: dear deadlines, wrong reasons, bare prices."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pricing.book import PriceBook
from pricing.money import Usd, UsdPerHour
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.planner import PlanRequest, make_plan
from router.prices.books import load_book
from router.quotes.quote_json import quote_from_json, quote_to_json
from router.quotes.statistics import mean_error
from router.render import explain_text, quote_text
from router.render.tables import format_usd
from tests.support.asked_quotes import a_quote, by, dollars, refused
from tests.support.night import NOW
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job, plan_of


@cache
def embedded() -> PriceBook:
    return load_book("embedded")


def a_file(accelerators: str, steps: int, allow: str, gib: int, **more: Any) -> Job:
    """A job file as that reader had them: a thousand steps an hour."""
    return Job.model_validate(
        {
            "name": "made-up",
            "team": "research",
            "steps": steps,
            "workload": {"profile": {"accelerators": accelerators, "steps_per_hour": 1000}},
            "gang": {"accelerators": accelerators},
            "residency": {"allow": [allow]},
            "checkpoint": {"size_gib": gib},
            **more,
        }
    )


def the_plan(job: Job) -> Plan:
    return make_plan(PlanRequest(jobs=(job,), book=embedded(), limits=Limits.none(), now=NOW))


def cheapest(job: Job) -> Candidate:
    kept, _ = CandidateFinder(embedded(), Limits.none(), NOW, advisory=False).find(job)
    return min(kept, key=lambda c: c.expected_usd(job.steps))


@pytest.mark.parametrize(
    ("accelerators", "steps", "allow", "gib"),
    [("T4:4", 80_000, "azure", 5), ("H100:64", 60_000, "gcp", 800), ("L4:8", 120_000, "aws", 20)],
)
def test_a_later_deadline_never_costs_more_and_a_far_one_what_none_does(
    accelerators: str, steps: int, allow: str, gib: int
) -> None:
    """The price of the gang was that of a guard that acts after six times the least time, wherever the deadline was.

    And a gang that leaves a bad pool long before its deadline counted as one without time to lose its machines again,
    so that sixty hours on 64 accelerators were never sure enough.
    """
    job = a_file(accelerators, steps, allow, gib)
    deadlines = (150, 250, 558, 1000, 2000, 4000)
    found = [cheapest(job.model_validate({**job.model_dump(), "deadline": f"+{h}h"})) for h in deadlines]
    none = cheapest(job)
    usd = [each.expected_usd(steps) for each in (*found, none)]
    for nearer, later in pairwise(usd):
        assert later <= nearer * 1.005
    assert usd[-2] <= usd[-1] * 1.02
    assert all(each.key == none.key for each in found[2:])
    assert all(each.guard is not None and each.guard.on_time_probability >= 0.95 for each in found)
    # No run is given much more time than it needs for that: others may want the place.
    assert all(each.reserved_hours(steps) < 650 for each in found)


def test_more_choice_never_makes_a_job_impossible() -> None:
    """Spot and on demand in turn were not sure enough, and with more confidence nothing fitted: it was left out."""
    choice = a_file("A10G:8", 50_000, "aws", 30, deadline="+3300m")
    bare = choice.model_validate({**choice.model_dump(), "market": {"spot": "never"}})
    plan, sure = the_plan(choice), the_plan(bare)
    assert not plan.unplaced
    assert plan.cost_usd <= sure.cost_usd
    (job,) = plan.jobs
    assert job.on_time_probability is not None
    assert job.on_time_probability >= 0.945
    # It is not said to be the best: the bound is that of what was not sure enough.
    assert plan.status == "feasible" or plan.gap <= 0.005
    assert plan.bound_usd <= plan.objective_usd


def test_the_fastest_offer_that_is_named_is_the_cheapest_of_the_fastest() -> None:
    near = a_file("A10G:8", 50_000, "aws", 30, deadline="+50h", market={"spot": "never"})
    (left_out,) = the_plan(near).unplaced
    assert "needed on the fastest offer (aws/us-east-1/g5.12xlarge/on_demandx8) to be 95% sure" in left_out.reason


def test_what_the_book_lacks_is_not_called_a_rule() -> None:
    (left_out,) = the_plan(a_file("V100-16GB:8", 60_000, "gcp", 20, deadline="+180h")).unplaced
    assert left_out.reason == "the price book has no V100-16GB where residency lets the job run"
    north = a_job(residency={"allow": ["gcp"]})
    assert refused(north, 24, [NORTH, NORTH_SPOT]).what == "the price book has no H100 where residency lets the job run"
    assert refused(a_job(), 24, []).what == (
        "the price book has no H100: no price is known of aws p9.24xlarge, aws p9.48xlarge and 4 more"
    )


def test_a_price_unlike_a_spot_price_is_told() -> None:
    alike = the_plan(a_file("H100:16", 16_000, "azure", 300, deadline="+48h"))
    assert any("spot costs no less than on demand there, $98.32 an hour" in note for note in alike.jobs[0].notes)
    low = the_plan(a_file("H100:8", 60_000, "gcp", 800))
    words = "gcp/europe-north1 a3-highgpu-8g: spot at $10.21 an hour is less than half of the median of 16 regions"
    assert any(note.startswith(words) for note in low.jobs[0].notes)


def test_explain_says_how_many_interruptions_are_expected_and_why_it_falls_back() -> None:
    job = a_file("L4:8", 120_000, "aws", 20)
    free, due = the_plan(job), the_plan(job.model_validate({**job.model_dump(), "deadline": "+200h"}))
    expected = cheapest(job).guard
    assert expected is not None
    text = " ".join(explain_text.job_text(free, "made-up").split())
    assert f"{expected.interruptions:,.1f} interruptions expected of the job; interrupted" in text
    assert "where its pool fails too often it is taken to leave it (2% likely) for aws/" in text
    assert "od where the pool fails too often: in" in text
    text = " ".join(explain_text.job_text(due, "made-up").split())
    assert "od where the pool fails too often or no more time is left for spot: in" in text
    ordered = Usd.total(x.fallback.cost_usd for x in due.lines if x.fallback is not None and x.kind == "order")
    assert f"the plan counts {format_usd(ordered)} of it to the orders, the rest to the outlook" in text
    bought = [x for x in due.lines if x.kind == "order"]
    assert due.orders_usd == Usd.total(x.cost_usd for x in bought)


def test_a_quote_says_how_well_its_mean_is_known() -> None:
    south = replace(NORTH_SPOT, region="south-1", usd_per_hour=UsdPerHour.parse("25"))
    quote = a_quote(a_job(steps=3000, deadline="+48h"), 48, [NORTH, NORTH_SPOT, south])
    text = " ".join(quote_text.text(quote, "q").split())
    assert quote.mean_error_usd is not None
    assert quote.usd.mean is not None
    assert f"expected ${quote.usd.mean.dollars():,.2f} ±${quote.mean_error_usd.dollars():,.2f}, as 400" in text
    assert quote.place_usd is not None
    assert quote.place_error_usd is not None
    assert f"alone: ${quote.place_usd.dollars():,.2f} ±${quote.place_error_usd.dollars():,.2f}" in text
    few = replace(quote, usd=replace(quote.usd, p90=quote.usd.mean - Usd.parse("1")))
    assert "few runs cost far more than the others" in " ".join(quote_text.text(few, "q").split())


@pytest.mark.parametrize("due", [None, "+500h", "+2000h"])
def test_leave_to_go_on_demand_makes_nothing_dearer_but_for_runs_that_spot_never_ends(due: str | None) -> None:
    """Due in a week such a job was $439 where it may go on demand and $330 where it may not."""
    job = a_file("L4:8", 120_000, "aws", 20, market={"spot": "only"}, deadline=due)
    alone, allowed = the_plan(job), the_plan(job.model_validate({**job.model_dump(), "market": {"spot": "allowed"}}))
    assert allowed.cost_usd.dollars() <= alone.cost_usd.dollars() * 1.01
    behind = "nothing but spot is behind it: 0."
    assert any(behind in note and "not done in 90 days" in note for note in alone.jobs[0].notes)
    assert not any(behind in note for note in allowed.jobs[0].notes)


@pytest.mark.slow
def test_spot_alone_is_as_sure_as_is_asked_by_some_deadline() -> None:
    job = a_file("A10G:8", 91_000, "aws", 20, market={"spot": "only"})
    assert the_plan(job.model_validate({**job.model_dump(), "deadline": "+110h"})).unplaced
    far = the_plan(job.model_validate({**job.model_dump(), "deadline": "+360d"}))
    assert not far.unplaced
    assert far.jobs[0].on_time_probability is not None
    assert far.jobs[0].on_time_probability >= 0.95


QUOTED: dict[str, Any] = {"steps": 4000, "interruptions": {"per_hour": 0.4}}


@pytest.mark.slow
def test_a_far_deadline_is_quoted_as_the_last_one_that_matters() -> None:
    offers = [NORTH, NORTH_SPOT]
    near, far, farther = (a_quote(a_job(**QUOTED, deadline=f"+{h}h"), h, offers) for h in (60, 400, 4000))
    assert (far.usd, far.usd_levels, far.finish_levels) == (farther.usd, farther.usd_levels, farther.finish_levels)
    assert dollars(far.usd.mean) <= dollars(near.usd.mean)
    for quote, hours in ((far, 400), (farther, 4000)):
        asked = quote.curve[-1]
        assert (quote.deadline, asked.deadline, asked.mean) == (by(hours), by(hours), quote.usd.mean)
        assert asked.hours == pytest.approx(hours)
        assert [point.hours for point in quote.curve] == sorted(point.hours for point in quote.curve)
        assert quote.hour_earlier is None
        assert quote.valid_until == near.valid_until
        assert any("what more time would save is not counted" in words for words in quote.conditions)
        assert quote_from_json(quote_to_json(quote)) == quote
        # The plan beside it is that of the deadline that was asked.
        plan = plan_of([a_job(**QUOTED, deadline=f"+{hours}h")], offers)
        assert dollars(quote.plan_usd) == pytest.approx(plan.cost_usd.dollars(), abs=0.01)
    assert not any("what more time" in words for words in near.conditions)


@pytest.mark.slow
@pytest.mark.parametrize("per_hour", [0.3, 1.0, 3.0])
def test_a_quote_counts_what_the_owner_says_of_interruptions(per_hour: float) -> None:
    """A quote of 40 h of work due in 400 had ticks of over an hour: at three losses an hour most went uncounted."""
    job = a_job(steps=4000, deadline="+400h", interruptions={"per_hour": per_hour})
    quote = a_quote(job, 400, [NORTH, NORTH_SPOT])
    on_spot = 40 * quote.spot_share
    assert quote.interruptions >= 0.5 * per_hour * on_spot
    # A life that begins with twelve minutes of start-up leaves that much less of itself.
    lost = 1 - np.exp(-0.2 * per_hour)
    least = 24 * on_spot / (1 - lost) + 60 * 40 * (1 - quote.spot_share)
    assert dollars(quote.usd.mean) >= 0.85 * least


@pytest.mark.slow
def test_a_quote_never_costs_more_than_the_plan_s_place_alone() -> None:
    """With a checkpoint of 10 TB every other place costs more to move to than it saves."""
    more: dict[str, Any] = {"steps": 3000, "deadline": "+80h", "checkpoint": {"size_gib": 10_000, "write_gib_per_s": 2}}
    south = replace(NORTH_SPOT, region="south-1", usd_per_hour=UsdPerHour.parse("23"))
    quote = a_quote(a_job(**more), 80, [NORTH, NORTH_SPOT, SOUTH, south])
    assert quote.place_usd is not None
    assert dollars(quote.usd.mean) <= dollars(quote.place_usd)


@pytest.mark.slow
def test_what_more_regions_a_quote_counts_on_is_said() -> None:
    south = replace(NORTH_SPOT, region="south-1")
    one, two = (
        a_quote(a_job(steps=3000, deadline="+48h"), 48, found)
        for found in ([NORTH, NORTH_SPOT], [NORTH, NORTH_SPOT, south])
    )
    words = "lost machines may be replaced in another region: `gang.regions` and `max_moves` bind a plan alone"
    assert (words in one.conditions, words in two.conditions) == (
        False,
        len({p.where.rpartition("/")[0] for p in two.places}) > 1,
    )


def test_the_error_of_a_mean_holds_for_draws_of_any_shape() -> None:
    drawn = np.random.default_rng(3).lognormal(0.0, 1.0, (2000, 400))
    errors = np.array([mean_error(row) for row in drawn])
    within = np.abs(drawn.mean(axis=1) - np.exp(0.5)) <= errors
    assert 0.91 <= within.mean() <= 0.97
    assert mean_error(np.array([1.0, np.inf])) == np.inf


def test_the_horizon_does_not_matter_to_the_price_of_a_deadline() -> None:
    """The guard's last moment is at the deadline, not at the end of the hours that are ordered now."""
    job = a_file("T4:4", 80_000, "azure", 5, deadline="+1000h")
    short, long = (
        make_plan(PlanRequest(jobs=(job,), book=embedded(), limits=Limits.none(), now=NOW, horizon=timedelta(hours=h)))
        for h in (8, 48)
    )
    assert short.cost_usd.dollars() == pytest.approx(long.cost_usd.dollars(), rel=0.01)


def test_a_cheaper_place_that_lacks_nothing_is_said_to_be_within_the_gap() -> None:
    """A search that may stop at a gap may leave one; the sentence ended in the middle."""
    plan = plan_of([a_job()], [NORTH, SOUTH])
    (job,) = plan.jobs
    assert job.runner_up is not None
    cheaper = replace(job.runner_up, cost_usd=job.cost_usd - Usd(5 * 10**9), lacks="")
    left = replace(plan, jobs=(replace(job, runner_up=cheaper),))
    text = " ".join(explain_text.job_text(left, job.job).split())
    assert "would save $5.00, within the gap of the plan" in text


@pytest.mark.parametrize(("accelerators", "allow", "deadline"), [("A10G:8", "aws", "+44h"), ("H100:32", "gcp", "+60h")])
def test_more_confidence_never_costs_less(accelerators: str, allow: str, deadline: str) -> None:
    """Not by cents either: the windows in which a gang's costs are worked out do not depend on what is asked."""
    costs = []
    for confidence in (0.9, 0.94, 0.95, 0.96, 0.98):
        job = a_file(accelerators, 30_000, allow, 100, deadline=deadline, confidence=confidence)
        (placed,) = the_plan(job).jobs
        costs.append(round(placed.cost_usd.dollars(), 4))
    assert costs == sorted(costs)


def test_the_cost_of_a_rule_says_where_it_lies_behind_the_same_gang() -> None:
    """Without residency the gang stays where it is, but may leave a bad pool for others."""
    plan = the_plan(a_file("A100-80GB:16", 36_000, "EU", 100, deadline="+60h"))
    (job,) = plan.jobs
    (cost,) = (cost for cost in job.constraint_costs if cost.rule == "residency")
    assert cost.saving_usd.nanos > 0
    line = plan.lines[0]
    assert cost.instead.startswith(f"{line.cloud}/{line.region}/{line.instance_type}/spotx16, done")
    assert cost.instead.endswith(", with all pools to go on in")
