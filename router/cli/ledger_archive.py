"""``stepfare ledger archive``: entries of closed months are moved to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import month_of
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store, who


def archive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, compressed.")],
    before: Annotated[str, typer.Option(metavar="MONTH", help="Months before this one; all have to be closed.")],
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Move the entries of closed months into a file, once that is on the disk and was read again.

    Numbers, keys, hashes and the sums of each month stay, so that the chain can be checked and nothing comes twice.

    \b
    stepfare ledger archive books-2024.gz --before 2025-01
    stepfare ledger verify --archive books-2024.gz
    """
    from pricing.money import Usd
    from router.cli.clock import chosen_clock

    month, now = month_of("--before", before), chosen_clock()()
    with opened_store(deploy, clouds, makes=False) as (_, store):
        done = store.archives.archive(month, file, who=who(), at=now)
        store.audit(done.who, "ledger archive", done.sha256, Usd(0), now, file=done.file, entries=done.entries)
    console.note(f"{file}: {done.entries} entries of months before {month}; keep it, with its sum:")
    console.out(done.sha256)
    return ExitCode.OK
