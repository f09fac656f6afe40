"""Commands ``stepfare bills list`` and ``show``: the imported bills and which of them are in force."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.render.tables import format_count

if TYPE_CHECKING:
    from router.showback.bill_store import BillStore

SCHEMA_VERSION = 1


class BillFormat(StrEnum):
    """Output format of bills."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[BillFormat, typer.Option("--output", "-o", help="Format.")]


def list_bills(
    everything: Annotated[bool, typer.Option("--all", help="Include bills that were replaced or removed.")] = False,
    output: Output = BillFormat.TABLE,
) -> None:
    """List the imported bills that are in force, the oldest import first, one line per currency.

    \b
    stepfare bills list
    stepfare bills list --all -o json
    """
    from router.prices.data_folders import bills_folder
    from router.render.bills_text import as_record, table
    from router.showback.bill_store import BillStore

    store = BillStore(bills_folder())
    standings = [each for each in store.bills() if everything or each.stands]
    if not everything:
        _note_removed(store)
    if output is BillFormat.JSON:
        records = [as_record(each) for each in standings]
        text = {"schema_version": SCHEMA_VERSION, "folder": str(store.folder), "bills": records}
        console.out(json.dumps(text, indent=2))
    elif standings:
        console.out(table(standings, console.screen()))
    else:
        console.note("no bill is stored: `stepfare bills import FILE` takes one in")


def _note_removed(store: BillStore) -> None:
    from router.render.bills_text import describe_bill

    for each in store.bills():
        if each.removed is not None:
            console.note(
                f"removed at {each.removed.at}, and no other stands: {each.bill.id} ({describe_bill(each.bill)})"
            )


def show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="ID as `bills list` shows it; four digits or more.")],
    output: Output = BillFormat.TABLE,
) -> None:
    """Show one bill: its exact sums, its files, what those lack, and whether its rows are unchanged.

    \b
    stepfare bills show 2aedf2e8d27c
    stepfare bills show 2aed -o json

    The exit code is 1 if the stored rows were changed.
    """
    from dataclasses import asdict

    from router.prices.data_folders import bills_folder
    from router.render.bills_text import as_record, escape_unprintable, gap_lines
    from router.showback.bill_store import BillStore

    store = BillStore(bills_folder())
    standing = store.find(identity)
    bill, delivery, whole = standing.bill, standing.delivery, store.whole(standing)
    if output is BillFormat.JSON:
        record = {
            "schema_version": SCHEMA_VERSION,
            **as_record(standing),
            "whole": whole,
            "parquet": str(store.path(standing)),
            "files": [asdict(each) for each in delivery.sources],
            "gaps": [asdict(each) for each in delivery.gaps],
        }
        console.out(json.dumps(record, indent=2))
    else:
        console.out(
            f"{bill.id}  {escape_unprintable(bill.issuer or 'issuer unknown')}, "
            f"{escape_unprintable(bill.account or 'account unknown')}"
        )
        console.out(f"billing period  {bill.start or 'unknown'} to {bill.end or 'unknown'}")
        console.out(f"rows            {bill.rows:,}, usage through {bill.data_through or 'unknown'}")
        for currency, sums in bill.sums.items():
            amounts = ", ".join(f"{name} {amount or 'unknown'}" for name, amount in sums.items())
            console.out(f"{escape_unprintable(currency) or 'no currency'}  {amounts}")
        for source in delivery.sources:
            rows = format_count(source.rows, "row")
            console.out(f"from {escape_unprintable(source.name)}: FOCUS {source.version}, {source.form}, {rows}")
        console.out(f"imported at {delivery.imported_at}; rows in {store.path(standing)}")
        for word, other in (("replaces", standing.replaces), ("replaced by", standing.replaced_by)):
            if other is not None:
                console.out(f"{word} {other}")
        if standing.removed is not None:
            removal = standing.removed
            console.out(
                f"removed by {escape_unprintable(removal.who)} at {removal.at}: {escape_unprintable(removal.reason)}"
            )
        for line in gap_lines(delivery.gaps):
            console.out(line)
    if not whole:
        raise console.CommandError(
            f"{store.path(standing)}: its rows are gone, or not those that were stored",
            remedy="bring the folder back from a backup",
        )
