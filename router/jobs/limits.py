"""Define what all jobs of a plan share: quotas, stock, reservations, discounts, budgets, egress already moved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from pricing.money import ZERO
from pricing.places import Market
from router.jobs.fields import Count, Flag, Positive, RefusedError, Spec, Tally, Text, as_many, as_number
from router.jobs.quantities import Dollars, DollarsPerHour, Duration, Gigabytes, Percent, UtcTime

ReservedCost = Literal["amortised", "sunk", "unknown"]
_UniqueName = Annotated[Text, Field(description="How plans call it; unique.")]
_AnyRegion = Annotated[Text | None, Field(examples=["us-east-1", "aws/us-east-1"])]
_Families = Annotated[
    tuple[Text, ...],
    BeforeValidator(as_many),
    Field(description="p5 of p5.48xlarge, a3 of a3-highgpu-8g.", examples=["p5", ["p4d", "p5"]]),
]
_Begin = Annotated[UtcTime | None, Field(alias="from", description="When it begins; left out: it has begun.")]
_End = Annotated[UtcTime | None, Field(description="When it ends; left out: no end is known.")]
_GigabytesByCloud = Annotated[
    dict[str, Gigabytes], WithJsonSchema({"type": "object", "additionalProperties": {"type": ["number", "string"]}})
]


class _PlaceSpec(Spec):
    """A rule about a place, which may be written as ``region: aws/us-east-1``."""

    @model_validator(mode="before")
    @classmethod
    def _split_region(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("region"), str) and "/" in value["region"]:
            cloud, _, region = value["region"].partition("/")
            if value.get("cloud") not in (None, cloud):
                raise RefusedError(f"the region is of {cloud}, the cloud is {value['cloud']}", at=("region",))
            return {**value, "cloud": cloud, "region": region}
        return value


def _check_dates(start: datetime | None, until: datetime | None) -> None:
    if start is not None and until is not None and until <= start:
        raise RefusedError("ends before it begins", "until lies after from", at=("until",))


class Limit(_PlaceSpec):
    """A limit on what all gangs together use at every instant: at most ``amount`` of what matches.

    A field left out matches any. Without ``market`` everything but reservations counts.
    """

    name: _UniqueName
    cloud: Text | None = None
    region: _AnyRegion = None
    zone: Text | None = None
    family: Annotated[tuple[Text, ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="p5 of p5.48xlarge, a3 of a3-highgpu-8g; several share the amount.",
        examples=["p5", ["p4d", "p5"]],
    )
    instance_type: Text | None = None
    accelerator: Text | None = None
    market: Market | None = Field(default=None, description="Left out: on demand and spot together.")
    amount: Tally = Field(description="How much, in `unit`; 0 forbids.")
    unit: Literal["accelerators", "vcpus", "machines"] = Field(description="What the amount counts.")
    kind: Literal["quota", "stock"] = Field(default="quota", description="What we may use, or what there is.")


class Reservation(_PlaceSpec):
    """Machines paid for already, up to ``machines`` from ``from`` until ``until``: they cost nothing more.

    Their real cost goes into $/step, the ledger and showback: an amortised price, or the word sunk. Left out, it is
    unknown and marked so. A run on them lies wholly within the dates.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: Text
    cloud: Text
    region: Text
    zone: Text | None = None
    instance_type: Text
    machines: Count
    usd_per_hour: DollarsPerHour | None = Field(
        default=None, description="Amortised, for one machine; left out: unknown, and marked so."
    )
    sunk: Flag = Field(default=False, description="true: its price is not to be counted any more, only named.")
    start: _Begin = None
    until: _End = None

    @model_validator(mode="after")
    def _consistent(self) -> Reservation:
        _check_dates(self.start, self.until)
        if self.sunk and self.usd_per_hour is not None:
            raise RefusedError("has a price and is sunk", "keep usd_per_hour or sunk, not both", at=("sunk",))
        return self

    @property
    def cost(self) -> ReservedCost:
        if self.sunk:
            return "sunk"
        return "unknown" if self.usd_per_hour is None else "amortised"


