"""The parts of a quote: places, what was seen of them, the simulation's stage, figures."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.money import Usd
from router.quotes.curve import loosest_h, windows_h
from router.quotes.quote import BudgetQuote, Quote, Refused
from router.quotes.quote_json import answers_to_json, quote_schema, quote_schema_text
from router.quotes.runner import DeadlineCase, QuoteClock, choose_clock, list_stretches
from router.quotes.statistics import find_knee, summarise_usd, to_usd, usd_quantiles, wilson_interval
from router.spot.availability.observed import (
    PRIOR_EVENTS,
    estimate_availability,
    posterior_hazards,
    summarise_observations,
)
from router.spot.policies.baselines import GreedySpot
from router.spot.venues import find_fastest, shortlist_options
from tests.support.asked_quotes import a_budget, a_quote, asking, refused
from tests.support.made_up_book import offer
from tests.support.repository import ROOT
from tests.support.scenes import ALPS, BAY, HOUR, LAKE, NORTH, NORTH_SPOT, NOW, SOUTH, a_job

SOUTH_SPOT = offer("aws/south-1", "p9.48xlarge", "spot", "20")
LAKE_SPOT = offer("gcp/lake-1", "a9-highgpu-8g", "spot", "18")
EVERYWHERE = [NORTH, NORTH_SPOT, SOUTH, SOUTH_SPOT, ALPS, LAKE, LAKE_SPOT, BAY]


def test_a_venue_is_as_fast_as_it_runs() -> None:
    """Interruptions and waits belong to availability: only saving slows spot down; a start loses half an interval."""
    job = a_job(checkpoint={"size_gib": 360, "interval": "1h"})  # six minutes to write
    spot = next(v for v in asking(job, 24, [NORTH, NORTH_SPOT]).venues if not v.sure)
    sure = next(v for v in asking(job, 24, [NORTH, NORTH_SPOT]).venues if v.sure)
    assert spot.steps_per_hour == pytest.approx(100 / 1.1)
    assert sure.steps_per_hour == pytest.approx(sure.candidate.steps_per_hour)
    assert spot.lost_hours == pytest.approx(0.5)
    assert sure.lost_hours == 0.0
    assert (spot.pool, sure.pool) == (("aws/north-1//p9.48xlarge",),) * 2


def test_a_few_places_are_chosen_the_fastest_first() -> None:
    venues = asking(a_job(), 24, EVERYWHERE).venues
    found = shortlist_options(venues, 300, 24)
    assert found[0] is find_fastest(venues, 300)
    assert len({v.candidate.key for v in found}) == len(found)
    assert sum(v.sure for v in found) <= 3
    spot = [v for v in found if not v.sure]
    assert len({v.pool for v in spot}) == len(spot)
    bar = min(v.whole_usd(300) for v in venues if v.sure)
    assert all(v.whole_usd(300) < bar for v in spot)
    assert shortlist_options((), 300, 24) == ()
    assert all(v.sure for v in shortlist_options([v for v in venues if v.sure], 300, 24))


def test_places_too_slow_for_the_time_are_left_out_but_for_the_fastest() -> None:
    venues = asking(a_job(), 24, EVERYWHERE).venues
    assert [v.sure for v in shortlist_options(venues, 300, 0.5)] == [True]


def test_looks_become_hazards_by_age() -> None:
    """Up for an hour, down for one, up again; ten minutes apart, and then a gap."""
    looks = [(NOW + timedelta(minutes=10 * i), not 6 <= i < 12) for i in range(19)]
    looks += [(NOW + timedelta(hours=9), True), (NOW + timedelta(hours=9, minutes=10), True)]
    seen = summarise_observations(looks, timedelta(minutes=30))
    assert seen is not None
    assert seen.watched_h == pytest.approx(19 / 6)
    assert seen.events.sum(axis=1).tolist() == [1, 1]
    assert (seen.up, seen.since, seen.at) == (True, NOW, looks[-1][0])
    assert seen.age_h == pytest.approx(1 / 6)  # born anew after the gap
    assert summarise_observations([], timedelta(minutes=30)) is None
    assert summarise_observations(looks[:1], timedelta(minutes=30)) is None


def test_a_prior_is_worth_two_events_and_observations_add_to_it() -> None:
    venues = asking(a_job(), 24, [NORTH, NORTH_SPOT]).venues
    i = next(i for i, v in enumerate(venues) if not v.sure)
    prior = estimate_availability(venues, {}, NOW)
    risk = venues[i].candidate.risk
    assert prior.hazard_model.events[i].tolist() == [[PRIOR_EVENTS] * 4] * 2
    assert prior.hazard_model.mean()[i, 1, 0] == pytest.approx(risk.interruptions_per_hour)
    assert prior.hazard_model.mean()[i, 0, 0] == pytest.approx(1 / risk.recovery_hours)
    assert (prior.state, prior.observed) == (None, False)
    looks = [(NOW - timedelta(minutes=5) - HOUR + timedelta(minutes=10 * k), True) for k in range(7)]
    seen = summarise_observations(looks, timedelta(minutes=30))
    assert seen is not None
    availability = estimate_availability(venues, {venues[i].pool[0]: seen}, NOW)
    for late, calm in ((0, 2 / 3), (1, 1 / 3), (2, 0.0), (3, 0.0)):  # an hour, by age
        before = PRIOR_EVENTS / risk.interruptions_per_hour
        share = before / (before + calm)
        worth = 0.5 + 1.5 * share
        assert availability.hazard_model.events[i, 1, late] == pytest.approx(worth)
        assert availability.hazard_model.mean()[i, 1, late] == pytest.approx(
            worth / (calm + worth * (before + calm) / PRIOR_EVENTS)
        )
    assert availability.observed
    assert availability.state is not None
    assert (availability.state.up[i], availability.state.age_h[i]) == (True, pytest.approx(1))
    assert estimate_availability(venues, {venues[i].pool[0]: seen}, NOW + 5 * HOUR).state is None


def test_spot_that_has_been_away_for_days_is_not_soon_back() -> None:
    """A prior that says an hour and a half is not one for each age: what other pools showed at that age counts too."""
    minutes = timedelta(minutes=10)
    away = summarise_observations([(NOW + k * minutes, False) for k in range(6 * 72)], minutes)
    flaps = summarise_observations([(NOW + k * minutes, k // 9 % 2 == 0) for k in range(6 * 72)], minutes)
    assert away is not None
    assert flaps is not None
    rates = np.array([[1 / 1.6, 0.078]] * 3)
    events, hours = posterior_hazards(rates, [away, flaps, None])
    back = events[:, 0] / hours[:, 0]
    assert back[0, -1] < 1 / 48
    assert back[1, 1] == pytest.approx(flaps.events[0, 1] / flaps.hours[0, 1], rel=0.1)
    assert (events[2] / hours[2]).tolist() == [pytest.approx([rate] * 4) for rate in rates[2]]
    alone, for_days = posterior_hazards(rates[:1], [away])
    assert alone[0, 0, -1] / for_days[0, 0, -1] < 1 / 24


def test_venues_of_one_pool_share_their_availability_and_sure_ones_have_none() -> None:
    small = offer("aws/north-1", "p9.24xlarge", "spot", "12")
    job = a_job()
    ask = asking(job, 24, [NORTH, NORTH_SPOT, small])
    stage = ask.stage(ask.venues, QuoteClock(600, 144), 20)
    spot = [i for i, v in enumerate(ask.venues) if not v.sure and v.candidate.offer.instance_type == "p9.48xlarge"]
    sure = [i for i, v in enumerate(ask.venues) if v.sure]
    assert not stage.inputs.up[sure].any()
    assert stage.inputs.up[spot].any()
    assert stage.availability.pool[spot[0]] == spot[0]


def test_where_a_window_of_one_tick_began_is_known() -> None:
    ask = asking(a_job(), 24, [NORTH, SOUTH, NORTH_SPOT])
    ask.trade = replace(ask.trade, policy_for=lambda _outlook, _like: GreedySpot())
    stage = ask.stage(ask.venues, QuoteClock(600, 144), 50)
    sure = np.array([v.sure for v in stage.venues])
    got = stage.play(144, steps=1)
    on_spot = (got.spot_ticks > 0) & (got.on_demand_ticks == 0)
    assert on_spot.any()
    assert not sure[got.first[on_spot]].any()


def test_the_stage_plays_any_deadline_in_the_same_availability() -> None:
    ask = asking(a_job(), 24, [NORTH, NORTH_SPOT, SOUTH])
    stage = ask.stage(ask.venues, QuoteClock(600, 144), 50)
    tight, loose, again = stage.play(24), stage.play(144), stage.play(24)
    assert tight.usd.tolist() == again.usd.tolist()
    assert loose.usd.mean() < tight.usd.mean()
    assert not tight.late.any()
    half = stage.play(144, steps=150)
    assert half.usd.mean() < loose.usd.mean()
    option_by_tick = list_stretches(loose, 0, 600)
    assert option_by_tick[0].first == 0
    assert 0 <= option_by_tick[-1].after * 600 - loose.finish_s[0] < 600


def test_deadlines_played_together_cost_what_they_cost_alone() -> None:
    ask = asking(a_job(), 24, [NORTH, NORTH_SPOT, SOUTH])
    stage = ask.stage(ask.venues, QuoteClock(600, 144), 50)
    cases = [DeadlineCase(144, 50), DeadlineCase(24, 30), DeadlineCase(60, 50, steps=150)]
    for case, got in zip(cases, stage.plays(cases), strict=True):
        alone = stage.play(case.ticks, case.steps)
        for name in ("usd", "finish_s", "late", "launches", "spot_ticks", "on_demand_ticks", "first", "slow"):
            assert getattr(got, name).tolist() == getattr(alone, name)[: case.draws].tolist(), name
        assert got.option_by_tick.tolist() == alone.option_by_tick[: case.draws].tolist()


def test_nothing_is_paid_for_the_rest_of_the_last_tick() -> None:
    ask = asking(a_job(spot="never"), 24, [NORTH])
    whole, parts = (
        ask.stage(ask.venues, QuoteClock(tick_s, 86_400 // tick_s), 50).play(86_400 // tick_s) for tick_s in (60, 7200)
    )
    assert parts.usd.tolist() == pytest.approx(whole.usd.tolist(), rel=1e-9)
    assert parts.finish_s.tolist() == pytest.approx(whole.finish_s.tolist(), rel=1e-9)


@pytest.mark.parametrize(("window_s", "ticks"), [(3600, 160), (86_400, 160), (30 * 86_400, 160), (7, 160)])
def test_a_clock_holds_the_window_but_for_less_than_a_tick(window_s: int, ticks: int) -> None:
    clock = choose_clock(window_s, ticks, 120, 3600)
    assert 0 <= window_s - clock.ticks * clock.tick_s < max(clock.tick_s, 1)
    assert clock.ticks >= 1


def test_amounts_without_an_end_have_no_figure() -> None:
    values = np.array([1.0] * 8 + [np.inf] * 2)
    found = summarise_usd(values)
    assert (found.p50, found.p90, found.mean) == (Usd.parse("1"), None, None)
    assert usd_quantiles(values)[-1] is None
    assert to_usd(float("nan")) is None
    assert to_usd(1.006) == Usd.parse("1.01")


def test_the_interval_of_a_share() -> None:
    assert wilson_interval(0.5, 100) == pytest.approx((0.404, 0.596), abs=0.001)
    low, high = wilson_interval(1.0, 500)
    assert (round(low, 4), high) == (0.9924, 1.0)
    assert wilson_interval(0.0, 500)[0] == pytest.approx(0)


def test_the_knee_is_farthest_below_the_line() -> None:
    assert find_knee([1, 2, 3, 10], [100, 20, 18, 10]) == 1
    assert find_knee([1, 2, 3], [3, 2, 1]) is None
    assert find_knee([1, 2], [2, 1]) is None
    assert find_knee([1, 2, 3], [1, 1, 1]) is None
    assert find_knee([1, 2, 3], [float("inf"), 1, 1]) is None


def test_the_loosest_deadline_leaves_the_cheapest_place_room() -> None:
    assert loosest_h(10, 20, 40) == pytest.approx(52)
    assert loosest_h(10, 100, 40) == pytest.approx(110)
    assert loosest_h(10, 20, 4000) == pytest.approx(60)
    hours = windows_h(10, 60)
    assert hours[0] == pytest.approx(10)
    assert hours[-1] == pytest.approx(60)
    assert list(hours) == sorted(hours)


def test_the_published_schema_is_that_of_the_answers() -> None:
    """When this fails: `stepfare schema quote > docs/schema/quote.json`."""
    assert (ROOT / "docs/schema/quote.json").read_text(encoding="utf-8") == quote_schema_text()
    Draft202012Validator.check_schema(quote_schema())


def test_answers_keep_the_schema() -> None:
    answers: list[Quote | BudgetQuote | Refused] = [
        a_quote(a_job(), 24, [NORTH, NORTH_SPOT, SOUTH]),
        a_quote(a_job("b", spot="only"), 24, [NORTH_SPOT]),
        refused(a_job("c"), 1, [NORTH]),
        a_budget(a_job("d"), 24, "100", [NORTH]),
    ]
    found = Draft202012Validator(quote_schema()).iter_errors(json.loads(answers_to_json(answers)))
    assert [e.message[:200] for e in found] == []
