"""Approvals of plans: the rules in force, who approved, what is missing; give and revoke them by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from pricing.money import ZERO, Usd
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.queries.plans import whole_plan
from router.app.settings import AppSettings
from router.config.approval_file import load_approval_rules
from router.controller.accept.accept import APPLY, ENVIRONMENTS, hash_environments
from router.controller.accept.approval import (
    APPROVE,
    REVOKE,
    SET_RULES,
    Approval,
    ApprovalJudgement,
    ApprovalRules,
    Exposure,
    PlanPeople,
    approvals_of,
    approver_refusal,
    at_risk_by_team,
    ceiling_refusals,
    exposure_of,
    judge_approvals,
    needed_approvers,
    user_of,
)
from router.controller.plans import orders_of
from router.jobs.job_json import parse_job
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.state.errors import StateError
from router.state.records import AuditEntry
from router.state.store import StateStore

LONGEST_NOTE = 500
NO_RULES = "there are no rules to approve by"
NO_RULES_REMEDY = "set them (`stepfare approvals set FILE`), or name them as `approval_rules` in the deploy file"


class ApprovalRefusedError(Exception):
    """An approval or a revocation is refused; ``is_stale`` says that the plan is too old."""

    def __init__(self, what: str, remedy: str, *, is_stale: bool = False) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.is_stale = is_stale


@dataclass(frozen=True, slots=True)
class RecordedApproval:
    """An approval that was just recorded: the money at risk, until when it holds, how many more must approve."""

    usd: Usd
    until: datetime
    missing: int


@dataclass(frozen=True, slots=True)
class ListedApproval:
    """An approval with its state: counts, revoked, expired, not allowed, or recorded where there are no rules."""

    approval: Approval
    state: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class PlanApprovals:
    """The state of a plan's approvals. Without rules ``needed`` is None, and nobody can approve.

    ``refusals`` is what stands against applying it; ``why_not`` why who asks may not approve, "" where they may.
    ``may_approve`` says that they have the permission, whatever the rules say; ``is_given`` that their approval counts.
    """

    digest: str
    at_risk_usd: Usd
    needed: int | None
    approvers: tuple[str, ...]
    approvals: tuple[ListedApproval, ...]
    refusals: tuple[str, ...]
    expires_at: datetime
    may_approve: bool
    why_not: str
    remedy: str
    may_revoke: bool
    is_given: bool

    @property
    def missing(self) -> int:
        """Return how many more people must approve."""
        return max(0, (self.needed or 0) - len(self.approvers))

    @property
    def until(self) -> datetime | None:
        """Return until when the approvals that count hold together."""
        counting = (a for a in self.approvals if a.state == "counts" and a.approval.name in self.approvers)
        return min((each.until for each in counting if each.until is not None), default=None)


@dataclass(frozen=True, slots=True)
class StateRules:
    """The rules that an administrator set for a state, with who and when."""

    rules: ApprovalRules
    who: str
    at: datetime


def state_rules(store: StateStore) -> StateRules | None:
    """Return the rules that were set for the state; None where none ever were. StateError."""
    entry = next(reversed(store.audit.entries(SET_RULES)), None)
    if entry is None:
        return None
    try:
        return StateRules(ApprovalRules.model_validate(entry.details["rules"]), entry.who, entry.at)
    except (KeyError, ValidationError):
        raise StateError(
            f"the approval rules in entry {entry.seq} of the audit log cannot be read",
            "set them again: `stepfare approvals set FILE`",
        ) from None


def approval_rules(settings: AppSettings, store: StateStore) -> ApprovalRules | None:
    """Return the state's rules, or those that the deploy file names where it has none; None without either.

    InvalidInputError for a wrong file.
    """
    found = state_rules(store)
    if found is not None:
        return found.rules
    path = settings.deploy.approval_rules
    return None if path is None else load_approval_rules(Path(path))


def set_approval_rules(context: QueryContext, rules: ApprovalRules) -> AuditEntry:
    """Make these the rules of the state, as an entry of its audit log. ApprovalRefusedError unless who asks may."""
    problem = context.store.administration.problem()
    if problem:
        raise ApprovalRefusedError(f"only an administrator of the state sets its rules: {problem}", "ask one")
    content, session = rules.model_dump(mode="json"), context.store.administration.session
    return context.store.audit.add(
        context.identity.name, SET_RULES, rules.digest, ZERO, context.clock(), rules=content, **session
    )


def approver_name(rules: ApprovalRules | None, login: str, *, is_account: bool = False) -> str:
    """Return the name under which somebody approves: the login, or who has just that as theirs.

    The login of an account (``is_account``) is that with its machine, or without.
    """
    if rules is None or rules.approver(login) is not None:
        return login
    found = next((approver.name for approver in rules.approvers if approver.login == login), None)
    if found is not None or not is_account:
        return found or login
    return approver_name(rules, user_of(login))


def approve_plan(
    context: QueryContext, rules: ApprovalRules | None, plan: Plan, digest: str, *, name: str, login: str, note: str
) -> RecordedApproval:
    """Record that ``name`` approves the plan under ``login``. ApprovalRefusedError where rules or age are against it.

    Who asks needs the permission for every team that has a job in the plan.
    """
    _require_for_plan(context, plan)
    now = context.clock()
    if rules is None:
        raise ApprovalRefusedError(NO_RULES, NO_RULES_REMEDY)
    store = context.store
    exposure = plan_exposure(store, digest, now)
    refusal = _approval_refusal(store, rules, plan, exposure, name, login, now)
    if refusal is not None:
        raise refusal
    environments, session = _environments(store, plan), store.administration.session
    details = {"by": name, "note": note, "rules": rules.digest, ENVIRONMENTS: environments, **session}
    store.audit.add(login, APPROVE, digest, exposure.plan_usd, now, **details)
    judged = _judge(store, rules, plan, exposure, digest, now)
    missing = needed_approvers(rules, exposure.usd) - len(judged.approvers)
    return RecordedApproval(exposure.plan_usd, now + rules.max_age, missing)


def plan_exposure(store: StateStore, digest: str, now: datetime) -> Exposure:
    """Return what a plan of the state puts at risk by team, and what its teams had applied within a day before."""
    return exposure_of(_at_risk_by_team(store, digest), digest, store.audit.entries(APPLY), now)


@lru_cache(maxsize=8)
def _at_risk_by_team(store: StateStore, digest: str) -> Mapping[str, Usd]:
    plan = whole_plan(store, digest)
    assert plan is not None
    return at_risk_by_team(plan, stored_jobs(store, plan))


def missing_approval(store: StateStore, rules: ApprovalRules, digest: str, now: datetime) -> str:
    """Return why a plan of the state may not be applied for want of an approval, whoever applies it; "" where it may.

    Amounts that nobody may approve count too.
    """
    judged = _judge(store, rules, whole_plan(store, digest), plan_exposure(store, digest, now), digest, now)
    return "; ".join(refusal.what for refusal in judged.refusals)


def _judge(
    store: StateStore, rules: ApprovalRules, plan: Plan | None, exposure: Exposure, digest: str, now: datetime
) -> ApprovalJudgement:
    approvals, people = _approvals(store, digest), PlanPeople(maker_of(store, digest))
    environments = _environments(store, plan) if approvals and plan is not None else ""
    return judge_approvals(rules, exposure, digest, approvals, people, now, environments=environments)


def stored_jobs(store: StateStore, plan: Plan) -> dict[str, Job]:
    """Return the jobs of a plan by name, without those whose specification is missing or cannot be read."""
    specs = store.plans.jobs(job.job_digest for job in plan.jobs)
    jobs = {}
    for job in plan.jobs:
        with suppress(KeyError, ValidationError):
            jobs[job.job] = parse_job(specs[job.job_digest])
    return jobs


def _environments(store: StateStore, plan: Plan) -> str:
    """Return the hash of the values of environments of the jobs that the plan orders, as they are stored."""
    ordered = {order.job for order in orders_of(plan)}
    jobs = (job for name, job in stored_jobs(store, plan).items() if name in ordered)
    return hash_environments(store, jobs)


def maker_of(store: StateStore, digest: str) -> str:
    """Return who made a plan of the state; "" where that is not known."""
    row = store.made_plans.row(digest)
    return "" if row is None else row.made_by


def _approval_refusal(
    store: StateStore,
    rules: ApprovalRules,
    plan: Plan,
    exposure: Exposure,
    name: str,
    login: str,
    now: datetime,
) -> ApprovalRefusedError | None:
    """Return why the plan cannot be approved by that person now; None where it can."""
    if now > plan.expires_at:
        what = f"the plan was good until {plan.expires_at:%Y-%m-%d %H:%MZ}"
        return ApprovalRefusedError(what, "plan again, then approve", is_stale=True)
    role = store.administration.session.get("database_user", "")
    reason = next((refusal.what for refusal in ceiling_refusals(rules, exposure)), "")
    reason = reason or approver_refusal(rules, name, login, role, exposure.usd)
    if reason:
        return ApprovalRefusedError(reason, "ask somebody whom the rules allow to, or plan with less")
    return None


def revoke_approval(context: QueryContext, plan: Plan, digest: str, *, name: str, login: str, note: str) -> None:
    """Record that the approvals of that name for that plan are revoked. ApprovalRefusedError where there is none."""
    _require_for_plan(context, plan)
    own = [each for each in _approvals(context.store, digest) if (each.name, each.revoked_at) == (name, None)]
    if not own:
        raise ApprovalRefusedError(
            f"plan-{digest[:12]} has no approval by {name}", "see `stepfare plan approve --list`"
        )
    context.store.audit.add(login, REVOKE, digest, own[-1].usd, context.clock(), by=name, note=note)


def change_approval(context: QueryContext, plan: Plan, digest: str, note: str, *, revokes: bool) -> None:
    """Record that who asks approves the plan, or revokes that, under their name in the rules. ApprovalRefusedError."""
    rules, login = approval_rules(context.settings, context.store), context.identity.name
    name = approver_name(rules, login)
    words = "".join(sign if sign.isprintable() else " " for sign in note)[:LONGEST_NOTE].strip()
    if revokes:
        revoke_approval(context, plan, digest, name=name, login=login, note=words)
    else:
        approve_plan(context, rules, plan, digest, name=name, login=login, note=words)


def list_approvals(context: QueryContext, rules: ApprovalRules | None, digest: str = "") -> tuple[ListedApproval, ...]:
    """Return the approvals with their state, of one plan or of all. Who asks reads plans of all teams."""
    context.identity.require_for_all(Permission.READ_PLANS)
    now = context.clock()
    return tuple(_listed(approval, rules, now) for approval in _approvals(context.store, digest))


def standing_approvals(context: QueryContext, rules: ApprovalRules | None) -> dict[str, tuple[str, ...]]:
    """Return by digest of a plan the names whose approvals count now, or are recorded where there are no rules."""
    found: dict[str, dict[str, None]] = {}
    for listed in list_approvals(context, rules):
        if listed.state in ("counts", "recorded"):
            found.setdefault(listed.approval.digest, {})[listed.approval.name] = None
    return {digest: tuple(names) for digest, names in found.items()}


def find_plan_approvals(context: QueryContext, plan: Plan, digest: str) -> PlanApprovals | None:
    """Return the state of approvals of a whole plan for who asks; None unless they may see all its jobs."""
    rules, login = approval_rules(context.settings, context.store), context.identity.name
    name = approver_name(rules, login)
    teams = context.identity.require(Permission.READ_PLANS)
    if not all(teams.admits(team) for team in _teams_of(plan)):
        return None
    now, own = context.clock(), _approvals(context.store, digest)
    exposure = plan_exposure(context.store, digest, now)
    granted = context.identity.teams(Permission.APPROVE_PLANS)
    may = context.identity.may(Permission.APPROVE_PLANS) and all(granted.admits(team) for team in _teams_of(plan))
    approvers: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    refusal: ApprovalRefusedError | None = ApprovalRefusedError(NO_RULES, NO_RULES_REMEDY)
    if rules is not None:
        judged = _judge(context.store, rules, plan, exposure, digest, now)
        approvers, refusals = judged.approvers, tuple(each.what for each in judged.refusals)
        refusal = _approval_refusal(context.store, rules, plan, exposure, name, login, now)
    return PlanApprovals(
        digest=digest,
        at_risk_usd=exposure.plan_usd,
        needed=None if rules is None else needed_approvers(rules, exposure.usd),
        approvers=approvers,
        approvals=tuple(_listed(approval, rules, now) for approval in own),
        refusals=refusals,
        expires_at=plan.expires_at,
        may_approve=may,
        why_not="" if refusal is None else str(refusal),
        remedy="" if refusal is None else refusal.remedy,
        is_given=name in approvers,
        may_revoke=may and any(a.name == name and a.revoked_at is None for a in own),
    )


def _teams_of(plan: Plan) -> Iterable[str]:
    return sorted({job.team for job in plan.jobs})


def _require_for_plan(context: QueryContext, plan: Plan) -> None:
    context.identity.require(Permission.APPROVE_PLANS)
    for team in _teams_of(plan):
        context.identity.require(Permission.APPROVE_PLANS, team)


def _approvals(store: StateStore, digest: str) -> tuple[Approval, ...]:
    """Return the approvals of a plan, revoked ones too; of all plans for ""."""
    return tuple(each for each in approvals_of(store.audit.entries(APPROVE, REVOKE)) if digest in ("", each.digest))


def _listed(approval: Approval, rules: ApprovalRules | None, now: datetime) -> ListedApproval:
    """Return whether an approval counts; whether its plan may be applied depends on who applies too."""
    until = None if rules is None else approval.at + rules.max_age
    if approval.revoked_at is not None:
        return ListedApproval(approval, "revoked", until)
    if rules is None or until is None:
        return ListedApproval(approval, "recorded", until)
    if now >= until:
        return ListedApproval(approval, "expired", until)
    refused = approver_refusal(rules, approval.name, approval.login, approval.database_user, approval.usd)
    return ListedApproval(approval, "not allowed" if refused else "counts", until)
