"""Parser of eviction rates from the SpotResources table of Azure Resource Graph, and the offers with their bands.

Rows: type ``microsoft.compute/skuspotevictionrate/location``, as "Use Azure Spot Virtual Machines" (Microsoft Learn)
projects them: ``skuName``, ``location`` and ``evictionRate``, the chance of eviction in an hour in per cent: "0-5",
"5-10", "10-15", "15-20" or "20+". Names are compared without regard to case: the table writes them in small letters.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pricing.offers import Offer
from pricing.places import Market
from pricing.risk import AZURE_BANDS
from providers.azure.parse.prices import format_row_label
from providers.protocol import DroppedRow

NOT_AN_OBJECT = "not a row of an eviction rate"
NO_PLACE = "an eviction rate without a machine type or a region"
UNKNOWN_RATE = "an eviction rate that is not known"
DISAGREE = "two eviction rates for the same machine"


@dataclass(frozen=True, slots=True)
class EvictionRates:
    """The bands of a region by machine type in small letters, and the rows that could not be used."""

    bands: Mapping[str, str]
    dropped: tuple[DroppedRow, ...]
    rows_read: int


def read_eviction_rates(rows: Sequence[object], region: str) -> EvictionRates:
    """Return the bands of the machine types in ``region``.

    A type with two different rates has none. A row that names no place is reported, since it may be of this region.
    """
    found: dict[str, set[str]] = {}
    dropped: list[DroppedRow] = []
    rows_read = 0
    for row in rows:
        if not isinstance(row, Mapping):
            dropped.append(DroppedRow(region, NOT_AN_OBJECT))
            continue
        size, place = row.get("skuName"), row.get("location")
        if not (isinstance(size, str) and size and isinstance(place, str) and place):
            dropped.append(DroppedRow(region, NO_PLACE))
            continue
        if place.lower() != region:
            continue
        rows_read += 1
        band = f"{row.get('evictionRate')}%/h"
        if band in AZURE_BANDS:
            found.setdefault(size.lower(), set()).add(band)
        else:
            dropped.append(DroppedRow(format_row_label(region, size, Market.SPOT), UNKNOWN_RATE))
    dropped += [
        DroppedRow(format_row_label(region, size, Market.SPOT), DISAGREE)
        for size, bands in found.items()
        if len(bands) > 1
    ]
    agreed = {size: bands.pop() for size, bands in found.items() if len(bands) == 1}
    return EvictionRates(agreed, tuple(sorted(dropped)), rows_read)


def set_bands(offers: Sequence[Offer], rates: EvictionRates, today: date) -> tuple[Offer, ...]:
    """Return the offers, those of spot with the band of their type and the day on which it was fetched."""
    return tuple(
        replace(offer, interruption_band=band, band_as_of=today)
        if offer.market is Market.SPOT and (band := rates.bands.get(offer.instance_type.lower())) is not None
        else offer
        for offer in offers
    )
