"""Simulation of a quote from a job and a deadline. Pure.

A few choices of options are tried: one gang size alone, of the cheapest sizes that can be in time; and all that look
good, where none of these has the cheapest option. Where sizes mix, work proceeds at several speeds, and the policy
judges less well how long it can wait. What one change makes of the quote is a choice too. The least expected cost among
those that are as good as on time is quoted.

Each other deadline of the curve is a problem of its own: another deadline admits other options and gang sizes, and its
simulation has a clock of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.planning.document.gang_speeds import points_worth
from router.planning.document.plan import VALID_FOR
from router.planning.document.plan_usage import PointToMeasure
from router.quotes.curve import (
    SimulatedDeadline,
    best_by_deadline,
    build_curve,
    build_point,
    ceil_minute,
    loosest_h,
    windows_h,
)
from router.quotes.explanation import (
    build_alternative,
    compute_drivers,
    describe_dearest_risk,
    describe_evidence,
    find_learned,
    list_conditions,
    list_single_sizes,
    propose_changes,
)
from router.quotes.quote import LEVELS, Leg, Other, Point, Quote, Refused
from router.quotes.request import MarketInputs, QuoteProblem, QuoteRequest, format_offer, option_keys
from router.quotes.runner import (
    DeadlineCase,
    QuoteClock,
    ScenarioOutcomes,
    ScenarioRunner,
    choose_clock,
    list_stretches,
)
from router.quotes.statistics import (
    QuoteLevels,
    mean_error,
    quantiles,
    summarise_usd,
    to_moment,
    to_usd,
    usd_quantiles,
    wilson_interval,
)
from router.spot.simulator.inputs import HOUR_S
from router.spot.venues import QuoteOption, find_fastest

DRAWS: Final = 400
_TRIED: Final = 100  # draws of a change of the quote
_TICKS, _MOST_TICKS = 64, 256  # ticks of the requested window, at least and mostly at most
_TICKS_A_LIFE, _RARELY_MORE = 2.0, 1024  # where machines are lost often: ticks for each life, and no more than these
# A deadline is as good as any later one where it leaves so many times the fastest gang's hours, and the cheapest one's.
_ENOUGH_FASTEST, _ENOUGH_CHEAPEST = 4.0, 1.5
_LEAST_TICK_S, _TICK_S = 120, 900  # of new machines many are lost within the first half hour
_WORTH_A_TRY: Final = 0.97  # share of what another choice is expected to cost
_MORE: Final = 1  # number of choices of options added that other deadlines would try first
_ROUNDS: Final = 2  # rounds of adding choices that one change makes cheaper


def make_quote(ask: QuoteRequest, market_inputs: MarketInputs) -> Quote | Refused:
    """Return the quote, or why there is none. The same inputs give the same quote."""
    problem = QuoteProblem(ask, market_inputs)
    refused = problem.refused()
    if refused is not None:
        return refused
    enough = _enough(problem)
    quote = _QuoteBuilder(enough).quote()
    return quote if enough is problem else _offer_by(quote, problem)


def _enough(problem: QuoteProblem) -> QuoteProblem:
    """Return the problem, or that of an earlier deadline that is as good as its own."""
    cheap = min(problem.venues, key=lambda v: v.whole_usd(problem.steps))
    fastest_h = find_fastest(problem.venues, problem.steps).hours(problem.steps)
    enough_h = max(_ENOUGH_FASTEST * fastest_h, _ENOUGH_CHEAPEST * _expected_h(cheap, problem.steps))
    if problem.window_h <= enough_h:
        return problem
    return QuoteProblem(replace(problem.ask, deadline=problem.after(enough_h)), problem.market_inputs)


def _offer_by(quote: Quote, later: QuoteProblem) -> Quote:
    """Return a quote of an earlier deadline as one of a later deadline, which costs no more.

    A clock of so many ticks would be too slow for the later one: it misses what short lives of machines lose.
    """
    ask, planned = later.ask, later.planned_option()
    before = tuple(point for point in quote.curve if point.deadline < quote.deadline)
    (asked,) = (point for point in quote.curve if point.deadline == quote.deadline)
    early = f"run as for a deadline of {quote.deadline:%Y-%m-%d %H:%MZ}: what more time would save is not counted"
    return replace(
        quote,
        deadline=ask.deadline,
        valid_until=_valid_until(later),
        curve=(*before, replace(asked, deadline=ask.deadline, hours=later.window_h)),
        plan_usd=None if planned is None else to_usd(planned.whole_usd(later.steps)),
        hour_earlier=None,
        hour_later=None,
        conditions=(*quote.conditions, early),
    )


def _valid_until(problem: QuoteProblem) -> datetime:
    return min(problem.market_inputs.now + VALID_FOR, problem.ask.deadline)


def _expected_h(option: QuoteOption, steps: int) -> float:
    """Return the hours that the option is expected to need, start-up and waits for machines included."""
    return option.startup_hours + steps / option.candidate.steps_per_hour


class _QuoteBuilder:
    def __init__(self, problem: QuoteProblem) -> None:
        self.problem, self.start = problem, problem.start
        steps, hours = problem.steps, problem.window_h
        self.best = find_fastest(problem.venues, steps)
        self.earliest_h = self.best.hours(steps)
        cheap = min(problem.venues, key=lambda v: v.whole_usd(steps))
        loosest = loosest_h(self.earliest_h, hours, _expected_h(cheap, steps))
        window_s, longest_s = int(hours * HOUR_S), int(loosest * HOUR_S)
        lives = math.ceil(_TICKS_A_LIFE * hours * cheap.candidate.risk.interruptions_per_hour)
        ticks = min(max(_TICKS, window_s // _TICK_S), max(_MOST_TICKS, min(lives, _RARELY_MORE)))
        clock = choose_clock(window_s, ticks, _LEAST_TICK_S, window_s)
        windows = windows_h(self.earliest_h, loosest)
        nearest = min(windows, key=lambda h: abs(h - hours))  # the requested point replaces it
        self.others_h = [h for h in windows if h != nearest]
        hour = max(1, round(HOUR_S / clock.tick_s))
        self.clock = QuoteClock(clock.tick_s, clock.ticks + hour)
        self.ticks = clock.ticks
        earlier = clock.ticks - hour
        self.hour_ticks = [earlier] if earlier * clock.tick_s >= self.earliest_h * HOUR_S else []
        self.hour_ticks.append(clock.ticks + hour)
        self.asked_s = clock.ticks * clock.tick_s
        # A policy depends on its horizon: a point of the curve has the one that a quote of its deadline has.
        problem.horizon_s = max(longest_s, self.clock.ticks * clock.tick_s)

    def quote(self) -> Quote:
        problem, steps = self.problem, self.problem.steps
        ask, market_inputs = problem.ask, problem.market_inputs
        ways = self._try_choices()
        best, others = self._best_and_changes(ways, {})
        curve = self._search_other_deadlines(best[self.asked_s].stage.venues)
        sooner = {seconds: [s] for seconds, s in curve.items() if seconds < self.asked_s}
        if any(s.cost < best[self.asked_s].cost for (s,) in sooner.values()):
            best, others = self._best_and_changes(ways, sooner)
        s = best[self.asked_s]
        stage, got, menu = s.stage, s.played, s.stage.venues
        cost, late = summarise_usd(s.usd), 1 - s.on_time
        p50, p90 = (to_moment(self.start, float(seconds)) for seconds in quantiles(s.finish_s, (0.5, 0.9)))
        low, high = wilson_interval(1 - late, DRAWS)
        offered = best_by_deadline(self._simulated_deadlines(ways, sooner))
        curve = best_by_deadline({seconds: [each] for seconds, each in {**curve, self.asked_s: s}.items()})
        ran = np.maximum(got.spot_ticks + got.on_demand_ticks, 1)
        planned = problem.planned_option()
        place_usd, place_error_usd = (None, None) if planned is None else self._place_usd(planned, ways)
        return Quote(
            job=ask.job.name,
            job_digest=ask.job.digest,
            team=ask.job.team,
            files=ask.files,
            asked_at=market_inputs.now,
            start=self.start,
            deadline=ask.deadline,
            valid_until=_valid_until(problem),
            steps=steps,
            usd=cost,
            finish_p50=p50,
            finish_p90=p90,
            on_time=1 - late,
            on_time_low=low,
            on_time_high=high,
            confidence=ask.job.confidence,
            spot_share=float((got.spot_ticks / ran).mean()),
            interruptions=float(np.maximum(got.launches - 1, 0).mean()),
            usd_per_step=None if cost.mean is None else Usd(cost.mean.nanos // steps),
            steps_per_usd=steps / cost.mean.dollars() if cost.mean is not None and cost.mean.nanos else None,
            earliest=problem.after(self.earliest_h),
            earliest_usd=to_usd(self.best.whole_usd(steps)),
            usd_levels=usd_quantiles(s.usd),
            finish_levels=tuple(to_moment(self.start, float(seconds)) for seconds in quantiles(s.finish_s, LEVELS)),
            curve=build_curve(curve, self.start, self.asked_s, ask.deadline),
            drivers=compute_drivers(s),
            dearest_risk=describe_dearest_risk(got),
            alternatives=others,
            places=problem.somewhere(menu),
            run=_typical_run(stage, got, self.start),
            conditions=self._list_conditions(s),
            policy=market_inputs.policy_name,
            run_policy=market_inputs.run_policy,
            draws=DRAWS,
            seed=market_inputs.seed,
            book_digest=market_inputs.book.digest,
            book_as_of=market_inputs.book.as_of,
            plan_usd=None if planned is None else to_usd(planned.whole_usd(steps)),
            place_usd=place_usd,
            mean_error_usd=to_usd(mean_error(s.usd)),
            place_error_usd=place_error_usd,
            learned=find_learned(problem),
            hour_earlier=self._hour_point(offered, earlier=True),
            hour_later=self._hour_point(offered, earlier=False),
            evidence=describe_evidence(menu, stage.availability, market_inputs.fit),
            limits=ask.quoted_limits,
            to_measure=self._points_worth(menu, cost.mean),
        )

    def _points_worth(self, menu: Sequence[QuoteOption], cost: Usd | None) -> tuple[PointToMeasure, ...] | None:
        """Return the points worth measuring for the cheapest place; None where nothing is."""
        problem, best = self.problem, min(menu, key=lambda v: v.whole_usd(self.problem.steps)).candidate
        return points_worth(problem.job, best, problem.candidates, problem.market_inputs.finder, cost) or None

    def _place_usd(self, planned: QuoteOption, ways: _ChoicesByKeys) -> tuple[Usd | None, Usd | None]:
        """Return the expected cost on the plan's gang and its fallback alone, and its error; None where it has none."""
        if planned.candidate.fallback is None:
            return None, None
        menu = self.problem.planned_menu(planned)
        way = ways.get(option_keys(menu)) or self._simulate_choice(menu, [DeadlineCase(self.ticks, DRAWS)])
        there = way.simulations[self.asked_s]
        return to_usd(there.cost[0]), to_usd(mean_error(there.usd))

    def _try_choices(self) -> _ChoicesByKeys:
        """Simulate choices of options for the requested deadline, the plan's one place always."""
        planned = self.problem.planned_option()
        place = () if planned is None else self.problem.planned_menu(planned)
        menus = [*self._list_menus(), *([place] if place else [])]
        # An hour is worth little, so deadlines about one away are compared in the same scenarios, with as many draws.
        cases = [DeadlineCase(ticks, DRAWS) for ticks in (self.ticks, *self.hour_ticks)]
        ways = self._simulate_promising(menus, cases, place)
        self._add_first_choices(ways)
        return ways

    def search(self, keys: tuple[str, ...]) -> SimulatedDeadline:
        """Return the best run for the deadline alone; the options of these keys are one more choice."""
        known = {v.candidate.key: v for v in self.problem.venues}
        another = [tuple(known[key] for key in keys)] if all(key in known for key in keys) else []
        self.clock = QuoteClock(self.clock.tick_s, self.ticks)
        ways = self._simulate_promising([*self._list_menus(), *another], [DeadlineCase(self.ticks, DRAWS)])
        self._add_first_choices(ways)
        return self._sharpen(ways, {})[self.asked_s]

    def _add_first_choices(self, ways: _ChoicesByKeys) -> None:
        """Add the options of a gang size of its own that most of the other deadlines would try first."""
        known = {frozenset(v.size for v in way.stage.venues) for way in ways.values()}
        first = [venues for h in self.others_h if (venues := self._first_choice(h))]
        menus = {option_keys(venues): venues for venues in first}
        wanted = Counter(option_keys(venues) for venues in first)
        new = [key for key, _ in wanted.most_common() if frozenset(v.size for v in menus[key]) not in known]
        for key in new[:_MORE]:
            ways[key] = self._simulate_choice(menus[key], [DeadlineCase(self.ticks, _TRIED)])

    def _first_choice(self, hours: float) -> tuple[QuoteOption, ...]:
        problem = self.problem
        alone = list_single_sizes(problem, problem.menu(problem.venues, problem.steps, hours), hours)
        return alone[0][1] if alone else ()

    def _list_menus(self) -> list[tuple[QuoteOption, ...]]:
        """Return choices of options for the requested deadline: of one gang size, and mixed where none has the best."""
        problem, steps = self.problem, self.problem.steps
        everything = problem.menus(problem.venues, steps, problem.window_h)
        menus = alone = [venues for _, venues in list_single_sizes(problem, everything[0])]
        for menu in everything:
            cheapest = min(menu, key=lambda v: v.whole_usd(steps))
            menus = menus if any(cheapest in venues for venues in alone) else [*menus, menu]
        return menus

    def _simulate_promising(
        self,
        menus: Sequence[tuple[QuoteOption, ...]],
        cases: Sequence[DeadlineCase],
        always: tuple[QuoteOption, ...] = (),
    ) -> _ChoicesByKeys:
        """Simulate choices of options, in the order of the least that they may cost.

        A choice is skipped where its least cost exceeds what another is expected to cost, but for ``always``.
        """
        steps = self.problem.steps
        choices: _ChoicesByKeys = {}
        ordered = sorted(menus, key=lambda menu: min(v.whole_usd(steps) for v in menu))
        # Told apart by keys: candidates are large to hash.
        for venues in {option_keys(venues): venues for venues in ordered}.values():
            bar = min((way.simulations[self.asked_s].cost[0] for way in choices.values()), default=math.inf)
            if not choices or venues == always or min(v.whole_usd(steps) for v in venues) < _WORTH_A_TRY * bar:
                choices[option_keys(venues)] = self._simulate_choice(venues, cases)
        return choices

    def _simulate_choice(self, venues: tuple[QuoteOption, ...], cases: Sequence[DeadlineCase]) -> _ChoiceResults:
        way = _ChoiceResults(self.problem.stage(venues, self.clock, DRAWS, seed=1), self.problem.levels(venues))
        way.play(cases)
        return way

    def _search_other_deadlines(self, menu: Sequence[QuoteOption]) -> dict[int, SimulatedDeadline]:
        """Return the best run for each other deadline of the curve, as a quote of that deadline finds it.

        ``menu`` is what the request gets: what it found beside its first choices is worth a try elsewhere too. A
        deadline for which there is no quote is left out.
        """
        simulated_deadlines: dict[int, SimulatedDeadline] = {}
        for hours in self.others_h:
            # The list shows minutes, and who asks for one of them gets this very deadline.
            deadline = ceil_minute(self.problem.after(hours))
            problem = QuoteProblem(replace(self.problem.ask, deadline=deadline), self.problem.market_inputs)
            if problem.refused() is None:
                seconds = round((deadline - self.start).total_seconds())
                best = _QuoteBuilder(_enough(problem)).search(option_keys(menu))
                simulated_deadlines[seconds] = best.offered_by(seconds)
        return simulated_deadlines

    def _best_and_changes(
        self, ways: _ChoicesByKeys, sooner: Mapping[int, list[SimulatedDeadline]]
    ) -> tuple[dict[int, SimulatedDeadline], tuple[Other, ...]]:
        """Return the best for each deadline, and what one change would make of the requested one.

        ``sooner`` has runs for earlier deadlines, each of which is on offer for the requested one too.
        A change that the job's rules allow is one of the choices, so that no listed one costs less.
        """
        forbidden: _ChoicesByKeys = {}
        rounds = 0
        while True:
            best = self._sharpen(ways, sooner)
            s = best[self.asked_s]
            changes = propose_changes(self.problem, s.stage.venues)
            new = [c for c in changes if c.key not in ways and c.key not in forbidden]
            if not new or rounds == _ROUNDS:
                break
            rounds += 1
            for c in new:
                (ways if c.allowed else forbidden)[c.key] = self._simulate_choice(
                    c.menu, [DeadlineCase(self.ticks, _TRIED)]
                )
        known = forbidden | ways
        seen = [(c, known[c.key].simulations[self.asked_s]) for c in changes if c.key in known]
        return best, tuple(
            build_alternative(c.what, t, self.start) for c, t in seen if not c.allowed or t.cost[0] >= s.cost[0]
        )

    def _sharpen(
        self, ways: _ChoicesByKeys, sooner: Mapping[int, list[SimulatedDeadline]]
    ) -> dict[int, SimulatedDeadline]:
        """Return the best for each deadline, with all draws played where few draws leave the cheapest unclear."""
        while True:
            simulations = [way.simulations[self.asked_s] for way in ways.values()]
            bar = min(s.cost[0] for s in simulations if s.usd.size == DRAWS)
            unclear = [way for way in ways.values() if way.is_unclear(self.asked_s, bar)]
            if not unclear:
                return best_by_deadline(self._simulated_deadlines(ways, sooner))
            for way in unclear:
                way.play([DeadlineCase(self.ticks, DRAWS)])

    def _simulated_deadlines(
        self, ways: _ChoicesByKeys, sooner: Mapping[int, list[SimulatedDeadline]]
    ) -> dict[int, list[SimulatedDeadline]]:
        merged = {seconds: [*simulations] for seconds, simulations in sooner.items()}
        for way in ways.values():
            for seconds, s in way.simulations.items():
                merged.setdefault(seconds, []).append(s)
        return merged

    def _hour_point(self, offered: Mapping[int, SimulatedDeadline], *, earlier: bool) -> Point | None:
        """Return the cost of the deadline about an hour earlier or later; None where nothing is done by then."""
        ticks = self.hour_ticks[0 if earlier else -1]
        if earlier and ticks > self.ticks:
            return None
        moved = timedelta(seconds=(ticks - self.ticks) * self.clock.tick_s)
        return build_point(offered[ticks * self.clock.tick_s], self.start, self.problem.ask.deadline + moved)

    def _list_conditions(self, s: SimulatedDeadline) -> tuple[str, ...]:
        said = list_conditions(self.problem, s.stage, self.problem.market_inputs.policy_name)
        if s.window_s < self.asked_s:
            early = self.start + timedelta(seconds=s.window_s)
            said += (f"run as for a deadline of {early:%Y-%m-%d %H:%MZ}: no run for a later one cost less",)
        return said


