"""Command ``stepfare plan show``: print a plan that was written with ``--out``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.plan import PlanFormat


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan (JSON).")],
    output: Annotated[PlanFormat, typer.Option("--output", "-o", help="Format.")] = PlanFormat.TABLE,
) -> None:
    """Print a plan that was written with --out.

    \b
    stepfare plan show plan.json
    stepfare plan show plan.json -o wide
    """
    from router.config.plan_files import read_plan
    from router.planning.plan_json import plan_to_json
    from router.render.plan_text import table, wide

    plan = read_plan(file)
    if output is PlanFormat.JSON:
        console.out(plan_to_json(plan))
    else:
        wanted = wide if output is PlanFormat.WIDE else table
        console.out(wanted(plan, console.screen()))
