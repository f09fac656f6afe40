"""Commands ``stepfare ledger close`` and ``periods``: close the books of a month permanently, and list the months."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricing.money import Usd
from pricing.units import format_count
from router.cli import console
from router.cli.bills import report_corrections
from router.cli.console import CommandError
from router.cli.options import AsOfOption, BasisOption, ListOutput, parse_as_of, parse_month, parse_now
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store
from router.ledger.entry import CostBasis, LedgerEntryKind
from router.prices.data_folders import bills_folder, extract_folder
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.showback.report.values import CellKind, short_text
from router.state.errors import ConcurrentChangeError

if TYPE_CHECKING:
    from router.ledger.month import Month
    from router.state.periods import PeriodClosing
    from router.state.store import StateStore


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


@dataclass(frozen=True, slots=True)
class _Period:
    month: Month
    state: str
    closing: PeriodClosing | None
    books: _Books

    def sum_of(self, kind: LedgerEntryKind) -> Decimal:
        return self.books.kinds[kind][2] if kind in self.books.kinds else Decimal(0)

    def priced_sum(self, kind: LedgerEntryKind) -> Decimal | None:
        """Return the dollars of the entries of a kind; None if no price of them is known."""
        entries, unknown, usd = self.books.kinds.get(kind, (0, 0, Decimal(0)))
        return None if 0 < entries == unknown else usd

    @property
    def added(self) -> Decimal:
        return sum((usd for kind, (_, _, usd) in self.books.kinds.items() if kind.is_added), Decimal(0))

    @property
    def spent(self) -> Decimal | None:
        """Return what was spent in dollars; None if it is not known."""
        return None if self.books.spent is None else self.books.spent.get(_CURRENCY, Decimal(0))

    @property
    def others(self) -> dict[str, str]:
        spent = self.books.spent or {}
        return {currency: _exact(cost) for currency, cost in spent.items() if currency != _CURRENCY}


def periods(
    basis: BasisOption = CostBasis.EFFECTIVE,
    now: AsOfOption = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: ListOutput = "table",
) -> None:
    """List the months of the books: closed or open, by whom and when, and their sums.

    Spent is what `showback` reports for the month: invoiced where a bill exists, metered elsewhere, and for a closed
    month the sealed figure. Metered and added are the ledger's part of it.

    \b
    stepfare ledger periods
    stepfare ledger periods --basis billed -o json
    """
    books_by_month, closings = _load_books(settings_files, basis, now)
    last = max(closings, default=None)
    rows: list[_Period] = []
    for month in sorted(books_by_month.keys() | closings.keys()):
        books = books_by_month.get(month, _Books({}, 0, {}))
        state = "closed" if last is not None and month <= last else "open"
        rows.append(_Period(month, state, closings.get(month), books))
        _note_gaps(month, books)
    if rows and output == "table":
        console.note(f"spent: {basis.value} cost in USD, invoiced where a bill stands, metered elsewhere")
    console.print_table(output, "periods", _period_table(basis), rows, "the ledger is empty")


def _load_books(
    settings_files: SettingsOptions, basis: CostBasis, now: str | None
) -> tuple[dict[Month, _Books], dict[Month, PeriodClosing]]:
    """Return the contents of the books and the closings, both by month."""
    from router.app.bill_views import closings as closings_by
    from router.app.month_books import month_costs

    moment, until = parse_now(now), parse_as_of(now)
    with open_state_store(settings_files, makes=False) as (_, store):
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
            # By time, as in the report: hours after the month's end belong to the next month.
            if kind is LedgerEntryKind.PLANNED:
                kinds[kind] = (entries, unknown, figures.planned.get(_CURRENCY, Decimal(0)))
        if kinds or figures.spent:
            books_by_month[month] = _Books(kinds, archived, figures.spent)
    return books_by_month, closings


def _cents(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else ''}${short_text(abs(amount), CellKind.MONEY)}"


def _period_table(basis: CostBasis) -> RecordTable[_Period]:
    def of_closing(take: Callable[[PeriodClosing], object]) -> Callable[[_Period], object]:
        return lambda row: None if row.closing is None else take(row.closing)

    def total(kind: LedgerEntryKind) -> TableColumn[_Period]:
        return TableColumn(f"{kind}_usd", lambda row: row.sum_of(kind), plain=_exact)

    def shown(kind: LedgerEntryKind) -> TableColumn[_Period]:
        return TableColumn("", lambda row: row.priced_sum(kind), kind.upper(), _cents, right=True, unknown="not known")

    def count(take: Callable[[tuple[int, int, Decimal]], int]) -> Callable[[_Period], object]:
        return lambda row: sum(map(take, row.books.kinds.values()))

    return RecordTable(
        (
            TableColumn("period", lambda row: str(row.month), "PERIOD"),
            TableColumn("state", lambda row: row.state, "STATE"),
            TableColumn("closed_at", of_closing(lambda made: made.closed_at), "CLOSED AT", "{:%Y-%m-%d}".format),
            *attribute_columns("who", "head", "hash", of="closing"),
            TableColumn("seal_hash", of_closing(lambda made: made.seal_hash or None)),
            TableColumn("entries", count(lambda counts: counts[0]), "ENTRIES", right=True),
            *attribute_columns("archived", of="books"),
            TableColumn("unpriced", count(lambda counts: counts[1])),
            shown(LedgerEntryKind.PLANNED),
            shown(LedgerEntryKind.METERED),
            TableColumn("", lambda row: row.added, "ADDED", _cents, right=True),
            *map(total, LedgerEntryKind),
            TableColumn("basis", lambda _: basis.value),
            TableColumn(
                "spent_usd", lambda row: row.spent, "SPENT", _cents, right=True, unknown="not known", plain=_exact
            ),
            TableColumn("spent_others", lambda row: row.others, csv=_currency_list),
        )
    )


def _note_gaps(month: Month, books: _Books) -> None:
    unpriced = sum(unknown for _, unknown, _ in books.kinds.values())
    if unpriced:
        console.note(f"{month}: {format_count(unpriced, 'entry', 'entries')} without a price, in no sum", "warning")
    if books.spent is None:
        why = "entries were archived before they were read: `stepfare showback --archive FILE` reads them"
        console.note(f"{month}: what was spent is not known, for {why}", "warning")
    others = _Period(month, "", None, books).others
    if others:
        console.note(f"{month}: spent beside, in no sum of dollars: {_currency_list(others)}", "warning")


def _exact(amount: Decimal) -> str:
    """Return an amount with all its digits, at least two decimals."""
    whole, _, digits = f"{amount:f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


def _currency_list(others: Mapping[str, str]) -> str:
    return ", ".join(f"{amount} {currency}" for currency, amount in sorted(others.items()))


# Attempts to seal the month, because entries may arrive while the report is made.
_TRIES = 3


def close(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="Month to close, such as 2026-10.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Close even if machines of that month are not metered yet.")
    ] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Time of the closing (ISO, with zone).")] = None,
) -> None:
    """Close the books of a month permanently: they cannot be opened again.

    Closing seals the inputs of the month's report: entries, bills, budgets, figures. Later changes, such as a restated
    bill, are booked in an open month as a dated correction. Months are closed in order.

    \b
    stepfare ledger close 2026-10
    stepfare ledger close 2026-10 --anyway --now 2026-11-04T09:00Z
    """
    from router.state.periods import CLOSE_ACTION

    period, moment = parse_month("MONTH", month), parse_now(now)
    with open_state_store(settings_files) as (_, store):
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
            CLOSE_ACTION,
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


def _seal_month(store: StateStore, period: Month, moment: datetime) -> PeriodClosing:
    """Close the month with its present contents, and retry if an entry arrived meanwhile."""
    from router.app.close_month import book_corrections_locked, make_seal
    from router.showback.bill_store import BillStore

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
    for currency in sorted({row["currency"] for row in figures}):
        rows = [row for row in figures if row["currency"] == currency]
        total = sum((Decimal(row["effective"]) for row in rows), Decimal(0))
        yield f"{total:,.2f} {currency}, effective, as `stepfare showback` has it"
