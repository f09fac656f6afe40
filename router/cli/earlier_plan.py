"""Find the earlier plan that a page or a comparison is against, and the fields of jobs that changed since."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.site_options import ask_state, open_state_if_any

if TYPE_CHECKING:
    from router.planning.document.plan import Plan
    from router.render.since_view import SinceView

AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="last|FILE",
        help="Show on the page of --html what changed since the plan of its name of the night before, or a file.",
    ),
]


def check_against(against: str | None, html: Path | None) -> None:
    """Raise InvalidInputError for ``--against`` without a page."""
    if against is not None and html is None:
        raise InvalidInputError.single("is shown on a page alone", field="--against", remedy="add --html FILE")


def changes_since(against: str | None, plan: Plan) -> SinceView | None:
    """Return what changed since the plan that ``--against`` names; None without one.

    InvalidInputError for a file that is no plan; CommandError for a state that cannot be read.
    """
    if against is None:
        return None
    from router.config.plan_files import read_plan
    from router.planning.document.plan_json import plan_content
    from router.planning.explain.changes import plan_diff
    from router.render.since_view import since_view

    before = _last_plan(plan) if against == "last" else read_plan(Path(against))
    if before is None:
        console.note(f"no plan named {plan.name} of an earlier night is stored: the page says nothing of changes")
        return None
    diff = plan_diff(before, plan, find_changed_fields(before, plan))
    return since_view(diff, before, plan_content(before)["digest"], plan)


def _last_plan(plan: Plan) -> Plan | None:
    from router.app.queries.plans import previous_digest, whole_plan

    with open_state_if_any() as store:
        digest = previous_digest(store, plan.as_of, plan.name)
        return None if digest is None else whole_plan(store, digest)


def find_changed_fields(before: Plan, after: Plan) -> dict[str, tuple[str, ...]]:
    """Return the changed fields of each changed job whose two specifications are stored in the state.

    A state that is missing or cannot be read names no fields: comparing plans does not need one.
    """
    from router.app.queries.plans import changed_fields

    old = {job.job: job.job_digest for job in before.jobs}
    if all(old.get(job.job, job.job_digest) == job.job_digest for job in after.jobs):
        return {}
    unknown = "which fields of the changed jobs differ is not known"
    return ask_state(lambda store: changed_fields(store, before, after), {}, unknown)
