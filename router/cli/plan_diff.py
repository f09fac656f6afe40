"""Command ``stepfare plan diff``: compare two plans and explain the changes."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pricing.money import Usd
from router.cli import console
from router.planning.changes import PlacementChange, PlanDiff, plan_diff
from router.render.tables import PLAIN, Screen, format_day_time, format_table, format_usd, wrap_text


class PlanDiffFormat(StrEnum):
    """Output format of a plan diff."""

    TABLE = "table"
    JSON = "json"


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="The older plan (JSON).")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The newer plan (JSON).")],
    output: Annotated[PlanDiffFormat, typer.Option("--output", "-o", help="Format.")] = PlanDiffFormat.TABLE,
) -> None:
    """Compare two plans and explain the changes.

    \b
    stepfare plan diff yesterday.json today.json
    stepfare plan diff a.json b.json -o json
    """
    from router.config.plan_files import read_plan

    found = plan_diff(read_plan(before), read_plan(after))
    console.out(diff_json(found) if output is PlanDiffFormat.JSON else diff_text(found, console.screen()))


def diff_text(found: PlanDiff, screen: Screen = PLAIN) -> str:
    """Return one row per changed job, the reasons below, and totals at the end."""
    changed = [c for c in found.changes if c.kind != "same"]
    parts = []
    if changed:
        rows = [(c.job, c.kind, _cost(c.cost_before), _cost(c.cost_after)) for c in changed]
        parts.append(
            format_table(
                ("JOB", "CHANGE", "BEFORE", "AFTER"), rows, frozenset({"BEFORE", "AFTER"}), {"JOB": 40}, screen
            )
        )
        parts.append("\n".join(_where(c) for c in changed))
    same = len(found.changes) - len(changed)
    prices = "the same prices" if found.same_book else "other prices"
    jobs = "the same jobs" if found.same_jobs else "other jobs"
    total = found.cost_after - found.cost_before
    sign = "+" if total.nanos >= 0 else ""
    parts.append(
        f"{len(changed)} changed, {same} as before; {prices}, {jobs}\n"
        f"total {format_usd(found.cost_before)} -> {format_usd(found.cost_after)} ({sign}{format_usd(total)})"
    )
    return "\n\n".join(parts) + "\n"


def _cost(amount: Usd | None) -> str:
    return "" if amount is None else format_usd(amount)


def _where(change: PlacementChange) -> str:
    lines = [change.job]
    if change.before is not None and change.before == change.after:
        lines.append(f"  stays on {change.before}")
    else:
        lines += [f"  from {change.before}"] if change.before is not None else []
        lines += [f"  to   {change.after}"] if change.after is not None else []
    if change.start_before != change.start_after and change.before is not None and change.after is not None:
        lines.append(f"  starts {format_day_time(change.start_before)} -> {format_day_time(change.start_after)}")
    if change.why:
        lines.append(wrap_text(f"why: {change.why}", "  "))
    return "\n".join(lines)


def diff_json(found: PlanDiff) -> str:
    """Return ``schema_version``, totals and changes as JSON; money is written as decimal strings."""

    def plain(change: PlacementChange) -> dict[str, Any]:
        return {
            "job": change.job,
            "change": change.kind,
            "before": asdict(change.before) if change.before else None,
            "after": asdict(change.after) if change.after else None,
            "cost_before_usd": str(change.cost_before) if change.cost_before else None,
            "cost_after_usd": str(change.cost_after) if change.cost_after else None,
            "start_before": change.start_before.isoformat() if change.start_before else None,
            "start_after": change.start_after.isoformat() if change.start_after else None,
            "why": change.why,
        }

    document = {
        "schema_version": 1,
        "cost_before_usd": str(found.cost_before),
        "cost_after_usd": str(found.cost_after),
        "same_book": found.same_book,
        "same_jobs": found.same_jobs,
        "changes": [plain(c) for c in found.changes],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
