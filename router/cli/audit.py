"""Command ``stepfare audit``: print the audit log and verify its hash chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store
from router.render.tables import format_table, format_timestamp, format_usd

SCHEMA_VERSION = 1


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

    Each entry carries the hash of the one before. The exit code is 1 if an entry was changed or removed.

    \b
    stepfare audit
    stepfare audit -o json
    """
    from dataclasses import asdict

    from router.state.audit import verify_chain

    with open_state_store(deploy, clouds, makes=False) as (_, store):
        entries = store.audit.entries()
        if output is AuditFormat.JSON:
            rows = [{**asdict(e), "at": e.at.isoformat(), "usd": str(e.usd)} for e in entries]
            console.out(json.dumps({"schema_version": SCHEMA_VERSION, "entries": rows}, indent=2))
        elif entries:
            table = [
                (
                    str(e.seq),
                    format_timestamp(e.at),
                    e.who,
                    e.what,
                    format_usd(e.usd),
                    e.digest[:12],
                    e.hash[:12],
                    _policies(e.details),
                )
                for e in entries
            ]
            console.out(
                format_table(
                    ("SEQ", "AT", "WHO", "WHAT", "AT RISK", "PLAN", "HASH", "POLICY"),
                    table,
                    frozenset({"SEQ", "AT RISK"}),
                    {},
                    console.screen(),
                )
            )
        else:
            console.out("nothing was done yet")
        broken = verify_chain(entries)
        if broken is not None:
            raise CommandError(f"entry {broken} is not what was written: somebody changed or removed one")
    return ExitCode.OK


def _policies(details: Mapping[str, object]) -> str:
    """Return the names of the accepted policies, followed in brackets by the quoted policies they replaced."""

    def names(key: str) -> list[str]:
        policies = details.get(key)
        return sorted({str(policy["name"]) for policy in policies.values()}) if isinstance(policies, dict) else []

    overridden = names("overridden_policies")
    return ", ".join(names("policies")) + (f" (quoted: {', '.join(overridden)})" if overridden else "")
