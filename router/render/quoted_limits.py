"""Say under which limits a quote was made."""

from __future__ import annotations

from router.quotes.quote import QuoteLimits
from router.render.figures import day_clock


def limits_words(limits: QuoteLimits | None) -> str:
    """Return the limits that a quote was made under in words; "" where none are recorded."""
    if limits is None:
        return ""
    if limits.plan is None:
        return "no limits" if limits.empty else f"limits {limits.digest[:12]}, written for it"
    plan = f"limits of plan-{limits.plan.digest[:12]} as of {day_clock(limits.plan.as_of)} UTC"
    return f"{plan}, which limit nothing here" if limits.empty else plan
