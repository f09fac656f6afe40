"""From a job and a deadline to a quote, by simulation. Pure.

A few choices of places are tried: one size of gang alone, of the cheapest sizes that can be in time; and all that look
good, where none of these has the cheapest place. Where sizes mix, work goes at several speeds, and the policy judges
worse how long it can wait. What other deadlines ask for first, and what one change makes of the quote, are choices too.
The least expected cost among those that are as good as on time is quoted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.planning.plan import VALID_FOR
from router.quotes.curve import Simulated, by_deadline, curve, loosest_h, ticks_of, windows_h
from router.quotes.explanation import conditions, dearest_risk, drivers, other, sizes_alone, without
from router.quotes.quote import LEVELS, Leg, Likely, Other, Quote, Refused
from router.quotes.request import Ask, Asking, Trade, keys, where
from router.quotes.runner import Case, Clock, Played, Stage, clock_for, stretches
from router.quotes.statistics import Levels, interval, likely, moment, quantiles, usd, usd_levels
from router.spot.simulator.inputs import HOUR_S
from router.spot.venues import Venue, fastest, only

DRAWS: Final = 400
_TRIED: Final = 100  # for all but the quote itself
_TICKS, _MOST_TICKS = 64, 80  # of the window that was asked for: usually; where ticks get long
_LEAST_TICK_S, _MOST_TICK_S = 120, 2 * HOUR_S
_WORTH_A_TRY: Final = 0.97  # of what another choice is expected to cost
_MORE: Final = 1  # choices of places that other deadlines ask for
_ROUNDS: Final = 2  # of adding what one change makes cheaper
_ONE_CLOCK: Final = 1.5  # times the window: the loosest deadline that is played on the clock of the one asked for


def make_quote(ask: Ask, trade: Trade) -> Quote | Refused:
    """The quote, or why there is none. The same inputs, the same quote."""
    asking = Asking(ask, trade)
    return asking.refused() or _Quoting(asking).quote()


class _Quoting:
    """One quote in the making."""

    def __init__(self, asking: Asking) -> None:
        self.asking, self.start = asking, asking.start
        steps, hours = asking.steps, asking.window_h
        self.best = fastest(asking.venues, steps)
        self.earliest_h = self.best.hours(steps)
        cheap = min(asking.venues, key=lambda v: v.whole_usd(steps))
        loosest = loosest_h(self.earliest_h, hours, cheap.startup_hours + steps / cheap.candidate.steps_per_hour)
        window_s, longest_s = int(hours * HOUR_S), int(loosest * HOUR_S)
        most_s = max(_MOST_TICK_S, window_s // _MOST_TICKS)
        clock = clock_for(window_s, _TICKS, _LEAST_TICK_S, most_s)
        windows = windows_h(self.earliest_h, loosest)
        nearest = min(windows, key=lambda h: abs(h - hours))  # the point asked for stands for it
        self.others_h = [h for h in windows if h != nearest]
        one = longest_s <= _ONE_CLOCK * window_s
        self.clock = Clock(clock.tick_s, max(clock.ticks, -(-longest_s // clock.tick_s))) if one else clock
        self.slower = None if one else clock_for(longest_s, _TICKS, clock.tick_s, longest_s)
        within_h = self.clock.ticks * self.clock.tick_s / HOUR_S
        near = [ticks_of(h, self.clock) for h in self.others_h if one or h <= within_h]
        self.ticks = clock.ticks
        self.others = [Case(n, DRAWS if n < clock.ticks else _TRIED) for n in dict.fromkeys(near) if n != clock.ticks]
        self.asked_s = clock.ticks * clock.tick_s
        self.far_h = [h for h in self.others_h if not one and h > within_h]
        asking.horizon_s = longest_s

    def quote(self) -> Quote:
        """All of it."""
        asking, ask, trade, steps = self.asking, self.asking.ask, self.asking.trade, self.asking.steps
        ways = self._tried()
        far = self._other_deadlines(ways)
        best, others = self._settled(ways)
        s = best[self.asked_s]
        stage, got, menu = s.stage, s.played, s.stage.venues
        cost, late = likely(s.usd), 1 - s.on_time
        p50, p90 = (moment(self.start, float(seconds)) for seconds in quantiles(s.finish_s, (0.5, 0.9)))
        low, high = interval(1 - late, DRAWS)
        ran = np.maximum(got.spot_ticks + got.on_demand_ticks, 1)
        return Quote(
            job=ask.job.name,
            job_digest=ask.job.digest,
            team=ask.job.team,
            files=ask.files,
            asked_at=trade.now,
            start=self.start,
            deadline=ask.deadline,
            valid_until=min(trade.now + VALID_FOR, ask.deadline),
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
            earliest=asking.after(self.earliest_h),
            earliest_usd=usd(self.best.whole_usd(steps)),
            usd_levels=usd_levels(s.usd),
            finish_levels=tuple(moment(self.start, float(seconds)) for seconds in quantiles(s.finish_s, LEVELS)),
            curve=curve(by_deadline(self._with_far(ways, far, menu)), self.start, self.asked_s, ask.deadline),
            drivers=drivers(s),
            dearest_risk=dearest_risk(got),
            alternatives=others,
            places=asking.somewhere(menu),
            run=_typical(stage, got, self.start),
            conditions=self._conditions(s),
            policy=trade.policy_name,
            run_policy=trade.run_policy,
            draws=DRAWS,
            seed=trade.seed,
            book_digest=trade.book.digest,
            book_as_of=trade.book.as_of,
            plan_usd=None if (planned := asking.plan_usd()) is None else usd(planned),
        )

    @property
    def _all(self) -> list[Case]:
        """Of the clock of the deadline that was asked for: this one, those before it with as many draws, and others."""
        return [Case(self.ticks, DRAWS), *self.others]

    def _tried(self) -> Ways:
        """Choices of places and what comes of them, in the order of what they cost at the least; none that costs more
        at its least than another is expected to."""
        asking, steps = self.asking, self.asking.steps
        everything = asking.menus(asking.venues, steps, asking.window_h)
        alone = [venues for _, venues in sizes_alone(asking, everything[0])]
        menus = [*alone]
        for menu in everything:
            cheapest = min(menu, key=lambda v: v.whole_usd(steps))
            menus += [] if any(cheapest in venues for venues in alone) else [menu]
        menus.sort(key=lambda venues: min(v.whole_usd(steps) for v in venues))
        found: Ways = {}
        for venues in _each_once(menus):
            bar = min((way.found[self.asked_s].cost[0] for way in found.values()), default=math.inf)
            if not found or min(v.whole_usd(steps) for v in venues) < _WORTH_A_TRY * bar:
                found[keys(venues)] = self._way(venues, self._all)
        return found

    def _way(self, venues: tuple[Venue, ...], cases: Sequence[Case]) -> Way:
        """These places on the clock of the deadline that was asked for."""
        way = Way(self.asking.stage(venues, self.clock, DRAWS, seed=1), self.asking.levels(venues))
        way.play(cases)
        return way

    def _other_deadlines(self, ways: Ways) -> list[tuple[Venue, ...]]:
        """Adds the places on demand, and those that most of the other deadlines ask for first; the latter again where
        a deadline that is far asks for them."""
        asking = self.asking
        sure = asking.menu(only(asking.venues, lambda v: v.sure), asking.steps, asking.window_h)
        known = {frozenset(v.size for v in way.stage.venues) for way in ways.values()}
        first = [(venues, h) for h in self.others_h if (venues := self._first(h))]
        named = {keys(venues): venues for venues, _ in first if frozenset(v.size for v in venues) not in known}
        wanted = Counter(key for venues, _ in first if (key := keys(venues)) in named)
        menus = [named[key] for key, _ in wanted.most_common(_MORE)]
        for venues in [sure, *menus]:
            if venues and keys(venues) not in ways:
                ways[keys(venues)] = self._way(venues, [replace(c, draws=_TRIED) for c in self._all])
        far = {keys(venues) for venues, h in first if h in self.far_h}
        return [venues for venues in menus if keys(venues) in far]

    def _first(self, hours: float) -> tuple[Venue, ...]:
        """What would be tried first with so many hours."""
        asking = self.asking
        alone = sizes_alone(asking, asking.menu(asking.venues, asking.steps, hours), hours)
        return alone[0][1] if alone else ()

    def _settled(self, ways: Ways) -> tuple[dict[int, Simulated], tuple[Other, ...]]:
        """The best for each deadline, and what one change would make of the one that was asked for. A change that the
        job's rules allow is one of the ways, so that none which is listed costs less."""
        forbidden: Ways = {}
        rounds = 0
        while True:
            best = self._sharpened(ways)
            s = best[self.asked_s]
            changes = without(self.asking, s.stage.venues)
            new = [c for c in changes if c.key not in ways and c.key not in forbidden]
            if not new or rounds == _ROUNDS:
                break
            rounds += 1
            for c in new:
                (ways if c.allowed else forbidden)[c.key] = self._way(c.menu, [Case(self.ticks, _TRIED)])
        known = forbidden | ways
        seen = [(c, known[c.key].found[self.asked_s]) for c in changes if c.key in known]
        return best, tuple(other(c.what, t, self.start) for c, t in seen if not c.allowed or t.cost[0] >= s.cost[0])

    def _sharpened(self, ways: Ways) -> dict[int, Simulated]:
        """The best for each deadline, all draws played where few of them do not tell what is cheaper than what is
        quoted."""
        while True:
            best = by_deadline(_together(ways.values()))
            more = False
            bar = min(w.found[self.asked_s].cost[0] for w in ways.values() if w.found[self.asked_s].usd.size == DRAWS)
            for way in ways.values():
                cases = [Case(ticks, DRAWS) for ticks in way.unsure(self.asked_s, bar)]
                way.play(cases)
                more |= bool(cases)
            if not more:
                return best

    def _with_far(
        self, ways: Ways, menus: list[tuple[Venue, ...]], best: tuple[Venue, ...]
    ) -> dict[int, list[Simulated]]:
        """Everything by its deadline, the far ones too: those on a slower clock, with the places that were quoted."""
        found = _together(ways.values())
        slower = self.slower
        if slower is None or not self.far_h:
            return found
        cases = [Case(ticks, _TRIED) for ticks in dict.fromkeys(ticks_of(h, slower) for h in self.far_h)]
        for venues in _each_once([best, *menus]):
            way = Way(self.asking.stage(venues, slower, _TRIED, seed=1), self.asking.levels(venues))
            way.play(cases)
            for seconds, s in way.found.items():
                found.setdefault(seconds, []).append(s)
        return found

    def _conditions(self, s: Simulated) -> tuple[str, ...]:
        said = conditions(self.asking, s.stage.venues, s.stage.weather, self.asking.trade.policy_name)
        if s.window_s < self.asked_s:
            early = self.start + timedelta(seconds=s.window_s)
            said += (f"run as for a deadline of {early:%Y-%m-%d %H:%MZ}: no run for a later one cost less",)
        return said


