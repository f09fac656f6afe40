"""The canonical form of text, numbers, money, moments and JSON data, which every database returns unchanged. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pricing.money import Usd, UsdPerHour

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
