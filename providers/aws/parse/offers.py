"""Builder of offers from prices. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from fractions import Fraction

from pricing.money import UsdPerHour
from pricing.offer_csv import WEAK_SAVINGS, WEAK_UNDATED
from pricing.offers import Offer, remove_rounding_excess
from pricing.places import Market
from providers.aws.parse import advisor, spot
from providers.aws.parse.advisor import SpotAdvice


def build_on_demand_offers(
    cloud: str,
    region: str,
    prices: Mapping[str, UsdPerHour],
    zones: Mapping[str, frozenset[str]],
    source: str,
    as_of: date | None,
) -> tuple[Offer, ...]:
    """Return the region's list price in each zone that sells the type; without a zone where ``zones`` has no entry."""
    return tuple(
        Offer(
            cloud=cloud,
            region=region,
            zone=zone,
            instance_type=name,
            market=Market.ON_DEMAND,
            usd_per_hour=price,
            source=source,
            as_of=as_of,
            weak="" if as_of else WEAK_UNDATED,
        )
        for name, price in sorted(prices.items())
        for zone in (sorted(zones[name]) if name in zones else [None])
    )


def build_spot_offers(
    cloud: str,
    region: str,
    current: Mapping[tuple[str, str], UsdPerHour],
    listed: Mapping[str, UsdPerHour],
    advice: SpotAdvice,
    today: date,
) -> tuple[Offer, ...]:
    """Return one offer a zone, at its current price, with the dated band of its type.

    A price above the ``listed`` on-demand price by rounding alone is lowered to it.
    """
    return tuple(
        Offer(
            cloud=cloud,
            region=region,
            zone=zone,
            instance_type=name,
            market=Market.SPOT,
            usd_per_hour=remove_rounding_excess(price, listed.get(name)),
            source=spot.SOURCE,
            as_of=today,
            interruption_band=advice.bands.get(name),
            band_as_of=advice.date_of(name),
            price_basis="zone",
        )
        for (zone, name), price in sorted(current.items())
    )


def build_estimated_spot_offers(
    cloud: str, region: str, listed: Mapping[str, UsdPerHour], advice: SpotAdvice, listed_by: str, as_of: date | None
) -> tuple[Offer, ...]:
    """Return weak offers without a zone for use without a price history: on-demand prices less the advised savings.

    ``as_of`` is the advisor's date, the older of the two sources.
    """
    return tuple(
        Offer(
            cloud=cloud,
            region=region,
            zone=None,
            instance_type=name,
            market=Market.SPOT,
            usd_per_hour=listed[name].scaled(Fraction(100 - saving, 100)),
            source=f"{advisor.SOURCE} savings on {listed_by}",
            as_of=as_of,
            interruption_band=advice.bands.get(name),
            band_as_of=advice.date_of(name),
            price_basis="advisor-savings",
            weak=WEAK_SAVINGS if as_of else f"{WEAK_SAVINGS}; {WEAK_UNDATED}",
        )
        for name, saving in sorted(advice.savings.items())
        if name in listed
    )
