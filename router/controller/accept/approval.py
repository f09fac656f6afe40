"""Judge approvals of a plan by rules: who may approve how much, how many must, and for how long. Pure.

Rules, approvals and revocations are entries of the audit log, so that they are in its hash chain. An approval is of one
digest: a plan that is changed needs another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import Field, model_validator

from pricing.money import ZERO, Usd
from router.controller.accept.accept import APPLY, ENVIRONMENTS
from router.controller.accept.guardrails import Refusal, RefusalReason, cents_text
from router.controller.plans import orders_of
from router.controller.workspace.placement_options import order_at_risk
from router.jobs.fields import Flag, RefusedError, Spec, Text
from router.jobs.quantities import Dollars, Duration
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.state.records import AuditEntry

# Names of the actions in the audit log.
APPROVE, REVOKE, SET_RULES = "approve", "revoke approval", "set approval rules"
# What a team had applied so recently is judged together with what it applies now.
EXPOSURE_TIME = timedelta(days=1)


class Approver(Spec):
    """Somebody who may approve plans."""

    name: Text = Field(description="As in --approved-by.")
    login: Text | None = Field(
        default=None,
        description="Account of the command line, or identity of the console, that approves; left out: the name.",
    )
    database_user: Text | None = Field(
        default=None, description="PostgreSQL: role that must be connected for the approval; left out: any."
    )
    up_to: Dollars | None = Field(default=None, description="The most that this person approves; left out: any amount.")


class ApprovalRules(Spec):
    """The rules of approvals. Amounts are what a plan puts at risk, with what its teams had applied within a day."""

    approvers: tuple[Approver, ...] = Field(min_length=1, description="Who may approve.")
    no_approval_up_to: Dollars = Field(default=ZERO, description="Plans with no more at risk need no approval.")
    max_usd: Dollars | None = Field(default=None, description="No plan with more at risk may be applied at all.")
    max_usd_by_team: dict[Text, Dollars] = Field(default_factory=dict, description="The same for the orders of a team.")
    two_approvers_above: Dollars | None = Field(default=None, description="Above this, two people must approve.")
    max_age: Duration = Field(default=timedelta(hours=24), description="How long an approval holds.")
    four_eyes: Flag = Field(
        default=True, description="Whether whoever made a plan, or applies it, must be none of its approvers."
    )
    maker_may_apply: Flag = Field(default=True, description="Whether whoever made a plan may apply it.")

    @model_validator(mode="after")
    def _check_names(self) -> ApprovalRules:
        names = [approver.name for approver in self.approvers]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise RefusedError(f"{name!r} is there twice", "keep one of the two", at=("approvers", index))
        if self.max_age <= timedelta(0):
            raise RefusedError("no approval would ever hold", "write a duration such as 24h", at=("max_age",))
        if self.two_approvers_above is not None and len(names) == 1:
            raise RefusedError("there is only one approver", "add another one", at=("two_approvers_above",))
        return self

    @property
    def digest(self) -> str:
        """Return SHA-256 (hex) of the rules as canonical JSON."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def approver(self, name: str) -> Approver | None:
        return next((approver for approver in self.approvers if approver.name == name), None)


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval in the audit log. ``login`` is the user and machine that gave it, ``usd`` what was at risk.

    ``database_user`` is the role of PostgreSQL that wrote it, "" in a file; ``environments`` the hash of the values of
    environments that were approved.
    """

    seq: int
    at: datetime
    name: str
    login: str
    digest: str
    usd: Usd
    rules: str
    note: str
    database_user: str = ""
    environments: str = ""
    revoked_at: datetime | None = None


def approvals_of(entries: Iterable[AuditEntry]) -> tuple[Approval, ...]:
    """Return all approvals in order; a revocation ends all earlier ones of the same plan and name."""
    found: list[Approval] = []
    for entry in entries:
        name = str(entry.details.get("by", ""))
        if entry.what == APPROVE:
            keys = ("rules", "note", "database_user", ENVIRONMENTS)
            rules, note, role, environments = (str(entry.details.get(key, "")) for key in keys)
            amount = (entry.digest, entry.usd)
            found.append(Approval(entry.seq, entry.at, name, entry.who, *amount, rules, note, role, environments))
        elif entry.what == REVOKE:
            found = [
                replace(a, revoked_at=entry.at) if (a.digest, a.name, a.revoked_at) == (entry.digest, name, None) else a
                for a in found
            ]
    return tuple(found)


def at_risk_by_team(plan: Plan, jobs: Mapping[str, Job]) -> dict[str, Usd]:
    """Return the most that the plan's orders may cost by team, in whichever of its places they are tried.

    ``jobs`` are by name. The places of a job that is missing there all count.
    """
    summaries = {job.job: job for job in plan.jobs}
    usd_by_team: dict[str, Usd] = {}
    for order in orders_of(plan):
        summary = summaries[order.job]
        usd = order_at_risk(order, plan, summary, jobs.get(order.job))
        usd_by_team[summary.team] = usd_by_team.get(summary.team, ZERO) + usd
    return usd_by_team


@dataclass(frozen=True, slots=True)
class Exposure:
    """Money at risk by team: that of a plan, and that of what the same teams had applied within a day before.

    Rules judge the sum of both: a plan that is cut in two is judged as one.
    """

    plan: Mapping[str, Usd]
    applied: Mapping[str, Usd]

    @property
    def plan_usd(self) -> Usd:
        """Return what the plan alone puts at risk."""
        return Usd.total(self.plan.values())

    @property
    def usd(self) -> Usd:
        """Return the amount that rules judge."""
        return Usd.total(map(self.team_usd, self.plan))

    @property
    def text(self) -> str:
        """Return the amount in words."""
        return self._told(self.plan_usd, self.usd)

    def team_usd(self, team: str) -> Usd:
        """Return the amount of one team that rules judge."""
        return self.plan[team] + self.applied.get(team, ZERO)

    def team_text(self, team: str) -> str:
        return self._told(self.plan[team], self.team_usd(team))

    @staticmethod
    def _told(plan: Usd, total: Usd) -> str:
        more = f" ({cents_text(total)} with what was applied within a day)" if total != plan else ""
        return f"{cents_text(plan)}{more}"


def exposure_of(by_team: Mapping[str, Usd], digest: str, entries: Iterable[AuditEntry], now: datetime) -> Exposure:
    """Return the exposure of a plan at the moment when it is applied, or was applied for the first time.

    Entries of the audit log say what was applied; each plan counts once, with its last amounts.
    """
    applied: dict[str, Mapping[str, object]] = {}
    moments: dict[str, datetime] = {}
    for entry in entries:
        if entry.what != APPLY:
            continue
        if entry.digest == digest:
            now = entry.at
            break
        found = entry.details.get("at_risk_by_team")
        if isinstance(found, dict):
            applied[entry.digest], moments[entry.digest] = found, entry.at
    recent = [amounts for other, amounts in applied.items() if moments[other] > now - EXPOSURE_TIME]
    return Exposure(
        by_team, {team: Usd.total(Usd.parse(str(amounts.get(team, 0))) for amounts in recent) for team in by_team}
    )


def ceiling_refusals(rules: ApprovalRules, exposure: Exposure) -> tuple[Refusal, ...]:
    """Return the amounts above which nobody may approve."""
    refusals = []
    if rules.max_usd is not None and exposure.usd > rules.max_usd:
        refusals.append(_over("the plan", exposure.text, rules.max_usd))
    for team in sorted(exposure.plan):
        most = rules.max_usd_by_team.get(team)
        if most is not None and exposure.team_usd(team) > most:
            refusals.append(_over(f"team {team}", exposure.team_text(team), most))
    return tuple(refusals)


def approver_refusal(rules: ApprovalRules, name: str, login: str, database_user: str, usd: Usd) -> str:
    """Return why this person may not approve that amount; "" where they may."""
    approver = rules.approver(name)
    if approver is None:
        return f"{name} is not among the approvers ({', '.join(a.name for a in rules.approvers)})"
    account = approver.login or name
    if account not in (login, user_of(login)):
        return f"{name} approves as {account}, not as {user_of(login)}"
    if approver.database_user not in (None, database_user):
        return f"{name} approves as database user {approver.database_user}, not as {database_user or 'none'}"
    if approver.up_to is not None and usd > approver.up_to:
        return f"{name} may approve up to {cents_text(approver.up_to)}, and {cents_text(usd)} is at risk"
    return ""


def needed_approvers(rules: ApprovalRules, usd: Usd) -> int:
    """Return how many people must approve a plan that puts that amount at risk."""
    if usd <= rules.no_approval_up_to:
        return 0
    return 2 if rules.two_approvers_above is not None and usd > rules.two_approvers_above else 1


@dataclass(frozen=True, slots=True)
class PlanPeople:
    """Maker and applier of a plan, each as user and machine or as an identity; "" where nobody is known.

    ``database_user`` is the role of PostgreSQL that applies.
    """

    maker: str = ""
    applier: str = ""
    database_user: str = ""

    def deed_of(self, approval: Approval, role: str | None) -> str:
        """Return what the approver, whose own ``role`` of PostgreSQL may be known, did with the plan beside; or ""."""
        own = {user_of(approval.login), approval.name}
        if user_of(self.applier) in own or (role is not None and role == self.database_user):
            return "applies"
        return "made" if user_of(self.maker) in own else ""


@dataclass(frozen=True, slots=True)
class ApprovalJudgement:
    """The names whose approvals count, and every reason against applying the plan."""

    approvers: tuple[str, ...]
    refusals: tuple[Refusal, ...]


def judge_approvals(
    rules: ApprovalRules,
    exposure: Exposure,
    digest: str,
    approvals: Sequence[Approval],
    people: PlanPeople,
    now: datetime,
    *,
    environments: str = "",
    accepted_before: bool = False,
) -> ApprovalJudgement:
    """Return which approvals of the plan count now, by the rules as they are now, and what is missing.

    ``environments`` is the hash of the values of environments that its jobs would get now.

    The age of approvals does not matter for a plan that was ``accepted_before``: its later gangs are provisioned by
    later commands.
    """
    refusals = ceiling_refusals(rules, exposure)
    if not rules.maker_may_apply and people.maker and user_of(people.maker) == user_of(people.applier):
        what = f"{user_of(people.maker)} made the plan: the rules ask that somebody else applies it"
        refusals += (Refusal(RefusalReason.APPROVAL, "", what, "let somebody else apply it"),)
    usd = exposure.usd
    needed = needed_approvers(rules, usd)
    own = [approval for approval in approvals if approval.digest == digest]
    counted: dict[str, Approval] = {}
    reasons: dict[str, str] = {}
    for approval in own:
        reason = _reason_against(rules, approval, usd, people, now, accepted_before=accepted_before)
        if not reason and approval.environments != environments:
            reason = f"{approval.name} approved other values of variables in `env`"
        if reason:
            reasons[approval.name] = reason
            continue
        same = [name for name, a in counted.items() if user_of(a.login) == user_of(approval.login)]
        if rules.four_eyes and same and same != [approval.name]:
            reasons[approval.name] = (
                f"{approval.name} and {same[0]} approved under one login, {user_of(approval.login)}"
            )
            continue
        counted[approval.name] = approval
    if len(counted) < needed:
        why = [reason for name, reason in reasons.items() if name not in counted]
        refusals += (_missing(needed, counted, exposure.text, [*why, *_other_plan(own, approvals, now, rules)]),)
    return ApprovalJudgement(tuple(sorted(counted)), refusals)


def environment_refusals(entries: Iterable[AuditEntry], digest: str, environments: str) -> tuple[Refusal, ...]:
    """Return why jobs may not start with those values of variables, where the plan was applied with others before."""
    applied = [entry for entry in entries if (entry.what, entry.digest) == (APPLY, digest)]
    if not applied or applied[0].details.get(ENVIRONMENTS, "") == environments:
        return ()
    what = f"{applied[0].who} applied it with other values of variables in `env`"
    return (Refusal(RefusalReason.APPROVAL, "", what, "apply it with those, or plan again"),)


def _reason_against(
    rules: ApprovalRules, approval: Approval, usd: Usd, people: PlanPeople, now: datetime, *, accepted_before: bool
) -> str:
    """Return why an approval of this plan does not count; "" where it does."""
    if approval.revoked_at is not None:
        return f"{approval.name} revoked it at {approval.revoked_at:%Y-%m-%d %H:%MZ}"
    expired = approval.at + rules.max_age
    if now >= expired and not accepted_before:
        return f"{approval.name}'s approval expired at {expired:%Y-%m-%d %H:%MZ}"
    approver = rules.approver(approval.name)
    if rules.four_eyes and (deed := people.deed_of(approval, None if approver is None else approver.database_user)):
        return f"{approval.name} approved as {user_of(approval.login)}, who {deed} it: four_eyes asks for somebody else"
    return approver_refusal(rules, approval.name, approval.login, approval.database_user, usd)


def _missing(needed: int, counted: Mapping[str, Approval], amount: str, why: Sequence[str]) -> Refusal:
    people = "two people" if needed > 1 else "somebody"
    given = f"only {', '.join(counted)} did" if counted else "nobody did"
    what = f"{amount} is at risk, which {people} must approve, and {given}"
    return Refusal(
        RefusalReason.APPROVAL,
        "",
        "; ".join([what, *why]),
        "record it with `stepfare plan approve PLAN`",
    )


def _other_plan(
    plan_approvals: Sequence[Approval], approvals: Sequence[Approval], now: datetime, rules: ApprovalRules
) -> Iterator[str]:
    """Yield a hint that the last approval is of another plan, where this one has none."""
    others = [a for a in approvals if a.revoked_at is None and now < a.at + rules.max_age]
    if not plan_approvals and others:
        last = others[-1]
        yield f"the last approval, by {last.name}, is of plan-{last.digest[:12]}: a plan that changed needs its own"


def user_of(login: str) -> str:
    return login.rpartition("@")[0] or login


def _over(whose: str, amount: str, allowed_usd: Usd) -> Refusal:
    what = f"{whose} puts {amount} at risk, and the rules allow {cents_text(allowed_usd)}"
    return Refusal(RefusalReason.COST, "", what, "plan with less, or have the rules changed")
