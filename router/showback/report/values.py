"""A report as a value: sections of rows, each cell of a kind, money exact. Every format is written from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from enum import StrEnum

Cell = str | Decimal | int | bool | date | datetime | None

SCHEMA_VERSION = 1
# Of what is divided: unit costs, shares. Sums are never rounded.
PLACES = 9
# The rank of a column that is for programs alone.
HIDDEN = 9
_WIDE = Context(prec=100)


class Kind(StrEnum):
    """What a column holds. Of every kind None is "not known", never zero."""

    TEXT = "text"
    MONEY = "money"  # Decimal, in the currency of the row
    RATE = "rate"  # Decimal: money for one of something, rounded to nine places
    AMOUNT = "amount"  # Decimal: hours, gigabytes, steps
    SHARE = "share"  # Decimal: 0.5 is a half
    COUNT = "count"  # int
    FLAG = "flag"  # bool
    DAY = "day"
    MOMENT = "moment"  # UTC


NUMBERS = frozenset({Kind.MONEY, Kind.RATE, Kind.AMOUNT, Kind.SHARE, Kind.COUNT})


@dataclass(frozen=True, slots=True)
class Column:
    """``name`` for machines, ``title`` for people. ``rank``: what does not fit a narrow page goes by it, 0 last."""

    name: str
    title: str
    kind: Kind = Kind.TEXT
    rank: int = 1


@dataclass(frozen=True, slots=True)
class Section:
    """``notes`` say what is to be known of the rows: how they were found, what is not known."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def records(self) -> Iterator[dict[str, Cell]]:
        """Each row by the names of the columns."""
        names = [column.name for column in self.columns]
        return (dict(zip(names, row, strict=True)) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Report:
    """The sections in their order, all there, also those without rows; names are unique."""

    title: str
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section:
        """KeyError for one that there is not."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)


def section(
    name: str, title: str, columns: tuple[Column, ...], rows: Iterable[dict[str, Cell]], *notes: str
) -> Section:
    """Of rows by name; what a row does not say is None. KeyError for a name that is no column."""
    names = [column.name for column in columns]
    made = []
    for row in rows:
        unknown = row.keys() - set(names)
        if unknown:
            raise KeyError(f"{name} has no column {', '.join(sorted(unknown))}")
        made.append(tuple(row.get(column) for column in names))
    return Section(name, title, columns, tuple(made), notes)


def ratio(part: Decimal | None, whole: Decimal | int | None, times: int = 1) -> Decimal | None:
    """``times`` x part / whole to nine places, half to even; None where one of them is not known, or the whole is 0."""
    if part is None or not whole:
        return None
    return _WIDE.divide(_WIDE.multiply(part, Decimal(times)), Decimal(whole)).quantize(
        Decimal(1).scaleb(-PLACES), context=_WIDE
    )


def added(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """The sum of those that are known, of all digits; None where none is."""
    total: Decimal | None = None
    for amount in amounts:
        if amount is not None:
            total = amount if total is None else _WIDE.add(total, amount)
    return total


def less(whole: Decimal | None, part: Decimal | None) -> Decimal | None:
    """The difference, of all digits; None where one of them is not known."""
    return None if whole is None or part is None else _WIDE.subtract(whole, part)


def plain(value: Decimal) -> Decimal:
    """The same amount without zeros at its end: two facts with other scales give one text."""
    if not value:
        return Decimal(0)
    value = value.normalize(_WIDE)
    # A power of ten is all that the text can have a plus for; the exponent itself takes five times as long.
    return value.quantize(Decimal(1), context=_WIDE) if "+" in str(value) else value
