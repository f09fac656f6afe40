"""``stepfare bills import``: bills of clouds into the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.bills import ListFormat
from router.cli.options import moment_of_planning

SCHEMA_VERSION = 1


def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV, CSV in gzip, or Parquet.")],
    output: Annotated[ListFormat, typer.Option("--output", "-o", help="Format.")] = ListFormat.TABLE,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Date the import (ISO, with zone).")] = None,
) -> None:
    """Take bills in: FOCUS 1.0 to 1.4 Cost and Usage, as AWS, Google Cloud, Azure and others export it.

    The files of one command are one delivery: give all parts of a bill at once. A bill with the issuer, account and
    billing period of an older one takes its place; the same files again change nothing. What a file lacks or says
    in another way than FOCUS is listed, and nothing is made up for it. docs/bills.md.

    \b
    stepfare bills import aws-2026-11.csv.gz
    stepfare bills import azure/part-0.parquet azure/part-1.parquet -o json
    """
    from dataclasses import asdict

    from router.cli.bills_text import as_record, gap_lines, table
    from router.prices.home import bills_folder
    from router.showback.billstore import BillStore
    from router.showback.importing import import_bills

    store = BillStore(bills_folder())
    with console.progress("reading"):
        done = import_bills(files, store, moment_of_planning(now))
    standings = [each for each in store.bills() if each.delivery.number == done.delivery.number]
    if output is ListFormat.JSON:
        found = {
            "schema_version": SCHEMA_VERSION,
            "new": done.new,
            "bills": [as_record(each) for each in standings],
            "files": [asdict(each) for each in done.delivery.sources],
            "gaps": [asdict(each) for each in done.delivery.gaps],
        }
        console.out(json.dumps(found, indent=2))
        return
    if standings:
        console.out(table(standings))
    if not done.new:
        console.note(f"nothing changed: this was imported at {done.delivery.imported_at}")
        return
    for line in gap_lines(done.delivery.gaps):
        console.out(line)
    for each in standings:
        if each.replaces is not None:
            console.note(f"{each.bill.id} replaces {each.replaces}")
    console.note(f"stored in {store.folder}")
