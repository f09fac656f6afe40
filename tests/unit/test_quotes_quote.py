"""Quotes: what they say of small jobs whose cost is known and of other deadlines, and what they refuse or leave out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.jobs.goodput import run_share
from router.quotes.curve import deadline_figure
from router.quotes.quote import BudgetQuote, Quote, Reach
from router.quotes.quote_json import answers_to_json, quote_content, quote_from_json, quote_to_json
from router.quotes.runner import QuoteClock
from router.render import quote_text
from router.spot.availability.observed import PoolObservation
from tests.support.asked_quotes import a_budget, a_quote, asking, by, dollars, refused
from tests.support.made_up_book import offer
from tests.support.scenes import ALPS, BAY, LAKE, NORTH, NORTH_SPOT, NOW, SOUTH, a_job, plan_of

HOURS = 3.2  # 300 steps at 100 an hour, after 12 minutes
POOL = "aws/north-1//p9.48xlarge"


def test_on_demand_alone_costs_its_hours() -> None:
    q = a_quote(a_job(spot="never"), 12, [NORTH])
    assert dollars(q.usd.p50) == pytest.approx(HOURS * 60, rel=0.05)
    assert q.usd.p90 == q.usd.p50
    assert (q.on_time, q.spot_share, q.interruptions) == (1.0, 0.0, 0.0)
    assert timedelta(0) <= q.earliest - by(HOURS) < timedelta(seconds=30)  # hardware fails now and then
    assert dollars(q.earliest_usd) == pytest.approx(HOURS * 60, rel=0.01)
    assert q.finish_p50 is not None
    assert abs(q.finish_p50 - q.earliest) < timedelta(minutes=15)
    assert q.usd_per_step is not None
    assert q.usd_per_step.dollars() == pytest.approx(dollars(q.usd.mean) / 300)
    assert q.dearest_risk == ""
    assert q.knee is None


def test_spot_makes_it_cheaper_and_less_certain() -> None:
    q = a_quote(a_job(), 24, [NORTH, NORTH_SPOT])
    alone = next(o for o in q.alternatives if o.change == "on-demand alone")
    assert dollars(q.usd.p50) < 0.6 * dollars(alone.p50)
    assert dollars(q.usd.p50) <= dollars(q.usd.p90)
    assert q.spot_share > 0.8
    assert q.on_time == 1.0
    assert q.on_time_low > 0.99
    parts = [d for d in q.drivers if not d.what.startswith("of these")]
    assert sum(d.share for d in parts) == pytest.approx(1)
    assert Usd.total(d.usd for d in parts if d.usd is not None) == q.usd.mean
    assert {(p.where, p.market) for p in q.places} == {
        ("aws/north-1/p9.48xlarge", "on_demand"),
        ("aws/north-1/p9.48xlarge", "spot"),
    }


@pytest.mark.slow
def test_a_quote_on_two_clouds_costs_no_more_than_on_either() -> None:
    lake_spot = offer("gcp/lake-1", "a9-highgpu-8g", "spot", "23")
    q = a_quote(a_job(), 24, [NORTH, NORTH_SPOT, LAKE, lake_spot])
    change = {o.change: o for o in q.alternatives}
    for cloud, offers in (("aws", [NORTH, NORTH_SPOT]), ("gcp", [LAKE, lake_spot])):
        if len({place.where.split("/")[0] for place in q.places}) > 1:
            assert f"on {cloud} alone" in change
        alone = a_quote(a_job(), 24, offers)
        assert dollars(q.usd.mean) <= dollars(alone.usd.mean) * 1.02


def test_a_job_that_forbids_spot_gets_none_and_is_told_what_it_would_bring() -> None:
    q = a_quote(a_job(spot="never"), 24, [NORTH, NORTH_SPOT, SOUTH])
    assert {p.market for p in q.places} == {"on_demand"}
    allowed = next(o for o in q.alternatives if o.change == "with spot allowed")
    assert dollars(allowed.p50) < dollars(q.usd.p50)


def test_without_a_checkpoint_no_spot_is_counted_on() -> None:
    q = a_quote(a_job(checkpoint=None), 24, [NORTH, NORTH_SPOT])
    assert {p.market for p in q.places} == {"on_demand"}
    assert any("without a checkpoint" in words for words in q.conditions)
    never = refused(a_job(checkpoint=None, spot="only"), 24, [NORTH, NORTH_SPOT])
    assert "cannot resume" in never.what


def test_limits_and_residency_are_kept() -> None:
    q = a_quote(a_job(), 24, [NORTH, NORTH_SPOT, LAKE, BAY], {"clouds": ["gcp"]})
    assert {p.where.split("/")[0] for p in q.places} == {"gcp"}


@pytest.mark.slow
def test_the_curve_falls_and_its_knee_is_one_of_its_points() -> None:
    q = a_quote(a_job(steps=2000), 40, [NORTH, NORTH_SPOT, SOUTH])
    assert q.curve[0].hours <= 1.1 * 20.2
    assert q.curve[-1].hours > q.curve[0].hours
    assert any(p.deadline == q.deadline for p in q.curve)
    costs = [dollars(p.mean) for p in q.curve]
    assert costs == sorted(costs, reverse=True)
    assert q.knee is not None
    assert sum(p.knee for p in q.curve) == 1


def test_an_impossible_deadline_says_the_earliest_and_its_price() -> None:
    no = refused(a_job(), 3, [NORTH, NORTH_SPOT, SOUTH])
    assert no.what == "cannot be done by then: 3.2 h on the fastest, 3.0 h left"
    assert no.earliest is not None
    assert timedelta(0) <= no.earliest - by(HOURS) < timedelta(seconds=30)
    assert dollars(no.earliest_usd) == pytest.approx(HOURS * 50, rel=0.01)
    assert no.earliest_on.startswith("aws/south-1")
    assert refused(a_job(), -1, [NORTH]).what == "its deadline is not after its start"


def test_without_any_place_the_reasons_are_told() -> None:
    no = refused(a_job(), 24, [NORTH], {"clouds": ["gcp"]})
    assert no.earliest is None
    assert "1 offers: cloud aws is not allowed by the limits file" in no.reasons[0]


def test_a_speed_that_is_not_sure_makes_a_tight_deadline_a_matter_of_luck() -> None:
    job = a_job(steps=1000, relative_error=0.2, spot="never")
    tight, loose = a_quote(job, 10.7, [NORTH]), a_quote(job, 20, [NORTH])
    assert 0.5 < tight.on_time < 0.8
    assert tight.on_time_low < tight.on_time < tight.on_time_high
    assert loose.on_time > 0.99
    assert "slower than its profile" in loose.dearest_risk
    assert dollars(loose.usd.p90) > 1.15 * dollars(loose.usd.p50)


def test_spot_alone_may_never_end() -> None:
    q = a_quote(a_job(spot="only", steps=500), 5.5, [NORTH_SPOT])
    assert q.usd.p90 is None or q.on_time > 0.89
    assert any("spot alone" in words for words in q.conditions)
    assert "null" in quote_to_json(q) or q.on_time == 1.0
    assert quote_from_json(quote_to_json(q)) == q


def observation(lost_h: float, back_h: float, hours: float = 700.0) -> PoolObservation:
    """Watched for long: so many hours up between losses, and down."""
    watched = np.full((2, 4), hours)
    events = np.stack([watched[0] / back_h, watched[1] / lost_h])
    return PoolObservation(events, watched, True, 5.0, NOW - timedelta(days=31), NOW - timedelta(minutes=5))


@pytest.mark.slow
def test_what_was_seen_of_a_pool_counts_more_than_the_prior() -> None:
    offers, job = [NORTH, NORTH_SPOT], a_job(steps=2000)
    prior = a_quote(job, 48, offers)
    calm = a_quote(job, 48, offers, seen={POOL: observation(lost_h=500, back_h=0.5)})
    wild = a_quote(job, 48, offers, seen={POOL: observation(lost_h=1, back_h=8)})
    assert calm.interruptions < prior.interruptions
    assert dollars(calm.usd.p90) < dollars(prior.usd.p90)
    assert dollars(wild.usd.mean) > 1.2 * dollars(calm.usd.mean)
    assert any(p.weather.startswith("observed 5,600 h over 30 days") for p in calm.places)
    assert any("never observed" in words for words in prior.conditions)
    assert not any("never observed" in words for words in calm.conditions)


def test_the_same_inputs_give_the_same_quote_and_it_comes_back() -> None:
    one, again = (a_quote(a_job(), 24, [NORTH, NORTH_SPOT, SOUTH]) for _ in range(2))
    text = quote_to_json(one)
    assert text == quote_to_json(again)
    assert quote_from_json(text) == one
    with pytest.raises(InvalidInputError, match="changed after it was made"):
        quote_from_json(text.replace('"team": "red"', '"team": "blue"'))
    with pytest.raises(InvalidInputError, match="is not JSON"):
        quote_from_json("{")
    with pytest.raises(InvalidInputError, match="is no quote"):
        quote_from_json("[]")


@pytest.mark.slow
def test_the_run_is_a_whole_course_and_ends_about_the_median() -> None:
    q = a_quote(a_job(steps=2000), 40, [NORTH, NORTH_SPOT])
    assert q.run[0].start == q.start
    for before, after in zip(q.run, q.run[1:], strict=False):
        assert before.end == after.start
        assert (before.where, before.market) != (after.where, after.market)
    assert q.run[-1].end <= q.deadline


def test_more_money_goes_farther_and_less_surely_farther_still() -> None:
    job = a_job(steps=100_000)
    found = [a_budget(job, 48, usd, [NORTH, NORTH_SPOT]) for usd in ("100", "400")]
    reaches: list[tuple[Reach, ...]] = [f.reaches for f in found if isinstance(f, BudgetQuote)]
    small, large = ([r.steps for r in each] for each in reaches)
    assert small == sorted(small, reverse=True)
    assert large == sorted(large, reverse=True)
    assert all(b > 2 * a for a, b in zip(small, large, strict=True))
    # 24 dollars an hour on spot, 100 steps each: 400 dollars are 1,600 steps less start-ups
    assert 1000 < large[0] <= 1650
    assert all(dollars(r.usd) <= 400 for r in reaches[1])


def test_the_text_of_a_budget_has_no_empty_paragraphs() -> None:
    found = a_budget(a_job(steps=1000), 48, "100", [NORTH, NORTH_SPOT])
    assert isinstance(found, BudgetQuote)
    assert "\n\n\n" not in quote_text.text(found, "")


def test_a_budget_for_nothing() -> None:
    no = a_budget(a_job(), 48, "0", [NORTH])
    assert "not one step for $0.00" in getattr(no, "what", "")
    little = a_budget(a_job(data={"uri": "s3://a/b", "at": "aws/alps-1", "gib": 5000}), 48, "1", [NORTH])
    assert "not one step for $1.00 in 48.0 h is 50% sure" in getattr(little, "what", "")
    assert "no offer passes" in getattr(a_budget(a_job(spot="only"), 48, "10", [NORTH]), "what", "")


def test_answers_are_told_apart() -> None:
    q = a_quote(a_job(), 24, [NORTH])
    no, budget = refused(a_job("b"), 1, [NORTH]), a_budget(a_job(), 24, "200", [NORTH])
    text = answers_to_json([no, q, budget])
    assert text == answers_to_json([q, budget, no])
    assert quote_content(q)["quote_id"] in text


def test_data_are_paid_for_once_where_it_begins() -> None:
    data = {"uri": "s3://a/b", "at": "aws/alps-1", "gib": 5000}
    there = a_quote(a_job(data=data, spot="never"), 24, [ALPS])
    away = a_quote(a_job(data=data, spot="never"), 24, [replace(NORTH, usd_per_hour=ALPS.usd_per_hour)])
    moving = [d for d in away.drivers if d.what.startswith("moving")]
    assert not [d for d in there.drivers if d.what.startswith("moving")]
    assert dollars(moving[0].usd) == pytest.approx(dollars(away.usd.p50) - dollars(there.usd.p50), rel=0.02)
    assert any("data are in the first region" in words for words in away.conditions)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(hours=st.floats(3.3, 400), steps=st.integers(1, 400))
def test_any_deadline_that_can_be_met_has_a_quote_with_a_curve(hours: float, steps: int) -> None:
    q = a_quote(a_job(steps=steps), max(hours, 0.3 + steps / 90), [NORTH, NORTH_SPOT, SOUTH])
    assert [p.hours for p in q.curve] == sorted(p.hours for p in q.curve)
    assert len(q.curve) >= 2
    assert all(p.p50 is not None for p in q.curve)
    assert all(dollars(a.mean) >= dollars(b.mean) for a, b in pairwise(q.curve))


@pytest.mark.parametrize("error", [0.0, 0.1, 0.3])
def test_plan_and_quote_expect_the_same_of_a_speed_that_is_not_sure(error: float) -> None:
    job = a_job(steps=1000, relative_error=error, spot="never", deadline="+60h")
    plan, quote = plan_of([job], [NORTH]), a_quote(job, 60, [NORTH])
    assert dollars(quote.usd.mean) == pytest.approx(plan.cost_usd.dollars(), rel=0.01)
    assert dollars(quote.plan_usd) == pytest.approx(plan.cost_usd.dollars(), abs=0.01)


@pytest.mark.slow
def test_a_quote_names_the_figure_of_the_plan_on_spot() -> None:
    job = a_job(steps=1000, relative_error=0.2, deadline="+60h")
    plan, quote = plan_of([job], [NORTH, NORTH_SPOT]), a_quote(job, 60, [NORTH, NORTH_SPOT])
    assert dollars(quote.plan_usd) == pytest.approx(plan.cost_usd.dollars(), abs=0.01)


def test_draws_of_the_error_have_its_mean_and_spread_in_each_hundred() -> None:
    ask = asking(a_job(steps=1000, relative_error=0.2, spot="never"), 60, [NORTH])
    slow = ask.stage(ask.venues, QuoteClock(3600, 60), 400).slow
    for part in np.split(slow, 4):
        assert part.mean() == pytest.approx(1, abs=0.01)
        assert part.std() == pytest.approx(0.2, rel=0.1)
    assert run_share(0.3, np.array([-5.0, 0.0, 1.0])).tolist() == pytest.approx([0.2, 1.0, 1.3])


@pytest.fixture(scope="module")
def quote() -> Quote:
    return a_quote(a_job(steps=900), 24, [NORTH, NORTH_SPOT, SOUTH])


def test_the_deadline_asked_for_has_the_quote_s_own_figures(quote: Quote) -> None:
    figure = deadline_figure(quote, quote.deadline)
    assert figure is not None
    assert figure.is_exact
    assert (figure.mean, figure.p90, figure.on_time) == (quote.usd.mean, quote.usd.p90, quote.on_time)


def test_between_two_points_it_lies_on_the_line_to_the_cent(quote: Quote) -> None:
    first, last = next((a, b) for a, b in zip(quote.curve, quote.curve[1:], strict=False) if a.mean and b.mean)
    known = [quote.deadline, *(p.deadline for p in (quote.hour_earlier, quote.hour_later) if p)]
    assert not any(first.deadline < at < last.deadline for at in known), "choose another pair"
    figure = deadline_figure(quote, first.deadline + (last.deadline - first.deadline) / 4)
    assert figure is not None
    assert first.mean is not None
    assert last.mean is not None
    exact = (3 * first.mean.nanos + last.mean.nanos) / 4
    assert figure.mean is not None
    assert figure.mean.nanos % 10**7 == 0
    assert abs(figure.mean.nanos - exact) <= 10**7 / 2
    assert not figure.is_exact


def test_after_the_last_point_it_costs_at_most_that_and_before_the_first_nothing_is_known(quote: Quote) -> None:
    assert quote.hour_later is not None
    last = max((*quote.curve, quote.hour_later), key=lambda p: p.deadline)
    later = deadline_figure(quote, last.deadline + timedelta(days=30))
    assert later is not None
    assert (later.after, later.mean) == (None, last.mean)
    assert deadline_figure(quote, quote.start) is None


def test_an_end_without_a_cost_gives_no_figure_between(quote: Quote) -> None:
    from dataclasses import replace

    first, last = quote.curve[0], quote.curve[1]
    endless = replace(quote, curve=(replace(first, mean=None), last))
    figure = deadline_figure(endless, first.deadline + timedelta(seconds=1))
    assert figure is not None
    assert figure.mean is None
    assert isinstance(figure.p90, Usd)
