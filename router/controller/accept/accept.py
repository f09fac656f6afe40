"""Turn accepted orders of a plan into provision requests, check them against budgets, and record the acceptance."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pricing.book import PriceBook
from pricing.money import ZERO, Usd
from pricing.problems import InvalidInputError, Problem
from router.controller.accept.guardrails import Refusal, RefusalReason, cents_text
from router.controller.accept.run_policies import AssignedPolicy
from router.controller.context import ControllerContext
from router.controller.history.metering import planned_entries
from router.controller.plans import Order, apply_hard_budgets, has_limits, store_limits
from router.controller.provision.provision_order import ProvisionRequest, existing_result
from router.controller.workspace.placement_options import order_at_risk, placements_of
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.ledger.budget import Budget, Scope
from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.ledger.month import Month
from router.planning.document.plan import Plan
from router.planning.find.listings import listings_by_accelerator
from router.state.records import Attempt
from router.state.store import StateStore

APPLY = "apply"  # The name of the action in the audit log.
# The detail of approvals and acceptances that has the hash of values in environments, and the name of its key.
ENVIRONMENTS, _ENVIRONMENTS_KEY = "environments", "environments_key"


@dataclass(frozen=True, slots=True)
class AcceptedOrders:
    """Provision requests that somebody accepted, with their expected cost and the most that each may cost.

    The amounts at risk include every place of the plan. ``policies``: the policy that runs each job, where one was
    asked for.
    """

    requests: tuple[ProvisionRequest, ...]
    expected_usd: Usd
    at_risk: tuple[Usd, ...]
    policies: Mapping[str, AssignedPolicy] = field(default_factory=dict)

    @property
    def at_risk_usd(self) -> Usd:
        return Usd.total(self.at_risk)

    @property
    def at_risk_by_team(self) -> dict[str, Usd]:
        """Return the most that the requests of each team may cost."""
        usd_by_team: dict[str, Usd] = {}
        for request, usd in zip(self.requests, self.at_risk, strict=True):
            usd_by_team[request.job.team] = usd_by_team.get(request.job.team, ZERO) + usd
        return usd_by_team

    @property
    def secrets(self) -> tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]:
        """Return job, team and secret references of every job that has some, sorted by job name.

        The values of the secrets are never included.
        """
        jobs = {request.job.name: request.job for request in self.requests}
        return tuple(
            (name, job.team, job.run.references)
            for name, job in sorted(jobs.items())
            if job.run is not None and job.run.references
        )


def requests_of(
    plan: Plan,
    digest: str,
    orders: Sequence[Order],
    jobs: Mapping[str, Job],
    book: PriceBook,
    tries: int,
    limits: Limits | None = None,
    assign: Callable[[Order, Job], AssignedPolicy] | None = None,
) -> AcceptedOrders:
    """Return one provision request per gang, with the totals of what they cost and put at risk.

    Raises InvalidInputError when a job's specification is missing, differs from the one that was planned, or starts
    nothing. ``book`` and ``limits`` give the current prices of the fallback placements; without the limits that the
    plan was made with, placements at a discount or on a reservation seem too expensive and are left out. ``assign``
    says which policy runs a job.
    """
    problems = []
    summaries = {job.job: job for job in plan.jobs}
    for name in sorted({order.job for order in orders}):
        job = jobs.get(name)
        if job is None:
            what, remedy = "the specification of this job is not known", "give its file with --jobs PATH"
        elif job.digest != summaries[name].job_digest:
            what, remedy = "the job was changed since it was planned", "plan again, or give the file that was planned"
        elif job.run is None:
            what, remedy = "has no `run`: there is nothing to start", "add `run:` with a `command:`, and plan again"
        else:
            continue
        problems.append(Problem(f"job {name}", "", what, remedy))
    if problems:
        raise InvalidInputError(problems)
    market = listings_by_accelerator(book, limits or Limits.none())
    policies = {} if assign is None else {order.job: assign(order, jobs[order.job]) for order in orders}
    requests = tuple(
        ProvisionRequest(
            digest,
            order,
            placements_of(order, plan, jobs[order.job], market, tries),
            jobs[order.job],
            summaries[order.job].job_digest,
            book,
            plan.as_of,
            policies=policies[order.job].recorded if order.job in policies else ("", ""),
        )
        for order in orders
    )
    return AcceptedOrders(
        requests,
        Usd.total(order.expected_usd for order in orders),
        tuple(order_at_risk(order, plan, summaries[order.job], jobs[order.job]) for order in orders),
        policies,
    )


def hash_environments(store: StateStore, jobs: Iterable[Job]) -> str:
    """Return HMAC-SHA256 (hex), under a key of the state, of the plain values in ``run.env`` by job; "" without any.

    They are in no digest, because some are secret all the same.
    """
    values: dict[str, dict[str, str]] = {}
    for job in jobs:
        if job.run is not None and (plain := dict(set(job.run.env) - set(job.run.references))):
            values[job.name] = plain
    if not values:
        return ""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hmac.new(store.values.key(_ENVIRONMENTS_KEY), text.encode(), hashlib.sha256).hexdigest()


def budget_refusals(
    orders: Sequence[Order],
    plan: Plan,
    jobs: Mapping[str, Job],
    limits: Limits,
    ledger: Iterable[LedgerEntry],
    running: Iterable[Attempt],
    month: datetime,
    budgets: Iterable[Budget] = (),
) -> tuple[Refusal, ...]:
    """Return the budgets that the orders would break.

    Each budget is compared with the sum of what the ledger metered this month, UTC (or ``spent`` of the limits file
    where that is more), of what runs now at its ceilings, and of what the orders are expected to cost. An attempt at
    one of the orders is that same order, resumed: it counts once.

    ``budgets``: those that hold in the month. Hard budgets of teams count like those of the limits file, the lower of
    the two; hard budgets of projects and of everything count like them.
    """
    teams = {job.job: job.team for job in plan.jobs}
    order_keys = {(order.job, order.gang, order.start) for order in orders}
    others = [a for a in running if (a.job, a.gang, a.start) not in order_keys]
    refusals = []
    entries = [e for e in ledger if e.kind is LedgerEntryKind.METERED]
    budgets_held = tuple(budgets)
    for budget in apply_hard_budgets(limits, budgets_held).teams:
        metered = Usd.total(e.usd_in(Month.of(month)) for e in entries if e.team == budget.team)
        committed = Usd.total(a.at_risk_usd for a in others if a.team == budget.team)
        expected = Usd.total(order.expected_usd for order in orders if teams.get(order.job) == budget.team)
        total = max(metered, budget.spent) + committed + expected
        if expected.nanos and total > budget.budget:
            refusals.append(_refusal("", f"team {budget.team}", total, budget.budget))
    for hard in (each for each in budgets_held if each.hard and each.scope is not Scope.TEAM):
        spent = Usd.total(e.usd_in(Month.of(month)) for e in entries if hard.counts(e.team, e.project))
        committed = Usd.total(a.at_risk_usd for a in others if hard.counts(a.team, a.project))
        expected = Usd.total(
            order.expected_usd for order in orders if hard.counts(*_team_and_project(order, teams, jobs))
        )
        if expected.nanos and hard.usd is not None and (total := spent + committed + expected) > hard.usd:
            refusals.append(_refusal("", hard.title, total, hard.usd))
    for name in sorted({order.job for order in orders}):
        job = jobs.get(name)
        if job is None or job.budget is None:
            continue
        expected = Usd.total(order.expected_usd for order in orders if order.job == name)
        if expected > job.budget:
            refusals.append(_refusal(name, "the job", expected, job.budget))
    return tuple(refusals)


def _team_and_project(order: Order, teams: Mapping[str, str], jobs: Mapping[str, Job]) -> tuple[str, str | None]:
    job = jobs.get(order.job)
    return teams.get(order.job, ""), None if job is None else job.project


def _refusal(job: str, whose: str, total: Usd, budget: Usd) -> Refusal:
    what = f"{whose} would come to {cents_text(total)} of a budget of {cents_text(budget)}"
    return Refusal(RefusalReason.BUDGET, job, what, "raise the budget, or plan again with less")


def record_acceptance(
    site: ControllerContext,
    accepted: AcceptedOrders,
    plan_text: str,
    who: str,
    approved_by: str,
    specs: Mapping[str, str],
    limits: Limits,
) -> None:
    """Record the acceptance: the plan, the jobs, their limits, planned ledger entries and an audit log line.

    A job that runs under another plan, or is done there, stays as planned there: no planned entry is added for it.
    Repeating an acceptance is harmless and only adds another line to the audit log. Without ``limits``, those given
    before stay in force; where none were ever given, a job that has to move stays in the clouds of its placements.
    """
    now = site.clock()
    requests = accepted.requests
    digest = requests[0].plan
    site.store.plans.put_plan(digest, plan_text, now)
    site.store.plans.put_jobs(specs, now)
    given = limits != Limits.none()
    if given or not has_limits(site.store, digest):
        # Without limits, a job must not move to a cloud that its owner was never shown.
        clouds = tuple(sorted({choice.cloud for request in requests for choice in request.choices}))
        store_limits(site.store, digest, limits if given else limits.model_copy(update={"clouds": clouds}))
    existing = [existing_result(site, digest, request.order, request.planned_at) for request in requests]
    own = [result is None or result.attempt is None or result.attempt.plan == digest for result in existing]
    site.store.ledger.add(
        planned_entries(
            digest,
            [request.order for request, is_own in zip(requests, own, strict=True) if is_own],
            {request.order.job: request.job for request in requests},
            {request.order.job: request.digest for request in requests},
            now,
        )
    )
    policies = sorted(accepted.policies.items())
    details: dict[str, object] = {
        "policies": {job: found.policy.content for job, found in policies},
        "overridden_policies": {
            job: found.overridden.content for job, found in policies if found.overridden is not None
        },
        "secrets": {name: dict(pairs) for name, _, pairs in accepted.secrets},
        ENVIRONMENTS: hash_environments(site.store, (request.job for request in requests)),
    }
    site.store.audit.add(
        who,
        APPLY,
        digest,
        accepted.at_risk_usd,
        now,
        gangs=len(requests),
        expected_usd=str(accepted.expected_usd),
        approved_by=approved_by,
        at_risk_by_team={team: str(usd) for team, usd in accepted.at_risk_by_team.items()},
        **site.store.administration.session,
        **{name: value for name, value in details.items() if value},
    )
