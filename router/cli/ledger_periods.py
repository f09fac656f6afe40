"""``stepfare ledger periods``: which months are closed, and what their books hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import LedgerFormat, money, show
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store
from router.cli.text import dollars, stamp

_SUMS = ("planned", "metered", "fee", "credit", "tax", "adjustment")
_TABLE = ("period", "state", "closed_at", "entries", "planned", "metered", "added")


def periods(
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")] = LedgerFormat.TABLE,
) -> ExitCode:
    """The months of the books: closed or open, by whom and when, and their sums.

    \b
    stepfare ledger periods
    stepfare ledger periods -o json
    """
    from pricing.money import Usd
    from router.ledger.entry import Kind

    with opened_store(deploy, clouds, makes=False) as (_, store):
        sums, closings = store.periods.sums(), {one.period: one for one in store.periods.closings()}
        unpriced = store.periods.unpriced()
    last = max(closings, default=None)
    rows: list[dict[str, object]] = []
    for month in sorted({one.period for one in sums} | set(closings)):
        mine = [one for one in sums if one.period == month]
        by_kind = {one.kind.value: one.usd for one in mine}
        closing = closings.get(month)
        row: dict[str, object] = {
            "period": str(month),
            "state": "closed" if last is not None and month <= last else "open",
            "closed_at": None if closing is None else closing.closed_at.isoformat(),
            "who": None if closing is None else closing.who,
            "head": None if closing is None else closing.head,
            "hash": None if closing is None else closing.hash,
            "entries": sum(one.entries for one in mine),
            "archived": sum(one.archived for one in mine),
            "unpriced": sum(count for (period, _), count in unpriced.items() if period == month),
            **{f"{kind}_usd": money(by_kind.get(kind, Usd(0))) for kind in _SUMS},
        }
        if output is LedgerFormat.TABLE:
            row["closed_at"] = "" if closing is None else stamp(closing.closed_at)
            counts = {one.kind: one.entries for one in mine}
            for kind in (Kind.PLANNED, Kind.METERED):
                unknown = 0 < counts.get(kind, 0) == unpriced.get((month, kind), 0)
                row[kind.value] = "not known" if unknown else dollars(by_kind.get(kind.value, Usd(0)))
            row["added"] = dollars(Usd.total(one.usd for one in mine if one.kind.is_added))
        rows.append(row)
    for row in rows:
        if row["unpriced"]:
            console.note(f"{row['period']}: {row['unpriced']} entries have no price, and are in no sum", "warning")
    show(output, "periods", rows, _TABLE, frozenset({"ENTRIES", "PLANNED", "METERED", "ADDED"}), "the ledger is empty")
    return ExitCode.OK
