"""Command ``stepfare plan diff``: compare two plans and explain the changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from router.cli import console
from router.cli.output_options import OUTPUT

PlanDiffFormat = Literal["table", "wide", "json", "markdown"]


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="The older plan (JSON).")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The newer plan (JSON).")],
    output: Annotated[PlanDiffFormat, OUTPUT] = "table",
) -> None:
    """Compare two plans and explain the changes: causes first, then what follows from them.

    Causes are a job that is new, gone or changed, a price, a limit, a budget, time that has passed, or another job's
    change. Where neither plan shows one, the change is within the gap of both. Jobs that only start at other times, at
    the same place and cost, are one line.

    \b
    stepfare plan diff yesterday.json today.json
    stepfare plan diff a.json b.json -o wide
    stepfare plan diff a.json b.json -o json
    stepfare plan diff base.json change.json -o markdown
    """
    from router.cli.earlier_plan import find_changed_fields
    from router.config.plan_files import read_plan
    from router.planning.explain.changes import plan_diff
    from router.render.plan_diff_text import diff_json, diff_markdown, diff_text

    old, new = read_plan(before), read_plan(after)
    found = plan_diff(old, new, find_changed_fields(old, new))
    if output == "json":
        console.out(diff_json(found))
    elif output == "markdown":
        console.out(diff_markdown(found))
    else:
        console.out(diff_text(found, console.screen(), wide=output == "wide"))
