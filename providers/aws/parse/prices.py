"""Parser of single prices, and the prices that a list gives for instance types. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pricing.money import UsdPerHour
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
