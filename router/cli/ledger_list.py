"""Command ``stepfare ledger list``: list the entries of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.ledger_options import LedgerFormat, format_exact_usd, parse_month, print_rows
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store
from router.render.tables import format_usd

if TYPE_CHECKING:
    from router.ledger.entry import LedgerEntry

_TABLE = ("start", "kind", "use", "team", "job", "cloud", "hours", "usd")


def list_entries(
    month: Annotated[
        str | None, typer.Option(metavar="2026-11", help="Only entries in the books of this month.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only this kind: planned, metered, fee, credit, tax or adjustment.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="Only entries of this team.")] = None,
    job: Annotated[str | None, typer.Option(help="Only entries of this job.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Number of entries to show, the latest ones; 0: all.")] = 50,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")] = LedgerFormat.TABLE,
) -> ExitCode:
    """List the entries of the ledger: planned, metered and added by hand.

    \b
    stepfare ledger list --month 2026-11 --team research
    stepfare ledger list --kind metered --limit 0 -o csv
    """
    from router.cli.options import option_error
    from router.ledger.entry import LedgerEntryKind

    period = None if month is None else parse_month("--month", month)
    try:
        wanted = None if kind is None else LedgerEntryKind(kind)
    except ValueError:
        raise option_error("--kind", ValueError(f"{kind!r} is none of {', '.join(LedgerEntryKind)}")) from None
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        entries = store.ledger.entries(period=period, kind=wanted, team=team, job=job)
    shown = entries[-limit:] if limit else entries
    rows = [_row(entry) for entry in shown]
    if output is LedgerFormat.TABLE:
        rows = [{**row, **_short(entry)} for row, entry in zip(rows, shown, strict=True)]
    print_rows(output, "entries", rows, _TABLE, frozenset({"HOURS", "USD"}), "no entries")
    if len(shown) < len(entries):
        console.note(f"the last {len(shown)} of {len(entries)} entries; --limit 0 shows all")
    return ExitCode.OK


def _row(entry: LedgerEntry) -> dict[str, object]:
    from router.state.ledger_rows import NAMES, entry_values

    row: dict[str, object] = dict(zip(NAMES, entry_values(entry), strict=True))
    rate = entry.usd_per_hour
    row["usd"], row["usd_per_hour"] = format_exact_usd(entry.usd), None if rate is None else str(rate)
    row["unpriced"] = entry.unpriced
    return {name: value for name, value in row.items() if not name.endswith("_nanos")}


def _short(entry: LedgerEntry) -> dict[str, object]:
    amount = "not known" if entry.unpriced else format_usd(entry.usd)
    return {
        "start": f"{entry.start:%Y-%m-%d %H:%M}",
        "use": entry.use or entry.what,
        "usd": amount,
        "hours": f"{float(entry.hours):.2f}" if entry.hours else "",
    }
