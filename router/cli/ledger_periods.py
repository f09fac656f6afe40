"""Command ``stepfare ledger periods``: list closed and open months with their sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.bills_change import report_corrections
from router.cli.budget import Basis, BudgetBasisOption
from router.cli.console import ExitCode
from router.cli.ledger_options import LedgerFormat, print_rows
from router.cli.options import parse_as_of, parse_now
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store
from router.render.tables import format_count

if TYPE_CHECKING:
    from router.ledger.entry import LedgerEntryKind
    from router.ledger.month import Month
    from router.state.periods import PeriodClosing

_SUMS = ("planned", "metered", "fee", "credit", "tax", "adjustment")
_TABLE = ("period", "state", "closed_at", "entries", "planned", "metered", "added", "spent")
_RIGHT = frozenset({"ENTRIES", "PLANNED", "METERED", "ADDED", "SPENT"})
_CURRENCY = "USD"


@dataclass(frozen=True, slots=True)
class _Books:
    """Contents of the books of a month.

    ``kinds`` gives entries, entries without a price, and dollars by kind; ``archived`` counts archived entries;
    ``spent`` is the cost by currency, or None if it is not known.
    """

    kinds: Mapping[LedgerEntryKind, tuple[int, int, Decimal]]
    archived: int
    spent: Mapping[str, Decimal] | None


def periods(
    basis: Basis = BudgetBasisOption.EFFECTIVE,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="Leave out records after this time (ISO, with zone).")
    ] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")] = LedgerFormat.TABLE,
) -> ExitCode:
    """List the months of the books: closed or open, by whom and when, and their sums.

    Spent is what `showback` reports for the month: invoiced where a bill exists, metered elsewhere, and for a closed
    month the sealed figure. Metered and added are the ledger's part of it.

    \b
    stepfare ledger periods
    stepfare ledger periods --basis billed -o json
    """
    books_by_month, closings = _load_books(deploy, clouds, basis, now)
    last = max(closings, default=None)
    rows = []
    for month in sorted(books_by_month.keys() | closings.keys()):
        books = books_by_month.get(month, _Books({}, 0, {}))
        state = "closed" if last is not None and month <= last else "open"
        rows.append(_row(month, state, closings.get(month), books, basis, output))
        _note_gaps(month, books)
    if rows and output is LedgerFormat.TABLE:
        console.note(f"spent: {basis.value} cost in USD, invoiced where a bill stands, metered elsewhere")
    print_rows(output, "periods", rows, _TABLE, _RIGHT, "the ledger is empty")
    return ExitCode.OK


def _load_books(
    deploy: Path | None, clouds: Path | None, basis: BudgetBasisOption, now: str | None
) -> tuple[dict[Month, _Books], dict[Month, PeriodClosing]]:
    """Return the contents of the books and the closings, both by month."""
    from router.app.bill_views import closings as closings_by
    from router.app.months import month_costs
    from router.prices.data_folders import bills_folder, extract_folder

    moment, until = parse_now(now), parse_as_of(now)
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        sums, unpriced = store.periods.sums(), store.periods.unpriced()
        report_corrections(store)
        closings = {one.period: one for one in closings_by(store, until)}
        months = sorted({one.period for one in sums})
        figures_by_month, unread = month_costs(
            store, months, extract_folder(), bills_folder(), basis=basis.value, now=moment, as_of=until
        )
    books_by_month = {}
    for month in months:
        month_sums = [one for one in sums if one.period == month]
        archived = sum(one.archived for one in month_sums)
        kinds = {
            one.kind: (one.entries, unpriced.get((month, one.kind), 0), Decimal(str(one.usd))) for one in month_sums
        }
        figures = figures_by_month[month]
        if unread and archived:
            books_by_month[month] = _Books(kinds, archived, figures.spent if figures.sealed else None)
            continue
        if until is not None:
            kinds = dict(figures.books)
        for kind, (entries, unknown, _) in kinds.items():
            if (
                kind.value == "planned"
            ):  # by time, as in the report: hours after the month's end belong to the next month
                kinds[kind] = (entries, unknown, figures.planned.get(_CURRENCY, Decimal(0)))
        if kinds or figures.spent:
            books_by_month[month] = _Books(kinds, archived, figures.spent)
    return books_by_month, closings


def _row(
    month: Month,
    state: str,
    closing: PeriodClosing | None,
    books: _Books,
    basis: BudgetBasisOption,
    output: LedgerFormat,
) -> dict[str, object]:
    from router.showback.report.text import short_text
    from router.showback.report.values import CellKind as Cell

    by_kind = {kind.value: usd for kind, (_, _, usd) in books.kinds.items()}
    spent = None if books.spent is None else books.spent.get(_CURRENCY, Decimal(0))
    others = {currency: _exact(cost) for currency, cost in (books.spent or {}).items() if currency != _CURRENCY}
    row: dict[str, object] = {
        "period": str(month),
        "state": state,
        "closed_at": None if closing is None else closing.closed_at.isoformat(),
        "who": None if closing is None else closing.who,
        "head": None if closing is None else closing.head,
        "hash": None if closing is None else closing.hash,
        "seal_hash": None if closing is None else closing.seal_hash or None,
        "entries": sum(entries for entries, _, _ in books.kinds.values()),
        "archived": books.archived,
        "unpriced": sum(unknown for _, unknown, _ in books.kinds.values()),
        **{f"{kind}_usd": _exact(by_kind.get(kind, Decimal(0))) for kind in _SUMS},
        "basis": basis.value,
        "spent_usd": None if spent is None else _exact(spent),
        "spent_others": others if output is LedgerFormat.JSON else _currency_list(others),
    }
    if output is LedgerFormat.TABLE:

        def cents(amount: Decimal) -> str:
            return f"{'-' if amount < 0 else ''}${short_text(abs(amount), Cell.MONEY)}"

        row["closed_at"] = "" if closing is None else f"{closing.closed_at:%Y-%m-%d}"
        for name in ("planned", "metered"):
            counts = next((one for kind, one in books.kinds.items() if kind.value == name), (0, 0, Decimal(0)))
            row[name] = "not known" if 0 < counts[0] == counts[1] else cents(counts[2])
        row["added"] = cents(sum((usd for kind, (_, _, usd) in books.kinds.items() if kind.is_added), Decimal(0)))
        row["spent"] = "not known" if spent is None else cents(spent)
    return row


def _note_gaps(month: Month, books: _Books) -> None:
    unpriced = sum(unknown for _, unknown, _ in books.kinds.values())
    if unpriced:
        console.note(f"{month}: {format_count(unpriced, 'entry', 'entries')} without a price, in no sum", "warning")
    if books.spent is None:
        why = "entries were archived before they were read: `stepfare showback --archive FILE` reads them"
        console.note(f"{month}: what was spent is not known, for {why}", "warning")
    others = {currency: _exact(cost) for currency, cost in (books.spent or {}).items() if currency != _CURRENCY}
    if others:
        console.note(f"{month}: spent beside, in no sum of dollars: {_currency_list(others)}", "warning")


def _exact(amount: Decimal) -> str:
    """Return an amount with all its digits, at least two decimals."""
    whole, _, digits = f"{amount:f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


def _currency_list(others: Mapping[str, str]) -> str:
    return ", ".join(f"{amount} {currency}" for currency, amount in sorted(others.items()))
