"""Command ``stepfare plan diff``: compare two plans and explain the changes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console

if TYPE_CHECKING:
    from router.planning.plan import Plan


class PlanDiffFormat(StrEnum):
    """Output format of a plan diff."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="The older plan (JSON).")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The newer plan (JSON).")],
    output: Annotated[PlanDiffFormat, typer.Option("--output", "-o", help="Format.")] = PlanDiffFormat.TABLE,
) -> None:
    """Compare two plans and explain the changes: causes first, then what follows from them.

    Causes are a job that is new, gone or changed, a price, a limit, a budget, time that has passed, or another job's
    change. Where neither plan shows one, the change is within the gap of both. Jobs that only start at other times, at
    the same place and cost, are one line.

    \b
    stepfare plan diff yesterday.json today.json
    stepfare plan diff a.json b.json -o wide
    stepfare plan diff a.json b.json -o json
    """
    from router.config.plan_files import read_plan
    from router.planning.changes import plan_diff
    from router.render.plan_diff_text import diff_json, diff_text

    old, new = read_plan(before), read_plan(after)
    found = plan_diff(old, new, _changed_fields(old, new))
    if output is PlanDiffFormat.JSON:
        console.out(diff_json(found))
    else:
        console.out(diff_text(found, console.screen(), wide=output is PlanDiffFormat.WIDE))


def _changed_fields(before: Plan, after: Plan) -> dict[str, tuple[str, ...]]:
    """Return the changed fields of each changed job whose two specifications are stored in the state.

    A state that is missing or cannot be read names no fields: comparing plans does not need one.
    """
    import json

    from pricing.problems import InvalidInputError
    from router.cli.site_options import open_state_store
    from router.planning.change_causes import spec_changes

    old = {job.job: job.job_digest for job in before.jobs}
    changed = {
        job.job: (old[job.job], job.job_digest)
        for job in after.jobs
        if job.job in old and old[job.job] != job.job_digest
    }
    if not changed:
        return {}
    try:
        with open_state_store(None, None, makes=False) as (_, store):
            specs = store.plans.jobs(digest for pair in changed.values() for digest in pair)
    except (console.CommandError, InvalidInputError) as error:
        console.note(f"which fields of the changed jobs differ is not known: {error}", "warning")
        return {}
    known = {job: pair for job, pair in changed.items() if set(pair) <= specs.keys()}
    return {
        job: spec_changes(json.loads(specs[first]), json.loads(specs[second])) for job, (first, second) in known.items()
    }
