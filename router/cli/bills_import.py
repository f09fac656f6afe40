"""``stepfare bills import``: bills of clouds into the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.bills import ListFormat
from router.cli.bills_change import correct_closed
from router.cli.options import moment_of_planning
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP

if TYPE_CHECKING:
    from router.showback.bill_import import Imported
    from router.showback.bills import Bill, Fall, Standing

SCHEMA_VERSION = 1


def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV, CSV in gzip, or Parquet.")],
    allow_duplicates: Annotated[
        bool, typer.Option("--allow-duplicates", help="Take whole rows that stand there twice.")
    ] = False,
    output: Annotated[ListFormat, typer.Option("--output", "-o", help="Format.")] = ListFormat.TABLE,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date the import (ISO, with zone).")] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
) -> None:
    """Take bills in: FOCUS 1.0 to 1.4 Cost and Usage, as AWS, Google Cloud, Azure and others export it.

    The files of one command are one delivery: give all parts of a bill at once. A bill with the issuer, account and
    billing period of one that stands takes its place, and what stands already changes nothing. Rows or sums that fall
    are told with both figures, and whole rows that stand there twice are refused. What a file lacks or says in
    another way than FOCUS is listed, and nothing is made up for it. What changes a closed month is booked as a
    correction in an open one. docs/bills.md.

    \b
    stepfare bills import aws-2026-11.csv.gz
    stepfare bills import azure/part-0.parquet azure/part-1.parquet -o json
    """
    from dataclasses import asdict

    from router.prices.home import bills_folder
    from router.render.bills_text import as_record, gap_lines, table
    from router.showback.bill_import import import_bills
    from router.showback.bill_store import BillStore

    store = BillStore(bills_folder())
    with console.progress("reading"):
        done = import_bills(files, store, moment_of_planning(now), duplicates=allow_duplicates)
    everything = store.bills()
    found = [each for each in everything if each.bill.id in done.delivery.concerned]
    changed = [each for each in found if done.new and each.bill.id not in done.delivery.same]
    fell = list(_fell(changed, everything))
    if output is ListFormat.JSON:
        record = {
            "schema_version": SCHEMA_VERSION,
            "new": done.new,
            "bills": [as_record(each) for each in found],
            "files": [asdict(each) for each in done.delivery.sources],
            "gaps": [asdict(each) for each in done.delivery.gaps],
            "stands_again": list(done.delivery.again),
            "unchanged": list(done.delivery.same) if done.new else sorted(done.delivery.concerned),
            "fell": [{"bill": bill.id, "replaces": before.id, **asdict(each)} for before, bill, falls in fell
                     for each in falls],
            "rows_twice": 0 if done.twice is None else done.twice.rows,
        }  # fmt: skip
        console.out(json.dumps(record, indent=2))
    else:
        if found:
            console.out(table(found))
        for line in gap_lines(done.delivery.gaps) if done.new else ():
            console.out(line)
    _tell(done, found, changed)
    for before, bill, falls in fell:
        _warn(before, bill, falls)
    if done.new:
        correct_closed(deploy, clouds)
    if done.new and output is ListFormat.TABLE:
        console.note(f"stored in {store.folder}")


def _fell(changed: list[Standing], everything: tuple[Standing, ...]) -> Iterator[tuple[Bill, Bill, tuple[Fall, ...]]]:
    """Bills that took another one's place with lower figures: that one, this one, which figures."""
    from router.showback.bills import falls

    bills = {each.bill.id: each.bill for each in everything}
    for each in changed:
        if each.replaces is not None and (found := falls(bills[each.replaces], each.bill)):
            yield bills[each.replaces], each.bill, found


def _tell(done: Imported, found: list[Standing], changed: list[Standing]) -> None:
    from router.render.bills_text import sums_of
    from router.showback.duplicates import together

    if not done.new:
        at = max((each.delivery.imported_at for each in found), default=done.delivery.imported_at)
        console.note(f"nothing changed: this was imported at {at}, and stands")
        return
    for each in changed:
        if each.bill.id in done.delivery.again:
            at = each.delivery.imported_at
            console.note(f"{each.bill.id} stands again, as imported at {at}: {sums_of(each.bill)}")
        if each.replaces is not None:
            console.note(f"{each.bill.id} replaces {each.replaces}")
    for identity in done.delivery.same:
        console.note(f"{identity} stands as it did")
    if done.twice is not None:
        console.note(f"taken as they are: {together(done.twice)}", "warning")


def _warn(before: Bill, bill: Bill, falls: tuple[Fall, ...]) -> None:
    from router.render.bills_text import fall_lines

    for line in fall_lines(before, bill, falls):
        console.note(line, "warning")
    console.note(f"where that is wrong: `stepfare bills restore {before.id}` brings the earlier bill back", "warning")
