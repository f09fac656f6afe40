"""Define a report as a value: sections of rows, each cell of a kind, money exact. Pure.

Cells are written as text that is exact for programs, short for people, and harmless in a spreadsheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Context, Decimal
from enum import StrEnum

CellValue = str | Decimal | int | bool | date | datetime | None
SCHEMA_VERSION = 1
# Places of quotients: unit costs, shares. Sums are never rounded.
PLACES = 9
# The rank of a column that is for programs alone.
HIDDEN = 9
_WIDE = Context(prec=100)


class CellKind(StrEnum):
    """The kind of value in a column. None of any kind is "not known", never zero."""

    TEXT = "text"
    MONEY = "money"  # Decimal, in the currency of the row
    RATE = "rate"  # Decimal: money for one of something, rounded to nine places
    AMOUNT = "amount"  # Decimal: hours, gigabytes, steps
    SHARE = "share"  # Decimal: 0.5 is a half
    COUNT = "count"  # int
    FLAG = "flag"  # bool
    DAY = "day"
    MOMENT = "moment"  # UTC


NUMBERS = frozenset({CellKind.MONEY, CellKind.RATE, CellKind.AMOUNT, CellKind.SHARE, CellKind.COUNT})


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column: ``name`` for machines, ``title`` for people.

    ``rank`` orders what is dropped from a narrow page; 0 is dropped last.
    """

    name: str
    title: str
    kind: CellKind = CellKind.TEXT
    rank: int = 1

    @property
    def is_number(self) -> bool:
        """Return whether its values are numbers."""
        return self.kind in NUMBERS


# The column of most sections, for currencies are never added up.
CURRENCY = ReportColumn("currency", "Currency", rank=0)


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of rows; ``notes`` tell how the rows were found, and what is not known."""

    name: str
    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[CellValue, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def define(cls, name: str, title: str, *columns: ReportColumn) -> ReportSection:
        """Return the section as it is before it is filled."""
        return cls(name, title, columns)

    def fill(self, rows: Iterable[dict[str, CellValue]], *notes: str) -> ReportSection:
        """Return the section with rows by name; a cell that a row lacks is None.

        KeyError for a name that is no column.
        """
        names = [column.name for column in self.columns]
        table = []
        for row in rows:
            unknown = row.keys() - set(names)
            if unknown:
                raise KeyError(f"{self.name} has no column {', '.join(sorted(unknown))}")
            table.append(tuple(row.get(column) for column in names))
        return replace(self, rows=tuple(table), notes=notes)

    def records(self, currency: str | None = None) -> Iterator[dict[str, CellValue]]:
        """Yield each row by the names of the columns; those of one currency where it is given."""
        names = [column.name for column in self.columns]
        records = (dict(zip(names, row, strict=True)) for row in self.rows)
        return (row for row in records if currency is None or row["currency"] == currency)


@dataclass(frozen=True, slots=True)
class ShowbackReport:
    """The sections in their order, all there, also those without rows; names are unique."""

    title: str
    sections: tuple[ReportSection, ...]

    def section(self, name: str) -> ReportSection:
        """Return the section of that name; KeyError for none."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)

    @property
    def head(self) -> dict[str, str]:
        """The values of the first section by name: the subject of the report, and what it was made from."""
        return {str(row["name"]): str(row["value"]) for row in self.section("head").records()}

    @property
    def basis(self) -> str:
        """The cost that sums are of: billed or effective."""
        return self.head["basis"].split()[0]

    @property
    def made_at(self) -> datetime:
        """The moment at which the report was made."""
        return datetime.fromisoformat(self.head["made_at"])


def divide_known(part: Decimal | None, whole: Decimal | int | None, times: int = 1) -> Decimal | None:
    """Return ``times`` x part / whole to nine places, half to even.

    None where one of them is unknown, or the whole is 0.
    """
    if part is None or not whole:
        return None
    return _WIDE.divide(_WIDE.multiply(part, Decimal(times)), Decimal(whole)).quantize(
        Decimal(1).scaleb(-PLACES), context=_WIDE
    )


def strip_zeros(value: Decimal) -> Decimal:
    """Return the same amount without zeros at its end: two facts with other scales give one text."""
    if not value:
        return Decimal(0)
    value = value.normalize(_WIDE)
    # Only a power of ten has a plus in its text; reading the exponent itself takes five times as long.
    return value.quantize(Decimal(1), context=_WIDE) if "+" in str(value) else value


UNKNOWN = "-"
_CENT = Decimal("0.01")


def exact_text(cell: CellValue) -> str:
    """Return all digits; moments as ``2026-11-01T00:00:00Z``; empty for an unknown value."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, Decimal):
        return f"{cell:f}"
    if isinstance(cell, datetime):
        text = f"{cell:%Y-%m-%dT%H:%M:%S}"
        return f"{text}.{cell.microsecond:06}Z" if cell.microsecond else f"{text}Z"
    return cell.isoformat() if isinstance(cell, date) else str(cell)


def short_text(cell: CellValue, kind: CellKind) -> str:
    """Return text for people: money to the cent, but never 0.00 for a nonzero amount; unknown is ``-``.

    Money that would round to 0.00 is said to be below a cent; what one of something costs has two digits.
    """
    if cell is None:
        return UNKNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Decimal):
        return _number(cell, kind)
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, datetime):
        return f"{cell:%Y-%m-%d %H:%M}"
    return cell.isoformat() if isinstance(cell, date) else replace_unprintable(cell)


def replace_unprintable(text: str) -> str:
    """Return the text with nothing in it that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _number(value: Decimal, kind: CellKind) -> str:
    if kind is CellKind.SHARE:
        return f"{_WIDE.multiply(value, Decimal(100)).quantize(Decimal('0.1'), context=_WIDE)}%"
    if kind is CellKind.AMOUNT and value == value.to_integral_value(context=_WIDE):
        return f"{value:,.0f}"
    if value and kind is CellKind.MONEY and abs(value) < _CENT / 2:
        return "<0.01" if value > 0 else ">-0.01"
    if value and kind is not CellKind.MONEY and abs(value) < _CENT:
        return f"{Decimal(f'{value:.2g}'):f}"
    return f"{value:,.2f}"
