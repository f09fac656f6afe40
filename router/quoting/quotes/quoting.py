"""From a job and a deadline to a quote, by simulation. Pure.

A few choices of places are tried: one size of gang alone, of the cheapest sizes that can be in time; and all that look
good, where none of these has the cheapest place. Where sizes mix, work goes at several speeds, and the policy judges
worse how long it can wait. The choice of the least expected cost among those that are as good as on time is quoted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.planning.plan import VALID_FOR
from router.quoting.play.scene import HOUR_S
from router.quoting.quotes.asked import Ask, Asking, Trade, where
from router.quoting.quotes.curve import LATER, curve, loosest_h, point, ticks_of, windows_h
from router.quoting.quotes.explaining import conditions, dearest_risk, drivers, other, sizes_alone, without
from router.quoting.quotes.figures import interval, likely, moment, quantiles, usd, usd_levels
from router.quoting.quotes.quote import LEVELS, Leg, Likely, Other, Point, Quote, Refused
from router.quoting.quotes.stage import Case, Clock, Played, Stage, clock_for, stretches
from router.quoting.quotes.venues import Venue, chosen, fastest, only

DRAWS: Final = 400
_TRIED: Final = 100  # for all but the quote itself
_TICKS, _MOST_TICKS = 64, 80  # of the window that was asked for: usually; where ticks get long
_LEAST_TICK_S, _MOST_TICK_S = 120, 2 * HOUR_S
_COARSE_TICKS: Final = 48  # of it for other choices
_WORTH_A_TRY: Final = 0.97  # of what another choice is expected to cost
_MORE: Final = 1  # choices of places for other deadlines alone
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
        self.loosest_h = loosest_h(self.earliest_h, hours, cheap.startup_hours + steps / cheap.candidate.steps_per_hour)
        window_s, longest_s = int(hours * HOUR_S), int(self.loosest_h * HOUR_S)
        most_s = max(_MOST_TICK_S, window_s // _MOST_TICKS)
        clock = clock_for(window_s, _TICKS, _LEAST_TICK_S, most_s)
        self.ticks, self.coarser = clock.ticks, clock_for(window_s, _COARSE_TICKS, _LEAST_TICK_S, window_s)
        self.windows_h = windows_h(self.earliest_h, self.loosest_h)
        one = longest_s <= _ONE_CLOCK * window_s
        self.clock = Clock(clock.tick_s, max(clock.ticks, -(-longest_s // clock.tick_s))) if one else clock
        self.slower = None if one else clock_for(longest_s, _TICKS, clock.tick_s, longest_s)
        within_h = self.clock.ticks * self.clock.tick_s / HOUR_S
        self.near_h = [h for h in self.windows_h if one or h <= within_h]  # on the clock of the one asked for
        asking.horizon_s = longest_s

    def quote(self) -> Quote:
        """All of it."""
        asking, ask, trade, steps = self.asking, self.asking.ask, self.asking.trade, self.asking.steps
        tried = self._tried()
        best = self._best(tried)
        stage, got, menu = best.stage, best.got, best.stage.venues
        levels = asking.levels(menu)
        dollars, finish_s = levels.cost.quoted(got.usd), levels.finish.quoted(got.finish_s)
        cost, late = likely(dollars), float(got.late.mean())
        p50, p90 = (moment(self.start, float(s)) for s in quantiles(finish_s, (0.5, 0.9)))
        low, high = interval(1 - late, DRAWS)
        ran = np.maximum(got.spot_ticks + got.on_demand_ticks, 1)
        asked = Point(ask.deadline, asking.window_h, cost.p50, cost.p90, 1 - late, knee=False)
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
            steps_per_usd=steps / cost.p50.dollars() if cost.p50 is not None and cost.p50.nanos else None,
            earliest=asking.after(self.earliest_h),
            earliest_usd=usd(self.best.whole_usd(steps)),
            usd_levels=usd_levels(dollars),
            finish_levels=tuple(moment(self.start, float(s)) for s in quantiles(finish_s, LEVELS)),
            curve=self._curve(best, tried, asked),
            drivers=drivers(stage, got),
            dearest_risk=dearest_risk(got),
            alternatives=self._others(best, tried),
            places=asking.somewhere(menu),
            run=_typical(stage, got, self.start),
            conditions=conditions(asking, menu, stage.weather, trade.policy_name),
            policy=trade.policy_name,
            draws=DRAWS,
            seed=trade.seed,
            book_digest=trade.book.digest,
            book_as_of=trade.book.as_of,
        )

    def _tried(self) -> list[_Tried]:
        """Choices of places and what comes of them, in the order of what they cost at the least; none that costs more
        at its least than another is expected to."""
        asking, steps = self.asking, self.asking.steps
        everything = asking.linked(chosen(asking.venues, steps, asking.window_h))
        alone = [venues for _, venues in sizes_alone(asking, everything)]
        cheapest = min(everything, key=lambda v: v.whole_usd(steps))
        menus = alone if any(cheapest in venues for venues in alone) else [everything, *alone]
        menus.sort(key=lambda venues: min(v.whole_usd(steps) for v in venues))
        found: list[_Tried] = []
        for venues in dict.fromkeys(menus):
            least = min(v.whole_usd(steps) for v in venues)
            if not found or least < _WORTH_A_TRY * min(float(t.got.usd.mean()) for t in found):
                found.append(self._try(venues))
        return found

    def _try(self, venues: tuple[Venue, ...]) -> _Tried:
        """With the deadline that was asked for and those of the curve, in one go."""
        stage = self.asking.stage(venues, self.clock, DRAWS, seed=1)
        cases = [Case(ticks_of(h, self.clock), _TRIED) for h in self.near_h]
        first, *others = stage.plays([Case(self.ticks, DRAWS), *cases])
        return _Tried(stage, first, dict(zip(self.near_h, others, strict=True)))

    def _best(self, tried: list[_Tried]) -> _Tried:
        on_time = max(1 - float(t.got.late.mean()) for t in tried)
        good = [t for t in tried if 1 - float(t.got.late.mean()) >= on_time - LATER]
        return min(good, key=lambda t: float(t.got.usd.mean()))

    def _others(self, best: _Tried, tried: list[_Tried]) -> tuple[Other, ...]:
        """What one change would make of it."""
        known = {t.stage.venues: t.got for t in tried}
        found = []
        for change, venues in without(self.asking, best.stage.venues):
            got = known.get(venues) or self.asking.stage(venues, self.coarser, _TRIED).play(self.coarser.ticks)
            found.append(other(change, got, self.start, self.asking.levels(venues)))
        return tuple(found)

    def _curve(self, best: _Tried, tried: list[_Tried], asked: Point) -> tuple[Point, ...]:
        """By the places that were tried, those on demand, and those that most of the other deadlines ask for; the far
        end on a slower clock where it is far."""
        asking, found = self.asking, {h: list[Point]() for h in self.windows_h}
        for t in tried:
            for h, got in t.curve.items():
                found[h].append(point(got, h, self.clock, self.start, asking.levels(t.stage.venues)))
        sure = only(asking.linked(chosen(asking.venues, asking.steps, asking.window_h)), lambda v: v.sure)
        known = {frozenset(v.size for v in t.stage.venues) for t in tried}
        menus = [(venues, h) for h in self.windows_h if (venues := self._first(h))]
        wanted = Counter(venues for venues, _ in menus if frozenset(v.size for v in venues) not in known)
        others = [(venues, [h for same, h in menus if same == venues]) for venues, _ in wanted.most_common(_MORE)]
        far_h = [h for h in self.windows_h if h not in self.near_h]
        for venues, hours in [(sure, self.near_h), *others, (best.stage.venues, far_h)]:
            for clock, which in ((self.clock, self.near_h), (self.slower, far_h)):
                both = [h for h in hours if h in which]
                if venues and clock is not None and both:
                    stage = asking.stage(venues, clock, _TRIED, seed=1)
                    played = stage.plays([Case(ticks_of(h, clock), _TRIED) for h in both])
                    for h, got in zip(both, played, strict=True):
                        found[h].append(point(got, h, clock, self.start, asking.levels(venues)))
        return curve(found, asked)

    def _first(self, hours: float) -> tuple[Venue, ...]:
        """What would be tried first with so many hours."""
        asking = self.asking
        everything = asking.linked(chosen(asking.venues, asking.steps, hours))
        alone = sizes_alone(asking, everything, hours)
        return alone[0][1] if alone else ()


@dataclass(frozen=True, eq=False, slots=True)
class _Tried:
    """A choice of places, what it makes of the deadline that was asked for, and of others, by hours."""

    stage: Stage
    got: Played
    curve: dict[float, Played]


def _per_step(cost: Likely, steps: int) -> Usd | None:
    return None if cost.p50 is None else Usd(cost.p50.nanos // steps)


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
