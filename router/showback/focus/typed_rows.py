"""Convert a batch of text into typed columns of the newest version, with the violations of its cells. Pure.

More is read than FOCUS allows, for real bills hold it (a time without a zone, ``1e-05``), and each such cell is marked.
A cell that cannot be read is marked and null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from router.showback.facts import AMOUNT, MOMENT, MONEY
from router.showback.focus.columns import (
    ALLOCATION_DETAILS,
    BY_NAME,
    CURRENCIES,
    NEWEST_NAMES,
    SKU_DETAILS,
    FocusColumn,
    FocusColumnKind,
)
from router.showback.focus.feed import Batch
from router.showback.focus.rules import RuleViolation
from router.showback.focus.texts import MOMENT as MOMENT_PATTERN
from router.showback.focus.texts import NUMBER, join_key_values, read_json


def arrow_type(column: FocusColumn) -> pa.DataType:
    if column.kind is FocusColumnKind.DECIMAL:
        return MONEY if column.name.endswith(("Cost", "Price")) else AMOUNT
    return MOMENT if column.kind is FocusColumnKind.MOMENT else pa.string()


def arrow_schema(columns: Iterable[FocusColumn]) -> pa.Schema:
    """Return the schema of a file with those columns; each may be null, for bills leave out what they must not."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in columns])


NULL_WORDS = ("NULL", "null")
# Azure writes these where it knows nothing.
MISSING_WORDS = ("Unassigned", "-2")
_FREE_TEXT = frozenset({"ChargeDescription"})
_LENIENT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(E[+-]?\d{1,3})?\s*", re.ASCII | re.IGNORECASE)
_WIDE = Context(prec=200)
_CACHED = 1 << 16
TypedColumn = tuple[pa.Array, list[RuleViolation]]
ColumnReader = Callable[[pa.StringArray, FocusColumn], TypedColumn]


@dataclass(frozen=True, slots=True)
class TypedBatch:
    """A batch with types: ``columns`` by the name in the newest version; ``marks`` by the name in the file."""

    rows: int
    columns: Mapping[str, pa.Array]
    marks: tuple[RuleViolation, ...]

    def column(self, name: str) -> pa.Array:
        """Return the column; nulls where the file has no such column."""
        column = self.columns.get(name)
        return pa.nulls(self.rows, arrow_type(BY_NAME[name])) if column is None else column

    def table(self) -> pa.Table:
        """Return all columns of the newest version, and ours."""
        return pa.table({name: self.column(name) for name in NEWEST_NAMES})


def convert_batch(batch: Batch, sources: Mapping[str, str]) -> TypedBatch:
    """Convert a batch.

    ``sources`` names, for each column of the newest version, the column of the batch that fills it.
    """
    columns, marks = {}, []
    for target, source in sources.items():
        delivered = BY_NAME[source]
        text, word_marks = _blank_words(batch.columns[source], delivered)
        reader = _READERS.get(delivered.kind)
        columns[target], cell_marks = (text, []) if reader is None else reader(text, delivered)
        marks += [*word_marks, *cell_marks]
        if not delivered.nullable and text.null_count:
            marks.append(_mark("null", source, pc.is_null(text)))
    return TypedBatch(batch.rows, columns, tuple(marks))


def true_indices(mask: pa.Array) -> NDArray[np.intp]:
    """Return the indices where a mask is true; null is not."""
    return np.flatnonzero(pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False))


def _mark(rule: str, column: str, mask: pa.Array) -> RuleViolation:
    return RuleViolation(rule, column, true_indices(mask))


def _nonempty(*marks: RuleViolation) -> list[RuleViolation]:
    return [mark for mark in marks if len(mark.rows)]


def _blank_words(text: pa.StringArray, column: FocusColumn) -> TypedColumn:
    marks = []
    groups = [("null-word", NULL_WORDS)]
    if column.kind is FocusColumnKind.TEXT and column.name not in _FREE_TEXT:
        groups.append(("missing-word", MISSING_WORDS))
    for rule, known in groups:
        mask = pc.is_in(text, pa.array(known))
        if pc.any(mask).as_py():
            marks.append(_mark(rule, column.name, mask))
            text = pc.if_else(mask, None, text)
    return text, marks


def _word_reader(rule: str, is_bad: Callable[[str, FocusColumn], bool]) -> ColumnReader:
    def read(text: pa.StringArray, column: FocusColumn) -> TypedColumn:
        refused = [each for each in _distinct(text) if is_bad(each, column)]
        return text, _mark_texts(rule, column, text, refused)

    return read


def _mark_texts(rule: str, column: FocusColumn, text: pa.StringArray, refused: Collection[str]) -> list[RuleViolation]:
    return [_mark(rule, column.name, pc.is_in(text, pa.array(refused, pa.string())))] if refused else []


def _distinct(text: pa.StringArray) -> Iterator[str]:
    return (each for each in pc.unique(text).to_pylist() if each is not None)


