"""Command ``stepfare ledger add``: add fees, credits, taxes and adjustments by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import translate_closed_books
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store
from router.render.tables import format_count, format_usd


def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with `entries`, or CSV; see docs/ledger.md.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file; write nothing.")] = False,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the addition (ISO, with zone).")] = None,
) -> ExitCode:
    """Add entries by hand: support or reservation fees, credits, taxes, adjustments, corrections.

    Adding the same file again adds nothing. Each entry, and the audit log, records who added it and why.

    \b
    stepfare ledger add november.yaml
    stepfare ledger add fees.csv --dry-run
    """
    from pricing.money import Usd
    from router.cli.options import parse_now
    from router.config.added_file import read_added_entries

    moment = parse_now(now)
    entries = read_added_entries(file, acting_user(), moment)
    total = Usd.total(entry.usd for entry in entries)
    if dry_run:
        console.note(
            f"dry run: {format_count(len(entries), 'entry', 'entries')}, {format_usd(total)}; nothing was written"
        )
        return ExitCode.OK
    with open_state_store(deploy, clouds) as (_, store), translate_closed_books():
        before = store.ledger.head()
        head = store.ledger.add(entries)
        new = head - before
        if new:
            store.audit.add(acting_user(), "ledger add", "", total, moment, file=file.name, entries=new, head=head)
    console.note(f"{new} of {len(entries)} entries are new; the ledger has {head}")
    return ExitCode.OK
