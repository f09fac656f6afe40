"""Command ``stepfare ledger verify``: verify that the ledger is unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store
from router.render.tables import format_count

if TYPE_CHECKING:
    from router.app.close_month import SealCheck
    from router.state.store import StateStore


def verify(
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verify this archive of the ledger, entry by entry.")
    ] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Verify the hash chain of the ledger, and the bills, budgets and report that each closed month was sealed with.

    The exit code is 1 if anything was changed. Entries missing at the end show only in the printed hash: compare it
    with one that was noted elsewhere. The second hash is that of the last seal.

    \b
    stepfare ledger verify
    stepfare ledger verify --archive books-2024.gz
    """
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        if archive is not None:
            copy = store.archives.check(archive)
            entries = format_count(copy.entries, "entry", "entries")
            console.note(f"{archive}: {entries} of months before {copy.before}, as they were archived")
            return ExitCode.OK
        checked = store.ledger.verify()
        if checked.problems:
            raise CommandError("\n".join(checked.problems), remedy="compare with a backup: `stepfare ledger restore`")
        seals = _check_seals(store)
    archived = f", {checked.archived} of them archived" if checked.archived else ""
    entries = format_count(checked.entries + checked.archived, "entry", "entries")
    console.note(f"{entries}{archived}, each as it was written; the last one's hash:")
    for each in seals:
        for note in each.notes:
            console.note(note, "warning")
        contents = each.closing.sealed
        if not each.notes:
            bills, budgets = (
                format_count(len(contents["bills"]), "bill"),
                format_count(len(contents["spent"]), "budget"),
            )
            console.note(f"{each.closing.period}: {bills}, {budgets} and the report are those that it was closed with")
    console.out(checked.hash)
    if seals:
        console.out(seals[-1].closing.seal_hash)
    return ExitCode.OK


def _check_seals(store: StateStore) -> tuple[SealCheck, ...]:
    from router.app.close_month import check_seals
    from router.prices.data_folders import bills_folder, extract_folder

    if not any(closing.seal for closing in store.periods.closings()):
        return ()
    with console.progress("looking at seals"):
        checks = check_seals(store, extract_folder(), bills_folder())
    problems = [problem for each in checks for problem in each.problems]
    if problems:
        remedy = "bring the folders of the bills and the state back from a backup"
        raise CommandError("\n".join(problems), remedy=remedy)
    return checks
