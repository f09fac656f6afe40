"""Find what people are told of plans: one was made, leaves jobs out, or waits for an approval."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pricing.units import format_count
from router.app.queries.approvals import missing_approval
from router.app.queries.plans import whole_plan
from router.controller.accept.accept import APPLY
from router.controller.accept.approval import ApprovalRules
from router.controller.history.events import EventLevel, GangEvent
from router.controller.report.notify import NEWS_WINDOW
from router.deploy.notify_settings import EventKind
from router.planning.document.plan import Plan
from router.planning.document.plan_names import QUOTE
from router.planning.document.plan_terms import TRIAL
from router.state.plans import ListedPlan
from router.state.store import StateStore

_READ = 50  # plans of the last hour that are looked at
_NAMED = 10  # jobs left out that a message names


def find_plan_news(store: StateStore, rules: ApprovalRules | None, now: datetime) -> tuple[GangEvent, ...]:
    """Return the events of plans that were made within :data:`NEWS_WINDOW`, reported before or not. StateError.

    Trials are nobody's news; whoever accepts a quote knows of its plan, which may still wait for an approval.
    ``rules`` are those in force.
    """
    rows = [row for row in store.made_plans.made_since(now - NEWS_WINDOW, _READ) if row.name != TRIAL]
    if not rows:
        return ()
    applied = {entry.digest for entry in store.audit.entries(APPLY)}
    events: list[GangEvent] = []
    for row in rows:
        plan = whole_plan(store, row.digest)
        if plan is not None:
            events += _made(row, plan) if row.name != QUOTE else ()
            is_open = row.digest not in applied and now <= plan.expires_at
            events += _waits(store, rules, row, plan, now) if rules is not None and is_open else ()
    return tuple(events)


def _made(row: ListedPlan, plan: Plan) -> Iterator[GangEvent]:
    jobs, out = sum(team.jobs for team in row.teams), [job.job for job in plan.unplaced]
    text = (
        f"is made for {row.as_of:%Y-%m-%d %H:%M} UTC: {jobs - len(out)} of {format_count(jobs, 'job')} placed for "
        f"${plan.cost_usd.dollars():,.2f}, orders ${plan.orders_usd.dollars():,.2f}"
    )
    yield _event(row, EventKind.PLAN, EventLevel.INFO, text)
    if out:
        more = f" and {len(out) - _NAMED} more" if len(out) > _NAMED else ""
        text = f"leaves out {format_count(len(out), 'job')}: {', '.join(out[:_NAMED])}{more}; see `stepfare explain`"
        yield _event(row, EventKind.LEFT_OUT, EventLevel.WARNING, text)


def _waits(store: StateStore, rules: ApprovalRules, row: ListedPlan, plan: Plan, now: datetime) -> Iterator[GangEvent]:
    missing = missing_approval(store, rules, row.digest, now)
    if missing:
        until = f"{plan.expires_at:%Y-%m-%d %H:%M} UTC"
        text = f"waits for an approval until {until}: {missing}; `stepfare plan approve plan-{row.digest[:12]}`"
        yield _event(row, EventKind.APPROVAL, EventLevel.WARNING, text)


def _event(row: ListedPlan, what: EventKind, level: EventLevel, text: str) -> GangEvent:
    name = f"plan-{row.digest[:12]}"
    return GangEvent(name, row.name, what, level, f"{row.name} ({name}) {text}")
