"""Small books and offers for tests: what is not said does not matter to the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime

from pricing.book import PriceBook
from pricing.egress import Tariff, Tier
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerGb, UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from pricing.risk import RiskPrior
from pricing.units import BYTES_PER_GB

DAY = date(2026, 11, 21)
MODEL = Accelerator("H100", 80, 3350.0, 989.0, 1979.0, 700, "Hopper", "a datasheet", "2026-11-21", True)
MACHINE = Machine(
    "aws",
    "p5.48xlarge",
    "H100",
    8,
    80,
    192,
    2048.0,
    "nvlink-switch",
    900.0,
    3200.0,
    "efa",
    28312,
    "x",
    "y",
    True,
)
AN_OFFER = Offer("aws", "us-east-1", None, "p5.48xlarge", Market.ON_DEMAND, UsdPerHour.parse("55.04"), "a list", DAY)
PRIORS = (
    RiskPrior("*", "*", "on_demand", "constant", 0.0, 0.0, 0.0, 0.5, 0.0, "assumed", "2026-11-21", ""),
    RiskPrior("*", "*", "reserved", "constant", 0.0, 0.0, 0.0, 0.5, 0.0, "assumed", "2026-11-21", ""),
    RiskPrior("*", "*", "spot", "falling", 0.3, 0.1, 0.9, 1.5, 0.0, "a trace", "2026-11-21", "far away"),
)


def a_region(name: str, geo: str = "NA", country: str = "US") -> Region:
    """A region written ``cloud/region``."""
    return Region(RegionId.parse(name), country, geo, geo, country, "", None, None, None, "a map", "2026-11-21")


def a_tariff(
    *tiers: tuple[int, int | None, str], cloud: str = "aws", groups: tuple[str, str] = ("us-east-1", "any")
) -> Tariff:
    """An internet tariff with tiers of (from GB, to GB, price)."""
    made = tuple(
        Tier(start * BYTES_PER_GB, None if end is None else end * BYTES_PER_GB, UsdPerGb.parse(price))
        for start, end, price in tiers
    )
    return Tariff(cloud, "internet", *groups, made, "a price page", "2026-11-21", "")


def spot(price: str, **changes: object) -> Offer:
    offer = replace(AN_OFFER, market=Market.SPOT, usd_per_hour=UsdPerHour.parse(price))
    return replace(offer, **changes)  # type: ignore[arg-type]


def a_book(offers: Iterable[Offer] = (AN_OFFER,), tariffs: Iterable[Tariff] = ()) -> PriceBook:
    """A valid book of one machine in two regions."""
    return PriceBook(
        as_of=datetime(2026, 11, 21, tzinfo=UTC),
        offers=tuple(offers),
        machines=(MACHINE,),
        accelerators=(MODEL,),
        regions=(a_region("aws/us-east-1"), a_region("aws/eu-west-1", "EU", "IE")),
        tariffs=tuple(tariffs),
        priors=PRIORS,
    )
