"""``stepfare ledger close``: the books of a month are closed, for good."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import counted, month_of
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store, who

if TYPE_CHECKING:
    from router.ledger.month import Month
    from router.state.periods import Closing
    from router.state.store import Store

# Entries may come while the report is made.
_TRIES = 3


def close(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="Such as 2026-10.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also while machines of that month are not metered yet.")
    ] = False,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="When it is closed (ISO, with zone).")] = None,
) -> ExitCode:
    """Close the books of a month, for good: there is no way to open them again.

    Closing seals what the month's report was made from: entries, bills, budgets, figures. What becomes known later,
    be it a restated bill, goes into open books as a dated correction of that month. Months are closed in order.

    \b
    stepfare ledger close 2026-10
    stepfare ledger close 2026-10 --anyway --now 2026-11-04T09:00Z
    """
    from pricing.money import Usd
    from router.cli.options import moment_of_planning

    period, moment = month_of("MONTH", month), moment_of_planning(now)
    with opened_store(deploy, clouds) as (_, store):
        store.periods.closable(period, moment)
        found = store.ledger.verify()
        if found.problems:
            raise CommandError(f"the ledger is not what was written: {'; '.join(found.problems)}")
        _, nodes = store.overview.alive()
        open_ones = [node for node in nodes if node.made_at is not None and node.made_at < period.ends]
        if open_ones and not anyway:
            raise CommandError(
                f"{len(open_ones)} machines were there in {period} and are not metered yet",
                remedy="wait until they are released, or close --anyway: what they cost corrects it in open books",
            )
        done = _sealed(store, period, moment)
        store.audit(
            done.who, "ledger close", done.hash, Usd(0), moment, period=str(period), head=done.head, seal=done.seal_hash
        )
    seal = done.sealed
    said = f"{counted(len(seal['bills']), 'bill')} and {counted(len(seal['spent']), 'budget')}"
    console.note(f"{period} is closed, with {done.head} entries, {said}")
    for line in _sums(seal["figures"]):
        console.note(line)
    console.note("note both elsewhere: the hash of the last entry, and that of the seal over all of it")
    console.out(done.hash)
    console.out(done.seal_hash)
    return ExitCode.OK


def _sealed(store: Store, period: Month, moment: datetime) -> Closing:
    """Closes the month with what it is now; once more where an entry came meanwhile."""
    from router.app.close_month import make_seal
    from router.app.corrections import book_held
    from router.prices.home import bills_folder, extract_folder
    from router.showback.bill_store import BillStore
    from router.state.errors import MovedError

    bills, extracts = bills_folder(), extract_folder()
    with BillStore(bills).held(), console.progress("sealing"):
        book_held(store, extracts, bills, who())
        for left in reversed(range(_TRIES)):
            found = make_seal(store, extracts, bills, period, moment)
            try:
                return store.periods.close(period, who=who(), at=moment, seal=found.seal, head=found.head)
            except MovedError:
                if not left:
                    raise
    raise AssertionError("unreachable")


def _sums(figures: list[dict[str, Any]]) -> Iterator[str]:
    from decimal import Decimal

    for currency in sorted({row["currency"] for row in figures}):
        rows = [row for row in figures if row["currency"] == currency]
        total = sum((Decimal(row["effective"]) for row in rows), Decimal(0))
        yield f"{total:,.2f} {currency}, effective, as `stepfare showback` has it"
