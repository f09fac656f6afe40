"""The reverse of a quote: how many steps a budget is enough for by a deadline, and how sure that is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from pricing.money import Usd
from router.quoting.asked import Ask, Asking, Trade, reasons
from router.quoting.explaining import conditions
from router.quoting.figures import quantiles, usd
from router.quoting.quote import BudgetQuote, Reach, Refused
from router.quoting.scene import HOUR_S
from router.quoting.stage import Played, Stage, clock_for
from router.quoting.venues import chosen

CONFIDENCES: Final = (0.5, 0.8, 0.95)
DRAWS: Final = 200
_TICKS: Final = 120
_LEAST_TICK_S, _MOST_TICK_S = 120, HOUR_S
_COARSE, _HALVINGS = 10, 6
_ROOM: Final = 1.25  # above what the cheapest place could do for the money


def make_budget_quote(ask: Ask, budget: Usd, trade: Trade) -> BudgetQuote | Refused:
    """Steps within ``budget`` and on time in 50, 80 and 95 % of the draws; more than the job has left are told too."""
    asking, name = Asking(ask, trade), ask.job.name
    hours = asking.window_h
    if asking.steps == 0 or hours <= 0 or not asking.venues:
        return asking.refused() or Refused(
            name, "nothing can run it", "see stepfare plan", reasons=reasons(asking.dropped)
        )
    within = [v for v in asking.venues if v.startup_hours < hours]
    most = max((int((hours - v.startup_hours) * v.steps_per_hour) for v in within), default=0)
    rate = min((v.usd_per_hour / v.steps_per_hour for v in within), default=1.0)
    most = min(most, int(_ROOM * budget.dollars() / rate))
    if most < 1:
        what = f"not one step for ${budget.dollars():,.2f} in {hours:.1f} h"
        return Refused(name, what, "give more of either", reasons=reasons(asking.dropped))
    clock = clock_for(int(hours * HOUR_S), _TICKS, _LEAST_TICK_S, _MOST_TICK_S)
    menu = asking.linked(chosen(asking.venues, max(1, most // 2), hours))
    asking.least_steps = max(1, min(asking.steps, most // _COARSE))
    stage = asking.stage(menu, clock, DRAWS)
    return BudgetQuote(
        job=name, job_digest=ask.job.digest, asked_at=trade.now, start=asking.start, deadline=ask.deadline,
        budget=budget, steps=asking.steps, reaches=_reaches(stage, most, budget.dollars()),
        places=asking.somewhere(menu), conditions=conditions(asking, menu, stage.weather, trade.policy_name),
        policy=trade.policy_name, draws=DRAWS, book_digest=trade.book.digest,
    )  # fmt: skip


def _reaches(stage: Stage, most: int, dollars: float) -> tuple[Reach, ...]:
    @cache
    def played(steps: int) -> Played:
        return stage.play(stage.clock.ticks, steps)

    def share(steps: int) -> float:
        got = played(steps)
        return float(((got.usd <= dollars) & ~got.late).mean())

    found, above = [], most
    for confidence in CONFIDENCES:
        above = _farthest(share, above, confidence)
        cost = usd(float(quantiles(played(above).usd, (0.5,))[0])) if above else Usd(0)
        found.append(Reach(confidence, above, cost))
    return tuple(found)


def _farthest(share: Callable[[int], float], most: int, confidence: float) -> int:
    """The most steps, to about a part in 600 of ``most``, of which ``share`` is as sure; 0 for none. Where the share is
    not monotone, the farthest of a coarse grid is refined."""
    grid = sorted({max(1, most * i // _COARSE) for i in range(1, _COARSE + 1)}) if most else []
    good = [steps for steps in grid if share(steps) >= confidence]
    low = max(good, default=0)
    high = min((steps for steps in grid if steps > low), default=low)
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        if middle in (low, high):
            break
        low, high = (middle, high) if share(middle) >= confidence else (low, middle)
    return low
