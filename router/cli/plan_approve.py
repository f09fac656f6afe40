"""Command ``stepfare plan approve``: record in the audit log who approves a plan, by the rules of a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.approval_rules import RULES_HELP, find_rules
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store
from router.render.tables import format_table, format_timestamp, format_usd

if TYPE_CHECKING:
    from router.controller.approval import Approval, ApprovalRules
    from router.planning.plan import Plan
    from router.state.store import StateStore

SCHEMA_VERSION = 1


class ApprovalFormat(StrEnum):
    """Output format of the approvals."""

    TABLE = "table"
    JSON = "json"


def approve(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A plan (JSON).")] = None,
    by: Annotated[
        str, typer.Option("--approved-by", "--by", metavar="WHO", help="Name of the approver, as in the rules.")
    ] = "",
    note: Annotated[str, typer.Option(metavar="TEXT", help="Remark for the audit log.")] = "",
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the approvals of WHO for this plan.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List approvals, of this plan or of all.")] = False,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help=RULES_HELP)] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[ApprovalFormat, typer.Option("--output", "-o", help="Format.")] = ApprovalFormat.TABLE,
) -> ExitCode:
    """Record who approves a plan, with the money at risk, in the audit log.

    Rules in a file say who may approve how much, whether two people must, and how long an approval holds. `apply`
    refuses a plan that the rules require an approval for. An approval is of one plan: after a change it is needed anew.

    \b
    stepfare plan approve plan.json --approved-by ana --note "as discussed"
    stepfare plan approve plan.json --approved-by ana --revoke
    stepfare plan approve --list

    Exit codes: 4 the rules do not let WHO approve this plan; 6 the plan is too old.
    """
    from router.config.approval_file import load_approval_rules
    from router.config.plan_files import read_plan
    from router.planning.plan_json import plan_content

    _check_words(file, by, note, revoke=revoke, list_all=list_all)
    plan = None if file is None else read_plan(file)
    digest: str = "" if plan is None else plan_content(plan)["digest"]
    with open_state_store(deploy, clouds, makes=not list_all) as (opened, store):
        path = find_rules(opened, rules)
        in_force = None if path is None else load_approval_rules(path)
        if list_all:
            _list(store, in_force, digest, output)
        elif revoke:
            _revoke(store, digest, by.strip(), note)
        elif plan is not None:
            if in_force is None:
                raise InvalidInputError.single(
                    "there are no rules to approve by", field="--rules", remedy="name a file, or see `schema deploy`"
                )
            _approve(store, in_force, plan, digest, by.strip(), note)
    return ExitCode.OK


def _check_words(file: Path | None, by: str, note: str, *, revoke: bool, list_all: bool) -> None:
    """Raise InvalidInputError for options that do not go together."""
    if list_all and (revoke or by or note):
        raise InvalidInputError.single("lists and changes nothing", field="--list", remedy="leave the others out")
    if list_all:
        return
    if file is None:
        raise InvalidInputError.single("which plan?", field="FILE", remedy="name the plan's file, or --list")
    if not by.strip():
        raise InvalidInputError.single("who approves?", field="--approved-by", remedy="write a name of the rules")


def _approve(store: StateStore, rules: ApprovalRules, plan: Plan, digest: str, name: str, note: str) -> None:
    """Record the approval. CommandError where the rules or the plan's age are against it."""
    from router.cli.options import chosen_clock
    from router.controller.approval import (
        APPROVE,
        approvals_of,
        approver_refusal,
        at_risk,
        ceiling_refusals,
        judge_approvals,
        needed_approvers,
    )

    now, login = chosen_clock()(), acting_user()
    usd = at_risk(plan)[0]
    if now > plan.expires_at:
        raise CommandError(
            f"the plan was good until {format_timestamp(plan.expires_at)}", ExitCode.STALE, "plan again, then approve"
        )
    reason = next((refusal.what for refusal in ceiling_refusals(rules, plan)), "")
    reason = reason or approver_refusal(rules, name, login, usd)
    if reason:
        raise CommandError(reason, ExitCode.OVER_BUDGET, "ask somebody whom the rules allow to, or plan with less")
    store.audit.add(login, APPROVE, digest, usd, now, by=name, note=note, rules=rules.digest)
    judged = judge_approvals(rules, plan, digest, approvals_of(store.audit.entries()), "", now)
    until = format_timestamp(now + rules.max_age)
    console.out(f"plan-{digest[:12]}: {format_usd(usd)} at risk approved by {name} until {until}")
    missing = needed_approvers(rules, usd) - len(judged.approvers)
    if missing > 0:
        console.note("one more approver is needed")


def _revoke(store: StateStore, digest: str, name: str, note: str) -> None:
    """Record that the approvals of that name for that plan are revoked. CommandError where there is none."""
    from router.cli.options import chosen_clock
    from router.controller.approval import REVOKE, approvals_of

    own = [
        approval
        for approval in approvals_of(store.audit.entries())
        if (approval.digest, approval.name, approval.revoked_at) == (digest, name, None)
    ]
    if not own:
        raise CommandError(f"plan-{digest[:12]} has no approval by {name}", remedy="see `stepfare plan approve --list`")
    store.audit.add(acting_user(), REVOKE, digest, own[-1].usd, chosen_clock()(), by=name, note=note)
    console.out(f"plan-{digest[:12]}: the approval by {name} is revoked")


def _list(store: StateStore, rules: ApprovalRules | None, digest: str, output: ApprovalFormat) -> None:
    """Print approvals with their state, of one plan or of all."""
    from router.cli.options import chosen_clock
    from router.controller.approval import approvals_of

    now = chosen_clock()()
    found = [a for a in approvals_of(store.audit.entries()) if digest in ("", a.digest)]
    if output is ApprovalFormat.JSON:
        rows = [
            {
                **asdict(a),
                "at": a.at.isoformat(),
                "usd": str(a.usd),
                "revoked_at": a.revoked_at.isoformat() if a.revoked_at else None,
                "state": _state(a, rules, now),
            }
            for a in found
        ]
        console.out(json.dumps({"schema_version": SCHEMA_VERSION, "approvals": rows}, indent=2))
    elif found:
        header = ("SEQ", "AT", "PLAN", "BY", "LOGIN", "AT RISK", "STATE", "NOTE")
        table = [
            (
                str(a.seq),
                format_timestamp(a.at),
                a.digest[:12],
                a.name,
                a.login,
                format_usd(a.usd),
                _state(a, rules, now),
                a.note,
            )
            for a in found
        ]
        console.out(format_table(header, table, frozenset({"SEQ", "AT RISK"}), {}, console.screen()))
    else:
        console.out("nothing was approved yet")


def _state(approval: Approval, rules: ApprovalRules | None, now: datetime) -> str:
    """Return whether an approval counts; whether its plan may be applied depends on who applies too."""
    from router.controller.approval import approver_refusal

    if approval.revoked_at is not None:
        return "revoked"
    if rules is None:
        return "recorded"
    if now >= approval.at + rules.max_age:
        return "expired"
    return "not allowed" if approver_refusal(rules, approval.name, approval.login, approval.usd) else "counts"
