"""Read entries that people add to the ledger: fees, credits, taxes, adjustments, from a YAML or a CSV file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, model_validator

from pricing.money import Usd
from pricing.problems import InvalidInputError, Problem
from router.config.document_file import read_single_document
from router.files.missing_file import missing_file
from router.jobs.fields import RefusedError, Spec, Text, show_value
from router.jobs.quantities import UtcTime
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse, utc
from router.ledger.month import Month

_MOST_BYTES = 10_000_000
_DIGITS_OF_A_KEY = 32
_CSV = ".csv"
_ANY_TIME = Month(1970, 1).begins


def _month(value: object) -> Month:
    try:
        return value if isinstance(value, Month) else Month.parse(str(value))
    except ValueError as error:
        raise RefusedError(str(error), "write a month such as 2026-11") from None


def _usd(value: object) -> Usd:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RefusedError(f"{show_value(value)} is no amount", "write dollars such as 1250.50 or -99.90")
    try:
        return Usd.parse(str(value).strip().replace(",", "").replace("$", "", 1))
    except ValueError as error:
        raise RefusedError(str(error), "write dollars such as 1250.50 or -99.90") from None


def _quantity(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RefusedError(f"{show_value(value)} is no quantity", "write a number such as 12 or 0.5")
    try:
        amount = Decimal(str(value).strip())
        return Fraction(amount)
    except (ArithmeticError, ValueError):
        raise RefusedError(f"{show_value(value)} is no quantity", "write a number such as 12 or 0.5") from None


class AddedEntry(Spec):
    """One entry. Its time is ``start`` until ``end``, else the whole of ``period``."""

    kind: Literal["fee", "credit", "tax", "adjustment"] = Field(description="A credit is not above 0, a fee not below.")
    usd: Annotated[Usd, PlainValidator(_usd)]
    reason: Text = Field(description="Why, for whoever reads the books.")
    period: Annotated[Month | None, PlainValidator(_month)] = Field(
        default=None, description="The month in whose books it stands; left out: that of `start`."
    )
    start: UtcTime | None = None
    end: UtcTime | None = None
    corrects: Text | None = Field(default=None, description="The key of an entry, or a closed month.")
    reference: Text | None = Field(default=None, description="An invoice, a contract, a ticket.")
    id: Text | None = Field(default=None, description="Tells apart two entries that say the same.")
    what: Literal["machine", "disk", "egress", "storage", "other"] = "other"
    use: Literal["commitment_unused", "reservation_unused"] | None = None
    quantity: Annotated[Fraction | None, PlainValidator(_quantity)] = None
    unit: Text | None = None
    team: Text | None = None
    project: Text | None = None
    cost_center: Text | None = None
    job: Text | None = None
    cloud: Text | None = None
    region: Text | None = None
    instance_type: Text | None = None

    @model_validator(mode="after")
    def _check_times(self) -> AddedEntry:
        if self.period is None and self.start is None:
            raise RefusedError("needs `period`, or `start` and `end`", at=("period",))
        if (self.start is None) != (self.end is None):
            raise RefusedError("`start` and `end` come together", at=("start",))
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise RefusedError("ends when it begins, or before", at=("end",))
        if (self.quantity is None) != (self.unit is None):
            raise RefusedError("`quantity` and `unit` come together", at=("quantity",))
        try:
            _entry(self, "whoever", _ANY_TIME)
        except ValueError as error:
            raise RefusedError(str(error).partition(": ")[2]) from None
        return self


class Ledger(Spec):
    """A file of entries to add to the ledger."""

    entries: tuple[AddedEntry, ...]


def read_added_entries(path: Path, who: str, at: datetime) -> tuple[LedgerEntry, ...]:
    """Return the entries of a file, each added by ``who`` at that time. The same row again has the same key.

    InvalidInputError carries everything that is wrong, each with file and line.
    """
    rows = _read_csv(path) if path.suffix.lower() == _CSV else read_single_document(path, Ledger).entries
    entries = tuple(_entry(row, who, at) for row in rows)
    duplicates = [key for key, count in Counter(entry.key for entry in entries).items() if count > 1]
    if duplicates:
        what, remedy = f"{len(duplicates)} entries stand in it twice", "give each an `id` where both are meant"
        raise InvalidInputError.single(what, where=str(path), remedy=remedy)
    return entries


def _read_csv(path: Path) -> tuple[AddedEntry, ...]:
    try:
        content = path.read_bytes()[: _MOST_BYTES + 1]
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("is not UTF-8 text", where=str(path), remedy="save it as UTF-8") from None
    if len(content) > _MOST_BYTES:
        raise InvalidInputError.single("is larger than 10 MB", where=str(path), remedy="split it")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    problems: list[Problem] = []
    entries: list[AddedEntry] = []
    try:
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if None in cells or None in cells.values():
                problems.append(Problem(where, "", "has not as many values as the first line has names"))
                continue
            try:
                entries.append(AddedEntry.model_validate({k.strip(): v for k, v in cells.items() if v.strip()}))
            except ValidationError as error:
                problems += _problems(where, error)
    except csv.Error as error:
        problems.append(Problem(f"{path}:{reader.line_num}", "", f"is not CSV: {error}"))
    if problems:
        raise InvalidInputError(problems)
    return tuple(entries)


def _problems(where: str, error: ValidationError) -> Iterator[Problem]:
    for details in error.errors(include_url=False):
        cause = details.get("ctx", {}).get("error")
        refused = isinstance(cause, RefusedError)
        place = (*details["loc"], *cause.at) if isinstance(cause, RefusedError) else details["loc"]
        what = cause.what if isinstance(cause, RefusedError) else details["msg"]
        if details["type"] == "extra_forbidden":
            what = f"is no column; known: {', '.join(AddedEntry.model_fields)}"
        yield Problem(where, ".".join(map(str, place)), what, getattr(cause, "remedy", "") if refused else "")


def _entry(row: AddedEntry, who: str, at: datetime) -> LedgerEntry:
    month = row.period if row.start is None else Month.of(row.start)
    assert month is not None  # The model checks that it has a time.
    start, end = (row.start, row.end) if row.start is not None and row.end is not None else (month.begins, month.ends)
    words: dict[str, Any] = {
        name: getattr(row, name) or ""
        for name in ("corrects", "reference", "team", "job", "cloud", "region", "instance_type")
    }
    return LedgerEntry(
        key=_key(row),
        kind=LedgerEntryKind(row.kind),
        what=CostItem(row.what),
        use=None if row.use is None else MachineUse(row.use),
        recorded_at=utc(at),
        period=row.period or month,
        start=utc(start),
        end=utc(end),
        usd=row.usd,
        quantity=row.quantity or Fraction(0),
        unit=row.unit or "",
        project=row.project,
        cost_center=row.cost_center,
        who=who,
        reason=row.reason,
        **words,
    )


def _key(row: AddedEntry) -> str:
    if row.id is not None:
        return f"added {row.id}"
    fields = {name: str(value) for name in sorted(AddedEntry.model_fields) if (value := getattr(row, name)) is not None}
    return f"added {hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:_DIGITS_OF_A_KEY]}"
