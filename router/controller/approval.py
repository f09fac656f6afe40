"""Judge approvals of a plan by the rules of a file: who may approve how much, how many must, and for how long. Pure.

Approvals and revocations are entries of the audit log, so that they are in its hash chain. An approval is of one
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
from router.controller.guardrails import Refusal, RefusalReason
from router.controller.orders import orders_of
from router.jobs.fields import Flag, RefusedError, Spec, Text
from router.jobs.quantities import Dollars, Duration
from router.planning.plan import Plan
from router.state.records import AuditEntry

# Names of the actions in the audit log.
APPROVE, REVOKE = "approve", "revoke approval"


class Approver(Spec):
    """Somebody who may approve plans."""

    name: Text = Field(description="As in --approved-by.")
    login: Text | None = Field(
        default=None, description="Login under which the approval must be given; left out: any, so the name is trusted."
    )
    up_to: Dollars | None = Field(default=None, description="The most that this person approves; left out: any amount.")


class ApprovalRules(Spec):
    """The rules file of approvals. Amounts are what a plan's orders put at risk: their ceilings for all their time."""

    approvers: tuple[Approver, ...] = Field(min_length=1, description="Who may approve.")
    no_approval_up_to: Dollars = Field(default=ZERO, description="Plans with no more at risk need no approval.")
    max_usd: Dollars | None = Field(default=None, description="No plan with more at risk may be applied at all.")
    max_usd_by_team: dict[Text, Dollars] = Field(default_factory=dict, description="The same for the orders of a team.")
    two_approvers_above: Dollars | None = Field(default=None, description="Above this, two people must approve.")
    max_age: Duration = Field(default=timedelta(hours=24), description="How long an approval holds.")
    four_eyes: Flag = Field(default=True, description="Whether whoever applies a plan must be none of its approvers.")

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
        """Return the approver of that name."""
        return next((approver for approver in self.approvers if approver.name == name), None)


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval in the audit log. ``login`` is the user and machine that gave it, ``usd`` what was at risk."""

    seq: int
    at: datetime
    name: str
    login: str
    digest: str
    usd: Usd
    rules: str
    note: str
    revoked_at: datetime | None = None


def approvals_of(entries: Iterable[AuditEntry]) -> tuple[Approval, ...]:
    """Return all approvals in order; a revocation ends all earlier ones of the same plan and name."""
    found: list[Approval] = []
    for entry in entries:
        name = str(entry.details.get("by", ""))
        if entry.what == APPROVE:
            rules, note = (str(entry.details.get(key, "")) for key in ("rules", "note"))
            found.append(Approval(entry.seq, entry.at, name, entry.who, entry.digest, entry.usd, rules, note))
        elif entry.what == REVOKE:
            found = [
                replace(a, revoked_at=entry.at) if (a.digest, a.name, a.revoked_at) == (entry.digest, name, None) else a
                for a in found
            ]
    return tuple(found)


def at_risk(plan: Plan) -> tuple[Usd, Mapping[str, Usd]]:
    """Return what the plan's orders put at risk, in all and by team; places for a second try may cost other amounts."""
    team = {job.job: job.team for job in plan.jobs}
    by_team: dict[str, Usd] = {}
    for order in orders_of(plan):
        name = team[order.job]
        by_team[name] = by_team.get(name, ZERO) + order.at_risk_usd
    return Usd.total(by_team.values()), by_team


def ceiling_refusals(rules: ApprovalRules, plan: Plan) -> tuple[Refusal, ...]:
    """Return the amounts above which nobody may approve."""
    total, by_team = at_risk(plan)
    refusals = []
    if rules.max_usd is not None and total > rules.max_usd:
        refusals.append(_over("the plan", total, rules.max_usd))
    for team, usd in sorted(by_team.items()):
        most = rules.max_usd_by_team.get(team)
        if most is not None and usd > most:
            refusals.append(_over(f"team {team}", usd, most))
    return tuple(refusals)


