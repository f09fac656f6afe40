"""Command ``stepfare ledger export``: export the ledger as a FOCUS file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.bills import report_corrections
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import AsOfOption, parse_month
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store

if TYPE_CHECKING:
    from router.showback.accounts import Showback
    from router.showback.focus_from_ledger import UnpricedEntries

_ENDINGS = (".csv", ".parquet")


FocusVersion = Literal["1.4", "1.2"]


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, ending in .csv or .parquet.")],
    month: Annotated[
        str | None, typer.Option(metavar="2026-11", help="Only charges in the books of this month.")
    ] = None,
    focus_version: Annotated[FocusVersion, typer.Option(help="FOCUS version.")] = "1.4",
    accounts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the billed accounts; see `schema showback`.")
    ] = None,
    now: AsOfOption = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
) -> ExitCode:
    """Export the charges of a month as a FOCUS file for finance tools.

    The file holds the rows of current bills, metered costs that are on no bill, and entries added by hand, as
    `showback` counts them; x_RecordState tells them apart. Planned costs are no charges. Entries without a known price
    are left out and listed. The file is written atomically, replaces one of the same name, and is identical for
    identical books.

    \b
    stepfare ledger export november.parquet --month 2026-11
    stepfare ledger export november.csv --accounts showback.yaml
    stepfare ledger export all.csv --focus-version 1.2
    """
    from router.cli.options import parse_as_of, parse_now

    moment = parse_now(now)
    period = None if month is None else parse_month("--month", month)
    if file.suffix.lower() not in _ENDINGS:
        what = f"{file.name!r} ends neither in {' nor in '.join(_ENDINGS)}"
        raise InvalidInputError.single(what, field="FILE", remedy="the ending says which form is written")
    account_names = _read_accounts(accounts)
    with open_state_store(settings_files, makes=False) as (_, store), console.progress("writing"):
        from router.app.export import BooksExportRequest, export_books
        from router.prices.data_folders import bills_folder, extract_folder

        report_corrections(store, period)
        wanted = BooksExportRequest(
            path=file, version=focus_version, accounts=account_names, month=period, as_of=parse_as_of(now)
        )
        try:
            exported = export_books(store, wanted, extract_folder(), bills_folder())
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CommandError(f"{file}: cannot be written: {why}", remedy="make room, or name another file") from None
        archives = store.archives.all()
    noun = "charge" if exported.charges == 1 else "charges"
    console.note(f"{file}: {exported.charges:,} {noun}, FOCUS {focus_version}")
    if archives and (period is None or period < archives[-1].before):
        names = ", ".join(one.file for one in archives)
        console.note(f"left out, for they are archived ({names}): months before {archives[-1].before}", "warning")
    for line in unpriced_lines(exported.unpriced):
        console.note(line, "warning")
    if accounts is None and exported.charges:
        console.note("accounts are written as __unknown__: name them with --accounts (`schema showback`)", "warning")
    if period is not None and moment < period.ends:
        console.note(f"{period} is not over: what runs now is not in it yet")
    return ExitCode.OK


def unpriced_lines(unpriced: UnpricedEntries) -> list[str]:
    """Return a line for each kind of entry that the file leaves out for want of a price."""
    return [
        f"left out, for nobody knows its price: {what.value}, "
        f"{count:,} {'entry' if count == 1 else 'entries'}, "
        f"{float(unpriced.quantities[what, unit]):,.2f} {unit}".rstrip()
        for (what, unit), count in sorted(unpriced.entries.items())
    ]


def _read_accounts(accounts: Path | None) -> Showback:
    from router.config.document_file import read_showback
    from router.showback.accounts import Showback

    return Showback() if accounts is None else read_showback(accounts)
