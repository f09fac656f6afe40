"""``stepfare ledger verify``: whether the ledger is what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store


def verify(
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Whether this is an archive of this ledger, entry for entry.")
    ] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Whether every entry is as it was written and follows the one before: exit code 1 when one is not.

    Entries missing at the end show by the hash alone: compare it with one that was noted elsewhere.

    \b
    stepfare ledger verify
    stepfare ledger verify --archive books-2024.gz
    """
    with opened_store(deploy, clouds, makes=False) as (_, store):
        if archive is not None:
            found = store.archives.check(archive)
            console.note(f"{archive}: {found.entries} entries of months before {found.before}, as they were archived")
            return ExitCode.OK
        checked = store.ledger.verify()
    if checked.problems:
        raise CommandError("\n".join(checked.problems), remedy="compare with a backup: `stepfare ledger restore`")
    archived = f", {checked.archived} of them archived" if checked.archived else ""
    console.note(
        f"{checked.entries + checked.archived} entries{archived}, each as it was written; the last one's hash:"
    )
    console.out(checked.hash)
    return ExitCode.OK
