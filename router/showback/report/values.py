"""Define a report as a value: sections of rows, each cell of a kind, money exact. Pure.

Cells are written as text that is exact for programs, short for people, and harmless in a spreadsheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Context, Decimal
from enum import StrEnum
from typing import Final

from router.showback.labels import label_name

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
        return self.kind in NUMBERS


# The columns of all sections by kind: a name means one thing, and has one title, that here or the name in words.
_NAMES: Final = {
    CellKind.TEXT: (
        "accelerator account action attempt bucket category cause cloud corrects cost_center currency group "
        "instance_type job kind mark market method month most_job name origin owner part plan pot project quote reason "
        "reference region rests_on route scope side state step team unit use useful_unit value what who why"
    ),
    CellKind.MONEY: (
        "above actual after allocated amount before billed budget by_credit by_mix by_price by_quantity by_timing "
        "by_unplanned by_waste change cost difference effective forecast forecast_high forecast_low invoiced "
        "last_month list machines metered most moved off_plan on_demand p50 p90 planned pot_amount restart_on_demand "
        "running saved saved_net shared spent sum together unallocated usual waste whole"
    ),
    CellKind.RATE: "per_1000_samples per_1000_steps per_1m_tokens per_accelerator_hour times",
    CellKind.AMOUNT: (
        "accelerator_hours actual_hours actual_steps hours lost planned_hours planned_steps quantity useful"
    ),
    CellKind.SHARE: "budget_used estimated_share promised ratio share share_of_total used",
    CellKind.COUNT: "attempts facts number row unpriced",
    CellKind.FLAG: "deadline_met hard on_time sealed within_p90",
    CellKind.DAY: "day",
    CellKind.MOMENT: "deadline done_at end p50_at p90_at recorded_at start",
}
_TITLES: Final = {
    "accelerator_hours": "Acc. hours",
    "action": "What to do",
    "actual_hours": "Hours",
    "actual_steps": "Steps",
    "allocated": "With",
    "bucket": "Because of",
    "budget_used": "Used",
    "cause": "Likely",
    "deadline_met": "On time",
    "end": "Until",
    "estimated_share": "Estimated",
    "facts": "Rows",
    "forecast_high": "Forecast to",
    "forecast_low": "Forecast from",
    "group": "Goes to",
    "instance_type": "Machine type",
    "list": "At list price",
    "method": "By",
    "most": "Cost of that job",
    "most_job": "Its job with most",
    "moved": "Other currency",
    "name": "What",
    "number": "No.",
    "origin": "From",
    "owner": "Team with most of it",
    "p50": "Half below",
    "p50_at": "Half by",
    "p90": "9 of 10 below",
    "p90_at": "9 of 10 by",
    "per_1m_tokens": "Per 1M tokens",
    "per_accelerator_hour": "Per acc. hour",
    "planned_hours": "Hours planned",
    "planned_steps": "Steps planned",
    "pot_amount": "All of it",
    "promised": "Promised on time",
    "reason": "Why",
    "recorded_at": "Recorded",
    "reference": "Document",
    "restart_on_demand": "Of restarts",
    "saved_net": "Saved, net",
    "scope": "Budget of",
    "share": "Covered",
    "share_of_total": "Share",
    "start": "From",
    "times": "Times usual",
    "unallocated": "Without",
    "unpriced": "Unpriced rows",
    "useful": "Done",
    "useful_unit": "Of",
    "value": "",
    "whole": "Of all",
    "within_p90": "Kept",
}
_KIND_OF: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def column_title(name: str) -> str:
    """Return the title of a column, or of a label of jobs."""
    label = label_name(name)
    words = name.removeprefix("by_").replace("_", " ").capitalize()
    return _TITLES.get(name, words) if label is None else f"Label {label}"


def define_columns(names: str, **titles: str) -> tuple[ReportColumn, ...]:
    """Return the columns of a text such as ``team:0 cost:0 waste``: names with their ranks, 1 where none is said.

    ``titles`` are those that differ from the usual ones. KeyError for a name that is no column.
    """
    pairs = (each.partition(":") for each in names.split())
    return tuple(
        ReportColumn(name, titles.get(name, column_title(name)), _KIND_OF[name], int(rank or 1))
        for name, _, rank in pairs
    )


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of rows; ``notes`` tell how the rows were found, and what is not known."""

    name: str
    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[CellValue, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def define(cls, name: str, title: str, columns: str, **titles: str) -> ReportSection:
        """Return the section as it is before it is filled; columns as :func:`define_columns` has them."""
        return cls(name, title, define_columns(columns, **titles))

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
