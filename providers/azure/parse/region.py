"""Builder of one region's offers from its prices, with or without the subscription's SKUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pricing.book import PriceBook
from pricing.history import PricePoint
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market, RegionId, make_unknown_region
from providers.azure.parse.families import accelerator_of, is_accelerator_share
from providers.azure.parse.prices import RegionPrices, RetailPrice, format_row_label
from providers.azure.parse.skus import (
    ACCELERATOR_SHARE,
    RESTRICTED,
    UNKNOWN_ACCELERATOR,
    UNREADABLE,
    Sku,
    SkuList,
    build_machine,
)
from providers.protocol import DroppedRow, FetchResult

SOURCE = "Azure Retail Prices API"
NOT_IN_BOOK = "a machine type that the price book does not know; with credentials its accelerators are counted"
NOT_A_SKU = "priced there, but not among the subscription's SKUs"
NO_LISTED_PRICE = "the subscription may use it, but it has no price there"

_MARKETS = (Market.ON_DEMAND, Market.SPOT)


@dataclass(frozen=True, slots=True)
class RegionContext:
    """The cloud, the book that defines machines and accelerators, and the moment."""

    cloud: str
    book: PriceBook
    now: datetime


def read_region(
    context: RegionContext, region: str, prices: RegionPrices, skus: SkuList | None, *, whole: bool
) -> FetchResult:
    """Return offers by zone where the SKUs name zones, otherwise for the region.

    Without SKUs there are offers only of machines that the book knows. ``whole`` False: a source is missing that older
    rows came from, so nothing is covered.
    """
    usable: list[tuple[RetailPrice, Machine, Sku | None]] = []
    dropped: list[DroppedRow] = [*prices.dropped, *(skus.dropped if skus else ())]
    for listed in prices.listed:
        sku = skus.skus.get(listed.instance_type) if skus else None
        machine = _machine(context, listed.instance_type, sku)
        why = _why_not(context, listed, machine, skus)
        if why == UNKNOWN_ACCELERATOR:
            named = f"{listed.instance_type} ({accelerator_of(listed.instance_type)})"
            dropped.append(DroppedRow(format_row_label(region, named, listed.market), why))
        elif why or machine is None:
            dropped.append(DroppedRow(format_row_label(region, listed.instance_type, listed.market), why))
        else:
            usable.append((listed, machine, sku))
    dropped.extend(_without_price(context, region, prices, skus))
    offers = [offer for listed, _, sku in usable for offer in _offers(context, region, listed, sku)]
    known = context.book.region(RegionId(context.cloud, region)) is not None or not offers
    today = context.now.date()
    return FetchResult(
        offers=tuple(sorted(offers, key=lambda offer: offer.key)),
        covered=frozenset((region, market) for market in _MARKETS if whole and _seen_whole(market, prices, skus)),
        machines=_new_machines(context, (machine for _, machine, _ in usable)),
        regions=() if known else (make_unknown_region(context.cloud, region, SOURCE, today),),
        dropped=tuple(sorted(dropped)),
        rows_read=prices.rows_read + (skus.rows_read if skus else 0),
    )


def read_locations(rows: Iterable[object]) -> frozenset[str]:
    """Return the regions that a subscription sees; groups of regions ("europe") are left out."""
    found = set()
    for row in rows:
        if isinstance(row, Mapping) and isinstance(row.get("name"), str):
            metadata = row.get("metadata")
            if not isinstance(metadata, Mapping) or metadata.get("regionType") == "Physical":
                found.add(str(row["name"]))
    return frozenset(found)


def read_points(context: RegionContext, region: str, prices: RegionPrices, begin: datetime) -> tuple[PricePoint, ...]:
    """Return each price that came into force at ``begin`` or later, at that moment.

    That is all the history that this source knows.
    """
    return tuple(
        PricePoint(context.cloud, region, None, listed.instance_type, listed.market, listed.since, SOURCE, listed.price)
        for listed in prices.listed
        if listed.since >= begin and _is_known(context, listed.instance_type)
    )


def _is_known(context: RegionContext, instance_type: str) -> bool:
    if context.book.machine(context.cloud, instance_type) is not None:
        return True
    known = context.book.accelerator(accelerator_of(instance_type) or "") is not None
    return known and not is_accelerator_share(instance_type)


def _machine(context: RegionContext, instance_type: str, sku: Sku | None) -> Machine | None:
    book_machine = context.book.machine(context.cloud, instance_type)
    if book_machine is not None or sku is None:
        return book_machine
    return build_machine(sku, context.book, context.cloud, context.now.date())


def _why_not(context: RegionContext, listed: RetailPrice, machine: Machine | None, skus: SkuList | None) -> str:
    name = listed.instance_type
    if machine is None and is_accelerator_share(name):
        return ACCELERATOR_SHARE
    if machine is None and context.book.accelerator(accelerator_of(name) or "") is None:
        return UNKNOWN_ACCELERATOR
    if skus is None:
        return "" if machine is not None else NOT_IN_BOOK
    if name in skus.unclear:
        return UNREADABLE
    if name not in skus.skus:
        return NOT_A_SKU
    return RESTRICTED if skus.skus[name].restricted else ""


def _without_price(
    context: RegionContext, region: str, prices: RegionPrices, skus: SkuList | None
) -> Iterable[DroppedRow]:
    priced = {listed.instance_type for listed in prices.listed}
    refused = {word for row in prices.dropped for word in row.row.split()}
    for sku in skus.skus.values() if skus else ():
        if sku.instance_type in priced | refused or sku.restricted:
            continue
        if _machine(context, sku.instance_type, sku) is not None:
            yield DroppedRow(format_row_label(region, sku.instance_type), NO_LISTED_PRICE)


def _offers(context: RegionContext, region: str, listed: RetailPrice, sku: Sku | None) -> Iterable[Offer]:
    zones: tuple[str | None, ...] = sku.zones if sku is not None and sku.zones else (None,)
    for zone in zones:
        yield Offer(
            cloud=context.cloud,
            region=region,
            zone=zone,
            instance_type=listed.instance_type,
            market=listed.market,
            usd_per_hour=listed.price,
            source=SOURCE,
            as_of=context.now.date(),
        )


def _seen_whole(market: Market, prices: RegionPrices, skus: SkuList | None) -> bool:
    """Return whether what is missing is not for sale; a row that could not be read may have been anything."""
    return market not in prices.doubtful and not (skus and skus.unclear)


def _new_machines(context: RegionContext, machines: Iterable[Machine]) -> tuple[Machine, ...]:
    new = {m.instance_type: m for m in machines if context.book.machine(m.cloud, m.instance_type) is None}
    return tuple(new[name] for name in sorted(new))
