"""Command ``stepfare bills import``: import FOCUS bills into the bill store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.bills import BillFormat
from router.cli.bills_change import correct_closed_months
from router.cli.options import parse_now
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP

if TYPE_CHECKING:
    from router.showback.bill_import import BillImport
    from router.showback.bills import BillDecrease, BillStanding, ImportedBill

SCHEMA_VERSION = 1


def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV, CSV in gzip, or Parquet.")],
    allow_duplicates: Annotated[bool, typer.Option("--allow-duplicates", help="Accept rows that occur twice.")] = False,
    output: Annotated[BillFormat, typer.Option("--output", "-o", help="Format.")] = BillFormat.TABLE,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the import (ISO, with zone).")] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> None:
    """Import bills: FOCUS 1.0 to 1.4 Cost and Usage, as AWS, Google Cloud, Azure and others export it.

    The files of one command are one delivery: give all parts of a bill at once. A bill replaces the one with the same
    issuer, account and billing period; importing the same bill again changes nothing. Rows or sums that fall are
    reported with both figures, and duplicate rows are refused. Columns that a file lacks or writes differently from
    FOCUS are listed and never invented. Changes to a closed month are booked as a correction in an open one. See
    docs/bills.md.

    \b
    stepfare bills import aws-2026-11.csv.gz
    stepfare bills import azure/part-0.parquet azure/part-1.parquet -o json
    """
    from dataclasses import asdict

    from router.prices.data_folders import bills_folder
    from router.render.bills_text import as_record, gap_lines, table
    from router.showback.bill_import import import_bills
    from router.showback.bill_store import BillStore

    store = BillStore(bills_folder())
    with console.progress("reading"):
        imported = import_bills(files, store, parse_now(now), duplicates=allow_duplicates)
    all_bills = store.bills()
    standings = [each for each in all_bills if each.bill.id in imported.delivery.concerned]
    changed = [each for each in standings if imported.new and each.bill.id not in imported.delivery.same]
    falls = list(_find_falls(changed, all_bills))
    if output is BillFormat.JSON:
        record = {
            "schema_version": SCHEMA_VERSION,
            "new": imported.new,
            "bills": [as_record(each) for each in standings],
            "files": [asdict(each) for each in imported.delivery.sources],
            "gaps": [asdict(each) for each in imported.delivery.gaps],
            "stands_again": list(imported.delivery.again),
            "unchanged": list(imported.delivery.same) if imported.new else sorted(imported.delivery.concerned),
            "fell": [
                {"bill": bill.id, "replaces": before.id, **asdict(each)}
                for before, bill, fallen in falls
                for each in fallen
            ],
            "rows_twice": 0 if imported.twice is None else imported.twice.rows,
        }
        console.out(json.dumps(record, indent=2))
    else:
        if standings:
            console.out(table(standings, console.screen()))
        for line in gap_lines(imported.delivery.gaps) if imported.new else ():
            console.out(line)
    _report(imported, standings, changed)
    for before, bill, fallen in falls:
        _warn(before, bill, fallen)
    if imported.new:
        correct_closed_months(deploy, clouds)
    if imported.new and output is BillFormat.TABLE:
        console.note(f"stored in {store.folder}")


def _find_falls(
    changed: list[BillStanding], all_bills: tuple[BillStanding, ...]
) -> Iterator[tuple[ImportedBill, ImportedBill, tuple[BillDecrease, ...]]]:
    """Yield each bill that replaced one with higher figures: the earlier bill, the new bill, the figures that fell."""
    from router.showback.bills import find_decreases

    bills = {each.bill.id: each.bill for each in all_bills}
    for each in changed:
        if each.replaces is not None and (fallen := find_decreases(bills[each.replaces], each.bill)):
            yield bills[each.replaces], each.bill, fallen


def _report(imported: BillImport, standings: list[BillStanding], changed: list[BillStanding]) -> None:
    from router.render.bills_text import format_sums
    from router.showback.duplicates import describe_duplicates

    if not imported.new:
        at = max((each.delivery.imported_at for each in standings), default=imported.delivery.imported_at)
        console.note(f"nothing changed: this was imported at {at}, and stands")
        return
    for each in changed:
        if each.bill.id in imported.delivery.again:
            at = each.delivery.imported_at
            console.note(f"{each.bill.id} stands again, as imported at {at}: {format_sums(each.bill)}")
        if each.replaces is not None:
            console.note(f"{each.bill.id} replaces {each.replaces}")
    for identity in imported.delivery.same:
        console.note(f"{identity} stands as it did")
    if imported.twice is not None:
        console.note(f"taken as they are: {describe_duplicates(imported.twice)}", "warning")


def _warn(before: ImportedBill, bill: ImportedBill, falls: tuple[BillDecrease, ...]) -> None:
    from router.render.bills_text import fall_lines

    for line in fall_lines(before, bill, falls):
        console.note(line, "warning")
    console.note(f"where that is wrong: `stepfare bills restore {before.id}` brings the earlier bill back", "warning")
