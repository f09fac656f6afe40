"""Command ``stepfare showback accuracy``: compare what plans predicted with what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import ReportTimeOption
from router.cli.options import parse_length_option, parse_now
from router.cli.output_options import ListOutput
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store
from router.render.record_table import RecordTable, TableColumn

if TYPE_CHECKING:
    from router.showback.plan_accuracy import Accuracy, PlanAccuracy


def accuracy(
    last: Annotated[str, typer.Option(metavar="DURATION", help="Jobs that ended within this time: 1d, 30d.")] = "1d",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: ReportTimeOption = None,
    output: ListOutput = "table",
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
    with open_state_store(settings_files, makes=False) as (_, store):
        found = plan_accuracy(store, moment - length, moment)
    left_out = _left_out(found)
    empty = f"no order that ended within {last} can be compared: {left_out}" if left_out else ""
    console.print_table(output, "accuracy", _ACCURACY, found.rows, empty or f"no order ended within {last}")
    if left_out and (found.rows or output != "table"):
        console.note(f"not compared: {left_out}")
    return ExitCode.OK


def _left_out(accuracy: PlanAccuracy) -> str:
    """Return how many orders ended that are in no row, and why; "" where all are."""
    return ", ".join(f"{number} {reason}" for reason, number in sorted(accuracy.left_out.items()))


def _six_decimals(figure: float) -> float:
    return round(figure, 6)


def _ratio(
    name: str, take: Callable[[Accuracy, int], float], heading: str, show: Callable[[float], str]
) -> TableColumn[Accuracy]:
    """Return the column of a figure by step; the sum of jobs has none, for steps of different jobs do not add up."""

    def value(row: Accuracy) -> float | None:
        return None if row.steps is None else take(row, row.steps)

    return TableColumn(name, value, heading, show, right=True, plain=lambda figure: float(f"{figure:.9g}"))


_ACCURACY: RecordTable[Accuracy] = RecordTable(
    (
        TableColumn("job", lambda row: row.job, "JOB"),
        TableColumn("plans", lambda row: row.plans),
        TableColumn("steps", lambda row: row.steps, "STEPS", "{:,}".format, right=True),
        TableColumn("predicted_hours", lambda row: row.predicted.hours, plain=_six_decimals),
        TableColumn("hours", lambda row: row.measured.hours, plain=_six_decimals),
        _ratio("predicted_steps_per_hour", lambda row, n: n / row.predicted.hours, "PLAN H", "{:,.4g}".format),
        _ratio("steps_per_hour", lambda row, n: n / row.measured.hours, "REAL H", "{:,.4g}".format),
        TableColumn("speed_error", lambda r: r.speed_error, "SPEED", "{:+.1%}".format, right=True, plain=_six_decimals),
        TableColumn("predicted_usd", lambda row: row.predicted.usd, plain=lambda usd: round(usd, 9)),
        TableColumn("usd", lambda row: row.measured.usd, plain=lambda usd: round(usd, 9)),
        _ratio("predicted_usd_per_step", lambda row, n: row.predicted.usd / n, "PLAN USD", "{:.5g}".format),
        _ratio("usd_per_step", lambda row, n: row.measured.usd / n, "USD", "{:.5g}".format),
        TableColumn("cost_error", lambda r: r.cost_error, "COST", "{:+.1%}".format, right=True, plain=_six_decimals),
        TableColumn(
            "predicted_interruptions",
            lambda row: row.predicted.interruptions,
            "PLAN INT",
            "{:.1f}".format,
            right=True,
            unknown="?",
            plain=_six_decimals,
        ),
        TableColumn("interruptions", lambda row: row.measured.interruptions, "INT", right=True),
    )
)