def _as_json(text: pa.StringArray, column: FocusColumn) -> TypedColumn:
    joined = {each: other for each in _distinct(text) if (other := _joined_key_values(each)) is not None}
    marks = _mark_texts("key-values", column, text, joined)
    if joined:
        encoded = text.dictionary_encode()
        text = pa.array([joined.get(each, each) for each in encoded.dictionary.to_pylist()], pa.string()).take(
            encoded.indices
        )
    faults = {each: _json_fault(each, column.name) for each in _distinct(text)}
    for rule in ("json", "json-key"):
        marks += _mark_texts(rule, column, text, [each for each, fault in faults.items() if fault == rule])
    return text, marks


@lru_cache(maxsize=_CACHED)
def _joined_key_values(text: str) -> str | None:
    # Most are objects as FOCUS wants them, and need not be read twice.
    return join_key_values(text) if text.lstrip()[:1] in ("[", '"') or '"list"' in text else None


@lru_cache(maxsize=_CACHED)
def _json_fault(text: str, column: str) -> str:
    """Return the rule that the text breaks; empty for none."""
    try:
        content = read_json(text)
    except ValueError:
        return "json"
    if column == "SkuPriceDetails":
        return "json-key" if _has_own_keys(content, SKU_DETAILS) else ""
    if column == "AllocatedMethodDetails":
        elements = content.get("Elements")
        if not isinstance(elements, list) or not all(isinstance(each, dict) for each in elements):
            return "json"
        has_own = _has_own_keys(content, frozenset({"Elements"})) or any(
            _has_own_keys(each, ALLOCATION_DETAILS) for each in elements
        )
        return "json-key" if has_own else ""
    return ""


def _has_own_keys(content: Mapping[str, object], defined_keys: frozenset[str]) -> bool:
    return any(key not in defined_keys and not key.startswith("x_") for key in content)


def _as_decimal(text: pa.StringArray, column: FocusColumn) -> TypedColumn:
    kind = arrow_type(column)
    strict = pc.match_substring_regex(text, f"^{NUMBER}$")
    marks = _nonempty(_mark("number", column.name, pc.invert(strict)))
    try:
        amounts = pc.cast(pc.if_else(strict, text, None), kind)
        if not marks:
            return amounts, _prices(amounts, column)
    except pa.ArrowInvalid:
        pass  # More digits than fit: the amounts are read one by one below.
    parsed = [_amount(each, kind.scale, kind.precision) if each is not None else None for each in text.to_pylist()]
    amounts = pa.array([each[0] if each else None for each in parsed], kind)
    for rule in ("rounded", "unreadable"):
        rows = np.flatnonzero([each is not None and each[1] == rule for each in parsed])
        marks += _nonempty(RuleViolation(rule, column.name, rows))
    return amounts, [*marks, *_prices(amounts, column)]


def _prices(amounts: pa.Array, column: FocusColumn) -> list[RuleViolation]:
    if column.negative or amounts.null_count == len(amounts):
        return []
    return _nonempty(_mark("negative-price", column.name, pc.less(amounts, pa.scalar(Decimal(0), amounts.type))))


@lru_cache(maxsize=_CACHED)
def _amount(text: str, places: int, digits: int) -> tuple[Decimal | None, str]:
    """Return the stored value of a number, and the rule that it broke on the way."""
    if not _LENIENT.fullmatch(text):
        return None, "unreadable"
    with localcontext(_WIDE):
        value = Decimal(text.strip())
        if value and value.adjusted() >= digits - places:
            return None, "unreadable"
        stored = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
        return stored, "" if stored == value else "rounded"


def _as_moment(text: pa.StringArray, column: FocusColumn) -> TypedColumn:
    encoded = text.dictionary_encode()
    moments = [_read_moment(each) for each in encoded.dictionary.to_pylist()]
    column_of_moments = pa.array([moment for moment, _ in moments], MOMENT).take(encoded.indices)
    marks = []
    for rule in ("time", "unreadable"):
        faulty = pa.array([broken == rule for _, broken in moments], pa.bool_()).take(encoded.indices)
        marks += _nonempty(_mark(rule, column.name, faulty))
    return column_of_moments, marks


@lru_cache(maxsize=_CACHED)
def _read_moment(text: str) -> tuple[datetime | None, str]:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None, "unreadable"
    # FOCUS times are UTC: one that names no zone is taken to be.
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment, "" if re.fullmatch(MOMENT_PATTERN, text, re.ASCII) else "time"


def _is_no_unit(text: str, column: FocusColumn) -> bool:  # noqa: ARG001
    return text != text.strip() or _LENIENT.fullmatch(text) is not None


_READERS: dict[FocusColumnKind, ColumnReader] = {
    FocusColumnKind.DECIMAL: _as_decimal,
    FocusColumnKind.MOMENT: _as_moment,
    FocusColumnKind.JSON: _as_json,
    FocusColumnKind.WORD: _word_reader("word", lambda text, column: text not in column.words),
    FocusColumnKind.CURRENCY: _word_reader("currency", lambda text, _: text not in CURRENCIES),
    FocusColumnKind.UNIT: _word_reader("unit", _is_no_unit),
}
