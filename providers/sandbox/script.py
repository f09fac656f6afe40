"""Sandbox script as a value: what it sells, at which price and in which number, from when on. Pure.

A series is a list of steps; a step holds from its ``at`` until the next. ``at`` is a moment, or a duration since
``start``. Before its first step a series says nothing: no price is not for sale, no stock is unknown stock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal, Self, TypeVar

from pydantic import Field, model_validator

from pricing.money import ZERO, UsdPerHour
from pricing.places import Market
from providers.errors import (
    CredentialsError,
    NoCapacityError,
    NotForSaleError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RegionOffError,
    ThrottledError,
    TransientError,
    UnreadableError,
)
from providers.protocol import NoticeKind, QuotaUnit
from providers.user_files import (
    Count,
    DurationField,
    FieldPath,
    MachineType,
    MisplacedError,
    Moment,
    MomentOrDuration,
    Money,
    NonEmpty,
    Number,
    Place,
    Text,
    UserFileModel,
    Whole,
    require_known_name,
    require_unique_names,
)

Call = Literal["scopes", "fetch", "stock", "allowances", "notices"]
Kind = Literal[
    "credentials",
    "no_capacity",
    "not_for_sale",
    "not_reached",
    "permission",
    "quota",
    "region_off",
    "throttled",
    "transient",
    "unreadable",
]


class SandboxRegion(Place):
    """A simulated region."""

    zones: tuple[Text, ...] = Field(default=(), examples=[["sandbox-east-a", "sandbox-east-b"]])


class PriceStep(UserFileModel):
    """The price from ``at`` on, in dollars an hour; without ``usd`` it is not for sale any more."""

    at: MomentOrDuration
    usd: Money | None = None

    @property
    def price(self) -> UsdPerHour | None:
        """Return the price for an hour of one machine."""
        return None if self.usd is None else UsdPerHour(self.usd.nanos)


class StockStep(UserFileModel):
    """The number of machines that can be obtained from ``at`` on."""

    at: MomentOrDuration
    machines: Whole


class _Sold(UserFileModel):
    machine: Text
    region: Text
    zone: Text | None = None
    market: Market = Market.ON_DEMAND

    @property
    def key(self) -> tuple[str, str, str, Market]:
        """Return the region, zone, machine and market; unique among series."""
        return (self.region, self.zone or "", self.machine, self.market)


class Prices(_Sold):
    """The price of one machine somewhere, over time."""

    steps: NonEmpty[PriceStep]


class Stock(_Sold):
    """The number of machines that can be obtained somewhere, over time."""

    steps: NonEmpty[StockStep]


class ScriptedNotice(UserFileModel):
    """A cloud's notice about one machine; it takes effect ``warning`` later (left out: not stated)."""

    at: MomentOrDuration
    machine_id: Text
    region: Text
    zone: Text | None = None
    kind: NoticeKind = NoticeKind.INTERRUPTION
    warning: DurationField | None = Field(default=None, examples=["2m"])


class ScriptedQuota(UserFileModel):
    """A limit on what the account may have at once; a field left out matches anything."""

    name: Text
    amount: Whole
    unit: QuotaUnit = QuotaUnit.ACCELERATORS
    region: Text | None = None
    families: tuple[Text, ...] = ()
    accelerator: Text | None = None
    market: Market | None = None
    used: Whole | None = None


class Failure(UserFileModel):
    """A failure of the next ``times`` calls of this kind, in ``region`` only where it is given."""

    call: Call
    kind: Kind
    times: Count = 1
    region: Text | None = None
    retry_after_s: Number | None = None


Step = TypeVar("Step", PriceStep, StockStep)