class Way:
    """A choice of places, and what came of it: by seconds to the deadline."""

    def __init__(self, stage: Stage, levels: Levels) -> None:
        self.stage, self.levels = stage, levels
        self.found: dict[int, Simulated] = {}

    def play(self, cases: Sequence[Case]) -> None:
        """These too, or again with more draws."""
        played = self.stage.plays(cases) if cases else []
        for case, got in zip(cases, played, strict=True):
            seconds = case.ticks * self.stage.clock.tick_s
            self.found[seconds] = Simulated.of(self.stage, got, seconds, self.levels)

    def unsure(self, asked_s: int, usd: float) -> list[int]:
        """Ticks of the deadlines up to the one asked for that were played with few draws, and came out so cheap that it
        matters to a quote of so many dollars: about as cheap by the same deadline, cheaper by an earlier one."""
        return [
            seconds // self.stage.clock.tick_s
            for seconds, s in self.found.items()
            if s.usd.size < DRAWS
            and (s.cost[0] <= usd if seconds < asked_s else seconds == asked_s and s.cost[0] < usd / _WORTH_A_TRY)
        ]


Ways = dict[tuple[str, ...], Way]  # by the keys of the places


def _each_once(menus: Iterable[tuple[Venue, ...]]) -> list[tuple[Venue, ...]]:
    """Choices of places, told apart by keys: candidates are large to hash."""
    return list({keys(venues): venues for venues in menus}.values())


def _together(ways: Iterable[Way]) -> dict[int, list[Simulated]]:
    """By the deadline."""
    found: dict[int, list[Simulated]] = {}
    for way in ways:
        for seconds, s in way.found.items():
            found.setdefault(seconds, []).append(s)
    return found


def _per_step(cost: Likely, steps: int) -> Usd | None:
    return None if cost.mean is None else Usd(cost.mean.nanos // steps)


def _typical(stage: Stage, got: Played, start: datetime) -> tuple[Leg, ...]:
    """The run whose cost is nearest to the median, leg by leg."""
    middle = float(quantiles(got.usd, (0.5,))[0])
    if not np.isfinite(middle):
        return ()
    draw = int(np.argmin(np.abs(got.usd - middle)))
    tick = timedelta(seconds=stage.clock.tick_s)
    found = []
    for s in stretches(got, draw, stage.clock.tick_s):
        v = stage.venues[s.venue].candidate if s.venue >= 0 else None
        place, market = ("", "") if v is None else (where(v), v.market.value)
        found.append(Leg(start + tick * s.first, start + tick * s.after, place, market))
    return tuple(found)
