"""The canonical row of a ledger entry: the text and numbers that tables, files and hashes of the ledger contain.

Pure.

A row is ``(seq, *values, previous, hash)`` with a value for each name in :data:`NAMES`: money in whole nano-dollars, a
moment as text such as ``2026-11-21T18:00:00.123456Z``, a fraction as ``n/d``. ``hash`` is SHA-256 in hex over the other
parts, so that a row that was changed, or that does not follow the one before, is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.state.columns import storable_moment, storable_nanos, storable_number, storable_text

Value = str | int | None
Row = tuple[Any, ...]

# The hash before that of the first row.
BEGINNING = "0" * 64
_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _nanos(kind: type[Usd | UsdPerHour]) -> Callable[[Any], int]:
    return partial(storable_nanos, kind=kind)


def _word(kind: type[Enum]) -> Callable[[Any], str]:
    return lambda value: str(kind(value).value)


def _ratio(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


# By the column's name: the entry's field, the function that stores it and the one that restores it.
_FORMS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "key": ("key", storable_text, str),
    "kind": ("kind", _word(LedgerEntryKind), LedgerEntryKind),
    "what": ("what", _word(CostItem), CostItem),
    "use": ("use", _word(MachineUse), MachineUse),
    "recorded_at": ("recorded_at", storable_moment, datetime.fromisoformat),
    "period": ("period", str, Month.parse),
    "corrects": ("corrects", storable_text, str),
    **{
        name: (name, storable_text, str)
        for name in ("plan", "job", "job_digest", "team", "project", "cost_center", "gang")
    },
    "attempt": ("attempt", storable_text, str),
    "rank": ("rank", storable_number, int),
    **{name: (name, storable_text, str) for name in ("cloud", "region", "zone", "instance_type")},
    "market": ("market", _word(Market), Market),
    "accelerator": ("accelerator", storable_text, str),
    "accelerators": ("accelerators", storable_number, int),
    "machines": ("machines", storable_number, int),
    "start_at": ("start", storable_moment, datetime.fromisoformat),
    "end_at": ("end", storable_moment, datetime.fromisoformat),
    "quantity": ("quantity", _ratio, Fraction),
    "unit": ("unit", storable_text, str),
    "usd_per_hour_nanos": ("usd_per_hour", _nanos(UsdPerHour), UsdPerHour),
    "usd_nanos": ("usd", _nanos(Usd), Usd),
    "unpriced": ("unpriced", storable_number, bool),
    "steps": ("steps", storable_number, int),
    "lost_steps": ("lost_steps", storable_number, int),
    **{name: (name, storable_text, str) for name in ("price_as_of", "price_source", "who", "reason", "reference")},
    "resource": ("resource", storable_text, str),
    "on_demand_usd_per_hour_nanos": ("on_demand_usd_per_hour", _nanos(UsdPerHour), UsdPerHour),
    "closing": ("closing", storable_text, str),
}
NAMES = tuple(_FORMS)
MOMENTS = frozenset({"recorded_at", "start_at", "end_at"})
_STORE = tuple((field, store) for field, store, _ in _FORMS.values())
_RESTORE = tuple((field, restore) for field, _, restore in _FORMS.values())
_KEY, _KIND, _PERIOD, _CLOSING = (NAMES.index(name) for name in ("key", "kind", "period", "closing"))
_BY_NAME = tuple(sorted((name, place) for place, name in enumerate(NAMES)))
# Values that may differ where the same event is recorded twice; those of booking only if no person decided them.
_OF_RECORDING = frozenset({NAMES.index("recorded_at"), NAMES.index("who"), _CLOSING})
_OF_BOOKING = frozenset({_PERIOD, NAMES.index("corrects")})
_BOOKED_BY_RULE = frozenset({LedgerEntryKind.PLANNED.value, LedgerEntryKind.METERED.value})
_WIDTH = len(NAMES) + len(("seq", "previous", "hash"))


def entry_values(entry: LedgerEntry) -> tuple[Value, ...]:
    """Return the values of an entry. TypeError or ValueError for what cannot be stored."""
    return tuple(None if (v := getattr(entry, field)) is None else store(v) for field, store in _STORE)


def parse_entry(values: Sequence[Value]) -> LedgerEntry:
    """Return the entry of these values. ValueError if no entry has such values."""
    try:
        fields: dict[str, Any] = {
            field: None if value is None else restore(value)
            for (field, restore), value in zip(_RESTORE, values, strict=True)
        }
    except ArithmeticError as error:  # a fraction of nothing
        raise ValueError(str(error)) from None
    return LedgerEntry(**fields)


def row_key(row: Row) -> str:
    """Return the key of a row."""
    return str(row[1 + _KEY])


def row_period(row: Row) -> str:
    """Return the month of the books that a row stands in."""
    return str(row[1 + _PERIOD])


def row_closing(row: Row) -> str:
    """Return the closing that a row names; "" if there was none."""
    return str(row[1 + _CLOSING])


def with_closing(values: Sequence[Value], closing: str) -> tuple[Value, ...]:
    """Return the values of an entry, with the name of the last closing before it."""
    return (*values[:_CLOSING], closing, *values[_CLOSING + 1 :])


def event_values(values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values that identify the recorded event.

    They are the same however often it is recorded, by whom, when, and whether its month was closed meanwhile.
    """
    apart = _OF_RECORDING | _OF_BOOKING if values[_KIND] in _BOOKED_BY_RULE else _OF_RECORDING
    return tuple(value for place, value in enumerate(values) if place not in apart)


def hash_row(seq: int, values: Sequence[Value], previous: str) -> str:
    """Return the SHA-256 in hex over the values that are set, with ``seq`` and the previous hash.

    The values are given by name. Empty text, 0 and None are left out, so that a column of a later version changes no
    hash.
    """
    said = {name: value for name, place in _BY_NAME if (value := values[place])}
    return hashlib.sha256(_JSON.encode([seq, previous, said]).encode("ascii")).hexdigest()


def parse_row(row: Sequence[Any]) -> Row:
    """Return a row of a file. ValueError unless it has as many values as a row."""
    if len(row) != _WIDTH:
        raise ValueError(f"a row of {len(row)} values")
    return tuple(row)


def chain_rows(entries: Iterable[Sequence[Value]], seq: int, previous: str) -> Iterator[Row]:
    """Yield rows of these values that follow the row ``seq`` with the hash ``previous``."""
    for number, values in enumerate(entries, seq + 1):
        this = hash_row(number, values, previous)
        yield (number, *values, previous, this)
        previous = this


class RowChain:
    """Follows the chain of rows from the first; archived rows by their hashes alone.

    :attr:`broken` is the number of the first row that is changed or does not follow the one before; None while all are
    right.
    """

    def __init__(self) -> None:
        self.seq, self.hash = 0, BEGINNING
        self.broken: int | None = None

    def row(self, row: Row) -> None:
        """Follow the next row, of which all values are here."""
        seq, previous, this = row[0], row[-2], row[-1]
        self._follow(seq, previous, this, is_sound=hash_row(seq, row[1:-2], previous) == this)

    def archived(self, seq: int, previous: str, this: str) -> None:
        """Follow the next row, of which only the hashes are here."""
        self._follow(seq, previous, this, is_sound=True)

    def _follow(self, seq: int, previous: str, this: str, *, is_sound: bool) -> None:
        if self.broken is None and not (is_sound and seq == self.seq + 1 and previous == self.hash):
            self.broken = seq
        self.seq, self.hash = seq, this
