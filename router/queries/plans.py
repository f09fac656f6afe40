"""Plans that were made: the newest, those of earlier nights, each confined to the teams that may be seen."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.problems import InvalidInputError
from router.access.identity import Permission
from router.planning.plan import Plan
from router.planning.plan_json import plan_from_json
from router.queries.context import QueryContext
from router.state.made_plans import MadePlanRow

LEAST_DIGITS = 4


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan with its digest; ``is_whole`` says that nothing was left out for who asks."""

    digest: str
    plan: Plan
    is_whole: bool


def list_plans(context: QueryContext, count: int = 50) -> tuple[MadePlanRow, ...]:
    """Return the plans that were made, the latest first."""
    context.identity.require(Permission.READ_PLANS)
    return context.store.made_plans.newest(count)


def find_plan(context: QueryContext, name: str = "latest") -> StoredPlan | None:
    """Return the plan of that digest (or ``plan-`` and its first digits), or the latest; None where there is none.

    InvalidInputError for a name that fits several.
    """
    teams = context.identity.require(Permission.READ_PLANS)
    digest = _digest_of(context, name)
    text = None if digest is None else context.store.made_plans.text(digest)
    if digest is None or text is None:
        return None
    plan = plan_from_json(text, f"plan-{digest[:12]}")
    return StoredPlan(digest, plan, is_whole=teams.is_all)


def _digest_of(context: QueryContext, name: str) -> str | None:
    rows = context.store.made_plans.newest(1 if name == "latest" else 400)
    if name == "latest":
        return rows[0].digest if rows else None
    digits = name.removeprefix("plan-")
    found = sorted({row.digest for row in rows if row.digest.startswith(digits)})
    if len(digits) < LEAST_DIGITS or not found:
        return None
    if len(found) > 1:
        raise InvalidInputError.single(f"{name} fits {len(found)} plans", remedy="give more digits")
    return found[0]