class _ChoiceResults:
    def __init__(self, stage: ScenarioRunner, levels: QuoteLevels) -> None:
        self.stage, self.levels = stage, levels
        self.simulations: dict[int, SimulatedDeadline] = {}

    def play(self, cases: Sequence[DeadlineCase]) -> None:
        """Simulate these cases, or repeat them with more draws."""
        played = self.stage.plays(cases) if cases else []
        for case, got in zip(cases, played, strict=True):
            seconds = case.ticks * self.stage.clock.tick_s
            self.simulations[seconds] = SimulatedDeadline.of(self.stage, got, seconds, self.levels)

    def is_unclear(self, asked_s: int, usd: float) -> bool:
        """Return whether few draws came out so cheap for the request that it matters to a quote of ``usd`` dollars."""
        s = self.simulations[asked_s]
        return s.usd.size < DRAWS and s.cost[0] < usd / _WORTH_A_TRY


_ChoicesByKeys = dict[tuple[str, ...], _ChoiceResults]  # by the keys of the options


def _typical_run(stage: ScenarioRunner, got: ScenarioOutcomes, start: datetime) -> tuple[Leg, ...]:
    middle = float(quantiles(got.usd, (0.5,))[0])
    if not np.isfinite(middle):
        return ()
    draw = int(np.argmin(np.abs(got.usd - middle)))
    tick = timedelta(seconds=stage.clock.tick_s)
    legs = []
    for s in list_stretches(got, draw, stage.clock.tick_s):
        v = stage.venues[s.venue].candidate if s.venue >= 0 else None
        place, market = ("", "") if v is None else (format_offer(v), v.market.value)
        legs.append(Leg(start + tick * s.first, start + tick * s.after, place, market))
    return tuple(legs)
