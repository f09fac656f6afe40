"""Command ``stepfare ledger close``: close the books of a month permanently."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import parse_month
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, acting_user, open_state_store
from router.render.tables import format_count

if TYPE_CHECKING:
    from router.ledger.month import Month
    from router.state.periods import PeriodClosing
    from router.state.store import StateStore

# Attempts to seal the month, because entries may arrive while the report is made.
_TRIES = 3


def close(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="Month to close, such as 2026-10.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Close even if machines of that month are not metered yet.")
    ] = False,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the closing (ISO, with zone).")] = None,
) -> ExitCode:
    """Close the books of a month permanently: they cannot be opened again.

    Closing seals the inputs of the month's report: entries, bills, budgets, figures. Later changes, such as a restated
    bill, are booked in an open month as a dated correction. Months are closed in order.

    \b
    stepfare ledger close 2026-10
    stepfare ledger close 2026-10 --anyway --now 2026-11-04T09:00Z
    """
    from pricing.money import Usd
    from router.cli.options import parse_now

    period, moment = parse_month("MONTH", month), parse_now(now)
    with open_state_store(deploy, clouds) as (_, store):
        store.periods.closable(period, moment)
        checked = store.ledger.verify()
        if checked.problems:
            raise CommandError(f"the ledger is not what was written: {'; '.join(checked.problems)}")
        _, nodes = store.overview.alive()
        unmetered = [node for node in nodes if node.made_at is not None and node.made_at < period.ends]
        if unmetered and not anyway:
            raise CommandError(
                f"not metered yet: {format_count(len(unmetered), 'machine')} of {period}",
                remedy="wait until they are released, or close --anyway: what they cost corrects it in open books",
            )
        closing = _seal_month(store, period, moment)
        store.audit.add(
            closing.who,
            "ledger close",
            closing.hash,
            Usd(0),
            moment,
            period=str(period),
            head=closing.head,
            seal=closing.seal_hash,
        )
    seal = closing.sealed
    contents = f"{format_count(len(seal['bills']), 'bill')} and {format_count(len(seal['spent']), 'budget')}"
    console.note(f"{period} is closed, with {format_count(closing.head, 'entry', 'entries')}, {contents}")
    for line in _sums(seal["figures"]):
        console.note(line)
    console.note("note both elsewhere: the hash of the last entry, and that of the seal over all of it")
    console.out(closing.hash)
    console.out(closing.seal_hash)
    return ExitCode.OK


def _seal_month(store: StateStore, period: Month, moment: datetime) -> PeriodClosing:
    """Close the month with its present contents, and retry if an entry arrived meanwhile."""
    from router.app.close_month import make_seal
    from router.app.corrections import book_corrections_locked
    from router.prices.data_folders import bills_folder, extract_folder
    from router.showback.bill_store import BillStore
    from router.state.errors import ConcurrentChangeError

    bills, extracts = bills_folder(), extract_folder()
    with BillStore(bills).held(), console.progress("sealing"):
        book_corrections_locked(store, extracts, bills, acting_user())
        for tries_left in reversed(range(_TRIES)):
            sealed = make_seal(store, extracts, bills, period, moment)
            try:
                return store.periods.close(period, who=acting_user(), at=moment, seal=sealed.seal, head=sealed.head)
            except ConcurrentChangeError:
                if not tries_left:
                    raise
    raise AssertionError("unreachable")


def _sums(figures: list[dict[str, Any]]) -> Iterator[str]:
    from decimal import Decimal

    for currency in sorted({row["currency"] for row in figures}):
        rows = [row for row in figures if row["currency"] == currency]
        total = sum((Decimal(row["effective"]) for row in rows), Decimal(0))
        yield f"{total:,.2f} {currency}, effective, as `stepfare showback` has it"
