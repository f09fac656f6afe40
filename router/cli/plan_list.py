"""Command ``stepfare plan list``: the names of stored plans with the last of each, or the plans of one name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.options import wall_clock
from router.cli.output_options import TableOutput
from router.cli.site_options import open_query_context
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import format_timestamp, format_usd

if TYPE_CHECKING:
    from router.state.made_plans import ListedPlan


def list_plans(
    name: Annotated[str | None, typer.Option(metavar="NAME", help="List the plans of this name instead.")] = None,
    output: TableOutput = "table",
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
    empty = "no plan was written" if name is None else f"no plan named {name} was written"
    console.print_table(output, "plans", _PLANS, plans, empty)


_PLANS: RecordTable[ListedPlan] = RecordTable(
    (
        TableColumn("name", lambda plan: plan.name, "NAME", width=16),
        TableColumn("plan_id", lambda plan: plan.plan_id, "PLAN"),
        TableColumn("digest", lambda plan: plan.digest),
        TableColumn("as_of", lambda plan: plan.as_of, "FOR", format_timestamp),
        TableColumn("made_at", lambda plan: plan.made_at),
        TableColumn("made_by", lambda plan: plan.made_by, "BY", width=16),
        TableColumn("jobs", lambda plan: plan.jobs),
        TableColumn("", lambda plan: f"{plan.placed} of {plan.jobs}", "PLACED"),
        TableColumn("placed", lambda plan: plan.placed),
        TableColumn("cost_usd", lambda plan: plan.cost_usd, "COST", format_usd, right=True),
    )
)
