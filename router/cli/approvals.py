"""Commands ``stepfare approvals set``, ``show`` and ``plan approve``: the rules of approvals, and approving by them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import VARIABLE, TableFormat, TableOutput, TextOutput, chosen_clock, option_error, wall_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context
from router.render.record_table import RecordTable, TableColumn, field_columns, json_document
from router.render.tables import format_timestamp, format_usd

if TYPE_CHECKING:
    from router.app.queries.approvals import ListedApproval
    from router.app.queries.context import QueryContext
    from router.app.settings import AppSettings
    from router.controller.accept.approval import ApprovalRules
    from router.planning.document.plan import Plan
    from router.state.store import StateStore


def set_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rules (YAML).")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> None:
    """Set the rules of approvals of the state, in place of those that were set before.

    From then on they hold for whoever applies, whatever a deploy file says. The audit log keeps them, with who set them
    and when. Only an administrator sets them: root or the owner of the state's folder; on PostgreSQL a role that owns
    the tables.

    \b
    stepfare approvals set approval.yaml

    Exit codes: 2 the rules are wrong; 7 you are no administrator of the state.
    """
    from router.app.queries.approvals import ApprovalRefusedError, set_approval_rules
    from router.config.approval_file import load_approval_rules

    rules = load_approval_rules(file)
    with open_state_store(settings_files) as (opened, store):
        try:
            entry = set_approval_rules(own_context(opened, store, wall_clock), rules)
        except ApprovalRefusedError as error:
            raise CommandError(str(error), ExitCode.CREDENTIALS, error.remedy) from None
    console.out(f"rules {rules.digest[:12]} hold since {format_timestamp(entry.at)}, set by {entry.who}")


def show(
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> None:
    """Show the rules of approvals that hold, with who set them and when.

    \b
    stepfare approvals show
    stepfare approvals show -o json
    """
    from router.app.queries.approvals import approval_rules, state_rules

    with open_state_store(settings_files, makes=False) as (opened, store):
        held, rules = state_rules(store), approval_rules(opened, store)
    fields = None if rules is None else rules.model_dump(mode="json", exclude_defaults=True)
    if output == "json":
        who, at = (None, None) if held is None else (held.who, held.at.isoformat())
        content = {"rules": fields, "set_by": who, "set_at": at}
        console.out(json_document(content))
        return
    if fields is None:
        console.out("no rules are set: plans are applied without approvals")
        return
    import yaml

    if held is None:
        console.note(f"no rules are set for the state; {opened.deploy.approval_rules} holds")
    else:
        console.note(f"set by {held.who} at {format_timestamp(held.at)}")
    console.out(yaml.safe_dump(fields, sort_keys=False))


_ASK_ADMINISTRATOR = "ask an administrator of the state (docs/guides/platform-team.md)"


def load_binding_rules(opened: AppSettings, store: StateStore) -> ApprovalRules | None:
    """Return the rules in force for a command that approves or applies, None without any.

    CommandError with exit code 4 where the user of this process can change them, since they would bind nobody, or
    where the clock of the command is not the real one.
    """
    from router.app.queries.approvals import approval_rules, state_rules

    held = state_rules(store)
    named = opened.deploy.approval_rules
    if held is None:
        if named is not None:
            _check_binding(Path(named))
        return approval_rules(opened, store)
    if named is not None:
        console.note(
            f"{named} is not read: the rules that {held.who} set for the state at {held.at:%Y-%m-%d %H:%MZ} hold"
        )
    if not store.administration.problem():
        console.note("you can change the rules of approvals: they bind only who applies as another user", "warning")
    elif os.environ.get(VARIABLE):  # noqa: TID251
        raise CommandError(
            f"{VARIABLE} is set, and rules of approvals hold by the real time",
            ExitCode.OVER_BUDGET,
            f"unset {VARIABLE}",
        )
    return held.rules


def require_administrator(store: StateStore, what: str) -> None:
    """Raise CommandError with exit code 7 where the state has rules that somebody else administers."""
    from router.app.queries.approvals import state_rules

    if state_rules(store) is not None and (problem := store.administration.problem()):
        raise CommandError(
            f"only an administrator of a state with rules of approvals {what}: {problem}",
            ExitCode.CREDENTIALS,
            _ASK_ADMINISTRATOR,
        )


def find_known_plan(store: StateStore, digest: str) -> Plan:
    """Return the plan of that digest as the state has it. CommandError with exit code 4 where it has none."""
    from router.app.queries.plans import whole_plan

    plan = whole_plan(store, digest)
    if plan is None:
        raise CommandError(
            f"plan-{digest[:12]} was not made with this state, as rules of approvals require",
            ExitCode.OVER_BUDGET,
            "make it anew with this state: `stepfare plan ... --out FILE`",
        )
    return plan


def _check_binding(path: Path) -> None:
    from router.config.approval_file import ProcessIdentity, change_problem

    identity = ProcessIdentity.of_process()
    if identity is None:
        console.note(f"{path}: whether you could change these rules cannot be told on this system", "warning")
    elif identity.uid == 0:
        console.note(f"{path}: root can change these rules: they bind only who applies as another user", "warning")
    elif problem := change_problem(path, identity):
        raise CommandError(
            f"{path}: these rules bind nobody: {problem}",
            ExitCode.OVER_BUDGET,
            "have an administrator set them for the state (`stepfare approvals set`), or give the file to another user",
        )


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
) -> None:
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


def _check_words(file: Path | None, by: str, note: str, *, revoke: bool, list_all: bool) -> None:
    if list_all and (revoke or by or note):
        raise option_error("--list", "lists and changes nothing", "leave the others out")
    if list_all:
        return
    if file is None:
        raise option_error("FILE", "which plan?", "name the plan's file, or --list")


def _approve(rules: ApprovalRules, context: QueryContext, plan: Plan, digest: str, name: str, note: str) -> None:
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
