"""Command ``stepfare plan approve``: record in the audit log who approves a plan, by the rules of approvals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.approval_rules import find_known_plan, load_binding_rules
from router.cli.console import CommandError, ExitCode
from router.cli.output_options import TableFormat, TableOutput
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context
from router.render.record_table import RecordTable, TableColumn, field_columns
from router.render.tables import format_timestamp, format_usd

if TYPE_CHECKING:
    from router.app.queries.approvals import ListedApproval
    from router.app.queries.context import QueryContext
    from router.controller.accept.approval import ApprovalRules
    from router.planning.document.plan import Plan


def approve(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A plan (JSON).")] = None,
    by: Annotated[
        str, typer.Option("--approved-by", "--by", metavar="WHO", help="Your name in the rules, where it is no login.")
    ] = "",
    note: Annotated[str, typer.Option(metavar="TEXT", help="Remark for the audit log.")] = "",
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the approvals of WHO for this plan.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List approvals, of this plan or of all.")] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TableOutput = "table",
) -> ExitCode:
    """Record who approves a plan, with the money at risk, in the audit log.

    Rules (`approvals set`) say who may approve how much, whether two people must, and how long an approval holds.
    `apply` refuses a plan that lacks an approval. You approve as the account that runs the command. An approval is of
    one plan: after a change it is needed anew.

    \b
    stepfare plan approve plan.json --note "as discussed"
    stepfare plan approve plan.json --revoke
    stepfare plan approve --list

    Exit codes: 4 the rules do not let WHO approve this plan; 6 the plan is too old.
    """
    from router.app.queries.approvals import NO_RULES, NO_RULES_REMEDY, approval_rules, approver_name
    from router.cli.options import chosen_clock
    from router.config.plan_files import read_plan
    from router.planning.document.plan_json import plan_content

    _check_words(file, by, note, revoke=revoke, list_all=list_all)
    plan = None if file is None else read_plan(file)
    digest: str = "" if plan is None else plan_content(plan)["digest"]
    with open_state_store(settings_files, makes=not list_all) as (opened, store):
        context = own_context(opened, store, chosen_clock())
        if list_all:
            _list(context, approval_rules(opened, store), digest, output)
        else:
            in_force = load_binding_rules(opened, store)
            if in_force is None:
                raise InvalidInputError.single(NO_RULES, remedy=NO_RULES_REMEDY)
            name = by.strip() or approver_name(in_force, context.identity.name, is_account=True)
            known = find_known_plan(store, digest)
            (_revoke if revoke else partial(_approve, in_force))(context, known, digest, name, note)
    return ExitCode.OK


def _check_words(file: Path | None, by: str, note: str, *, revoke: bool, list_all: bool) -> None:
    """Raise InvalidInputError for options that do not go together."""
    if list_all and (revoke or by or note):
        raise InvalidInputError.single("lists and changes nothing", field="--list", remedy="leave the others out")
    if list_all:
        return
    if file is None:
        raise InvalidInputError.single("which plan?", field="FILE", remedy="name the plan's file, or --list")


def _approve(rules: ApprovalRules, context: QueryContext, plan: Plan, digest: str, name: str, note: str) -> None:
    """Record the approval. CommandError where the rules or the plan's age are against it."""
    from router.app.queries.approvals import ApprovalRefusedError, approve_plan

    try:
        given = approve_plan(context, rules, plan, digest, name=name, login=context.identity.name, note=note)
    except ApprovalRefusedError as error:
        code = ExitCode.STALE if error.is_stale else ExitCode.OVER_BUDGET
        raise CommandError(str(error), code, error.remedy) from None
    until = format_timestamp(given.until)
    console.out(f"plan-{digest[:12]}: {format_usd(given.usd)} at risk approved by {name} until {until}")
    if given.missing > 0:
        console.note("one more approver is needed")


def _revoke(context: QueryContext, plan: Plan, digest: str, name: str, note: str) -> None:
    """Record that the approvals of that name for that plan are revoked. CommandError where there is none."""
    from router.app.queries.approvals import ApprovalRefusedError, revoke_approval

    try:
        revoke_approval(context, plan, digest, name=name, login=context.identity.name, note=note)
    except ApprovalRefusedError as error:
        raise CommandError(str(error), remedy=error.remedy) from None
    console.out(f"plan-{digest[:12]}: the approval by {name} is revoked")


def _list(context: QueryContext, rules: ApprovalRules | None, digest: str, output: TableFormat) -> None:
    """Print approvals with their state, of one plan or of all."""
    from router.app.queries.approvals import list_approvals

    found = list_approvals(context, rules, digest)
    console.print_table(output, "approvals", _approval_table(), found, "nothing was approved yet")


def _approval_table() -> RecordTable[ListedApproval]:
    from router.controller.accept.approval import Approval

    return RecordTable(
        (
            TableColumn("", lambda listed: listed.approval.seq, "SEQ", right=True),
            TableColumn("", lambda listed: listed.approval.at, "AT", format_timestamp),
            TableColumn("", lambda listed: listed.approval.digest[:12], "PLAN"),
            TableColumn("", lambda listed: listed.approval.name, "BY"),
            TableColumn("", lambda listed: listed.approval.login, "LOGIN"),
            TableColumn("", lambda listed: listed.approval.usd, "AT RISK", format_usd, right=True),
            *field_columns(Approval, lambda listed: listed.approval),
            TableColumn("state", lambda listed: listed.state, "STATE"),
            TableColumn("", lambda listed: listed.approval.note, "NOTE"),
        )
    )
