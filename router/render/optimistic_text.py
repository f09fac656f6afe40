"""A plan's total and jobs beside those with every spot pool at the lower end of its interval. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from router.planning.document.plan import Plan
from router.planning.document.plan_facts import JobPlacement
from router.planning.document.plan_json import OPTIMISTIC, plan_content
from router.planning.explain.changes import PlacementChange
from router.planning.what_if.what_if_comparison import VariantResult
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import MARKETS, PLAIN, Screen, format_usd, wrap_text

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
    changes = _changes(lower)
    parts.append(_JOBS.text(changes, screen) if changes else "no job has another place or cost then")
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
        "jobs": _JOBS.records(_changes(lower)),
    }


def _changes(lower: VariantResult) -> Sequence[PlacementChange]:
    return [move for move in lower.moves if not move.quiet]


def _place(place: JobPlacement | None) -> str:
    return _LEFT_OUT if place is None else f"{place.cloud}/{place.region} {MARKETS[place.market]}"


_JOBS: RecordTable[PlacementChange] = RecordTable(
    (
        TableColumn("job", lambda change: change.job, "JOB", width=18),
        TableColumn("", lambda change: _place(change.before), "NOW", width=19),
        TableColumn("before", lambda change: change.before, plain=str),
        TableColumn("cost_before_usd", lambda change: change.cost_before, "COST", format_usd, right=True),
        TableColumn("", lambda change: _place(change.after), "AT THE LOWER END", width=19),
        TableColumn("after", lambda change: change.after, plain=str),
        TableColumn("cost_after_usd", lambda change: change.cost_after, "COSTS", format_usd, right=True),
    )
)
