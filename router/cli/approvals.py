"""Commands ``stepfare approvals set`` and ``show``: the rules of approvals that hold for a state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.output_options import TextOutput
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context
from router.render.tables import format_timestamp


def set_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rules (YAML).")],
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Set the rules of approvals of the state, in place of those that were set before.

    From then on they hold for whoever applies, whatever a deploy file says. The audit log keeps them, with who set them
    and when. Only an administrator sets them: root or the owner of the state's folder; on PostgreSQL a role that owns
    the tables.

    \b
    stepfare approvals set approval.yaml

    Exit codes: 2 the rules are wrong; 7 you are no administrator of the state.
    """
    from router.app.queries.approvals import ApprovalRefusedError, set_approval_rules
    from router.cli.options import wall_clock
    from router.config.approval_file import load_approval_rules

    rules = load_approval_rules(file)
    with open_state_store(settings_files) as (opened, store):
        try:
            entry = set_approval_rules(own_context(opened, store, wall_clock), rules)
        except ApprovalRefusedError as error:
            raise CommandError(str(error), ExitCode.CREDENTIALS, error.remedy) from None
    console.out(f"rules {rules.digest[:12]} hold since {format_timestamp(entry.at)}, set by {entry.who}")
    return ExitCode.OK


def show(
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> ExitCode:
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
        console.out(console.as_document(content))
        return ExitCode.OK
    if fields is None:
        console.out("no rules are set: plans are applied without approvals")
        return ExitCode.OK
    import yaml

    if held is None:
        console.note(f"no rules are set for the state; {opened.deploy.approval_rules} holds")
    else:
        console.note(f"set by {held.who} at {format_timestamp(held.at)}")
    console.out(yaml.safe_dump(fields, sort_keys=False))
    return ExitCode.OK
