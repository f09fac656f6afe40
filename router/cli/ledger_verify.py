"""``stepfare ledger verify``: whether the ledger is what was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import counted
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store

if TYPE_CHECKING:
    from router.app.close_month import SealCheck
    from router.state.store import Store


def verify(
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Whether this is an archive of this ledger, entry for entry.")
    ] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Whether every entry is as it was written and follows the one before, and whether the bills, budgets and report of
    each closed month are those that it was closed with: exit code 1 when one is not.

    Entries missing at the end show by the hash alone: compare it with one that was noted elsewhere. The second hash is
    that of the last seal.

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
        seals = _seals(store)
    archived = f", {checked.archived} of them archived" if checked.archived else ""
    console.note(
        f"{checked.entries + checked.archived} entries{archived}, each as it was written; the last one's hash:"
    )
    for each in seals:
        for note in each.notes:
            console.note(note, "warning")
        said = each.closing.sealed
        if not each.notes:
            bills = f"{counted(len(said['bills']), 'bill')}, {counted(len(said['spent']), 'budget')} and the report"
            console.note(f"{each.closing.period}: {bills} are those that it was closed with")
    console.out(checked.hash)
    if seals:
        console.out(seals[-1].closing.seal_hash)
    return ExitCode.OK


def _seals(store: Store) -> tuple[SealCheck, ...]:
    from router.app.close_month import check_seals
    from router.prices.home import bills_folder, extract_folder

    if not any(closing.seal for closing in store.periods.closings()):
        return ()
    with console.progress("looking at seals"):
        found = check_seals(store, extract_folder(), bills_folder())
    problems = [problem for each in found for problem in each.problems]
    if problems:
        remedy = "bring the folders of the bills and the state back from a backup"
        raise CommandError("\n".join(problems), remedy=remedy)
    return found
