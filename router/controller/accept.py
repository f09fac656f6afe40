"""From a plan to errands: what is due, what it may cost, who said yes; and the record that it was accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.problems import InvalidInputError, Problem
from router.controller.accepted_limits import has_limits, keep_limits
from router.controller.budgets import with_hard
from router.controller.context import Site
from router.controller.guardrails import Cause, Refusal
from router.controller.metering import planned_entries
from router.controller.orders import Order
from router.controller.placement_options import choices_of, most_at_risk
from router.controller.provision_order import Errand
from router.controller.run_policies import Assigned
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.ledger.budget import Budget, Scope
from router.ledger.entry import Entry, Kind
from router.ledger.month import Month
from router.planning.listings import listings_by_accelerator
from router.planning.plan import Plan
from router.state.records import Attempt

APPLY = "apply"  # as the audit log calls it


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was agreed to: errands, the most they may cost, fallbacks included. ``policies``: what runs each job, where
    that was asked."""

    errands: tuple[Errand, ...]
    expected_usd: Usd
    at_risk_usd: Usd
    policies: Mapping[str, Assigned] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]:
        """Job, team and references to secrets of every job that has some, by name; never what they stand for."""
        jobs = {errand.job.name: errand.job for errand in self.errands}
        return tuple(
            (name, job.team, job.run.references)
            for name, job in sorted(jobs.items())
            if job.run is not None and job.run.references
        )


def errands_of(
    plan: Plan,
    digest: str,
    orders: Sequence[Order],
    jobs: Mapping[str, Job],
    book: PriceBook,
    tries: int,
    limits: Limits | None = None,
    assign: Callable[[Order, Job], Assigned] | None = None,
) -> Accepted:
    """One a gang. InvalidInputError when a job's specification is missing, another one than was planned, or starts
    nothing. ``book`` and ``limits`` say what next places cost now; without the limits that the plan was made with,
    those at a discount or on a reservation seem too dear and are left out. ``assign`` says which policy runs a job."""
    problems = []
    wanted = {job.job: job.job_digest for job in plan.jobs}
    for name in sorted({order.job for order in orders}):
        job = jobs.get(name)
        if job is None:
            what, remedy = "the specification of this job is not known", "give its file with --jobs PATH"
        elif job.digest != wanted[name]:
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
    errands = tuple(
        Errand(
            digest,
            order,
            choices_of(order, plan, jobs[order.job], market, tries),
            jobs[order.job],
            wanted[order.job],
            book,
            policies=_recorded(policies.get(order.job)),
        )
        for order in orders
    )
    return Accepted(
        errands,
        Usd.total(order.expected_usd for order in orders),
        Usd.total(most_at_risk(errand.choices) for errand in errands),
        policies,
    )


def _recorded(found: Assigned | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    return found.policy.text, "" if found.overridden is None else found.overridden.text


def over_budget(
    orders: Sequence[Order],
    plan: Plan,
    jobs: Mapping[str, Job],
    limits: Limits,
    ledger: Iterable[Entry],
    running: Iterable[Attempt],
    month: datetime,
    budgets: Iterable[Budget] = (),
) -> tuple[Refusal, ...]:
    """Budgets that the orders would break: what the ledger says was metered this month, UTC (or ``spent`` of the limits
    file where that is more), what runs now at its ceilings, and what the orders are expected to cost. An attempt at one
    of the orders is that order, taken up again: it counts once. ``budgets``: those that hold in the month; hard ones of
    teams count like those of the limits file, the lower of the two; those of projects and of all like them."""
    teams = {job.job: job.team for job in plan.jobs}
    asked = {(order.job, order.gang, order.start) for order in orders}
    others = [a for a in running if (a.job, a.gang, a.start) not in asked]
    refused = []
    entries = [e for e in ledger if e.kind is Kind.METERED]
    held = tuple(budgets)
    for budget in with_hard(limits, held).teams:
        metered = Usd.total(e.usd_in(Month.of(month)) for e in entries if e.team == budget.team)
        committed = Usd.total(a.at_risk_usd for a in others if a.team == budget.team)
        wanted = Usd.total(order.expected_usd for order in orders if teams.get(order.job) == budget.team)
        total = max(metered, budget.spent) + committed + wanted
        if wanted.nanos and total > budget.budget:
            refused.append(_refusal("", f"team {budget.team}", total, budget.budget))
    for hard in (each for each in held if each.hard and each.scope is not Scope.TEAM):
        spent = Usd.total(e.usd_in(Month.of(month)) for e in entries if hard.counts(e.team, e.project))
        committed = Usd.total(a.at_risk_usd for a in others if hard.counts(a.team, a.project))
        wanted = Usd.total(order.expected_usd for order in orders if hard.counts(*_whose(order, teams, jobs)))
        if wanted.nanos and hard.usd is not None and (total := spent + committed + wanted) > hard.usd:
            refused.append(_refusal("", hard.title, total, hard.usd))
    for name in sorted({order.job for order in orders}):
        job = jobs.get(name)
        if job is None or job.budget is None:
            continue
        wanted = Usd.total(order.expected_usd for order in orders if order.job == name)
        if wanted > job.budget:
            refused.append(_refusal(name, "the job", wanted, job.budget))
    return tuple(refused)


def _whose(order: Order, teams: Mapping[str, str], jobs: Mapping[str, Job]) -> tuple[str, str | None]:
    job = jobs.get(order.job)
    return teams.get(order.job, ""), None if job is None else job.project


def _refusal(job: str, whose: str, total: Usd, budget: Usd) -> Refusal:
    what = f"{whose} would come to ${total.dollars():,.2f} of a budget of ${budget.dollars():,.2f}"
    return Refusal(Cause.BUDGET, job, what, "raise the budget, or plan again with less")


def record(
    site: Site, accepted: Accepted, plan_text: str, who: str, approved_by: str, specs: Mapping[str, str], limits: Limits
) -> None:
    """Writes down that the plan was accepted: the plan, the jobs, the limits that hold for them, planned entries of the
    ledger, the audit log. Again is harmless, and adds a line to the audit log only. Without ``limits`` those that
    were given before hold; where none ever were, a job that has to move stays in the clouds of its places."""
    now = site.clock()
    errands = accepted.errands
    digest = errands[0].plan
    site.store.put_plan(digest, plan_text, now)
    site.store.put_jobs(specs, now)
    given = limits != Limits.none()
    if given or not has_limits(site.store, digest):
        # Who gave none wants no surprise either: machines of another cloud than was shown.
        clouds = tuple(sorted({choice.cloud for errand in errands for choice in errand.choices}))
        keep_limits(site.store, digest, limits if given else limits.model_copy(update={"clouds": clouds}))
    site.store.ledger.add(
        planned_entries(
            digest,
            [errand.order for errand in errands],
            {errand.order.job: errand.job for errand in errands},
            {errand.order.job: errand.digest for errand in errands},
            now,
        )
    )
    policies = sorted(accepted.policies.items())
    more: dict[str, object] = {
        "policies": {job: found.policy.content for job, found in policies},
        "overridden_policies": {
            job: found.overridden.content for job, found in policies if found.overridden is not None
        },
        "secrets": {name: dict(pairs) for name, _, pairs in accepted.secrets},
    }
    site.store.audit(
        who,
        APPLY,
        digest,
        accepted.at_risk_usd,
        now,
        gangs=len(errands),
        expected_usd=str(accepted.expected_usd),
        approved_by=approved_by,
        **{name: said for name, said in more.items() if said},
    )
