"""Parse durations, moments, sizes and money as people write them; refuse them when the unit is missing or wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from pricing.money import Usd, UsdPerHour
from pricing.places import RegionId
from router.jobs.fields import RefusedError, as_number, show_value

_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([wdhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+")
_LONGEST = timedelta(days=3650)
# Jobs are planned this far ahead: a later deadline is refused where it is written.
PLANNING_SPAN = timedelta(days=366)
# A gang that would run for longer is not planned.
LONGEST_RUN = timedelta(days=90)
# Moments that people write must lie within these, so that adding any duration stays in the calendar.
_FIRST, _BEYOND = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
_DURATION_HELP = "write a number with its unit, e.g. 90m, 18h, 7d or 1h30m"
_AHEAD_HELP = "write hours or days, e.g. 36h, 2d or 1d12h"
_UNIT_WORDS = re.compile(
    r"(?<![A-Za-z])(?:weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[wdhms])(?![A-Za-z])", re.IGNORECASE
)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BYTES = {"B": 1} | {
    f"{prefix}{end}": base**power
    for power, prefix in enumerate("KMGTP", start=1)
    for end, base in (("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)\s*([A-Za-z]*)")
_REGION = re.compile(r"[a-z][a-z0-9-]*[:/][A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_GIB, _MOST_GB = 2**30, 10**12
_MOST_DOLLARS = 10**12
_MONEY = re.compile(r"-?\$?[0-9]+(?:\.[0-9]+)?")


def parse_duration(value: object) -> timedelta:
    """Return the duration of ``90m``, ``18h``, ``7d`` or ``1h30m``; RefusedError without unit or above ten years."""
    if isinstance(value, timedelta):
        duration = value
    elif not isinstance(value, str):
        help_ = f"write {value}s, {value}m or {value}h" if type(value) is int else _DURATION_HELP
        raise RefusedError(
            f"{show_value(value)} has no unit of time" if type(value) is int else f"{show_value(value)} is no duration",
            help_,
        )
    else:
        text = value.strip()
        if not _WHOLE.fullmatch(text):
            raise RefusedError(f"{show_value(value)} is no duration", _DURATION_HELP)
        parts = _PART.findall(text)
        units = [unit for _, unit in parts]
        if sorted(set(units), key="wdhms".index) != units:
            raise RefusedError(
                f"{show_value(value)} is no duration", "give each unit once, the largest first, e.g. 1h30m"
            )
        seconds = sum(Decimal(number) * _SECONDS[unit] for number, unit in parts)
        if seconds > _LONGEST.total_seconds():
            raise RefusedError(f"{show_value(value)} is longer than ten years", _DURATION_HELP)
        duration = timedelta(microseconds=int(seconds * 1_000_000))
    if duration < timedelta(0):
        raise RefusedError("is negative", _DURATION_HELP)
    if duration > _LONGEST:
        raise RefusedError("is longer than ten years", _DURATION_HELP)
    return duration


def parse_time_ahead(text: str) -> timedelta:
    """Return the duration of a field for a time from now: ``36h``, ``+2d``, ``36 hours``, or ``12`` for hours.

    Raises RefusedError as :func:`parse_duration` does.
    """
    short = _UNIT_WORDS.sub(lambda match: match[0][0].lower(), text.strip().removeprefix("+").strip())
    try:
        return parse_duration(f"{short}h" if _NUMBER.fullmatch(short) else short)
    except RefusedError as error:
        # As it was written, and not as it was read.
        what = f"{show_value(text.strip())} is no time from now" if "is no duration" in error.what else error.what
        raise RefusedError(what, _AHEAD_HELP) from None


def format_duration(duration: timedelta) -> str:
    """Return the one canonical form, which :func:`parse_duration` reads back: ``1h30m``, ``7d``, ``0s``."""
    rest = duration // timedelta(microseconds=1)
    words = []
    for unit in ("d", "h", "m"):
        whole, rest = divmod(rest, _SECONDS[unit] * 1_000_000)
        words += [f"{whole}{unit}"] if whole else []
    if rest:
        words.append(f"{(Decimal(rest) / 1_000_000).normalize():f}s")
    return "".join(words) or "0s"


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: absolute (aware, UTC) or relative to the moment of planning. Exactly one is set."""

    absolute: datetime | None = None
    relative: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.absolute is None) == (self.relative is None):
            raise ValueError("a moment is either absolute or relative")
        if self.absolute is not None and self.absolute.utcoffset() is None:
            raise ValueError("a moment needs a time zone")

    @classmethod
    def parse(cls, value: object) -> Moment:
        """Return the point in time of ``2026-11-25T09:00Z``, ``+18h``, an aware datetime or a timedelta.

        Raises RefusedError for anything else.
        """
        if isinstance(value, Moment):
            return value
        if isinstance(value, timedelta):
            return cls(relative=parse_duration(value))
        if isinstance(value, datetime):
            return cls._from_datetime(value, value.isoformat())
        help_ = "write 2026-11-25T09:00Z, 2026-11-25T10:00+01:00 or +18h"
        if not isinstance(value, str):
            raise RefusedError(f"{show_value(value)} is no point in time", help_)
        text = value.strip()
        if text.startswith("+"):
            return cls(relative=parse_duration(text[1:]))
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            if _WHOLE.fullmatch(text):
                help_ = f"write +{text} for {text} from now"
            raise RefusedError(f"{show_value(value)} is no point in time", help_) from None
        return cls._from_datetime(parsed, text)

    @classmethod
    def _from_datetime(cls, parsed: datetime, text: str) -> Moment:
        if parsed.utcoffset() is None:
            stem = text if len(text) > 10 else f"{text}T00:00"
            raise RefusedError(f"{text} has no time zone", f"write {stem}Z for UTC, or {stem}+01:00")
        try:
            absolute = parsed.astimezone(UTC)
        except OverflowError:
            absolute = _BEYOND
        if not _FIRST <= absolute < _BEYOND:
            what = f"{text} lies outside the years {_FIRST.year} to {_BEYOND.year - 1}"
            raise RefusedError(what, "where no end is meant, leave the field out")
        return cls(absolute=absolute)

    def at(self, now: datetime) -> datetime:
        """Return the point in UTC when planning happens at ``now`` (aware)."""
        if self.relative is not None:
            return now.astimezone(UTC) + self.relative
        assert self.absolute is not None
        return self.absolute

    def __str__(self) -> str:
        if self.relative is not None:
            return f"+{format_duration(self.relative)}"
        assert self.absolute is not None
        return self.absolute.isoformat().replace("+00:00", "Z")