def approver_refusal(rules: ApprovalRules, name: str, login: str, usd: Usd) -> str:
    """Return why this person may not approve that amount; "" where they may."""
    approver = rules.approver(name)
    if approver is None:
        return f"{name} is not among the approvers ({', '.join(a.name for a in rules.approvers)})"
    if approver.login is not None and approver.login not in (login, user_of(login)):
        return f"{name} approves as {approver.login}, not as {user_of(login)}"
    if approver.up_to is not None and usd > approver.up_to:
        return f"{name} may approve up to {_cents(approver.up_to)}, and {_cents(usd)} is at risk"
    return ""


def needed_approvers(rules: ApprovalRules, usd: Usd) -> int:
    """Return how many people must approve a plan that puts that amount at risk."""
    if usd <= rules.no_approval_up_to:
        return 0
    return 2 if rules.two_approvers_above is not None and usd > rules.two_approvers_above else 1


@dataclass(frozen=True, slots=True)
class ApprovalJudgement:
    """The names whose approvals count, and every reason against applying the plan."""

    approvers: tuple[str, ...]
    refusals: tuple[Refusal, ...]


def judge_approvals(
    rules: ApprovalRules,
    plan: Plan,
    digest: str,
    approvals: Sequence[Approval],
    applier: str,
    now: datetime,
    *,
    accepted_before: bool = False,
) -> ApprovalJudgement:
    """Return which approvals of the plan count now, by the rules as they are now, and what is missing.

    ``applier`` is the user and machine that applies. The age of approvals does not matter for a plan that was
    ``accepted_before``: its later gangs are provisioned by later commands.
    """
    refusals = ceiling_refusals(rules, plan)
    usd = at_risk(plan)[0]
    needed = needed_approvers(rules, usd)
    own = [approval for approval in approvals if approval.digest == digest]
    counted: dict[str, Approval] = {}
    reasons: dict[str, str] = {}
    for approval in own:
        reason = _reason_against(rules, approval, usd, applier, now, accepted_before=accepted_before)
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
        refusals += (_missing(needed, counted, usd, [*why, *_other_plan(own, approvals, now, rules)]),)
    return ApprovalJudgement(tuple(sorted(counted)), refusals)


def _reason_against(
    rules: ApprovalRules, approval: Approval, usd: Usd, applier: str, now: datetime, *, accepted_before: bool
) -> str:
    """Return why an approval of this plan does not count; "" where it does."""
    if approval.revoked_at is not None:
        return f"{approval.name} revoked it at {approval.revoked_at:%Y-%m-%d %H:%MZ}"
    expired = approval.at + rules.max_age
    if now >= expired and not accepted_before:
        return f"{approval.name}'s approval expired at {expired:%Y-%m-%d %H:%MZ}"
    if rules.four_eyes and user_of(applier) in (user_of(approval.login), approval.name):
        return (
            f"{approval.name} approved as {user_of(approval.login)}, who applies it: four_eyes asks for somebody else"
        )
    return approver_refusal(rules, approval.name, approval.login, usd)


def _missing(needed: int, counted: Mapping[str, Approval], usd: Usd, why: Sequence[str]) -> Refusal:
    people = "two people" if needed > 1 else "somebody"
    given = f"only {', '.join(counted)} did" if counted else "nobody did"
    what = f"{_cents(usd)} is at risk, which {people} must approve, and {given}"
    return Refusal(
        RefusalReason.APPROVAL,
        "",
        "; ".join([what, *why]),
        "record it with `stepfare plan approve PLAN --approved-by WHO`",
    )


def _other_plan(
    own: Sequence[Approval], approvals: Sequence[Approval], now: datetime, rules: ApprovalRules
) -> Iterator[str]:
    """Yield a hint that the last approval is of another plan, where this one has none."""
    others = [a for a in approvals if a.revoked_at is None and now < a.at + rules.max_age]
    if not own and others:
        last = others[-1]
        yield f"the last approval, by {last.name}, is of plan-{last.digest[:12]}: a plan that changed needs its own"


def user_of(login: str) -> str:
    """Return the user of ``user@machine``."""
    return login.rpartition("@")[0] or login


def _over(whose: str, usd: Usd, most: Usd) -> Refusal:
    what = f"{whose} puts {_cents(usd)} at risk, and the rules allow {_cents(most)}"
    return Refusal(RefusalReason.COST, "", what, "plan with less, or have the rules changed")


def _cents(amount: Usd) -> str:
    return f"${amount.dollars():,.2f}"
