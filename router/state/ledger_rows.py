"""The one form of an entry as plain text and numbers: what tables, files and hashes of the ledger hold. Pure.

A row is ``(seq, *values, previous, hash)`` with a value for each name in :data:`NAMES`: money whole nano-dollars, a
moment text such as ``2026-11-21T18:00:00.123456Z``, a fraction ``n/d``. ``hash`` is SHA-256 in hex over the other
parts, so that a row that was changed, and one that does not follow the one before, show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from typing import Any

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.ledger.entry import Entry, Kind, Use, What
from router.ledger.month import Month
from router.state.canonical_form import kept

Value = str | int | None
Row = tuple[Any, ...]

# What the first row names as the one before it.
BEGINNING = "0" * 64
_MOST = (1 << 63) - 1
_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _text(value: Any) -> str:
    return kept(value)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    if abs(value) > _MOST:
        raise ValueError(f"{value}: a number of more than 64 bits cannot be kept")
    return int(value)


def _nanos(kind: type[Usd | UsdPerHour]) -> Callable[[Any], int]:
    def keep(money: Any) -> int:
        if not isinstance(money, kind):
            raise TypeError(f"{money!r} is no {kind.__name__}")
        if abs(money.nanos) > _MOST:
            raise ValueError(f"{money}: more than nine billion dollars cannot be kept")
        return money.nanos

    return keep


def _moment(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError(f"{value} has no time zone")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _word(kind: type[Enum]) -> Callable[[Any], str]:
    return lambda value: str(kind(value).value)


def _ratio(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


# By the column's name: the entry's field, what keeps it and what brings it back.
_FORMS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "key": ("key", _text, str),
    "kind": ("kind", _word(Kind), Kind),
    "what": ("what", _word(What), What),
    "use": ("use", _word(Use), Use),
    "recorded_at": ("recorded_at", _moment, datetime.fromisoformat),
    "period": ("period", str, Month.parse),
    "corrects": ("corrects", _text, str),
    **{name: (name, _text, str) for name in ("plan", "job", "job_digest", "team", "project", "cost_center", "gang")},
    "attempt": ("attempt", _text, str),
    "rank": ("rank", _number, int),
    **{name: (name, _text, str) for name in ("cloud", "region", "zone", "instance_type")},
    "market": ("market", _word(Market), Market),
    "accelerator": ("accelerator", _text, str),
    "accelerators": ("accelerators", _number, int),
    "machines": ("machines", _number, int),
    "start_at": ("start", _moment, datetime.fromisoformat),
    "end_at": ("end", _moment, datetime.fromisoformat),
    "quantity": ("quantity", _ratio, Fraction),
    "unit": ("unit", _text, str),
    "usd_per_hour_nanos": ("usd_per_hour", _nanos(UsdPerHour), UsdPerHour),
    "usd_nanos": ("usd", _nanos(Usd), Usd),
    "unpriced": ("unpriced", _number, bool),
    "steps": ("steps", _number, int),
    "lost_steps": ("lost_steps", _number, int),
    **{name: (name, _text, str) for name in ("price_as_of", "price_source", "who", "reason", "reference")},
    # Later than the others; files of earlier versions do not have them.
    "resource": ("resource", _text, str),
    "on_demand_usd_per_hour_nanos": ("on_demand_usd_per_hour", _nanos(UsdPerHour), UsdPerHour),
}
NAMES = tuple(_FORMS)
MOMENTS = frozenset({"recorded_at", "start_at", "end_at"})
_KEEP = tuple((field, keep) for field, keep, _ in _FORMS.values())
_BRING = tuple((field, bring) for field, _, bring in _FORMS.values())
_KEY, _KIND, _PERIOD = (NAMES.index(name) for name in ("key", "kind", "period"))
_BY_NAME = tuple(sorted((name, place) for place, name in enumerate(NAMES)))
# What may differ where the same happening is recorded twice; the last two, unless a person decided them.
_OF_RECORDING = frozenset({NAMES.index("recorded_at"), NAMES.index("who")})
_OF_BOOKING = frozenset({_PERIOD, NAMES.index("corrects")})
_BOOKED_BY_RULE = frozenset({Kind.PLANNED.value, Kind.METERED.value})
# An earlier version recorded the same without them.
_LATER: dict[str, Value] = {"resource": "", "on_demand_usd_per_hour_nanos": None}
_OF_LATER = frozenset(NAMES.index(name) for name in _LATER)
_WIDTH = len(NAMES) + len(("seq", "previous", "hash"))


def raw(entry: Entry) -> tuple[Value, ...]:
    """The values of an entry. TypeError, ValueError for what cannot be kept."""
    return tuple(None if (v := getattr(entry, field)) is None else keep(v) for field, keep in _KEEP)


def entry_of(values: Sequence[Value]) -> Entry:
    """The entry of these values. ValueError for such as no entry has."""
    fields: dict[str, Any] = {
        field: None if value is None else bring(value) for (field, bring), value in zip(_BRING, values, strict=True)
    }
    return Entry(**fields)


def key_of(row: Row) -> str:
    """The key of a row."""
    return str(row[1 + _KEY])


def period_of(row: Row) -> str:
    """The month of the books that a row stands in."""
    return str(row[1 + _PERIOD])


def happening(values: Sequence[Value]) -> tuple[Value, ...]:
    """What of the values is the happening itself: the same where it is recorded twice, by whomsoever, whenever, and
    whether its month was closed meanwhile."""
    apart = _OF_RECORDING | _OF_BOOKING | _OF_LATER if values[_KIND] in _BOOKED_BY_RULE else _OF_RECORDING
    return tuple(value for place, value in enumerate(values) if place not in apart)


def hash_of(seq: int, values: Sequence[Value], previous: str) -> str:
    """SHA-256 in hex over the values that say something, by name, with ``seq`` and the hash of the row before.

    Empty text, 0 and nothing are left out: a column that a later version adds changes no hash.
    """
    said = {name: value for name, place in _BY_NAME if (value := values[place])}
    return hashlib.sha256(_JSON.encode([seq, previous, said]).encode("ascii")).hexdigest()


def widened(row: Sequence[Any]) -> Row:
    """A row of a file, which an earlier version may have written with fewer columns. ValueError for any other width."""
    if len(row) == _WIDTH:
        return tuple(row)
    if len(row) != _WIDTH - len(_LATER):
        raise ValueError(f"a row of {len(row)} values")
    return (*row[:-2], *_LATER.values(), *row[-2:])


def sealed(entries: Iterable[Sequence[Value]], seq: int, previous: str) -> Iterator[Row]:
    """Rows of these values, as they follow the row ``seq`` with the hash ``previous``."""
    for number, values in enumerate(entries, seq + 1):
        this = hash_of(number, values, previous)
        yield (number, *values, previous, this)
        previous = this


class Chain:
    """Follows rows from the first on; those that were archived by their hashes alone. :attr:`broken` is the number of
    the first row that is not as it was written, or does not follow the one before; None while there is none."""

    def __init__(self) -> None:
        self.seq, self.hash = 0, BEGINNING
        self.broken: int | None = None

    def row(self, row: Row) -> None:
        """The next one, whole."""
        seq, previous, this = row[0], row[-2], row[-1]
        self._follow(seq, previous, this, sound=hash_of(seq, row[1:-2], previous) == this)

    def archived(self, seq: int, previous: str, this: str) -> None:
        """The next one, of which only the hashes are here."""
        self._follow(seq, previous, this, sound=True)

    def _follow(self, seq: int, previous: str, this: str, *, sound: bool) -> None:
        if self.broken is None and not (sound and seq == self.seq + 1 and previous == self.hash):
            self.broken = seq
        self.seq, self.hash = seq, this
