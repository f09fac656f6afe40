"""Command ``stepfare audit``: print the audit log and verify its hash chain."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store
from router.render.tables import format_table, format_timestamp, format_usd


class AuditFormat(StrEnum):
    """Output format of the audit log."""

    TABLE = "table"
    JSON = "json"


def audit(
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[AuditFormat, typer.Option("--output", "-o", help="Format.")] = AuditFormat.TABLE,
) -> ExitCode:
    """Print the audit log: who did what, with how much money at risk.

    Each entry carries the hash of the one before. The exit code is 1 if an entry was changed or removed, or if the
    months that it says were closed are not those that are.

    \b
    stepfare audit
    stepfare audit -o json
    """
    from router.access.identity import local_operator
    from router.app.queries.audit import accepted_policies, audit_content, read_audit_log
    from router.app.queries.context import QueryContext
    from router.cli.ledger import check_closings
    from router.cli.options import chosen_clock
    from router.render.audit_page import at_risk, describe_budget

    with open_state_store(deploy, clouds, makes=False) as (opened, store):
        trail = read_audit_log(QueryContext(opened, store, chosen_clock(), local_operator(acting_user())))
        entries = trail.entries
        if output is AuditFormat.JSON:
            console.out(json.dumps(audit_content(trail), indent=2))
        elif entries:
            table = [
                (
                    str(e.seq),
                    format_timestamp(e.at),
                    e.who,
                    e.what,
                    "" if (usd := at_risk(e)) is None else format_usd(usd),
                    e.digest[:12],
                    e.hash[:12],
                    accepted_policies(e.details) or describe_budget(e),
                )
                for e in entries
            ]
            console.out(
                format_table(
                    ("SEQ", "AT", "WHO", "WHAT", "AT RISK", "PLAN", "HASH", "ABOUT"),
                    table,
                    frozenset({"SEQ", "AT RISK"}),
                    {},
                    console.screen(),
                )
            )
        else:
            console.out("nothing was done yet")
        if trail.broken is not None:
            raise CommandError(f"entry {trail.broken} is not what was written: somebody changed or removed one")
        check_closings(store)
    return ExitCode.OK
