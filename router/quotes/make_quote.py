"""Simulation of a quote from a job and a deadline. Pure.

A few choices of options are tried: one gang size alone, of the cheapest sizes that can be in time; and all that look
good, where none of these has the cheapest option. Where sizes mix, work proceeds at several speeds, and the policy
judges less well how long it can wait. What other deadlines would try first, and what one change makes of the quote, are
choices too. The least expected cost among those that are as good as on time is quoted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.planning.document.plan import VALID_FOR
from router.quotes.curve import (
    SimulatedDeadline,
    best_by_deadline,
    build_curve,
    build_point,
    loosest_h,
    to_ticks,
    windows_h,
)
from router.quotes.explanation import (
    build_alternative,
    compute_drivers,
    describe_dearest_risk,
    describe_evidence,
    list_conditions,
    list_single_sizes,
    propose_changes,
)
from router.quotes.learned_rows import find_learned
from router.quotes.quote import LEVELS, Leg, Likely, Other, Point, Quote, Refused
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
from router.spot.venues import QuoteOption, filter_options, find_fastest

DRAWS: Final = 400
_TRIED: Final = 100  # draws of all simulations but the quote itself
_TICKS, _MOST_TICKS = 64, 256  # ticks of the requested window, at least and mostly at most
_TICKS_A_LIFE, _RARELY_MORE = 2.0, 1024  # where machines are lost often: ticks for each life, and no more than these
# A deadline is as good as any later one where it leaves so many times the fastest gang's hours, and the cheapest one's.
_ENOUGH_FASTEST, _ENOUGH_CHEAPEST = 4.0, 1.5
_LEAST_TICK_S, _TICK_S = 120, 900  # of new machines many are lost within the first half hour
_WORTH_A_TRY: Final = 0.97  # share of what another choice is expected to cost
_MORE: Final = 1  # number of choices of options added for other deadlines
_ROUNDS: Final = 2  # rounds of adding choices that one change makes cheaper
_ONE_CLOCK: Final = 1.5  # factor of the window: the loosest deadline played on the clock of the requested one


def make_quote(ask: QuoteRequest, market_inputs: MarketInputs) -> Quote | Refused:
    """Return the quote, or why there is none. The same inputs give the same quote."""
    problem = QuoteProblem(ask, market_inputs)
    refused = problem.refused()
    if refused is not None:
        return refused
    cheap = min(problem.venues, key=lambda v: v.whole_usd(problem.steps))
    fastest_h = find_fastest(problem.venues, problem.steps).hours(problem.steps)
    enough_h = max(_ENOUGH_FASTEST * fastest_h, _ENOUGH_CHEAPEST * _expected_h(cheap, problem.steps))
    if problem.window_h <= enough_h:
        return _QuoteBuilder(problem).quote()
    enough = QuoteProblem(replace(ask, deadline=problem.after(enough_h)), market_inputs)
    return _offer_by(_QuoteBuilder(enough).quote(), problem)


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
    """The working state of one quote."""

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
        one = longest_s <= _ONE_CLOCK * window_s
        hour = max(1, round(HOUR_S / clock.tick_s))
        longest = -(-longest_s // clock.tick_s) if one else 0
        self.clock = QuoteClock(clock.tick_s, max(clock.ticks + hour, longest))
        self.slower = None if one else choose_clock(longest_s, _TICKS, clock.tick_s, longest_s)
        within_h = clock.ticks * clock.tick_s / HOUR_S
        near = [to_ticks(h, self.clock) for h in self.others_h if one or h <= within_h]
        self.ticks = clock.ticks
        earlier = clock.ticks - hour
        self.hour_ticks = [earlier] if earlier * clock.tick_s >= self.earliest_h * HOUR_S else []
        self.hour_ticks.append(clock.ticks + hour)
        self.beside_curve_s = {n * clock.tick_s for n in self.hour_ticks if n not in near}
        # An hour later is compared with the deadline of the request in the same scenarios, so with as many draws.
        self.others = [
            DeadlineCase(n, DRAWS if n < clock.ticks or n in self.hour_ticks else _TRIED)
            for n in dict.fromkeys([*near, *self.hour_ticks])
            if n != clock.ticks
        ]
        self.asked_s = clock.ticks * clock.tick_s
        self.far_h = [h for h in self.others_h if not one and h > within_h]
        problem.horizon_s = longest_s

    def quote(self) -> Quote:
        """Return the complete quote."""
        problem, ask, market_inputs, steps = (
            self.problem,
            self.problem.ask,
            self.problem.market_inputs,
            self.problem.steps,
        )
        ways = self._try_choices()
        far = self._add_other_deadlines(ways)
        best, others = self._best_and_changes(ways)
        s = best[self.asked_s]
        stage, got, menu = s.stage, s.played, s.stage.venues
        cost, late = summarise_usd(s.usd), 1 - s.on_time
        p50, p90 = (to_moment(self.start, float(seconds)) for seconds in quantiles(s.finish_s, (0.5, 0.9)))
        low, high = wilson_interval(1 - late, DRAWS)
        offered = best_by_deadline(self._add_far_deadlines(ways, far, menu))
        curve = {seconds: each for seconds, each in offered.items() if seconds not in self.beside_curve_s}
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
            usd_per_step=_per_step(cost, steps),
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
        )

    def _place_usd(self, planned: QuoteOption, ways: _ChoicesByKeys) -> tuple[Usd | None, Usd | None]:
        """Return the expected cost on the plan's gang and its fallback alone, and its error; None where it has none."""
        if planned.candidate.fallback is None:
            return None, None
        menu = self.problem.planned_menu(planned)
        way = ways.get(option_keys(menu)) or self._simulate_choice(menu, [DeadlineCase(self.ticks, DRAWS)])
        there = way.simulations[self.asked_s]
        return to_usd(there.cost[0]), to_usd(mean_error(there.usd))

    @property
    def _all_cases(self) -> list[DeadlineCase]:
        """The cases on the clock of the requested deadline.

        They are that deadline, those before it with as many draws, and others.
        """
        return [DeadlineCase(self.ticks, DRAWS), *self.others]

    def _try_choices(self) -> _ChoicesByKeys:
        """Simulate choices of options, in the order of the least that they may cost.

        A choice is skipped where its least cost exceeds what another is expected to cost.
        """
        problem, steps = self.problem, self.problem.steps
        everything = problem.menus(problem.venues, steps, problem.window_h)
        alone = [venues for _, venues in list_single_sizes(problem, everything[0])]
        menus = [*alone]
        for menu in everything:
            cheapest = min(menu, key=lambda v: v.whole_usd(steps))
            menus += [] if any(cheapest in venues for venues in alone) else [menu]
        planned = problem.planned_option()
        place = () if planned is None else problem.planned_menu(planned)
        menus += [place] if place else []
        menus.sort(key=lambda venues: min(v.whole_usd(steps) for v in venues))
        choices: _ChoicesByKeys = {}
        for venues in _distinct_menus(menus):
            bar = min((way.simulations[self.asked_s].cost[0] for way in choices.values()), default=math.inf)
            if not choices or venues == place or min(v.whole_usd(steps) for v in venues) < _WORTH_A_TRY * bar:
                choices[option_keys(venues)] = self._simulate_choice(venues, self._all_cases)
        return choices

    def _simulate_choice(self, venues: tuple[QuoteOption, ...], cases: Sequence[DeadlineCase]) -> _ChoiceResults:
        """Simulate these options on the clock of the requested deadline."""
        way = _ChoiceResults(self.problem.stage(venues, self.clock, DRAWS, seed=1), self.problem.levels(venues))
        way.play(cases)
        return way

    def _add_other_deadlines(self, ways: _ChoicesByKeys) -> list[tuple[QuoteOption, ...]]:
        """Add the options on demand, and those that most of the other deadlines would try first.

        Return the latter again where a far deadline would try them.
        """
        problem = self.problem
        sure = problem.menu(filter_options(problem.venues, lambda v: v.sure), problem.steps, problem.window_h)
        known = {frozenset(v.size for v in way.stage.venues) for way in ways.values()}
        first = [(venues, h) for h in self.others_h if (venues := self._first_choice(h))]
        named = {option_keys(venues): venues for venues, _ in first if frozenset(v.size for v in venues) not in known}
        wanted = Counter(key for venues, _ in first if (key := option_keys(venues)) in named)
        menus = [named[key] for key, _ in wanted.most_common(_MORE)]
        for venues in [sure, *menus]:
            if venues and option_keys(venues) not in ways:
                ways[option_keys(venues)] = self._simulate_choice(
                    venues, [replace(c, draws=_TRIED) for c in self._all_cases]
                )
        far = {option_keys(venues) for venues, h in first if h in self.far_h}
        return [venues for venues in menus if option_keys(venues) in far]

    def _first_choice(self, hours: float) -> tuple[QuoteOption, ...]:
        """Return the options that would be tried first with this many hours."""
        problem = self.problem
        alone = list_single_sizes(problem, problem.menu(problem.venues, problem.steps, hours), hours)
        return alone[0][1] if alone else ()

    def _best_and_changes(self, ways: _ChoicesByKeys) -> tuple[dict[int, SimulatedDeadline], tuple[Other, ...]]:
        """Return the best for each deadline, and what one change would make of the requested one.

        A change that the job's rules allow is one of the choices, so that no listed one costs less.
        """
        forbidden: _ChoicesByKeys = {}
        rounds = 0
        while True:
            best = self._sharpen(ways)
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

    def _sharpen(self, ways: _ChoicesByKeys) -> dict[int, SimulatedDeadline]:
        """Return the best for each deadline, with all draws played where few draws leave the cheapest unclear."""
        while True:
            best = best_by_deadline(_merge_by_deadline(ways.values()))
            more = False
            bar = min(
                w.simulations[self.asked_s].cost[0]
                for w in ways.values()
                if w.simulations[self.asked_s].usd.size == DRAWS
            )
            for way in ways.values():
                cases = [DeadlineCase(ticks, DRAWS) for ticks in way.unsure(self.asked_s, bar)]
                way.play(cases)
                more |= bool(cases)
            if not more:
                return best

    def _add_far_deadlines(
        self, ways: _ChoicesByKeys, menus: list[tuple[QuoteOption, ...]], best: tuple[QuoteOption, ...]
    ) -> dict[int, list[SimulatedDeadline]]:
        """Return all simulations by deadline, the far ones too, on a slower clock with the options that were quoted."""
        by_deadline = _merge_by_deadline(ways.values())
        later_s = self.hour_ticks[-1] * self.clock.tick_s
        by_deadline[later_s] = [s for s in by_deadline[later_s] if s.usd.size == DRAWS] or by_deadline[later_s]
        slower = self.slower
        if slower is None or not self.far_h:
            return by_deadline
        cases = [DeadlineCase(ticks, _TRIED) for ticks in dict.fromkeys(to_ticks(h, slower) for h in self.far_h)]
        for venues in _distinct_menus([best, *menus]):
            way = _ChoiceResults(self.problem.stage(venues, slower, _TRIED, seed=1), self.problem.levels(venues))
            way.play(cases)
            for seconds, s in way.simulations.items():
                by_deadline.setdefault(seconds, []).append(s)
        return by_deadline

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
    """A choice of options and its simulations, by seconds to the deadline."""

    def __init__(self, stage: ScenarioRunner, levels: QuoteLevels) -> None:
        self.stage, self.levels = stage, levels
        self.simulations: dict[int, SimulatedDeadline] = {}

    def play(self, cases: Sequence[DeadlineCase]) -> None:
        """Simulate these cases, or repeat them with more draws."""
        played = self.stage.plays(cases) if cases else []
        for case, got in zip(cases, played, strict=True):
            seconds = case.ticks * self.stage.clock.tick_s
            self.simulations[seconds] = SimulatedDeadline.of(self.stage, got, seconds, self.levels)

    def unsure(self, asked_s: int, usd: float) -> list[int]:
        """Return the ticks of deadlines that need more draws, up to the requested one.

        They were played with few draws, and came out so cheap that it matters to a quote of ``usd`` dollars: about as
        cheap by the same deadline, cheaper by an earlier one.
        """
        return [
            seconds // self.stage.clock.tick_s
            for seconds, s in self.simulations.items()
            if s.usd.size < DRAWS
            and (s.cost[0] <= usd if seconds < asked_s else seconds == asked_s and s.cost[0] < usd / _WORTH_A_TRY)
        ]


_ChoicesByKeys = dict[tuple[str, ...], _ChoiceResults]  # by the keys of the options


def _distinct_menus(menus: Iterable[tuple[QuoteOption, ...]]) -> list[tuple[QuoteOption, ...]]:
    """Return each choice of options once, told apart by keys: candidates are large to hash."""
    return list({option_keys(venues): venues for venues in menus}.values())


def _merge_by_deadline(ways: Iterable[_ChoiceResults]) -> dict[int, list[SimulatedDeadline]]:
    """Return all simulations by deadline."""
    merged: dict[int, list[SimulatedDeadline]] = {}
    for way in ways:
        for seconds, s in way.simulations.items():
            merged.setdefault(seconds, []).append(s)
    return merged


def _per_step(cost: Likely, steps: int) -> Usd | None:
    return None if cost.mean is None else Usd(cost.mean.nanos // steps)


def _typical_run(stage: ScenarioRunner, got: ScenarioOutcomes, start: datetime) -> tuple[Leg, ...]:
    """Return the run whose cost is nearest to the median, leg by leg."""
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
