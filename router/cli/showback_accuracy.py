"""Command ``stepfare showback accuracy``: compare what plans predicted with what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import LedgerFormat, print_rows
from router.cli.options import parse_length_option, parse_now
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store

if TYPE_CHECKING:
    from router.showback.plan_accuracy import Accuracy, PlanAccuracy

_TABLE = ("job", "steps", "plan_h", "real_h", "speed", "plan_usd", "usd", "cost", "plan_int", "int")


def accuracy(
    last: Annotated[str, typer.Option(metavar="DURATION", help="Jobs that ended within this time: 1d, 30d.")] = "1d",
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the report (ISO, with zone).")] = None,
    output: Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")] = LedgerFormat.TABLE,
) -> ExitCode:
    """Compare steps an hour, dollars a step and interruptions that plans predicted with those that were measured.

    All figures are for the steps that were saved, of orders that are over, by job and in sum. PLAN H and REAL H are
    steps an hour while machines run, without waits for them and first starts. PLAN USD and USD are dollars a step,
    SPEED and COST the differences from the plan; INT counts interruptions. See docs/showback.md.

    \b
    stepfare showback accuracy
    stepfare showback accuracy --last 30d -o json
    """
    from datetime import timedelta

    from router.app.plan_accuracy import plan_accuracy

    moment = parse_now(now)
    length = parse_length_option("--last", last, timedelta(hours=1))
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        found = plan_accuracy(store, moment - length, moment)
    rows = [_cells(row) if output is LedgerFormat.TABLE else _content(row) for row in found.rows]
    right = frozenset(name.upper().replace("_", " ") for name in _TABLE[1:])
    left_out = _left_out(found)
    empty = f"no order that ended within {last} can be compared: {left_out}" if left_out else ""
    print_rows(output, "accuracy", rows, _TABLE, right, empty or f"no order ended within {last}")
    if left_out and (rows or output is not LedgerFormat.TABLE):
        console.note(f"not compared: {left_out}")
    return ExitCode.OK


def _left_out(found: PlanAccuracy) -> str:
    """Return how many orders ended that are in no row, and why; "" where all are."""
    return ", ".join(f"{number} {reason}" for reason, number in sorted(found.left_out.items()))


def _content(row: Accuracy) -> dict[str, object]:
    return {
        "job": row.job,
        "plans": row.plans,
        "steps": row.steps,
        "predicted_hours": round(row.predicted_hours, 6),
        "hours": round(row.hours, 6),
        "predicted_steps_per_hour": None if row.steps is None else _per(row.steps, row.predicted_hours),
        "steps_per_hour": None if row.steps is None else _per(row.steps, row.hours),
        "speed_error": round(row.speed_error, 6),
        "predicted_usd": round(row.predicted_usd, 9),
        "usd": round(row.usd, 9),
        "predicted_usd_per_step": None if row.steps is None else _per(row.predicted_usd, row.steps),
        "usd_per_step": None if row.steps is None else _per(row.usd, row.steps),
        "cost_error": round(row.cost_error, 6),
        "predicted_interruptions": None
        if row.predicted_interruptions is None
        else round(row.predicted_interruptions, 6),
        "interruptions": row.interruptions,
    }


def _cells(row: Accuracy) -> dict[str, object]:
    known, steps = row.predicted_interruptions, row.steps
    return {
        "job": row.job,
        "steps": "" if steps is None else f"{steps:,}",
        "plan_h": "" if steps is None else f"{steps / row.predicted_hours:,.4g}",
        "real_h": "" if steps is None else f"{steps / row.hours:,.4g}",
        "speed": f"{row.speed_error:+.1%}",
        "plan_usd": "" if steps is None else f"{row.predicted_usd / steps:.5g}",
        "usd": "" if steps is None else f"{row.usd / steps:.5g}",
        "cost": f"{row.cost_error:+.1%}",
        "plan_int": "?" if known is None else f"{known:.1f}",
        "int": str(row.interruptions),
    }


def _per(amount: float, parts: float) -> float:
    return float(f"{amount / parts:.9g}")
