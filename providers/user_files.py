"""Types of the fields in a cloud's own file (the static pool, the sandbox script): values, places, machines.

Values are frozen; an unknown field is refused. Errors are ValueErrors in plain words; the reader of the file adds line
and column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from pricing.machines import Accelerator, Machine, make_undescribed_machine
from pricing.money import Usd
from pricing.places import Region, make_unknown_region

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST_DOLLARS = Decimal(10**12)


class UserFileModel(BaseModel):
    """The base of every value in such a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text; put it in quotes")
    text = value.strip()
    if not text or len(text) > 200 or not text.isprintable():
        raise ValueError("is empty, longer than 200 characters or holds what cannot be printed")
    return text


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is not a number")
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    return float(value)


def _whole(value: object) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError("is not a whole number")
    return int(number)


def _dollars(value: object) -> Decimal:
    """Return the exact number as it is written, never through a binary fraction."""
    text = value.strip().removeprefix("$") if isinstance(value, str) else str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d+(\.\d+)?([eE][+-]?\d{1,2})?", text):
        raise ValueError("is no amount of US dollars, e.g. 2.49")
    amount = Decimal(text)
    if amount > _MOST_DOLLARS:
        raise ValueError("is more than a trillion dollars")
    return amount


def _usd(value: object) -> Usd:
    if isinstance(value, Usd):
        return value
    return Usd.parse(_dollars(value))


def _day(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else _refuse_day()
    except ValueError:
        return _refuse_day()


def _refuse_day() -> date:
    raise ValueError("is not a date such as 2026-11-21")


def parse_moment(value: object) -> datetime:
    """Parse a moment with its zone into UTC; ValueError otherwise."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ValueError("is no moment with its zone such as 2026-11-21T18:00:00Z")
    return value.astimezone(UTC)


def parse_duration(value: object) -> timedelta:
    """Parse a duration such as ``90m``, ``1h30m`` or ``2d``; ValueError otherwise."""
    if isinstance(value, timedelta):
        return value
    text = value.strip() if isinstance(value, str) else ""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError("is no duration such as 90m, 6h or 1d12h")
    return timedelta(**_sum_parts(parts))


def _sum_parts(parts: list[tuple[str, str]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for number, unit in parts:
        sums[_UNITS[unit]] = sums.get(_UNITS[unit], 0.0) + float(number)
    return sums


def parse_moment_or_duration(value: object) -> datetime | timedelta:
    """Parse a moment, or a duration since a start that is written elsewhere; ValueError otherwise."""
    if isinstance(value, datetime | timedelta):
        return value
    text = str(value).strip()
    return parse_duration(text) if _DURATION.match(text) and not re.match(r"\d{4}-", text) else parse_moment(value)


_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_MONEY_SCHEMA = {"type": ["number", "string"], "examples": [2.49]}

T = TypeVar("T")
FieldPath = tuple[str | int, ...]


def _some(value: tuple[T, ...]) -> tuple[T, ...]:
    if not value:
        raise ValueError("is empty")
    return value


# min_length does not serve here: beside an entry that is refused, it would call the list empty.
NonEmpty = Annotated[tuple[T, ...], AfterValidator(_some), Field(json_schema_extra={"minItems": 1})]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema(_TEXT_SCHEMA)]
Whole = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=10**6)]
Number = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0)]
Dollars = Annotated[Decimal, BeforeValidator(_dollars), WithJsonSchema(_MONEY_SCHEMA)]
Money = Annotated[Usd, BeforeValidator(_usd), WithJsonSchema(_MONEY_SCHEMA)]
Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
Moment = Annotated[datetime, BeforeValidator(parse_moment), WithJsonSchema({"type": "string", "format": "date-time"})]
DurationField = Annotated[
    timedelta, BeforeValidator(parse_duration), WithJsonSchema({"type": "string", "examples": ["90m"]})
]
MomentOrDuration = Annotated[
    datetime | timedelta,
    BeforeValidator(parse_moment_or_duration),
    WithJsonSchema({"type": "string", "examples": ["6h", "2026-11-21T18:00Z"]}),
]

Continent = Literal["AF", "AN", "AS", "EU", "NA", "OC", "SA"]
Geo = Literal["AF", "AN", "AS", "EU", "ME", "NA", "OC", "SA"]
Interconnect = Literal["nvlink-switch", "nvlink", "pcie", "infinity-fabric", "ici", "none"]
Fabric = Literal["infiniband", "roce", "efa", "gpudirect-tcpx", "gpudirect-tcpxo", "ici", "ethernet"]


class Place(UserFileModel):
    """A region that is in no table: its place, for rules about places and for the price of moving data."""

    name: Text = Field(description="Name of the region in offers.", examples=["hall-1"])
    country: Text = Field(description="ISO 3166, two letters.", examples=["DE"])
    continent: Continent
    geo: Geo = Field(description="The continent; ME for the Middle East.")
    residency_group: Text = Field(description="EU, EEA (Norway, Iceland), UK; elsewhere the country.", examples=["EU"])
    city: str = ""
    grid_carbon_gco2_per_kwh: Whole | None = None

    def region(self, cloud: str, source: str, as_of: date) -> Region:
        """Return it as a region of the price book."""
        own = self.model_dump(include=Place.model_fields.keys() - {"name"})
        return replace(make_unknown_region(cloud, self.name, source, as_of), **own)


class MachineType(UserFileModel):
    """A machine type that is in no table. A field left out is unknown, never zero."""

    type: Text = Field(description="Name of the machine type in offers.", examples=["dgx-h100"])
    accelerator: Text = Field(description="Accelerator, by its name in the price book.", examples=["H100"])
    accelerators: Count = Field(description="Accelerators in one machine.", examples=[8])
    vcpus: Count | None = None
    memory_gib: Positive | None = None
    intra_node_interconnect: Interconnect | None = None
    intra_node_gb_per_s: Positive | None = Field(default=None, description="One accelerator's links, both ways added.")
    fabric: Fabric | None = Field(default=None, description="Network that carries collectives between machines.")
    inter_node_gbps: Positive | None = Field(default=None, description="Network of one machine, Gbit/s.")
    local_nvme_gib: Whole | None = None

    def machine(self, cloud: str, accelerator: Accelerator, source: str, as_of: date) -> Machine:
        """Return it as a machine of the price book; ``accelerator`` is the book's of that name."""
        machine = make_undescribed_machine(cloud, self.type, accelerator, self.accelerators, source, as_of.isoformat())
        named = {"type", "accelerator", "accelerators"}
        return replace(machine, **self.model_dump(exclude=named, exclude_none=True))


class MisplacedError(ValueError):
    """Parts of a file do not fit together; ``at`` is where in the file."""

    def __init__(self, what: str, at: FieldPath) -> None:
        super().__init__(what)
        self.at = at


def require_unique_names(kind: str, names: Sequence[str], at: FieldPath = (), field: str = "") -> None:
    """Raise MisplacedError at the second of two equal names.

    ``at`` is the list that has them, in its ``field``.
    """
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            raise MisplacedError(f"the {kind} {name} is there twice", (*at, number, *((field,) if field else ())))
        seen.add(name)


def require_known_name(kind: str, name: str, names: Collection[str], at: FieldPath) -> None:
    """Raise MisplacedError when ``name``, written ``at``, is none of ``names``."""
    if name not in names:
        raise MisplacedError(f"there is no {kind} {name!r}; there are {', '.join(sorted(names)) or 'none'}", at)
