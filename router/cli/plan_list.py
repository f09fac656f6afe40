"""Command ``stepfare plan list``: the names of stored plans with the last of each, or the plans of one name."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console
from router.cli.options import wall_clock
from router.cli.site_options import open_query_context
from router.render.tables import format_table, format_timestamp, format_usd

SCHEMA_VERSION = 1


class PlanListFormat(StrEnum):
    """Output format of a list of plans."""

    TABLE = "table"
    JSON = "json"


def list_plans(
    name: Annotated[str | None, typer.Option(metavar="NAME", help="List the plans of this name instead.")] = None,
    output: Annotated[PlanListFormat, typer.Option("--output", "-o", help="Format.")] = PlanListFormat.TABLE,
) -> None:
    """List the names of the plans that were written, each with its last plan; or all plans of one name.

    \b
    stepfare plan list
    stepfare plan list --name night
    stepfare plan list -o json
    """
    from router.app.queries.plans import MOST_PLANS, list_last_plans
    from router.app.queries.plans import list_plans as list_made_plans
    from router.prices.data_folders import check_home

    check_home()
    with open_query_context(wall_clock()) as context:
        plans = list_last_plans(context) if name is None else list_made_plans(context, MOST_PLANS, name=name)
    if output is PlanListFormat.JSON:
        rows = [
            {
                "name": plan.name,
                "plan_id": plan.plan_id,
                "digest": plan.digest,
                "as_of": plan.as_of.isoformat(),
                "made_at": plan.made_at.isoformat(),
                "made_by": plan.made_by,
                "jobs": plan.jobs,
                "placed": plan.placed,
                "cost_usd": str(plan.cost_usd),
            }
            for plan in plans
        ]
        console.out(json.dumps({"schema_version": SCHEMA_VERSION, "plans": rows}, indent=2))
    elif plans:
        titles = ("NAME", "PLAN", "FOR", "BY", "PLACED", "COST")
        cells = [
            (
                plan.name,
                plan.plan_id,
                format_timestamp(plan.as_of),
                plan.made_by,
                f"{plan.placed} of {plan.jobs}",
                format_usd(plan.cost_usd),
            )
            for plan in plans
        ]
        console.out(format_table(titles, cells, frozenset({"COST"}), {"NAME": 16, "BY": 16}, console.screen()))
    else:
        console.out("no plan was written" if name is None else f"no plan named {name} was written")
