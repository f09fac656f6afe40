"""``stepfare bills list`` and ``show``: what was imported, and what of it stands."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console

if TYPE_CHECKING:
    from router.showback.bill_store import BillStore

SCHEMA_VERSION = 1


class ListFormat(StrEnum):
    """How it is written."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[ListFormat, typer.Option("--output", "-o", help="Format.")]


def list_bills(
    everything: Annotated[bool, typer.Option("--all", help="Also bills that were replaced or removed.")] = False,
    output: Output = ListFormat.TABLE,
) -> None:
    """List the imported bills that stand, the oldest import first; a line for each currency.

    \b
    stepfare bills list
    stepfare bills list --all -o json
    """
    from router.prices.home import bills_folder
    from router.render.bills_text import as_record, table
    from router.showback.bill_store import BillStore

    store = BillStore(bills_folder())
    found = [each for each in store.bills() if everything or each.stands]
    if not everything:
        _say_gone(store)
    if output is ListFormat.JSON:
        records = [as_record(each) for each in found]
        text = {"schema_version": SCHEMA_VERSION, "folder": str(store.folder), "bills": records}
        console.out(json.dumps(text, indent=2))
    elif found:
        console.out(table(found))
    else:
        console.note("no bill is stored: `stepfare bills import FILE` takes one in")


def _say_gone(store: BillStore) -> None:
    from router.render.bills_text import whose

    for each in store.bills():
        if each.removed is not None:
            console.note(f"removed at {each.removed.at}, and no other stands: {each.bill.id} ({whose(each.bill)})")


def show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `bills list` shows it; four digits or more.")],
    output: Output = ListFormat.TABLE,
) -> None:
    """Print one bill: its exact sums, the files it came in, what those lack, and whether its rows are as they were
    stored.

    \b
    stepfare bills show 2aedf2e8d27c
    stepfare bills show 2aed -o json

    Exit code 1 when the rows are not as they were stored.
    """
    from dataclasses import asdict

    from router.prices.home import bills_folder
    from router.render.bills_text import as_record, gap_lines, plain
    from router.showback.bill_store import BillStore

    store = BillStore(bills_folder())
    found = store.find(identity)
    bill, delivery, whole = found.bill, found.delivery, store.whole(found)
    if output is ListFormat.JSON:
        record = {
            "schema_version": SCHEMA_VERSION,
            **as_record(found),
            "whole": whole,
            "parquet": str(store.path(found)),
            "files": [asdict(each) for each in delivery.sources],
            "gaps": [asdict(each) for each in delivery.gaps],
        }
        console.out(json.dumps(record, indent=2))
    else:
        console.out(f"{bill.id}  {plain(bill.issuer or 'issuer unknown')}, {plain(bill.account or 'account unknown')}")
        console.out(f"billing period  {bill.start or 'unknown'} to {bill.end or 'unknown'}")
        console.out(f"rows            {bill.rows:,}, usage through {bill.data_through or 'unknown'}")
        for currency, sums in bill.sums.items():
            told = ", ".join(f"{name} {amount or 'unknown'}" for name, amount in sums.items())
            console.out(f"{plain(currency) or 'no currency'}  {told}")
        for source in delivery.sources:
            console.out(f"from {plain(source.name)}: FOCUS {source.version}, {source.form}, {source.rows:,} rows")
        console.out(f"imported at {delivery.imported_at}; rows in {store.path(found)}")
        for word, other in (("replaces", found.replaces), ("replaced by", found.replaced_by)):
            if other is not None:
                console.out(f"{word} {other}")
        if found.removed is not None:
            gone = found.removed
            console.out(f"removed by {plain(gone.who)} at {gone.at}: {plain(gone.reason)}")
        for line in gap_lines(delivery.gaps):
            console.out(line)
    if not whole:
        raise console.CommandError(
            f"{store.path(found)}: its rows are gone, or not those that were stored",
            remedy="bring the folder back from a backup",
        )
