"""From a job and a deadline to a quote, by simulation. Pure.

A few choices of places are tried on a few draws: all that look good, sure ones alone, and one size of gang alone, of
the cheapest sizes: where sizes mix, work goes at several speeds, and the policy judges worse how long it can wait. The
one of the least expected cost among those that are as good as on time is quoted, on draws of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np

from pricing.money import Usd
from router.planning.plan import VALID_FOR
from router.quoting.asked import Ask, Asking, Trade, where
from router.quoting.curve import LATER, curve, loosest_h, windows_h
from router.quoting.explaining import conditions, dearest_risk, drivers, other, sizes_alone, without
from router.quoting.figures import interval, likely, moment, quantiles, usd, usd_levels
from router.quoting.quote import LEVELS, Leg, Likely, Point, Quote, Refused
from router.quoting.scene import HOUR_S
from router.quoting.stage import Played, Stage, clock_for
from router.quoting.venues import Venue, chosen, fastest, only

DRAWS: Final = 400
_TRIED: Final = 120  # for all but the quote itself
_TICKS, _SLOWER_TICKS = 96, 96  # of the window that was asked for; of the loosest of the curve
_LEAST_TICK_S, _MOST_TICK_S = 120, 2 * HOUR_S


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
        self.clock = clock_for(window_s, _TICKS, _LEAST_TICK_S, _MOST_TICK_S)
        self.ticks = self.clock.ticks
        self.slower = clock_for(longest_s, _SLOWER_TICKS, self.clock.tick_s, 2 * _MOST_TICK_S)
        asking.horizon_s = longest_s
        self._stages: dict[tuple[Venue, ...], Stage] = {}

    def quote(self) -> Quote:
        """All of it."""
        asking, ask, trade, steps = self.asking, self.asking.ask, self.asking.trade, self.asking.steps
        menu = self._menu()
        stage = asking.stage(menu, self.clock, DRAWS, seed=1)
        got = stage.play(self.ticks)
        cost, late = likely(got.usd), float(got.late.mean())
        p50, p90 = (moment(self.start, float(s)) for s in quantiles(got.finish_s, (0.5, 0.9)))
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
            usd_levels=usd_levels(got.usd),
            finish_levels=tuple(moment(self.start, float(s)) for s in quantiles(got.finish_s, LEVELS)),
            curve=self._curve(menu, asked),
            drivers=drivers(stage, got),
            dearest_risk=dearest_risk(got),
            alternatives=tuple(
                other(change, self._stage(venues), self.ticks, self.start) for change, venues in without(asking, menu)
            ),
            places=asking.somewhere(menu),
            run=_typical(stage, got, self.ticks, self),
            conditions=conditions(asking, menu, stage.weather, trade.policy_name),
            policy=trade.policy_name,
            draws=DRAWS,
            seed=trade.seed,
            book_digest=trade.book.digest,
            book_as_of=trade.book.as_of,
        )

    def _stage(self, venues: tuple[Venue, ...]) -> Stage:
        if venues not in self._stages:
            self._stages[venues] = self.asking.stage(venues, self.clock, _TRIED)
        return self._stages[venues]

    def _menu(self) -> tuple[Venue, ...]:
        """The choice of places that is quoted."""
        asking = self.asking
        everything = asking.linked(chosen(asking.venues, asking.steps, asking.window_h))
        tried = [everything, only(everything, lambda v: v.sure), *(m for _, m in sizes_alone(asking, everything))]
        menus = [m for m in dict.fromkeys(tried) if m]
        if len(menus) == 1:
            return everything
        played = {m: self._stage(m).play(self.ticks) for m in menus}
        on_time = max(1 - float(p.late.mean()) for p in played.values())
        good = [m for m, p in played.items() if 1 - float(p.late.mean()) >= on_time - LATER]
        return min(good, key=lambda m: float(played[m].usd.mean()))

    def _curve(self, menu: tuple[Venue, ...], asked: Point) -> tuple[Point, ...]:
        """Its far end is played on a slower clock, on places of the same sizes for which there is time then."""
        asking, sizes = self.asking, {v.size for v in menu}
        alike = [v for v in asking.venues if v.size in sizes]
        loose = asking.linked(chosen(alike, asking.steps, self.loosest_h))
        far = asking.stage(loose, self.slower, _TRIED)
        sure = only(asking.linked(chosen(asking.venues, asking.steps, asking.window_h)), lambda v: v.sure)
        nearer = [self._stage(m) for m in dict.fromkeys((menu, sure)) if m]
        return curve(nearer, far, windows_h(self.earliest_h, self.loosest_h), self.start, asked)


def _per_step(cost: Likely, steps: int) -> Usd | None:
    return None if cost.p50 is None else Usd(cost.p50.nanos // steps)


def _typical(stage: Stage, got: Played, ticks: int, quoting: _Quoting) -> tuple[Leg, ...]:
    """The run whose cost is nearest to the median, leg by leg."""
    middle = float(quantiles(got.usd, (0.5,))[0])
    if not np.isfinite(middle):
        return ()
    draw = int(np.argmin(np.abs(got.usd - middle)))
    tick = timedelta(seconds=stage.clock.tick_s)
    found = []
    for s in stage.timeline(ticks, draw):
        v = stage.venues[s.venue].candidate if s.venue >= 0 else None
        place, market = ("", "") if v is None else (where(v), v.market.value)
        found.append(Leg(quoting.start + tick * s.first, quoting.start + tick * s.after, place, market))
    return tuple(found)
