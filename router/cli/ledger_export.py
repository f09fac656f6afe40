"""``stepfare ledger export``: the ledger as a FOCUS file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.bills_change import say_corrections
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import month_of
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store

if TYPE_CHECKING:
    from router.config.showback_file import Showback
    from router.showback.focus_from_ledger import Left

_ENDINGS = (".csv", ".parquet")


class FocusVersion(StrEnum):
    """What is written."""

    V1_4 = "1.4"
    V1_2 = "1.2"


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A name that ends in .csv or .parquet.")],
    month: Annotated[
        str | None, typer.Option(metavar="2026-11", help="Only what is in the books of that month.")
    ] = None,
    focus_version: Annotated[FocusVersion, typer.Option(help="Of FOCUS.")] = FocusVersion.V1_4,
    accounts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Whose accounts are billed; see `schema showback`.")
    ] = None,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="As of when (ISO, with zone); later records are left out.")
    ] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> ExitCode:
    """Write what a month came to as a FOCUS file, for the tools of finance: the rows of bills that stand, what was
    metered and is on none, and what people added, as `showback` counts them. x_RecordState says which is which.

    What was planned is no charge. Entries that nobody knows the price of are left out, and said. The file is there
    whole or not at all, takes the place of one of that name, and is the same again for the same books.

    \b
    stepfare ledger export november.parquet --month 2026-11
    stepfare ledger export november.csv --accounts showback.yaml
    stepfare ledger export all.csv --focus-version 1.2
    """
    from router.cli.options import as_of, moment_of_planning

    moment = moment_of_planning(now)
    period = None if month is None else month_of("--month", month)
    if file.suffix.lower() not in _ENDINGS:
        what = f"{file.name!r} ends neither in {' nor in '.join(_ENDINGS)}"
        raise InvalidInputError.single(what, field="FILE", remedy="the ending says which form is written")
    known = _read(accounts)
    with opened_store(deploy, clouds, makes=False) as (_, store), console.progress("writing"):
        from router.app.export import Wanted, export_counted
        from router.prices.home import bills_folder, extract_folder

        say_corrections(store)
        wanted = Wanted(path=file, version=focus_version.value, accounts=known, month=period, as_of=as_of(now))
        try:
            done = export_counted(store, wanted, extract_folder(), bills_folder())
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CommandError(f"{file}: cannot be written: {why}", remedy="make room, or name another file") from None
        archives = store.archives.all()
    noun = "charge" if done.charges == 1 else "charges"
    console.note(f"{file}: {done.charges:,} {noun}, FOCUS {focus_version.value}")
    if archives and (period is None or period < archives[-1].before):
        names = ", ".join(one.file for one in archives)
        console.note(f"left out, for they are archived ({names}): months before {archives[-1].before}", "warning")
    for line in unpriced_lines(done.left):
        console.note(line, "warning")
    if accounts is None and done.charges:
        console.note("accounts are written as __unknown__: name them with --accounts (`schema showback`)", "warning")
    if period is not None and moment < period.ends:
        console.note(f"{period} is not over: what runs now is not in it yet")
    return ExitCode.OK


def unpriced_lines(left: Left) -> list[str]:
    """What a file of charges does not have, one line a kind."""
    return [
        f"left out, for nobody knows its price: {what.value}, "
        f"{count:,} {'entry' if count == 1 else 'entries'}, {float(left.quantities[what, unit]):,.2f} {unit}".rstrip()
        for (what, unit), count in sorted(left.entries.items())
    ]


def _read(accounts: Path | None) -> Showback:
    from router.config.showback_file import Showback, read_showback

    return Showback() if accounts is None else read_showback(accounts)