class Maintenance(_PlaceSpec):
    """A window in which no gang that matches may hold machines; a field left out matches any.

    A job with checkpoints may pause over it and pays its new start; one without cannot span it.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: _UniqueName
    cloud: Text
    region: _AnyRegion = None
    zone: Text | None = None
    family: _Families = ()
    instance_type: Text | None = None
    start: UtcTime = Field(alias="from", description="When it begins.")
    until: UtcTime = Field(description="When it ends.")

    @model_validator(mode="after")
    def _consistent(self) -> Maintenance:
        _check_dates(self.start, self.until)
        return self


class Commitment(_PlaceSpec):
    """Committed spend: dollars an hour that are paid whether used or not, for on-demand machines that match.

    A machine that would cost $10 on demand uses $10 x (1 - discount) of the commitment. What an hour leaves unused is
    lost, and what is over it costs the on-demand price. A field left out matches any.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: _UniqueName
    cloud: Text
    region: _AnyRegion = None
    family: _Families = ()
    instance_type: Text | None = None
    accelerator: Text | None = None
    usd_per_hour: DollarsPerHour = Field(description="Dollars committed for each hour, at the discounted prices.")
    discount: Annotated[float, BeforeValidator(as_number), Field(ge=0, lt=1)] = Field(
        description="Share of the on-demand price that it saves: 0.3 for 30 percent.", examples=[0.3]
    )
    start: _Begin = None
    until: _End = None

    @model_validator(mode="after")
    def _consistent(self) -> Commitment:
        _check_dates(self.start, self.until)
        if self.usd_per_hour.nanos <= 0:
            raise RefusedError("commits nothing", "write the dollars an hour that are paid", at=("usd_per_hour",))
        return self

    @property
    def paid_share(self) -> Fraction:
        """Return what a covered dollar of on-demand price uses of the commitment, exact."""
        return 1 - Fraction(str(self.discount))

    @property
    def scope(self) -> tuple[object, ...]:
        """Return what machines it matches; commitments of one scope follow each other."""
        return (self.cloud, self.region, frozenset(self.family), self.instance_type, self.accelerator)

    def shares_machines(self, other: Commitment) -> bool:
        """Return whether one machine could match both, whenever that is."""
        pairs = (
            (self.region, other.region),
            (self.instance_type, other.instance_type),
            (self.accelerator, other.accelerator),
        )
        apart = self.cloud != other.cloud or any(None not in pair and pair[0] != pair[1] for pair in pairs)
        return not apart and not (self.family and other.family and not set(self.family) & set(other.family))

    def shares_time(self, other: Commitment) -> bool:
        """Return whether both are there at some moment."""
        ends = ((self.until, other.start), (other.until, self.start))
        return not any(end is not None and start is not None and end <= start for end, start in ends)


class Discount(Spec):
    """Percent off the list price. The most specific one applies; they do not add."""

    cloud: Text
    family: Text | None = None
    market: Market | None = Field(default=None, description="Left out: every market.")
    percent: Percent

    def __str__(self) -> str:
        return " ".join(filter(None, (self.cloud, self.family, self.market)))


class TeamBudget(Spec):
    """The budget of a team, and what of it is spent."""

    team: Text
    budget: Dollars
    spent: Dollars = ZERO


class FairShare(Spec):
    """Shares of teams: among waiting jobs of one priority, those of teams that used less than theirs are left out last.

    A team without a share has 1. Use counts half after each half-life.
    """

    half_life: Duration = Field(default=timedelta(days=7), description="After so long, use counts half.")
    shares: dict[str, Positive] = Field(
        default_factory=dict,
        description="By team; a team that is not named has 1.",
        examples=[{"research": 2, "vision": 1}],
    )
    recent_usd: Annotated[
        dict[str, Dollars],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["number", "string"]}}),
    ] = Field(
        default_factory=dict,
        description="Dollars used lately by team, older ones counted less; left out: from the ledger.",
    )

    @model_validator(mode="after")
    def _positive_half_life(self) -> FairShare:
        if self.half_life <= timedelta(0):
            raise RefusedError("is no length of time", "write for example 7d", at=("half_life",))
        return self