TOO_FAR = f"{{}} is more than {PLANNING_SPAN.days} days away: jobs are planned for {PLANNING_SPAN.days} days at most"
TOO_FAR_REMEDY = "give an earlier one, or leave it out"


def is_beyond_planning(moment: datetime, now: datetime) -> bool:
    """Return whether the moment lies further ahead than jobs are planned."""
    return moment - now > PLANNING_SPAN


def parse_utc(value: object) -> datetime:
    """Return an absolute point in time, in UTC; RefusedError for one that is relative or has no time zone."""
    moment = Moment.parse(value)
    if moment.absolute is None:
        raise RefusedError(f"{show_value(value)} is relative", "write a point in time, e.g. 2026-11-25T09:00Z")
    return moment.absolute


def parse_gib(value: object) -> float:
    """Return GiB from a number of GiB, or from text with a unit (``2 TiB``, ``500 GB``); RefusedError otherwise."""
    if not isinstance(value, str):
        return _bounded(as_number(value))
    help_ = "write a number of GiB, or a size such as 500 GB (10**9 bytes each) or 2 TiB (2**40)"
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise RefusedError(f"{show_value(value)} is no size", help_)
    amount, unit = match.groups()
    if not unit:
        raise RefusedError(f"{show_value(value)} has no unit", help_)
    if unit not in _BYTES:
        near = next((known for known in _BYTES if known.lower() in (unit.lower(), unit.lower() + "b")), None)
        raise RefusedError(f"{unit!r} is no unit of size", f"did you mean {amount} {near}?" if near else help_)
    return _bounded(float(Decimal(amount) * _BYTES[unit] / 2**30))


def _bounded(gib: float) -> float:
    if gib > _MOST_GIB:
        raise RefusedError("is more than an exbibyte", "the unit is GiB")
    return gib


def parse_gib_per_s(value: object) -> float:
    """Return GiB a second from a number, or from text such as ``2 GB/s``; RefusedError otherwise."""
    if not isinstance(value, str):
        return as_number(value)
    size, slash, per = value.strip().partition("/")
    if not slash or per.strip() != "s":
        raise RefusedError(
            f"{show_value(value)} is no rate", "write a number of GiB a second, or a rate such as 2 GB/s"
        )
    return parse_gib(size)


def parse_dollars(value: object) -> Decimal:
    """Return an exact amount from ``210``, ``"210.50"`` or ``"$210"``.

    Raises RefusedError when negative, in another currency or above a trillion.
    """
    help_ = "write US dollars such as 1200.50 or $1200.50"
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise RefusedError(f"{show_value(value)} is no amount of dollars", help_)
    if isinstance(value, str):
        text = value.strip()
        if not _MONEY.fullmatch(text):
            why = (
                "has a thousands separator" if re.fullmatch(r"\$?[\d,_ ]+(\.\d+)?", text) else "is no amount of dollars"
            )
            raise RefusedError(f"{show_value(value)} {why}", help_)
        amount = Decimal(text.replace("$", ""))
    else:
        if isinstance(value, float):
            as_number(value)
        amount = Decimal(str(value))
    if amount < 0:
        raise RefusedError(f"{show_value(value)} is negative", help_)
    if amount > _MOST_DOLLARS:
        raise RefusedError(f"{show_value(value)} is more than a trillion", help_)
    return amount


