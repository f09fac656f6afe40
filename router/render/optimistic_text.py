"""A plan's total and jobs beside those with every spot pool at the lower end of its interval. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pricing.money import Usd
from router.planning.document.plan import Plan
from router.planning.document.plan_facts import JobPlacement
from router.planning.document.plan_json import OPTIMISTIC, plan_content
from router.planning.explain.changes import PlacementChange
from router.planning.what_if.what_if_comparison import VariantResult
from router.render.tables import MARKETS, PLAIN, Screen, format_table, format_usd, wrap_text

_RIGHT = frozenset({"COST", "COSTS"})
_WIDTHS = {"JOB": 18, "NOW": 19, "AT THE LOWER END": 19}
_LEFT_OUT = "left out"


def optimistic_text(plan: Plan, lower: VariantResult, screen: Screen = PLAIN) -> str:
    """Return the total of both plans, and a row for each job whose place or cost differs."""
    words = (
        f"total {format_usd(plan.cost_usd)} now, {format_usd(lower.plan.cost_usd)} with every spot pool at the lower "
        f"end of the 80 % interval of its interruptions; the plan is the one above"
    )
    if lower.within_gap:
        words += " (the gaps of the two plans may explain the difference)"
    parts = [wrap_text(words, width=screen.width)]
    rows = [
        (move.job, _place(move.before), _usd(move.cost_before), _place(move.after), _usd(move.cost_after))
        for move in _changes(lower)
    ]
    if rows:
        header = ("JOB", "NOW", "COST", "AT THE LOWER END", "COSTS")
        parts.append(format_table(header, rows, _RIGHT, _WIDTHS, screen))
    else:
        parts.append("no job has another place or cost then")
    return "\n\n".join(parts) + "\n"


def with_optimistic(plan: Plan, lower: VariantResult) -> str:
    """Return the plan's JSON with the comparison under a key of its own, which readers of plans pass over."""
    content = {**plan_content(plan), OPTIMISTIC: _content(lower)}
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _content(lower: VariantResult) -> dict[str, Any]:
    return {
        "cost_usd": str(lower.plan.cost_usd),
        "difference_usd": str(lower.difference),
        "within_gap": lower.within_gap,
        "unplaced": [item.job for item in lower.plan.unplaced],
        "jobs": [
            {
                "job": change.job,
                "before": None if change.before is None else str(change.before),
                "cost_before_usd": None if change.cost_before is None else str(change.cost_before),
                "after": None if change.after is None else str(change.after),
                "cost_after_usd": None if change.cost_after is None else str(change.cost_after),
            }
            for change in _changes(lower)
        ],
    }


def _changes(lower: VariantResult) -> Sequence[PlacementChange]:
    return [move for move in lower.moves if not move.quiet]


def _place(place: JobPlacement | None) -> str:
    return _LEFT_OUT if place is None else f"{place.cloud}/{place.region} {MARKETS[place.market]}"


def _usd(amount: Usd | None) -> str:
    return "" if amount is None else format_usd(amount)