class Carbon(Spec):
    """The weight of emissions in the choice of places: money is paid, carbon only counted.

    Budgets and every amount of a plan are money alone.
    """

    usd_per_tonne: Dollars = Field(
        description="Dollars that a tonne of CO2e counts; 0 shows tonnes and weighs nothing."
    )


class Limits(Spec):
    """The limits file. Everything is optional; :meth:`none` limits nothing."""

    clouds: Annotated[tuple[Text, ...], BeforeValidator(as_many)] | None = Field(
        default=None, description="Clouds allowed; left out: all.", examples=[["aws", "gcp"]]
    )
    default_cap_machines: Count | None = Field(
        default=None, description="The most machines of an offer whose capacity is unknown; left out: no cap."
    )
    limits: tuple[Limit, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    commitments: tuple[Commitment, ...] = Field(
        default=(), description="Committed spend (savings plans, committed use discounts by spend) that is paid anyway."
    )
    discounts: tuple[Discount, ...] = ()
    teams: tuple[TeamBudget, ...] = ()
    egress_month_to_date_gb: _GigabytesByCloud = Field(
        default_factory=dict, description="GB (10**9 bytes) already sent out this month, by cloud."
    )
    egress_caps_gb: _GigabytesByCloud = Field(
        default_factory=dict,
        description="The most GB (10**9 bytes) that may leave a cloud in a calendar month (UTC), by cloud; "
        "what `egress_month_to_date_gb` says is included.",
    )
    carbon: Carbon | None = None
    quotas: Text | None = Field(
        default=None,
        description="Quotas, reservations and stock as `stepfare quotas` and `stepfare stock` read them: `latest`, or "
        "a file beside this one. Where a limit here counts the same machines, the smaller amount binds.",
        examples=["latest"],
    )
    fair_share: FairShare | None = Field(
        default=None,
        description="Whose waiting jobs are left out last, by shares and recent use of teams.",
    )

    @classmethod
    def none(cls) -> Limits:
        """Return no limits at all."""
        return cls()

    def to_json(self) -> str:
        """Return the limits as JSON without empty sections: one that a later version adds changes no digest."""
        return self.model_dump_json(exclude={name for name in Limits.model_fields if not getattr(self, name)})

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_sections(cls, value: Any) -> Any:
        """Drop keys without a value: ``limits:`` with nothing after it is the same as not writing it."""
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _unique(self) -> Limits:
        for section in ("limits", "reservations", "maintenance", "commitments"):
            _refuse_duplicates(section, (each.name for each in getattr(self, section)))
        _refuse_overlaps(self.commitments)
        _refuse_duplicates("discounts", map(str, self.discounts))
        _refuse_duplicates("teams", (entry.team for entry in self.teams))
        return self


def _refuse_overlaps(commitments: Sequence[Commitment]) -> None:
    """Refuse two commitments that could both match one machine: which one covers it would be a guess."""
    for index, second in enumerate(commitments):
        for first in commitments[:index]:
            what, at = f"{second.name!r} and {first.name!r} could cover the same machines", ("commitments", index)
            if not first.shares_machines(second) or (first.scope == second.scope and not first.shares_time(second)):
                continue
            if first.shares_time(second):
                remedy = "give each another region, family, instance_type or accelerator, or dates that do not overlap"
                raise RefusedError(f"{what} at the same time", remedy, at=at)
            raise RefusedError(f"{what}, one after the other, and do not match alike", "match alike in both", at=at)


def _refuse_duplicates(section: str, names: Iterable[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            what = f"{name!r} is there twice, first as entry {first[name] + 1}"
            raise RefusedError(what, "keep one of the two", at=(section, index))
        first[name] = index
