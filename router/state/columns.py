"""Column types that return every value exactly, and the canonical form of text, numbers, money, moments and JSON.

A value that cannot be stored raises ValueError or TypeError, and nothing is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Double, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from pricing.money import Usd, UsdPerHour
from router.ledger.month import Month

_MAX_INT64 = (1 << 63) - 1


def storable_text(text: str) -> str:
    """Return text as every database stores it. TypeError for anything but text.

    NUL and halves of surrogate pairs, as a crashing program may print, become U+FFFD.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    if "\0" not in text and text.isascii():
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def storable_number(value: int) -> int:
    """Return a whole number as every database stores it. TypeError; ValueError for one of more than 64 bits."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    if abs(value) > _MAX_INT64:
        raise ValueError(f"{value}: a number of more than 64 bits cannot be stored")
    return int(value)


def storable_nanos(money: Usd | UsdPerHour, kind: type[Usd | UsdPerHour]) -> int:
    """Return money of that kind in nano-dollars. TypeError; ValueError for more than every database stores."""
    if not isinstance(money, kind):
        raise TypeError(f"{money!r} is no {kind.__name__}")
    if abs(money.nanos) > _MAX_INT64:
        raise ValueError(f"{money}: more than nine billion dollars cannot be stored")
    return money.nanos


def storable_moment(moment: datetime) -> str:
    """Return a moment as text such as ``2026-11-21T18:00:00.000000Z``. ValueError for one without a time zone."""
    if moment.utcoffset() is None:
        raise ValueError(f"{moment} has no time zone")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def canonical_json(data: object) -> str:
    """Return JSON in canonical form: keys sorted, no spaces, ASCII.

    TypeError for what is not JSON data, ValueError for NaN.
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class UtcMoment(TypeDecorator[datetime]):
    """A moment in UTC to the microsecond. ValueError for one without a time zone.

    It is a timestamp with time zone; in SQLite it is text such as ``2026-11-21T18:00:00.000000Z``, which sorts as time
    does.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the database; text where it has no type for moments."""
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return the value as it is stored."""
        if value is None:
            return None
        text = storable_moment(value)
        return text if dialect.name == "sqlite" else value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:  # noqa: ARG002
        """Return what reads a stored moment, in UTC; the drivers give text or moments, which need no other reading."""
        return _moment


def _moment(value: str | datetime | None) -> datetime | None:
    if value is None:
        return None
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


class ConvertedColumn(TypeDecorator[Any]):
    """A column whose values are converted:

    ``keep`` makes a value text (or what ``impl`` says), ``bring_back`` restores it.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True

    def __init__(
        self, keep: Callable[[Any], Any], bring_back: Callable[[Any], Any], impl: type[TypeEngine[Any]] = Text
    ) -> None:
        super().__init__()
        self.impl = impl()
        self.keep = keep
        self.bring_back = bring_back

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002  given by the library
        """Return the value as it is stored."""
        return None if value is None else self.keep(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return what restores a stored value: one call for each value, since a status reads tens of thousands."""
        bring_back, driven = self.bring_back, self.impl_instance.result_processor(dialect, coltype)
        if driven is None:
            return lambda value: None if value is None else bring_back(value)
        return lambda value: None if value is None else bring_back(driven(value))


def enum_column(kind: type[StrEnum]) -> ConvertedColumn:
    """Return a column for the words of an enumeration; ValueError for any other word."""
    return ConvertedColumn(lambda value: kind(value).value, kind)


def _money(kind: type[Usd | UsdPerHour]) -> ConvertedColumn:
    def bring_back(nanos: Any) -> Usd | UsdPerHour:
        if not isinstance(nanos, int):
            raise TypeError("no whole number of nano-dollars")
        return kind(nanos)

    return ConvertedColumn(partial(storable_nanos, kind=kind), bring_back, BigInteger)


def _real(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be stored")
    return float(value)


USD = _money(Usd)
USD_PER_HOUR = _money(UsdPerHour)
WHOLE = ConvertedColumn(storable_number, int, BigInteger)
REAL = ConvertedColumn(_real, float, Double)
WORDS = ConvertedColumn(storable_text, str)
MONTH = ConvertedColumn(str, Month.parse)
DETAILS = ConvertedColumn(canonical_json, json.loads)
SEQUENCE = ConvertedColumn(lambda values: canonical_json(list(values)), lambda text: tuple(json.loads(text)))
