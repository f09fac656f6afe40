"""Find the limits that a plan fills, nearly fills, or would gain from: their size, their use and their worth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from router.planning.document.plan import Plan, ShadowPrice
from router.planning.document.plan_facts import PlanFacts
from router.planning.document.plan_usage import UseStep
from router.planning.document.usage_totals import add_up_use

NEARLY_FULL = 0.9
_TIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class LimitPeak:
    """A limit with its most use at one instant, and for how long it is full; ``price`` is None where none was found."""

    limit: str
    unit: str
    amount: int
    peak: float
    full_for: timedelta
    price: ShadowPrice | None

    @property
    def share(self) -> float:
        """Return the share of the limit that is used at its peak."""
        return self.peak / self.amount if self.amount else 1.0


def limit_peaks(plan: Plan) -> tuple[LimitPeak, ...]:
    """Return the limits that have a worth or are used to 90 % or more, by name; budgets are not among them."""
    prices = {price.limit: price for price in plan.shadow_prices}
    peaks = {
        each.limit: _peak(each.limit, each.unit, each.amount, each.use, prices.get(each.limit))
        for each in plan.usage.limits
    }
    facts = PlanFacts(plan)
    for name, limit in facts.limits.items():
        holds = facts.holds_by_limit.get(name, ())
        if name not in peaks and holds:
            use = add_up_use([UseStep(hold.start, hold.end, hold.amount) for hold in holds])
            found = _peak(name, limit.unit, limit.amount, use, prices.get(name))
            if found.share >= NEARLY_FULL - _TIGHT:
                peaks[name] = found
    return tuple(peaks[name] for name in sorted(peaks))


def _peak(name: str, unit: str, amount: int, use: Sequence[UseStep], price: ShadowPrice | None) -> LimitPeak:
    full = [step.end - step.start for step in use if step.used >= amount - _TIGHT]
    peak = max((step.used for step in use), default=0.0)
    return LimitPeak(name, unit, amount, peak, sum(full, timedelta(0)), price)
