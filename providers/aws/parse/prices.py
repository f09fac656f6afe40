"""Parser of on-demand prices: single ones, what a list gives for instance types, and products (GetProducts). Pure.

The form of a product:
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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


# Instance type, SKU, and its price or why it is refused.
PriceRow = tuple[str, str, UsdPerHour | str]


def resolve_prices(region: str, rows: Iterable[PriceRow], rows_read: int) -> OnDemandPrices:
    """Return one price of each type of a region's list: a type with two has neither; one that was refused is lost."""
    listed: dict[str, set[UsdPerHour]] = {}
    dropped: list[DroppedRow] = []
    lost: set[str] = set()
    for name, sku, price in rows:
        if isinstance(price, str):
            lost.add(name)
            dropped.append(DroppedRow(f"{region} {name} on demand, SKU {sku}", price))
        else:
            listed.setdefault(name, set()).add(price)
    resolved = {}
    for name, prices in listed.items():
        if len(prices) == 1:
            resolved[name] = next(iter(prices))
        else:
            shown = " and ".join(str(price) for price in sorted(prices))
            lost.add(name)
            dropped.append(DroppedRow(f"{region} {name} on demand: {shown}", TWO_PRICES))
    return OnDemandPrices(resolved, tuple(dropped), frozenset(lost - set(resolved)), rows_read)


SOURCE = "AWS Price List GetProducts"
_HOURLY = frozenset({"Hrs", "Hours", "Hour"})
# Capacity blocks are listed beside the products sold by the hour, at 0.
_BY_THE_HOUR = frozenset({"", "OnDemand"})


def read_products(cloud: str, region: str, products: Iterable[str], instance_types: frozenset[str]) -> OnDemandPrices:
    """Return prices of these instance types among ``products`` (JSON texts).

    UnreadableError when one of them is not of the documented form: nothing of them is used.
    """
    rows: list[PriceRow] = []
    texts = tuple(products)
    for text in texts:
        try:
            product = json.loads(text)
            attributes = product["product"]["attributes"]
            name, sku = attributes["instanceType"], product["product"]["sku"]
            terms = product["terms"].get("OnDemand", {})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreadableError(cloud, f"a product in the price list of {region} cannot be read") from None
        if name in instance_types and attributes.get("marketoption", "") in _BY_THE_HOUR:
            rows += ((name, sku, price) for price in _read_terms(terms))
    return resolve_prices(region, rows, len(texts))


def _read_terms(terms: Mapping[str, Any]) -> Iterator[UsdPerHour | str]:
    for term in terms.values():
        for dimension in term.get("priceDimensions", {}).values():
            prices = dimension.get("pricePerUnit") or {}
            if dimension.get("unit") not in _HOURLY:
                yield NOT_HOURLY
            elif "USD" not in prices:
                yield NOT_USD if prices else NO_PRICE
            else:
                yield read_price(prices["USD"])
