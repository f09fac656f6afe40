"""Bills and their gaps as text: tables, lines, amounts. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from pricing.units import format_count
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.render.tables import PLAIN, Screen, wrap_text
from router.showback.bills import BillDecrease, BillGap, BillStanding, ImportedBill
from router.showback.focus.rules import RULES, FocusFinding
from router.showback.report.values import replace_unprintable

_ID = "bill-"
# Digits of an id in tables; commands accept any prefix of four or more that is unique.
_DIGITS = 8


def format_amount_text(text: str | None) -> str:
    """Return an amount such as ``1,234.56``, rounded to hundredths; empty if it is unknown."""
    return "" if text is None else f"{Decimal(text):,.2f}"


def format_period(bill: ImportedBill) -> str:
    """Return the billing period: ``2026-11`` for a month, else the day it begins."""
    if bill.start is None:
        return ""
    month = bill.start[8:] == "01T00:00:00Z" and bill.end is not None and bill.end[8:] == "01T00:00:00Z"
    return bill.start[:7] if month else bill.start[:10]


def table(standings: list[BillStanding], screen: Screen = PLAIN) -> str:
    """Return a table with one row per bill and currency."""
    return _BILLS.text(((standing, currency) for standing in standings for currency in standing.bill.sums), screen)


def _short(identity: str) -> str:
    return identity.removeprefix(_ID)[:_DIGITS]


_BILLS: RecordTable[tuple[BillStanding, str]] = RecordTable(
    (
        TableColumn("", lambda row: _short(row[0].bill.id), "BILL"),
        TableColumn("", lambda row: replace_unprintable(row[0].bill.issuer or row[0].bill.label), "ISSUER", width=14),
        TableColumn("", lambda row: replace_unprintable(row[0].bill.account or ""), "ACCOUNT", width=12),
        TableColumn("", lambda row: format_period(row[0].bill), "PERIOD"),
        TableColumn("", lambda row: row[0].bill.rows, "ROWS", right=True),
        TableColumn("", lambda row: format_amount_text(row[0].bill.sums[row[1]]["BilledCost"]), "BILLED", right=True),
        TableColumn("", lambda row: row[1], ""),
        TableColumn("", lambda row: "removed" if row[0].removed else _short(row[0].replaced_by or ""), "REPLACED"),
    )
)


def describe_bill(bill: ImportedBill) -> str:
    """Return issuer, account and period of a bill, such as ``AWS, 111122223333, 2026-11``."""
    words = (bill.issuer or bill.label or "issuer unknown", bill.account or "account unknown", format_period(bill))
    return ", ".join(replace_unprintable(word) for word in words if word)


def fall_lines(before: ImportedBill, after: ImportedBill, decreases: tuple[BillDecrease, ...]) -> Iterator[str]:
    """Yield a line with both figures for each count or sum that is lower than in the bill before."""
    for each in decreases:
        if each.what == "rows":
            yield f"{describe_bill(after)}: rows fall from {before.rows:,} to {after.rows:,}"
        else:
            kind = each.what.removesuffix("Cost").lower()
            old, new = format_amount_text(each.before), format_amount_text(each.after)
            change = f"{kind} cost falls from {old} to {new} {replace_unprintable(each.currency)}"
            yield f"{describe_bill(after)}: {change}".rstrip()


def format_sums(bill: ImportedBill) -> str:
    """Return rows and billed costs, such as ``220 rows, 9,282.35 USD billed``."""
    amounts = [
        f"{format_amount_text(sums['BilledCost']) or 'unknown'} {replace_unprintable(code)} billed"
        for code, sums in bill.sums.items()
    ]
    return ", ".join([format_count(bill.rows, "row"), *amounts])


def gap_lines(gaps: tuple[BillGap, ...]) -> Iterator[str]:
    """Yield one line per kind of gap with its count; absent optional columns share one line."""
    for name in dict.fromkeys(gap.file for gap in gaps):
        of_file = [gap for gap in gaps if gap.file == name]
        yield f"{replace_unprintable(name)}:"
        absent = [gap.column for gap in of_file if gap.rule == "absent-column"]
        if absent:
            yield wrap_text(f"not in the file: {', '.join(absent)}", "  ")
        for gap in of_file:
            if gap.rule != "absent-column":
                finding = FocusFinding(gap.rule, gap.column, gap.row, gap.line, gap.value)
                what = finding.what if gap.rule in RULES else gap.rule
                often = "" if gap.row is None else f" ({_count(gap)})"
                yield wrap_text(f"{replace_unprintable(gap.column)} {what}{often}", "  ")


def _count(gap: BillGap) -> str:
    place = f"line {gap.line}" if gap.line is not None else f"row {gap.row}"
    return place if gap.count == 1 else f"{gap.count:,} times, first at {place}"


def as_record(standing: BillStanding) -> dict[str, object]:
    """Return the record of a bill for JSON."""
    return _RECORDS.record(standing)


_RECORDS: RecordTable[BillStanding] = RecordTable(
    (
        *attribute_columns("id", "issuer", "account", of="bill"),
        TableColumn("period_start", lambda standing: standing.bill.start),
        TableColumn("period_end", lambda standing: standing.bill.end),
        *attribute_columns("label", "rows", "sums", "data_through", of="bill"),
        TableColumn("imported_at", lambda standing: standing.delivery.imported_at),
        TableColumn("delivery", lambda standing: standing.delivery.number),
        *attribute_columns("replaces", "replaced_by", "stands", "removed"),
    )
)
