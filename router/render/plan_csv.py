"""The jobs of a plan, and the changes between two plans, as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pricing.money import Usd
from router.files.csv_text import csv_text
from router.planning.document.plan import Line, Plan
from router.planning.document.plan_facts import PlanFacts
from router.planning.document.plan_usage import COST_TERMS, JobCostTerms
from router.planning.explain.changes import PlanDiff
from router.planning.explain.cost_changes import cost_change

_OWN_TERMS = tuple(name for name in COST_TERMS if name != "fallback_usd")
JOB_FIELDS = (
    "job", "team", "project", "state", "cloud", "region", "zone", "instance_type", "market", "accelerators", "start",
    "finish", "deadline", "on_time_probability", "cost_usd", "fallback", "fallback_probability", "fallback_usd", "why",
    *_OWN_TERMS,
)  # fmt: skip
CHANGE_FIELDS = (
    "job", "change", "before", "after", "cost_before_usd", "cost_after_usd", "more_usd", "start_before", "start_after",
    "why",
)  # fmt: skip


def jobs_csv(plan: Plan) -> str:
    """Return all jobs by name, those that are left out with the reason.

    ``cost_usd`` is exact, and holds ``fallback_usd``: what the on-demand gang behind a job on spot is expected to cost.
    That and the terms after ``why`` add up to it.
    """
    facts = PlanFacts(plan)
    terms = {each.job: each for each in plan.usage.cost_terms}
    reasons = {job.job: job.reason for job in plan.unplaced}
    rows = []
    for job in plan.jobs:
        place = facts.placements.get(job.job)
        state = "left out" if place is None else "late" if job.late is not None else "placed"
        where = (
            (None,) * 6
            if place is None
            else (
                place.cloud,
                place.region,
                place.zone,
                place.mix or place.instance_type,
                place.market,
                place.accelerators,
            )
        )
        rows.append(
            (
                job.job,
                job.team,
                job.project,
                state,
                *where,
                _time(job.start),
                _time(job.finish),
                _time(job.deadline),
                job.on_time_probability,
                None if place is None else job.cost_usd,
                *_fallback(facts.lines.get(job.job, ())),
                reasons.get(job.job, "" if job.late is None else job.late.why) or None,
                *_terms(terms.get(job.job)),
            )
        )
    return csv_text(JOB_FIELDS, rows, unknown="none")


def _fallback(lines: Sequence[Line]) -> tuple[str | None, float | None, Usd | None]:
    """Return place, probability and expected dollars of the gang behind a job on spot; None each without one."""
    found = [line.fallback for line in lines if line.fallback is not None]
    if not found:
        return (None, None, None)
    first = found[0]
    where = "/".join(part for part in (first.cloud, first.region, first.zone, first.instance_type) if part)
    return where, max(each.probability for each in found), Usd.total(each.cost_usd for each in found)


def _terms(terms: JobCostTerms | None) -> tuple[Usd | None, ...]:
    """Return the terms of a job's cost but its fallback; None each where it is not placed."""
    return tuple(None if terms is None else getattr(terms, name) for name in _OWN_TERMS)


def changes_csv(diff: PlanDiff) -> str:
    """Return the jobs of which something changed, by name."""
    return csv_text(
        CHANGE_FIELDS,
        [
            (
                change.job,
                change.kind,
                change.before,
                change.after,
                change.cost_before,
                change.cost_after,
                cost_change(change),
                _time(change.start_before),
                _time(change.start_after),
                change.why or None,
            )
            for change in diff.changes
            if change.causes
        ],
        unknown="none",
    )


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
