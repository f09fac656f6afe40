"""Parser of on-demand prices: single ones, what a list gives for instance types, and products (GetProducts). Pure.

The form of a product:
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pricing.money import UsdPerHour
from providers.errors import UnreadableError
from providers.protocol import DroppedRow

NOT_ABOVE_ZERO = "the price is not above 0"
NO_PRICE = "the price cannot be read"
NOT_USD = "the price is not in US dollars"
NOT_HOURLY = "the price is not for an hour"
TWO_PRICES = "listed more than once, with different prices"
NOT_LISTED = "no on-demand price is listed"


def read_price(text: str) -> UsdPerHour | str:
    """Return the exact price, or why the row is dropped."""
    try:
        price = UsdPerHour.parse(text)
    except ValueError:
        return NO_PRICE
    return price if price.nanos > 0 else NOT_ABOVE_ZERO


@dataclass(frozen=True, slots=True)
class OnDemandPrices:
    """On-demand prices by instance type. ``lost`` names the types whose listed price could not be used."""

    prices: Mapping[str, UsdPerHour]
    dropped: tuple[DroppedRow, ...]
    lost: frozenset[str]
    rows_read: int


@dataclass
class PriceRows:
    """Collect the rows of one region's list, and resolve each type to one price, or none."""

    region: str
    prices: dict[str, set[UsdPerHour]] = field(default_factory=dict)
    dropped: list[DroppedRow] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def add(self, instance_type: str, sku: str, usd_per_hour: str) -> None:
        price = read_price(usd_per_hour)
        if isinstance(price, str):
            self.refuse(instance_type, sku, price)
        else:
            self.prices.setdefault(instance_type, set()).add(price)

    def refuse(self, instance_type: str, sku: str, why: str) -> None:
        self.lost.add(instance_type)
        self.dropped.append(DroppedRow(f"{self.region} {instance_type} on demand, SKU {sku}", why))

    def resolve(self, rows_read: int) -> OnDemandPrices:
        """Return the prices: a type with two prices has neither; one whose only price was refused is lost."""
        resolved = {}
        for name, prices in self.prices.items():
            if len(prices) == 1:
                resolved[name] = next(iter(prices))
            else:
                shown = " and ".join(str(price) for price in sorted(prices))
                self.lost.add(name)
                self.dropped.append(DroppedRow(f"{self.region} {name} on demand: {shown}", TWO_PRICES))
        return OnDemandPrices(resolved, tuple(self.dropped), frozenset(self.lost - set(resolved)), rows_read)


SOURCE = "AWS Price List GetProducts"
_HOURLY = frozenset({"Hrs", "Hours", "Hour"})
# Capacity blocks are listed beside the products sold by the hour, at 0.
_BY_THE_HOUR = frozenset({"", "OnDemand"})


def read_products(cloud: str, region: str, products: Iterable[str], instance_types: frozenset[str]) -> OnDemandPrices:
    """Return prices of these instance types among ``products`` (JSON texts).

    UnreadableError when one of them is not of the documented form: nothing of them is used.
    """
    rows, count = PriceRows(region), 0
    for text in products:
        count += 1
        try:
            product = json.loads(text)
            attributes = product["product"]["attributes"]
            name, sku = attributes["instanceType"], product["product"]["sku"]
            terms = product["terms"].get("OnDemand", {})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreadableError(cloud, f"a product in the price list of {region} cannot be read") from None
        if name in instance_types and attributes.get("marketoption", "") in _BY_THE_HOUR:
            _read_terms(rows, name, sku, terms)
    return rows.resolve(count)


def _read_terms(rows: PriceRows, name: str, sku: str, terms: Mapping[str, Any]) -> None:
    for term in terms.values():
        for dimension in term.get("priceDimensions", {}).values():
            prices = dimension.get("pricePerUnit") or {}
            if dimension.get("unit") not in _HOURLY:
                rows.refuse(name, sku, NOT_HOURLY)
            elif "USD" not in prices:
                rows.refuse(name, sku, NOT_USD if prices else NO_PRICE)
            else:
                rows.add(name, sku, prices["USD"])
