"""Approvals of plans: who approved, what is missing; give and revoke them by the rules of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pricing.money import Usd
from router.access.identity import Permission
from router.app.settings import AppSettings
from router.config.approval_file import load_approval_rules
from router.controller.approval import (
    APPROVE,
    REVOKE,
    Approval,
    ApprovalRules,
    approvals_of,
    approver_refusal,
    at_risk,
    ceiling_refusals,
    judge_approvals,
    needed_approvers,
)
from router.planning.plan import Plan
from router.queries.context import QueryContext
from router.state.store import StateStore

NO_RULES = "there are no rules to approve by"
NO_RULES_REMEDY = "name a file as `approval_rules` in the deploy file, see `stepfare schema deploy`"


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


def approval_rules(settings: AppSettings) -> ApprovalRules | None:
    """Return the rules that the deploy file names; None where it names none. InvalidInputError for wrong ones."""
    path = settings.deploy.approval_rules
    return None if path is None else load_approval_rules(Path(path))


def approver_name(rules: ApprovalRules | None, login: str) -> str:
    """Return the name under which somebody who is signed in approves: the login, or who has just that as theirs."""
    if rules is None or rules.approver(login) is not None:
        return login
    return next((approver.name for approver in rules.approvers if approver.login == login), login)


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
    refusal = approval_refusal(rules, plan, name, login, now)
    if refusal is not None:
        raise refusal
    usd = at_risk(plan)[0]
    audit = context.store.audit
    audit.add(login, APPROVE, digest, usd, now, by=name, note=note, rules=rules.digest)
    judged = judge_approvals(rules, plan, digest, _approvals(context.store), "", now)
    return RecordedApproval(usd, now + rules.max_age, needed_approvers(rules, usd) - len(judged.approvers))


def approval_refusal(
    rules: ApprovalRules, plan: Plan, name: str, login: str, now: datetime
) -> ApprovalRefusedError | None:
    """Return why the plan cannot be approved by that person now; None where it can."""
    if now > plan.expires_at:
        what = f"the plan was good until {plan.expires_at:%Y-%m-%d %H:%MZ}"
        return ApprovalRefusedError(what, "plan again, then approve", is_stale=True)
    reason = next((refusal.what for refusal in ceiling_refusals(rules, plan)), "")
    reason = reason or approver_refusal(rules, name, login, at_risk(plan)[0])
    if reason:
        return ApprovalRefusedError(reason, "ask somebody whom the rules allow to, or plan with less")
    return None


def revoke_approval(context: QueryContext, plan: Plan, digest: str, *, name: str, login: str, note: str) -> None:
    """Record that the approvals of that name for that plan are revoked. ApprovalRefusedError where there is none."""
    _require_for_plan(context, plan)
    own = [
        approval
        for approval in _approvals(context.store)
        if (approval.digest, approval.name, approval.revoked_at) == (digest, name, None)
    ]
    if not own:
        raise ApprovalRefusedError(
            f"plan-{digest[:12]} has no approval by {name}", "see `stepfare plan approve --list`"
        )
    context.store.audit.add(login, REVOKE, digest, own[-1].usd, context.clock(), by=name, note=note)


def list_approvals(context: QueryContext, rules: ApprovalRules | None, digest: str = "") -> tuple[ListedApproval, ...]:
    """Return the approvals with their state, of one plan or of all. Who asks reads plans of all teams."""
    context.identity.require_for_all(Permission.READ_PLANS)
    now = context.clock()
    return tuple(_listed(a, rules, now) for a in _approvals(context.store) if digest in ("", a.digest))


def standing_approvals(context: QueryContext, rules: ApprovalRules | None) -> dict[str, tuple[str, ...]]:
    """Return by digest of a plan the names whose approvals count now, or are recorded where there are no rules."""
    found: dict[str, dict[str, None]] = {}
    for listed in list_approvals(context, rules):
        if listed.state in ("counts", "recorded"):
            found.setdefault(listed.approval.digest, {})[listed.approval.name] = None
    return {digest: tuple(names) for digest, names in found.items()}


def find_plan_approvals(
    context: QueryContext, rules: ApprovalRules | None, plan: Plan, digest: str, *, name: str, login: str
) -> PlanApprovals | None:
    """Return the state of approvals of a whole plan for that person; None unless all its jobs may be seen."""
    teams = context.identity.require(Permission.READ_PLANS)
    if not all(teams.admits(team) for team in _teams_of(plan)):
        return None
    now, approvals = context.clock(), _approvals(context.store)
    usd = at_risk(plan)[0]
    may = _may_approve(context, plan)
    approvers: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    refusal: ApprovalRefusedError | None = ApprovalRefusedError(NO_RULES, NO_RULES_REMEDY)
    if rules is not None:
        judged = judge_approvals(rules, plan, digest, approvals, "", now)
        approvers, refusals = judged.approvers, tuple(each.what for each in judged.refusals)
        refusal = approval_refusal(rules, plan, name, login, now)
    own = [approval for approval in approvals if approval.digest == digest]
    return PlanApprovals(
        digest=digest,
        at_risk_usd=usd,
        needed=None if rules is None else needed_approvers(rules, usd),
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


def _may_approve(context: QueryContext, plan: Plan) -> bool:
    teams = context.identity.teams(Permission.APPROVE_PLANS)
    return context.identity.may(Permission.APPROVE_PLANS) and all(teams.admits(team) for team in _teams_of(plan))


def _approvals(store: StateStore) -> tuple[Approval, ...]:
    return approvals_of(store.audit.entries(APPROVE, REVOKE))


def _listed(approval: Approval, rules: ApprovalRules | None, now: datetime) -> ListedApproval:
    """Return whether an approval counts; whether its plan may be applied depends on who applies too."""
    until = None if rules is None else approval.at + rules.max_age
    if approval.revoked_at is not None:
        return ListedApproval(approval, "revoked", until)
    if rules is None or until is None:
        return ListedApproval(approval, "recorded", until)
    if now >= until:
        return ListedApproval(approval, "expired", until)
    refused = approver_refusal(rules, approval.name, approval.login, approval.usd)
    return ListedApproval(approval, "not allowed" if refused else "counts", until)
