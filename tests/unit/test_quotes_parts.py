"""The parts of a quote: places, what was seen of them, the simulation's stage, figures."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.money import Usd
from pricing.risk import RiskEvidence
from pricing.risk_levels import POOL_DEVIATION
from router.jobs.pool_waits import return_rates
from router.quotes.curve import loosest_h, windows_h
from router.quotes.quote import BudgetQuote, Quote, Refused
from router.quotes.quote_json import answers_to_json, quote_schema, quote_schema_text
from router.quotes.runner import DeadlineCase, QuoteClock, choose_clock, list_stretches
from router.quotes.statistics import find_knee, summarise_usd, to_usd, usd_quantiles, wilson_interval
from router.spot.availability.hazard_model import AGES_H, LossRates
from router.spot.availability.observed import (
    PRIOR_EVENTS,
    HazardPrior,
    estimate_availability,
    posterior_hazards,
    summarise_observations,
)
from router.spot.policies.published.baselines import GreedySpot
from router.spot.venues import find_fastest, shortlist_options
from tests.support.asked_quotes import a_budget, a_quote, asking, refused
from tests.support.made_up_book import offer
from tests.support.narrowed import present
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
    seen = present(summarise_observations(looks, timedelta(minutes=30)))
    assert seen.watched_h == pytest.approx(19 / 6)
    assert seen.events.sum(axis=1).tolist() == [1, 1]
    assert (seen.up, seen.since, seen.at) == (True, NOW, looks[-1][0])
    assert seen.age_h == pytest.approx(1 / 6)  # born anew after the gap
    assert summarise_observations([], timedelta(minutes=30)) is None
    assert summarise_observations(looks[:1], timedelta(minutes=30)) is None


LOOKS = [(NOW - timedelta(minutes=5) - HOUR + timedelta(minutes=10 * k), True) for k in range(7)]


def test_returns_of_a_prior_are_worth_two_events_and_losses_are_those_of_its_risk() -> None:
    venues = asking(a_job(), 24, [NORTH, NORTH_SPOT]).venues
    i = next(i for i, v in enumerate(venues) if not v.sure)
    prior = estimate_availability(venues, {}, NOW)
    risk = venues[i].candidate.gang_risk
    model = prior.hazard_model
    assert model.events[i, 0].tolist() == [PRIOR_EVENTS] * 4
    # Waits are those of a plan: mostly minutes, and the longer one has lasted the longer it goes on.
    assert model.mean()[i, 0].tolist() == pytest.approx(return_rates((0.0, *AGES_H), risk.recovery_hours))
    assert model.mean()[i, 0, 0] > 20 * model.mean()[i, 0, 3]
    # By age, as the risk has it: the level is not known, and how losses fall with age is.
    assert model.mean()[i, 1].tolist() == pytest.approx(LossRates.of(risk).per_hour)
    assert model.mean()[i, 1, 0] > 5 * model.mean()[i, 1, 2]
    assert model.events[i, 1].min() >= 100
    low, high = risk.hazard.interval
    assert model.spread[i] == pytest.approx(np.log(high / low) / 2.563, rel=0.01)
    assert (prior.state, prior.observed) == (None, False)
    assert prior.basis[i] == "prior: made up for a test (made up)"


def test_observations_add_to_a_prior() -> None:
    """An hour without a loss: the level of losses sinks as far as its doubt and that of pools allow."""
    venues = asking(a_job(), 24, [NORTH, NORTH_SPOT]).venues
    i = next(i for i, v in enumerate(venues) if not v.sure)
    seen = present(summarise_observations(LOOKS, timedelta(minutes=30)))
    before = estimate_availability(venues, {}, NOW).hazard_model
    availability = estimate_availability(venues, {venues[i].pool[0]: seen}, NOW)
    model = availability.hazard_model
    rates = before.mean()[i, 1]
    calm = np.array([2 / 3, 1 / 3, 0.0, 0.0])  # hours, by age
    likely = float(calm @ rates)
    shape = 1 / before.spread[i] ** 2
    pool = 1 / POOL_DEVIATION**2
    level = pool / (pool * (shape + likely) / shape + likely)
    assert 0.5 < level < 1
    expected = 4 / (4 / (rates * level) + calm)
    assert model.mean()[i, 1].tolist() == pytest.approx(expected.tolist())
    assert model.spread[i] == pytest.approx(min(before.spread[i], POOL_DEVIATION))
    # Of returns nothing was seen.
    assert model.mean()[i, 0].tolist() == pytest.approx(before.mean()[i, 0].tolist())
    assert availability.observed
    assert availability.basis[i] == "observed 1 h over 1 days, added to a prior"
    assert availability.state is not None
    assert (availability.state.up[i], availability.state.age_h[i]) == (True, pytest.approx(1))
    assert estimate_availability(venues, {venues[i].pool[0]: seen}, NOW + 5 * HOUR).state is None


def test_losses_that_rest_on_the_history_of_the_pool_are_not_counted_twice() -> None:
    ask = asking(a_job(), 24, [NORTH, NORTH_SPOT])
    looks = [(NOW - timedelta(minutes=10 * k), k % 9 < 6) for k in range(6 * 72, 0, -1)]
    seen = present(summarise_observations(looks, timedelta(minutes=30)))
    models = []
    i = next(i for i, v in enumerate(ask.venues) if not v.sure)
    plain = estimate_availability(ask.venues, {}, NOW).hazard_model
    for level in ("own gangs", "own availability"):
        risks = [replace(v.candidate.gang_risk, evidence=(RiskEvidence(level, "", ""),)) for v in ask.venues]
        venues = [
            replace(v, candidate=replace(v.candidate, gang_risk=risk))
            for v, risk in zip(ask.venues, risks, strict=True)
        ]
        found = estimate_availability(venues, {venues[i].pool[0]: seen}, NOW)
        models.append((found.hazard_model.mean()[i], found.hazard_model.spread[i]))
    (added, narrower), (known, spread) = models
    assert known[1].tolist() == plain.mean()[i, 1].tolist()
    assert spread == plain.spread[i] > narrower
    assert added[1, 1] > 2 * known[1, 1]
    assert known[0].tolist() == added[0].tolist() != plain.mean()[i, 0].tolist()


def test_spot_that_has_been_away_for_days_is_not_soon_back() -> None:
    """A prior that says an hour and a half is not one for each age: what other pools showed at that age counts too."""
    minutes = timedelta(minutes=10)
    away = summarise_observations([(NOW + k * minutes, False) for k in range(6 * 72)], minutes)
    flaps = summarise_observations([(NOW + k * minutes, k // 9 % 2 == 0) for k in range(6 * 72)], minutes)
    assert away is not None
    assert flaps is not None
    priors = [HazardPrior.of(1.6, LossRates.flat(0.078))] * 3
    model = posterior_hazards(priors, [away, flaps, None])
    back = model.mean()[:, 0]
    assert back[0, -1] < 1 / 48
    assert back[1, 1] == pytest.approx(flaps.events[0, 1] / flaps.hours[0, 1], rel=0.1)
    assert model.mean()[2].tolist() == [
        pytest.approx(rates) for rates in (return_rates((0.0, *AGES_H), 1.6), [0.078] * 4)
    ]
    alone = posterior_hazards(priors[:1], [away])
    assert alone.mean()[0, 0, -1] < 1 / 24


def test_losses_have_the_ages_of_their_prior_at_the_level_that_places_show() -> None:
    """A pool that flaps is lost as often as was seen. One that was hardly seen moves with it."""
    minutes = timedelta(minutes=10)
    flaps = summarise_observations([(NOW + k * minutes, k // 9 % 2 == 0) for k in range(6 * 72)], minutes)
    glance = summarise_observations([(NOW, True), (NOW + minutes, True)], minutes)
    assert flaps is not None
    assert glance is not None
    falling = LossRates((0.2, 0.1, 0.04, 0.01), 0.8)
    model = posterior_hazards([HazardPrior.of(1.6, falling)] * 3, [flaps, glance, None])
    lost = model.mean()[:, 1]
    assert lost[0, 1] == pytest.approx(flaps.events[1, 1] / flaps.hours[1, 1], rel=0.2)
    assert lost[0, 2] > 3 * falling.per_hour[2], "ages at which it was not seen rise with the rest"
    assert lost[1, 0] / falling.per_hour[0] > 2
    assert lost[1, 3] / lost[1, 1] == pytest.approx(0.1, rel=0.05)
    assert lost[2].tolist() == pytest.approx(falling.per_hour)
    assert model.spread[0] < 0.2 < model.spread[1] < model.spread[2] == 0.8
    calm = posterior_hazards([HazardPrior.of(1.6, falling)] * 3, [glance, glance, None]).mean()[:, 1]
    assert calm[1, 0] < falling.per_hour[0]


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
    ask.market_inputs = replace(ask.market_inputs, policy_for=lambda _outlook, _like: GreedySpot())
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


def test_starts_and_lost_work_are_those_of_the_options_that_ran() -> None:
    """Field case 34: an average over all options, the first start among the losses, said 59 % of the cost."""
    ask = asking(a_job(), 24, [NORTH, NORTH_SPOT, SOUTH])
    stage = ask.stage(ask.venues, QuoteClock(600, 144), 200)
    got = stage.play(144)
    starts, lost = stage.waste_usd(got)
    machines = got.usd - got.egress_usd
    assert (starts > 0).all()
    assert (starts + lost <= machines + 1e-9).all()
    once = got.launches == 1
    assert 0 < once.sum() < once.size
    assert lost[once].tolist() == [0.0] * int(once.sum()), "who was never interrupted has lost nothing"
    for draw in np.flatnonzero(once).tolist():
        own = stage.venues[int(got.first[draw])]
        assert starts[draw] == pytest.approx(own.startup_hours * own.usd_per_hour)
    assert (lost[got.launches > 1] >= 0).all()
    # Who was lost in the start-up alone has lost no work.
    assert np.median(lost[(got.launches > 1) & (got.on_demand_ticks == 0)]) > 0


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


@pytest.mark.slow
def test_answers_keep_the_schema() -> None:
    answers: list[Quote | BudgetQuote | Refused] = [
        a_quote(a_job(), 24, [NORTH, NORTH_SPOT, SOUTH]),
        a_quote(a_job("b", spot="only"), 24, [NORTH_SPOT]),
        refused(a_job("c"), 1, [NORTH]),
        a_budget(a_job("d"), 24, "100", [NORTH]),
    ]
    found = Draft202012Validator(quote_schema()).iter_errors(json.loads(answers_to_json(answers)))
    assert [e.message[:200] for e in found] == []
