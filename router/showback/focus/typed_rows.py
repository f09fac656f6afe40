"""A batch of text as typed columns of the newest version, and the marks of what no cell should say. Pure.

More is read than FOCUS allows, for real bills hold it (a time without a zone, ``1e-05``), and each such cell is
marked; a cell that cannot be read is marked and null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from router.showback.focus import words
from router.showback.focus.arrow_types import MOMENT, arrow_type
from router.showback.focus.batches import Batch
from router.showback.focus.columns import BY_NAME, Column, Kind
from router.showback.focus.rules import Mark
from router.showback.focus.texts import MOMENT as MOMENT_PATTERN
from router.showback.focus.texts import NUMBER, read_json

NULL_WORDS = ("NULL", "null")
# What Azure writes where it knows nothing.
MISSING_WORDS = ("Unassigned", "-2")
_FREE_TEXT = frozenset({"ChargeDescription"})
_LENIENT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(E[+-]?\d{1,3})?\s*", re.ASCII | re.IGNORECASE)
_WIDE = Context(prec=200)
_CACHED = 1 << 16
Found = tuple[pa.Array, list[Mark]]


@dataclass(frozen=True, slots=True)
class Typed:
    """``columns`` by the name in the newest version; ``marks`` by the name in the file."""

    rows: int
    columns: Mapping[str, pa.Array]
    marks: tuple[Mark, ...]

    def column(self, name: str) -> pa.Array:
        """Nulls where the file has no such column."""
        found = self.columns.get(name)
        return pa.nulls(self.rows, arrow_type(BY_NAME[name])) if found is None else found


def typed(batch: Batch, sources: Mapping[str, str]) -> Typed:
    """``sources``: for each column of the newest version, the column of the batch that fills it."""
    columns, marks = {}, []
    for target, source in sources.items():
        delivered = BY_NAME[source]
        text, some = _without_words(batch.columns[source], delivered)
        columns[target], more = _READERS.get(delivered.kind, _as_text)(text, delivered, BY_NAME[target])
        marks += [*some, *more]
        if not delivered.nullable and text.null_count:
            marks.append(_mark("null", source, pc.is_null(text)))
    return Typed(batch.rows, columns, tuple(marks))


def indices(mask: pa.Array) -> NDArray[np.intp]:
    """Where a mask is true; null is not."""
    return np.flatnonzero(pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False))


def _mark(rule: str, column: str, mask: pa.Array) -> Mark:
    return Mark(rule, column, indices(mask))


def _some(*marks: Mark) -> list[Mark]:
    return [mark for mark in marks if len(mark.rows)]


def _without_words(text: pa.StringArray, column: Column) -> Found:
    marks = []
    groups = [("null-word", NULL_WORDS)]
    if column.kind is Kind.TEXT and column.name not in _FREE_TEXT:
        groups.append(("missing-word", MISSING_WORDS))
    for rule, known in groups:
        mask = pc.is_in(text, pa.array(known))
        if pc.any(mask).as_py():
            marks.append(_mark(rule, column.name, mask))
            text = pc.if_else(mask, None, text)
    return text, marks


def _as_text(text: pa.StringArray, column: Column, target: Column) -> Found:  # noqa: ARG001
    return text, []


def _known(rule: str, bad: Callable[[str, Column], bool]) -> Callable[[pa.StringArray, Column, Column], Found]:
    def read(text: pa.StringArray, column: Column, target: Column) -> Found:  # noqa: ARG001
        refused = [each for each in _distinct(text) if bad(each, column)]
        return text, _some(_mark(rule, column.name, pc.is_in(text, pa.array(refused, pa.string())))) if refused else []

    return read


def _distinct(text: pa.StringArray) -> Iterator[str]:
    return (each for each in pc.unique(text).to_pylist() if each is not None)


def _as_json(text: pa.StringArray, column: Column, target: Column) -> Found:  # noqa: ARG001
    faults = {each: _json_fault(each, column.name) for each in _distinct(text)}
    marks = []
    for rule in ("json", "json-key"):
        refused = [each for each, fault in faults.items() if fault == rule]
        if refused:
            marks.append(_mark(rule, column.name, pc.is_in(text, pa.array(refused, pa.string()))))
    return text, marks


@lru_cache(maxsize=_CACHED)
def _json_fault(text: str, column: str) -> str:
    """The rule that it breaks; none: empty."""
    try:
        found = read_json(text)
    except ValueError:
        return "json"
    if column == "SkuPriceDetails":
        return "json-key" if _own(found, words.SKU_DETAILS) else ""
    if column == "AllocatedMethodDetails":
        elements = found.get("Elements")
        if not isinstance(elements, list) or not all(isinstance(each, dict) for each in elements):
            return "json"
        own = _own(found, frozenset({"Elements"})) or any(_own(each, words.ALLOCATION_DETAILS) for each in elements)
        return "json-key" if own else ""
    return ""


def _own(found: Mapping[str, object], known: frozenset[str]) -> bool:
    return any(key not in known and not key.startswith("x_") for key in found)


def _as_decimal(text: pa.StringArray, column: Column, target: Column) -> Found:
    kind = arrow_type(target)
    strict = pc.match_substring_regex(text, f"^{NUMBER}$")
    marks = _some(_mark("number", column.name, pc.invert(strict)))
    try:
        amounts = pc.cast(pc.if_else(strict, text, None), kind)
        if not marks:
            return amounts, _prices(amounts, column)
    except pa.ArrowInvalid:
        pass  # more digits than fit: one by one, below
    found = [_amount(each, kind.scale, kind.precision) if each is not None else None for each in text.to_pylist()]
    amounts = pa.array([each[0] if each else None for each in found], kind)
    for rule in ("rounded", "unreadable"):
        rows = np.flatnonzero([each is not None and each[1] == rule for each in found])
        marks += _some(Mark(rule, column.name, rows))
    return amounts, [*marks, *_prices(amounts, column)]


def _prices(amounts: pa.Array, column: Column) -> list[Mark]:
    if column.negative or amounts.null_count == len(amounts):
        return []
    return _some(_mark("negative-price", column.name, pc.less(amounts, pa.scalar(Decimal(0), amounts.type))))


@lru_cache(maxsize=_CACHED)
def _amount(text: str, places: int, digits: int) -> tuple[Decimal | None, str]:
    """What is kept of a number, and the rule that it broke on the way."""
    if not _LENIENT.fullmatch(text):
        return None, "unreadable"
    with localcontext(_WIDE):
        value = Decimal(text.strip())
        if value and value.adjusted() >= digits - places:
            return None, "unreadable"
        kept = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
        return kept, "" if kept == value else "rounded"


def _as_moment(text: pa.StringArray, column: Column, target: Column) -> Found:  # noqa: ARG001
    encoded = text.dictionary_encode()
    moments = [_moment(each) for each in encoded.dictionary.to_pylist()]
    kept = pa.array([moment for moment, _ in moments], MOMENT).take(encoded.indices)
    marks = []
    for rule in ("time", "unreadable"):
        bad = pa.array([broken == rule for _, broken in moments], pa.bool_()).take(encoded.indices)
        marks += _some(_mark(rule, column.name, bad))
    return kept, marks


@lru_cache(maxsize=_CACHED)
def _moment(text: str) -> tuple[datetime | None, str]:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None, "unreadable"
    # FOCUS times are UTC: one that says no zone is taken to be.
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment, "" if re.fullmatch(MOMENT_PATTERN, text, re.ASCII) else "time"


def _no_unit(text: str, column: Column) -> bool:  # noqa: ARG001
    return text != text.strip() or _LENIENT.fullmatch(text) is not None


_READERS: dict[Kind, Callable[[pa.StringArray, Column, Column], Found]] = {
    Kind.DECIMAL: _as_decimal,
    Kind.MOMENT: _as_moment,
    Kind.JSON: _as_json,
    Kind.WORD: _known("word", lambda text, column: text not in column.words),
    Kind.CURRENCY: _known("currency", lambda text, _: text not in words.CURRENCIES),
    Kind.UNIT: _known("unit", _no_unit),
}
