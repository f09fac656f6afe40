"""Parser of on-demand prices of the Price List API (GetProducts). Pure.

The form of a product:
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from providers.aws.parse.prices import NO_PRICE, NOT_HOURLY, NOT_USD, OnDemandPrices, PriceRows
from providers.errors import UnreadableError

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
