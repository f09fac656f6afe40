"""Command ``stepfare ledger archive``: move entries of closed months to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import parse_month
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store


def archive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file to write, compressed.")],
    before: Annotated[str, typer.Option(metavar="MONTH", help="Archive months before this one; all must be closed.")],
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Move the entries of closed months into a file, after it was written to disk and verified.

    Numbers, keys, hashes and the sums of each month stay in the ledger, so that the hash chain can be checked and no
    entry can be added twice.

    \b
    stepfare ledger archive books-2024.gz --before 2025-01
    stepfare ledger verify --archive books-2024.gz
    """
    from pricing.money import Usd
    from router.cli.clock import chosen_clock

    month, now = parse_month("--before", before), chosen_clock()()
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        archived = store.archives.archive(month, file, who=acting_user(), at=now)
        store.audit.add(
            archived.who, "ledger archive", archived.sha256, Usd(0), now, file=archived.file, entries=archived.entries
        )
    console.note(f"{file}: {archived.entries} entries of months before {month}; keep it, with its sum:")
    console.out(archived.sha256)
    return ExitCode.OK