class Script(UserFileModel):
    """The sandbox script."""

    start: Moment | None = Field(default=None, description="The moment from which durations in `at` count.")
    latency_s: Number = Field(default=0.0, description="Seconds that every answer takes.")
    regions: NonEmpty[SandboxRegion]
    machines: NonEmpty[MachineType]
    prices: NonEmpty[Prices]
    stock: tuple[Stock, ...] = ()
    # Part of the format; no command asks a cloud for them.
    notices: tuple[ScriptedNotice, ...] = ()
    quotas: tuple[ScriptedQuota, ...] = ()
    failures: tuple[Failure, ...] = ()

    def moment(self, at: datetime | timedelta) -> datetime:
        """Return the moment of a step of this script."""
        if isinstance(at, datetime):
            return at
        if self.start is None:
            raise ValueError("counts from a start, and there is none; write `start`, or a moment with its zone")
        return self.start + at

    def in_force(self, steps: Sequence[Step], now: datetime) -> Step | None:
        """Return the last step that is not after ``now``."""
        index = bisect_right([self.moment(step.at) for step in steps], now)
        return steps[index - 1] if index else None

    def between(self, steps: Sequence[Step], since: datetime, until: datetime) -> Iterator[tuple[datetime, Step]]:
        """Yield the steps from ``since`` to ``until``, both included, with their moments."""
        for step in steps:
            if since <= (moment := self.moment(step.at)) <= until:
                yield moment, step

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        require_unique_names("region", [region.name for region in self.regions], ("regions",), "name")
        require_unique_names("machine", [machine.type for machine in self.machines], ("machines",), "type")
        self._check_all(self.prices, "prices")
        self._check_all(self.stock, "stock")
        for number, notice in enumerate(self.notices):
            self._check_moment(notice.at, ("notices", number, "at"))
            self._check_place(notice.region, notice.zone, ("notices", number))
        limited: dict[str, tuple[ScriptedQuota | Failure, ...]] = {"quotas": self.quotas, "failures": self.failures}
        for word, entries in limited.items():
            for number, entry in enumerate(entries):
                if entry.region is not None:
                    self._check_place(entry.region, None, (word, number))
        return self

    def _check_all(self, series: Sequence[Prices | Stock], word: str) -> None:
        keys: set[object] = set()
        for number, one in enumerate(series):
            self._check_series(one, (word, number))
            if one.key in keys:
                what = f"{word} of {one.machine} in {one.zone or one.region}, {one.market}, are there twice"
                raise MisplacedError(what, (word, number))
            keys.add(one.key)

    def _check_series(self, series: Prices | Stock, at: FieldPath) -> None:
        require_known_name("machine", series.machine, {machine.type for machine in self.machines}, (*at, "machine"))
        self._check_place(series.region, series.zone, at)
        before: datetime | None = None
        steps: Sequence[PriceStep | StockStep] = series.steps
        for number, step in enumerate(steps):
            moment = self._check_moment(step.at, (*at, "steps", number, "at"))
            if before is not None and moment <= before:
                raise MisplacedError("is not after the step before it", (*at, "steps", number, "at"))
            before = moment
            if isinstance(step, PriceStep) and step.usd == ZERO:
                raise MisplacedError("is 0; leave it out where it is not sold", (*at, "steps", number, "usd"))

    def _check_moment(self, at: datetime | timedelta, place: FieldPath) -> datetime:
        try:
            return self.moment(at)
        except ValueError as error:
            raise MisplacedError(str(error), place) from None

    def _check_place(self, region: str, zone: str | None, at: FieldPath) -> None:
        zones = {region.name: region.zones for region in self.regions}
        require_known_name("region", region, zones, (*at, "region"))
        if zone is not None:
            require_known_name("zone", zone, zones[region], (*at, "zone"))


KINDS: Mapping[str, type[ProviderError]] = MappingProxyType(
    {
        "credentials": CredentialsError,
        "no_capacity": NoCapacityError,
        "not_for_sale": NotForSaleError,
        "not_reached": NotReachedError,
        "permission": PermissionDeniedError,
        "quota": QuotaError,
        "region_off": RegionOffError,
        "throttled": ThrottledError,
        "transient": TransientError,
        "unreadable": UnreadableError,
    }
)


def make_scripted_error(cloud: str, kind: str, call: str, retry_after_s: float | None) -> ProviderError:
    """Return the error of that kind (a key of :data:`KINDS`) for a call."""
    what = f"the script fails {call}"
    if kind == "throttled":
        return ThrottledError(cloud, what, retry_after_s=retry_after_s, code=kind)
    if kind == "permission":
        return PermissionDeniedError(cloud, what, permission=f"{cloud}:{call}", code=kind)
    return KINDS[kind](cloud, what, code=kind)
