"""Parser of Retail Prices API rows into prices per hour: one a size and market, in force now, in dollars.

Columns: "Azure Retail Prices overview" (Microsoft Learn). A row of another product (Windows, low priority, dedicated
hosts, cloud services, development rates) is ignored; a row that cannot be used is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pricing.money import UsdPerHour
from pricing.places import Market
from providers.azure.parse.families import accelerator_of
from providers.protocol import DroppedRow

NOT_AN_OBJECT = "not a price row"
NO_SIZE = "names no machine type"
OTHER_REGION = "belongs to another region"
NOT_HOURLY = "not a price per hour"
NOT_USD = "not in US dollars"
NO_PRICE = "its price cannot be read"
ZERO = "its price is not above 0"
NO_DATE = "its date cannot be read"
NOT_YET = "not yet in force"
NO_LONGER = "no longer in force"
DISAGREE = "two prices for the same machine"

# Rows of these products are not reported as dropped, because they were not asked for.
_OTHER_PRODUCTS = ("windows", "cloudservices", "cloud services", "dedicated", "dev/test", "devtest")
_DOUBTS = frozenset({NOT_AN_OBJECT, NO_SIZE, NOT_HOURLY, NOT_USD, NO_PRICE, ZERO, NO_DATE, DISAGREE})


@dataclass(frozen=True, slots=True, order=True)
class RetailPrice:
    """The price of an hour of a size in a market, and since when it holds."""

    instance_type: str
    market: Market
    price: UsdPerHour
    since: datetime
    primary: bool


@dataclass(frozen=True)
class RegionPrices:
    """A region's prices, sorted.

    ``doubtful`` names the markets in which a row could not be used, so that what is missing there may still be for
    sale.
    """

    listed: tuple[RetailPrice, ...]
    dropped: tuple[DroppedRow, ...]
    doubtful: frozenset[Market]
    rows_read: int


class _UnusableError(Exception):
    """A row cannot be used; the message is the reason for which it is dropped."""


def read_prices(rows: Sequence[object], region: str, now: datetime) -> RegionPrices:
    """Return prices of ``region`` in force at ``now``.

    Of the meters of a size the region's primary ones count where there are any, and of those the one whose price began
    last; if two that began at once disagree there is no price.
    """
    found: dict[tuple[str, Market], list[RetailPrice]] = {}
    dropped: list[DroppedRow] = []
    doubtful: set[Market] = set()
    for row in rows:
        if not isinstance(row, Mapping):
            dropped.append(DroppedRow(region, NOT_AN_OBJECT))
            doubtful |= {Market.ON_DEMAND, Market.SPOT}
            continue
        if not _is_relevant(row):
            continue
        market = _market(row)
        try:
            listed = _listed(row, region, market, now)
        except _UnusableError as reason:
            dropped.append(
                DroppedRow(
                    format_row_label(region, str(row.get("armSkuName") or row.get("meterId")), market), str(reason)
                )
            )
            doubtful |= {market} & _doubt(str(reason))
            continue
        found.setdefault((listed.instance_type, market), []).append(listed)
    prices: list[RetailPrice] = []
    for (instance_type, market), meters in found.items():
        one = _agreed_price(meters)
        if one is None:
            dropped.append(DroppedRow(format_row_label(region, instance_type, market), DISAGREE))
            doubtful.add(market)
        else:
            prices.append(one)
    return RegionPrices(tuple(sorted(prices)), tuple(sorted(dropped)), frozenset(doubtful), len(rows))


def format_row_label(region: str, instance_type: str, market: Market | None = None) -> str:
    """Return the name under which a dropped row is reported."""
    return " ".join(filter(None, (region, instance_type, market)))


def _doubt(reason: str) -> frozenset[Market]:
    return frozenset(Market) if reason in _DOUBTS else frozenset()


def _text(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _is_relevant(row: Mapping[str, object]) -> bool:
    """Return whether the row is Linux, pay as you go or spot, on a machine with accelerators.

    A row without a machine's name counts too.
    """
    if _text(row, "type") not in {"", "Consumption"} or _text(row, "serviceName") not in {"", "Virtual Machines"}:
        return False
    if row.get("reservationTerm") or "low priority" in f"{_text(row, 'meterName')} {_text(row, 'skuName')}".lower():
        return False
    product = _text(row, "productName").lower()
    if any(other in product for other in _OTHER_PRODUCTS):
        return False
    size = _text(row, "armSkuName")
    return not size or accelerator_of(size) is not None


def _market(row: Mapping[str, object]) -> Market:
    words = f"{_text(row, 'meterName')} {_text(row, 'skuName')}".split()
    return Market.SPOT if "Spot" in words else Market.ON_DEMAND


def _listed(row: Mapping[str, object], region: str, market: Market, now: datetime) -> RetailPrice:
    size = _text(row, "armSkuName")
    _need(bool(size), NO_SIZE)
    _need(_text(row, "armRegionName") == region, OTHER_REGION)
    _need(_text(row, "unitOfMeasure") == "1 Hour", NOT_HOURLY)
    _need(_text(row, "currencyCode") == "USD", NOT_USD)
    since = _moment(row.get("effectiveStartDate"))
    _need(since <= now, NOT_YET)
    ends = row.get("effectiveEndDate")
    _need(not ends or _moment(ends) > now, NO_LONGER)
    price = _price(row.get("retailPrice"))
    return RetailPrice(size, market, price, since, row.get("isPrimaryMeterRegion") is True)


def _need(condition: bool, why: str) -> None:
    if not condition:
        raise _UnusableError(why)


def _price(value: object) -> UsdPerHour:
    """Parse a price; ``value`` is the number's text as it stood in the answer, so that no digit was lost."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise _UnusableError(NO_PRICE)
    try:
        price = UsdPerHour.parse(value)
    except ValueError:
        raise _UnusableError(NO_PRICE) from None
    _need(price.nanos > 0, ZERO)
    return price


def _moment(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise _UnusableError(NO_DATE) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _agreed_price(meters: Iterable[RetailPrice]) -> RetailPrice | None:
    """Return the one price of a size: of the primary meters the newest; None where two begin at once and disagree."""
    meters = list(meters)
    chosen = [m for m in meters if m.primary] or meters
    newest = max(m.since for m in chosen)
    prices = {m.price for m in chosen if m.since == newest}
    return min((m for m in chosen if m.price in prices), key=lambda m: m.since) if len(prices) == 1 else None
