"""Plans that were made: the newest, those of earlier nights, each confined to the teams that may be seen."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json
from router.planning.document.restricted_plan import restrict_plan
from router.planning.explain.change_causes import spec_changes
from router.planning.explain.changes import PlanDiff, plan_diff
from router.state.plans import PLANS_KEPT, ListedPlan
from router.state.store import StateStore

LEAST_DIGITS = 4
MOST_PLANS = PLANS_KEPT
# Plans of one evening are of one night.
ANOTHER_NIGHT = timedelta(hours=12)
_DIGITS = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan, or the part of it that the asking person may see, with the digest of the whole plan."""

    digest: str
    plan: Plan


def list_plans(
    context: QueryContext, count: int = 50, before: datetime | None = None, name: str | None = None
) -> tuple[ListedPlan, ...]:
    """Return the plans that were made, the latest first: those of one name, those of moments ``before``.

    Who may not see all teams sees the plans that have jobs of theirs.
    """
    teams = context.identity.require(Permission.READ_PLANS)
    rows = context.store.made_plans.newest(count if teams.is_all else MOST_PLANS, before, name=name)
    listed = (row.seen_by(teams) for row in rows)
    return tuple(plan for plan in listed if teams.is_all or plan.jobs)[:count]


def list_last_plans(context: QueryContext) -> tuple[ListedPlan, ...]:
    """Return the last plan of each name, the latest first, as :func:`list_plans` does."""
    last = [plan for name in context.store.made_plans.oldest() for plan in list_plans(context, 1, name=name)]
    return tuple(sorted(last, key=lambda plan: (plan.as_of, plan.made_at, plan.name), reverse=True))


def page_of_plans(
    context: QueryContext, count: int, before: datetime | None = None, name: str | None = None
) -> tuple[tuple[ListedPlan, ...], datetime | None]:
    """Return a page of :func:`list_plans`, and the moment before which the next page begins; None after the last.

    Plans of one moment are not torn apart where they fit a page.
    """
    plans = list_plans(context, count + 1, before, name)
    if len(plans) <= count:
        return plans, None
    page = tuple(plan for plan in plans[:count] if plan.as_of != plans[count].as_of) or plans[:count]
    return page, page[-1].as_of


def find_plan(context: QueryContext, name: str = "latest") -> StoredPlan | None:
    """Return the plan of that digest (or ``plan-`` and its first digits), or the latest; None where there is none.

    InvalidInputError for a name that fits several.
    """
    teams = context.identity.require(Permission.READ_PLANS)
    digest = find_digest(context, name)
    if digest is None:
        return None
    try:
        if teams.teams is None:
            return StoredPlan(digest, _read_stored(context.store, digest))
        return StoredPlan(digest, _read_part(context.store, digest, teams.teams))
    except KeyError:
        return None


def find_night_of(context: QueryContext, job: str) -> str | None:
    """Return the digest of tonight's plan if it has a job of this name that may be seen; else None."""
    if not context.identity.may(Permission.READ_PLANS):
        return None
    plan = find_plan(context)
    return plan.digest if plan is not None and any(each.job == job for each in plan.plan.jobs) else None


def find_digest(context: QueryContext, name: str = "latest") -> str | None:
    """Return the digest of the plan of that name; None where there is none. Errors as :func:`find_plan`."""
    context.identity.require(Permission.READ_PLANS)
    if name == "latest":
        rows = context.store.made_plans.newest(1, name=context.night)
        return rows[0].digest if rows else None
    digits = name.removeprefix("plan-")
    if len(digits) < LEAST_DIGITS or not _DIGITS.fullmatch(digits):
        return None
    # A plan that was accepted elsewhere, or long ago, is stored as accepted alone.
    found = sorted({*context.store.made_plans.digests(digits, 2), *context.store.plans.digests(digits, 2)})
    if len(found) > 1:
        raise InvalidInputError.single(f"{name} fits several plans", remedy="give more digits")
    return found[0] if found else None


def moment_and_name(context: QueryContext, digest: str, name: str) -> tuple[datetime, str] | None:
    """Return the moment that a stored plan is for, and the name under which it was asked for.

    None where it is not stored.
    """
    made = context.store.made_plans.row(digest) or whole_plan(context.store, digest)
    return None if made is None else (made.as_of, context.night if name == "latest" else made.name)


def previous_digest(store: StateStore, as_of: datetime, name: str) -> str | None:
    """Return the digest of the latest plan of that name of an earlier night; None without any."""
    rows = store.made_plans.newest(1, as_of - ANOTHER_NIGHT, name=name)
    return rows[0].digest if rows else None


def previous_plan(context: QueryContext, stored: StoredPlan, name: str) -> StoredPlan | None:
    """Return the latest plan of the same name of an earlier night than the plan's; None without any."""
    found = moment_and_name(context, stored.digest, name)
    digest = None if found is None else previous_digest(context.store, *found)
    return None if digest is None else find_plan(context, digest)


def compare_plans(context: QueryContext, before: StoredPlan, after: StoredPlan) -> PlanDiff:
    """Return the changes from one plan to another, as ``stepfare plan diff`` explains them."""
    context.identity.require(Permission.READ_PLANS)
    return plan_diff(before.plan, after.plan, changed_fields(context.store, before.plan, after.plan))


def changed_fields(store: StateStore, before: Plan, after: Plan) -> dict[str, tuple[str, ...]]:
    """Return the changed fields of each changed job whose two specifications are stored."""
    old = {job.job: job.job_digest for job in before.jobs}
    changed = {
        job.job: (old[job.job], job.job_digest)
        for job in after.jobs
        if job.job in old and old[job.job] != job.job_digest
    }
    if not changed:
        return {}
    specs = store.plans.jobs(digest for pair in changed.values() for digest in pair)
    known = {job: pair for job, pair in changed.items() if set(pair) <= specs.keys()}
    return {
        job: spec_changes(json.loads(specs[first]), json.loads(specs[second])) for job, (first, second) in known.items()
    }


def whole_plan(store: StateStore, digest: str) -> Plan | None:
    """Return the plan of that digest, whoever asks; None where it is not stored. Queries restrict it for a reader."""
    try:
        return _read_stored(store, digest)
    except KeyError:
        return None


@lru_cache(maxsize=4)
def _read_stored(store: StateStore, digest: str) -> Plan:
    """Return a stored plan, which never changes. KeyError where there is none, so that this is not remembered."""
    text = store.made_plans.text(digest) or store.plans.plan(digest)
    if text is None:
        raise KeyError(digest)
    return plan_from_json(text, f"plan-{digest[:12]}")


@lru_cache(maxsize=16)
def _read_part(store: StateStore, digest: str, teams: frozenset[str]) -> Plan:
    """Return the part of a stored plan that is about these teams. KeyError as :func:`_read_stored`."""
    return restrict_plan(_read_stored(store, digest), teams)
