"""Pool file: sites, machine types, and groups of equal hosts with the price of an hour of one. Pure.

Prices are exact: every number is taken as it is written, and one rounding (half to even) to the nano-dollar is made at
the end.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from pricing.money import NANOS, UsdPerHour, divide_half_even
from providers.user_files import (
    Count,
    Day,
    Dollars,
    MachineType,
    MisplacedError,
    NonEmpty,
    Place,
    Text,
    UserFileModel,
    require_known_name,
    require_unique_names,
)

HOURS_PER_YEAR = Fraction(8766)  # 365.25 days of 24 hours.
HOURS_PER_MONTH = HOURS_PER_YEAR / 12


def _exact(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**9:
        raise ValueError("is not a number above 0")
    return Decimal(str(value))


Exact = Annotated[Decimal, BeforeValidator(_exact), Field(json_schema_extra={"type": "number"})]


class Amortised(UserFileModel):
    """The cost of one host, from its purchase to its sale.

    Dollars an hour, with a year of 8766 hours, whether the host works or not::

        (purchase - residual) / (years * 8766)          the loss in value
        + power_kw * pue * usd_per_kwh                  electricity, cooling included
        + hosting_per_month / 730.5                     floor, rack, staff
    """

    purchase_usd: Dollars = Field(description="Price of one host, with its share of switches.", examples=[320000])
    years: Exact = Field(description="Years over which it is written off.", examples=[4])
    residual_usd: Dollars = Field(default=Decimal(0), description="Price at which it is sold after that time.")
    power_kw: Exact = Field(description="Power drawn by one host at work.", examples=[10.2])
    pue: Exact = Field(default=Decimal(1), description="Power the hall draws for each kW of a host.", examples=[1.3])
    usd_per_kwh: Dollars = Field(examples=[0.18])
    hosting_usd_per_month: Dollars = Field(default=Decimal(0), description="Hosting of one host.")

    @model_validator(mode="after")
    def _check_residual(self) -> Self:
        if self.residual_usd > self.purchase_usd:
            raise ValueError("the residual is above the purchase price")
        return self

    def per_hour(self) -> UsdPerHour:
        """Return the price by the formula above, rounded once."""
        value_lost = Fraction(self.purchase_usd - self.residual_usd) / (Fraction(self.years) * HOURS_PER_YEAR)
        power = Fraction(self.power_kw) * Fraction(self.pue) * Fraction(self.usd_per_kwh)
        exact = (value_lost + power + Fraction(self.hosting_usd_per_month) / HOURS_PER_MONTH) * NANOS
        return UsdPerHour(divide_half_even(exact.numerator, exact.denominator))


class Hosts(UserFileModel):
    """Equal hosts at one site. ``addresses`` are for people who log in there; no offer and no plan shows them."""

    name: Text = Field(description="Name of the group; unique.", examples=["dgx"])
    site: Text
    machine: Text = Field(description="One of `machines`.")
    count: Count
    addresses: tuple[Text, ...] = Field(default=(), description="One for each host.", examples=[["10.0.0.11"]])
    usd_per_hour: Dollars | None = Field(default=None, description="Price of one host, where it is known as such.")
    amortised: Amortised | None = None

    @model_validator(mode="after")
    def _check_price_and_addresses(self) -> Self:
        if (self.usd_per_hour is None) == (self.amortised is None):
            raise ValueError("needs either usd_per_hour or amortised")
        if self.addresses and len(self.addresses) != self.count:
            raise ValueError(f"there are {self.count} hosts and {len(self.addresses)} addresses")
        require_unique_names("address", self.addresses, ("addresses",))
        if self.price().nanos <= 0:
            raise ValueError("the price comes to 0; nothing is for nothing, so write what an hour costs you")
        return self

    def price(self) -> UsdPerHour:
        """Return the price of one host; ValueError when it has more than nine decimals."""
        return self.amortised.per_hour() if self.amortised else UsdPerHour.parse(self.usd_per_hour or Decimal(0))


class Pool(UserFileModel):
    """The pool file."""

    as_of: Day | None = Field(default=None, description="Date of these prices; left out: today.")
    sites: NonEmpty[Place]
    machines: NonEmpty[MachineType]
    hosts: NonEmpty[Hosts]
    egress_usd_per_gb: Dollars | None = Field(
        default=None,
        description="Price of a GB that leaves a site, for anywhere; left out: unknown, so no data may leave.",
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        sites, machines = [site.name for site in self.sites], [machine.type for machine in self.machines]
        require_unique_names("site", sites, ("sites",), "name")
        require_unique_names("machine", machines, ("machines",), "type")
        require_unique_names("group of hosts", [group.name for group in self.hosts], ("hosts",), "name")
        group_names: dict[tuple[str, str], str] = {}
        for number, group in enumerate(self.hosts):
            require_known_name("site", group.site, sites, ("hosts", number, "site"))
            require_known_name("machine", group.machine, machines, ("hosts", number, "machine"))
            other = group_names.setdefault((group.site, group.machine), group.name)
            if other != group.name:
                what = f"{group.name} and {other} are both {group.machine} at {group.site}"
                remedy = "give one of them a machine type of its own"
                raise MisplacedError(f"{what}; {remedy}", ("hosts", number, "machine"))
        return self