def parse_usd(value: object) -> Usd:
    """Return money, parsed as by :func:`parse_dollars`."""
    if isinstance(value, Usd):
        return value
    try:
        return Usd.parse(parse_dollars(value))
    except RefusedError:
        raise
    except ValueError as error:
        raise RefusedError(str(error)) from None


def parse_usd_per_hour(value: object) -> UsdPerHour:
    """Return a price for an hour, parsed as by :func:`parse_dollars` (``$33.02/h`` too)."""
    if isinstance(value, UsdPerHour):
        return value
    if isinstance(value, str):
        value = value.strip().removesuffix("/h")
    return UsdPerHour(parse_usd(value).nanos)


def parse_region(value: object) -> RegionId:
    """Return a region written ``cloud/region``; RefusedError otherwise."""
    if isinstance(value, RegionId):
        return value
    if not isinstance(value, str) or not _REGION.fullmatch(value.strip()):
        raise RefusedError(f"{show_value(value)} is not cloud/region", "write e.g. aws/us-east-1")
    return RegionId.parse(value.strip())


def parse_percent(value: object) -> Decimal:
    """Return a share in per cent from ``12.5``, ``"12.5"`` or ``12.5%``; RefusedError outside 0 to 100."""
    text = str(value).strip().removesuffix("%").strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise RefusedError(f"{show_value(value)} is no percentage", "write a number from 0 to 100")
    if Decimal(text) > 100:
        raise RefusedError(f"{show_value(value)} is more than 100 per cent", "write a number from 0 to 100")
    return Decimal(text)


def parse_gb(value: object) -> Decimal:
    """Return an exact number of GB (10**9 bytes), zero or more; RefusedError otherwise."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,30}(\.[0-9]{1,400})?", value.strip()):
        amount = Decimal(value.strip())
    elif isinstance(value, Decimal) and value.is_finite():
        amount = value
    else:
        as_number(value)
        amount = Decimal(str(value))
    if not 0 <= amount <= _MOST_GB:
        raise RefusedError(f"{show_value(value)} is negative or absurdly large", "the unit is GB, 10**9 bytes")
    return amount


def _json_schema(form: str, *examples: object, kinds: tuple[str, ...] = ("string",)) -> WithJsonSchema:
    kind: object = kinds[0] if len(kinds) == 1 else list(kinds)
    return WithJsonSchema({"type": kind, "description": form, "examples": list(examples)})


_MIXED = ("number", "string")
Duration = Annotated[
    timedelta,
    PlainValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    _json_schema("A duration with its unit.", "90m", "18h", "7d", "1h30m"),
]
Instant = Annotated[
    Moment,
    PlainValidator(Moment.parse),
    PlainSerializer(str, return_type=str),
    _json_schema("ISO 8601 with a time zone, or a time after planning.", "2026-11-25T09:00Z", "+18h"),
]
UtcTime = Annotated[
    datetime,
    PlainValidator(parse_utc),
    PlainSerializer(lambda time: str(Moment(absolute=time)), return_type=str),
    _json_schema("ISO 8601 with a time zone.", "2026-11-25T09:00Z"),
]
Gib = Annotated[
    float,
    PlainValidator(parse_gib),
    _json_schema("GiB (2**30 bytes), or text with a unit.", 40, "2 TiB", "500 GB", kinds=_MIXED),
]
GibPerSecond = Annotated[
    float,
    PlainValidator(parse_gib_per_s),
    _json_schema("GiB a second, or a rate with its unit.", 2.5, "2 GB/s", kinds=_MIXED),
]
Dollars = Annotated[
    Usd,
    PlainValidator(parse_usd),
    PlainSerializer(str, return_type=str),
    _json_schema("US dollars.", 210, "210.50", "$210", kinds=_MIXED),
]
DollarsPerHour = Annotated[
    UsdPerHour,
    PlainValidator(parse_usd_per_hour),
    PlainSerializer(str, return_type=str),
    _json_schema("US dollars an hour.", "33.02", "$33.02/h", kinds=_MIXED),
]
RegionName = Annotated[
    RegionId,
    PlainValidator(parse_region),
    PlainSerializer(str, return_type=str),
    _json_schema("A region, written cloud/region.", "aws/us-east-1", "gcp/europe-west4"),
]
Percent = Annotated[
    Decimal,
    PlainValidator(parse_percent),
    PlainSerializer(str, return_type=str),
    _json_schema("A percentage from 0 to 100.", 12.5, kinds=_MIXED),
]
Gigabytes = Annotated[
    Decimal,
    PlainValidator(parse_gb),
    PlainSerializer(lambda amount: f"{amount:f}", return_type=str),
    _json_schema("GB (10**9 bytes).", 9900, kinds=_MIXED),
]
