"""The jobs of a plan, the changes between two plans, and the list of those that were made, as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pricing.money import Usd
from router.planning.document.plan import JobSummary, LineFallback, Plan
from router.planning.document.plan_facts import JobPlacement, PlanFacts
from router.planning.document.plan_usage import COST_TERMS
from router.planning.explain.changes import PlacementChange, PlanDiff
from router.planning.explain.cost_changes import cost_change
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.state.plans import ListedPlan


def jobs_csv(plan: Plan) -> str:
    """Return all jobs by name, those that are left out with the reason.

    ``cost_usd`` is exact, and holds ``fallback_usd``: what the on-demand gang behind a job on spot is expected to cost.
    That and the terms after ``why`` add up to it.
    """
    return _job_table(plan).csv(plan.jobs, unknown="none")


def _job_table(plan: Plan) -> RecordTable[JobSummary]:
    facts = PlanFacts(plan)
    terms = {each.job: each for each in plan.usage.cost_terms}
    reasons = {job.job: job.reason for job in plan.unplaced}

    def placed(take: Callable[[JobPlacement], object]) -> Callable[[JobSummary], object]:
        return lambda job: None if (place := facts.placements.get(job.job)) is None else take(place)

    def behind(take: Callable[[Sequence[LineFallback]], object]) -> Callable[[JobSummary], object]:
        def take_fallbacks(job: JobSummary) -> object:
            found = [line.fallback for line in facts.lines.get(job.job, ()) if line.fallback is not None]
            return take(found) if found else None

        return take_fallbacks

    def state(job: JobSummary) -> str:
        return "left out" if job.job not in facts.placements else "placed" if job.late is None else "late"

    def why(job: JobSummary) -> str | None:
        return reasons.get(job.job, "" if job.late is None else job.late.why) or None

    def term(name: str) -> TableColumn[JobSummary]:
        return TableColumn(name, lambda job: getattr(terms.get(job.job), name, None))

    return RecordTable(
        (
            *attribute_columns("job", "team", "project"),
            TableColumn("state", state),
            TableColumn("cloud", placed(lambda place: place.cloud)),
            TableColumn("region", placed(lambda place: place.region)),
            TableColumn("zone", placed(lambda place: place.zone)),
            TableColumn("instance_type", placed(lambda place: place.mix or place.instance_type)),
            TableColumn("market", placed(lambda place: place.market)),
            TableColumn("accelerators", placed(lambda place: place.accelerators)),
            *attribute_columns("start", "finish", "deadline", "on_time_probability"),
            TableColumn("cost_usd", lambda job: job.cost_usd if job.job in facts.placements else None),
            TableColumn("fallback", behind(lambda fallbacks: _place(fallbacks[0]))),
            TableColumn("fallback_probability", behind(lambda fallbacks: max(row.probability for row in fallbacks))),
            TableColumn("fallback_usd", behind(lambda fallbacks: Usd.total(row.cost_usd for row in fallbacks))),
            TableColumn("why", why),
            *(term(name) for name in COST_TERMS if name != "fallback_usd"),
        )
    )


def _place(fallback: LineFallback) -> str:
    parts = (fallback.cloud, fallback.region, fallback.zone, fallback.instance_type)
    return "/".join(part for part in parts if part)


_CHANGES: RecordTable[PlacementChange] = RecordTable(
    (
        TableColumn("job", lambda change: change.job),
        TableColumn("change", lambda change: change.kind),
        TableColumn("before", lambda change: change.before, plain=str),
        TableColumn("after", lambda change: change.after, plain=str),
        TableColumn("cost_before_usd", lambda change: change.cost_before),
        TableColumn("cost_after_usd", lambda change: change.cost_after),
        TableColumn("more_usd", cost_change),
        *attribute_columns("start_before", "start_after"),
        TableColumn("why", lambda change: change.why or None),
    )
)


def changes_csv(diff: PlanDiff) -> str:
    """Return the jobs of which something changed, by name."""
    return _CHANGES.csv((change for change in diff.changes if change.causes), unknown="none")


@dataclass(frozen=True, slots=True)
class PlanListRow:
    """A row of the list; ``approvals`` is None where the reader may not see them.

    ``has_earlier`` says that there is a plan of its name of an earlier night to compare it with.
    """

    plan: ListedPlan
    approvals: tuple[str, ...] | None
    has_earlier: bool = True

    @property
    def approved_by(self) -> str:
        """Return who approved it, in words."""
        return "not shown" if self.approvals is None else ", ".join(self.approvals) or "nobody"


_PLANS: RecordTable[PlanListRow] = RecordTable(
    (
        TableColumn("plan", lambda row: row.plan.plan_id),
        *attribute_columns("name", "as_of", "made_at", "made_by", "jobs", "placed", "cost_usd", "gap", of="plan"),
        TableColumn("approved_by", lambda row: row.approved_by),
    )
)


def plans_csv(rows: Sequence[PlanListRow]) -> str:
    """Return the list as CSV."""
    return _PLANS.csv(rows, unknown="none")
