"""Builder of a fetch result from listings.

It matches machines and places with the book's, resolves duplicates and names the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from statistics import median

from pricing.book import PriceBook
from pricing.history import price_point
from pricing.machines import Accelerator, Machine, make_undescribed_machine
from pricing.money import UsdPerHour
from pricing.offer_csv import WEAK_LIST_ALL, WEAK_UNDATED
from pricing.offers import Offer, OfferKey
from pricing.places import Market, RegionId, is_zone_name_of_account, make_unknown_region
from providers.neoclouds.parse.accelerators import AcceleratorIndex
from providers.neoclouds.parse.catalogue_rows import CatalogueContent, CatalogueListing
from providers.protocol import DroppedRow, FetchResult

TWO_PRICES = "listed at several prices"
OTHER_MACHINE = "the book knows a machine of that name with other accelerators"
TWO_MACHINES = "another row gives a machine of that name other accelerators"


@dataclass(frozen=True, slots=True)
class CatalogueTerms:
    """Facts that hold for all prices of one catalogue.

    ``as_of`` None is undated, which makes them weak; ``list_all``: every type is listed in every region at one price,
    so that a row does not show that the region has the machine; ``markets`` are those that the catalogue would list if
    they were sold; ``regions`` limits the result to these (empty: all). With ``at`` each price is history too, of that
    moment.
    """

    cloud: str
    source: str
    as_of: date | None
    today: date
    list_all: bool = False
    markets: frozenset[Market] = frozenset({Market.ON_DEMAND, Market.SPOT})
    regions: frozenset[str] = frozenset()
    at: datetime | None = None


class _Places:
    """Regions and zones of the catalogue's locations, by the regions that the book knows of the cloud."""

    def __init__(self, cloud: str, book: PriceBook) -> None:
        self._cloud = cloud
        self._book = book
        self._found: dict[str, tuple[str, str | None]] = {}

    def known(self, region: str) -> bool:
        return self._book.region(RegionId(self._cloud, region)) is not None

    def find(self, location: str) -> tuple[str, str | None]:
        """Return region and zone of a location.

        ``us-central1-a`` is zone a of region us-central1, ``EU-RO-1`` a data centre of region RO; a location that is or
        holds no known region is a region of its own.
        """
        place = self._found.get(location)
        if place is None:
            place = self._found[location] = self._work_out(location)
        return place

    def _work_out(self, location: str) -> tuple[str, str | None]:
        if self.known(location) or "-" not in location:
            return location, None
        parts = location.split("-")
        for region in (location.rpartition("-")[0], *parts[:2]):
            if self.known(region):
                return region, location
        return location, None


def build_fetch_result(reading: CatalogueContent, book: PriceBook, terms: CatalogueTerms) -> FetchResult:
    """Return the offers of one catalogue of one cloud.

    Bad rows are dropped rows here; a caller that refuses a file for them checks ``reading.bad`` first. A machine that
    the book knows stays as it is, and a row that describes another under its name is dropped. Two equal rows are one;
    rows of one place, type and market that disagree in price are all dropped. A region is covered when none of its rows
    was unreadable or in doubt.
    """
    collector = _Collector(book, terms)
    for listing in reading.listings:
        collector.take(listing)
    unsure = {*reading.unsure, *(bad.location for bad in reading.bad)}
    dropped = [*collector.resolve(), *reading.left_out]
    dropped += [DroppedRow(bad.row or f"line {bad.line}", _why(bad.column, bad.what)) for bad in reading.bad]
    offers = tuple(collector.offers[key] for key in sorted(collector.offers))
    found = collector.places.find
    doubtful = {found(location)[0] for location in unsure} | collector.doubtful
    seen = {found(location)[0] for location in reading.locations} - doubtful
    whole = (
        frozenset() if "" in unsure else frozenset((r, m) for r in seen for m in terms.markets if collector.wanted(r))
    )
    named = sorted({offer.region for offer in offers})
    day = terms.as_of or terms.today
    return FetchResult(
        offers=offers,
        covered=whole,
        machines=tuple(collector.used_machines()),
        regions=tuple(
            make_unknown_region(terms.cloud, region, terms.source, day)
            for region in named
            if not collector.places.known(region)
        ),
        points=tuple(price_point(offer, terms.at) for offer in offers) if terms.at is not None else (),
        dropped=tuple(dropped),
        rows_read=reading.rows,
    )


def _why(column: str, what: str) -> str:
    return f"{column} {what}" if column else what


class _Collector:
    """Collect listings one by one; call :meth:`resolve` after the last."""

    def __init__(self, book: PriceBook, terms: CatalogueTerms) -> None:
        self._book = book
        self._terms = terms
        self._accelerators = AcceleratorIndex(book.accelerators)
        self._machines: dict[tuple[object, ...], Machine | str] = {}
        self._new: dict[str, Machine] = {}
        self._disagree: set[OfferKey] = set()
        self._of_named_zones: dict[OfferKey, list[UsdPerHour]] = {}
        self._dropped: list[DroppedRow] = []
        self._weak = "; ".join(
            word for word, holds in ((WEAK_LIST_ALL, terms.list_all), (WEAK_UNDATED, terms.as_of is None)) if holds
        )
        self.places = _Places(terms.cloud, book)
        self.offers: dict[OfferKey, Offer] = {}
        self.doubtful: set[str] = set()

    def wanted(self, region: str) -> bool:
        return not self._terms.regions or region in self._terms.regions

    def take(self, listing: CatalogueListing) -> None:
        region, zone = self.places.find(listing.location)
        if not self.wanted(region):
            return
        machine = self._machine(listing)
        if isinstance(machine, str):
            self._dropped.append(DroppedRow(f"{listing.instance_type} in {listing.location}", machine))
            return
        terms = self._terms
        zone = listing.zone or zone
        is_name = is_zone_name_of_account(terms.cloud, zone)
        zone = None if is_name else zone
        key = (terms.cloud, region, zone or "", listing.instance_type, listing.market.value)
        first = self.offers.get(key)
        if is_name:
            self._of_named_zones.setdefault(key, []).append(listing.usd_per_hour)
        if first is not None:
            if is_name and key in self._of_named_zones:
                return
            if first.usd_per_hour != listing.usd_per_hour:
                self._disagree.add(key)
            return
        self.offers[key] = Offer(
            cloud=terms.cloud,
            region=region,
            zone=zone,
            instance_type=listing.instance_type,
            market=listing.market,
            usd_per_hour=listing.usd_per_hour,
            source=terms.source,
            as_of=terms.as_of,
            machines_cap=listing.cap,
            price_basis="az-spot-median" if is_name and listing.market is Market.SPOT else self._basis(listing, zone),
            weak=self._weak,
        )

    def _basis(self, listing: CatalogueListing, zone: str | None) -> str:
        if self._terms.list_all:
            return "list-all-regions"
        return "zone" if zone is not None and listing.market is Market.SPOT else "list"

    def resolve(self) -> list[DroppedRow]:
        """Return what was dropped; offers that disagreed are removed, zones that only have names become their region's.

        The price of such zones is their median.
        """
        for key, prices in self._of_named_zones.items():
            middle = UsdPerHour(round(median(price.nanos for price in prices)))
            self.offers[key] = replace(self.offers[key], usd_per_hour=middle)
        for key in sorted(self._disagree):
            offer = self.offers.pop(key)
            place = f"{offer.region}/{offer.zone}" if offer.zone else offer.region
            self._dropped.append(DroppedRow(f"{offer.instance_type} in {place}, {offer.market.value}", TWO_PRICES))
            self.doubtful.add(offer.region)
        return self._dropped

    def used_machines(self) -> list[Machine]:
        """Return the machines that offers name and the book does not know, by name."""
        used = {offer.instance_type for offer in self.offers.values()}
        return [self._new[name] for name in sorted(used & self._new.keys())]

    def _machine(self, listing: CatalogueListing) -> Machine | str:
        count, gib = listing.accelerator_count, listing.accelerator_gib
        key = (listing.instance_type, listing.accelerator, count, gib, listing.vcpus, listing.memory_gib)
        machine = self._machines.get(key)
        if machine is None:
            machine = self._machines[key] = self._work_out(listing)
        return machine

    def _work_out(self, listing: CatalogueListing) -> Machine | str:
        known = self._book.machine(self._terms.cloud, listing.instance_type)
        if known is not None:
            same = self._accelerators.same_model(listing.accelerator, known.accelerator)
            return known if same and known.accelerator_count == listing.accelerator_count else OTHER_MACHINE
        model = listing.model or self._accelerators.find(
            listing.accelerator, listing.accelerator_gib, listing.instance_type
        )
        if isinstance(model, str):
            return model
        new = self._new.setdefault(listing.instance_type, self._new_machine(listing, model))
        same = (new.accelerator, new.accelerator_count) == (model.name, listing.accelerator_count)
        return new if same else TWO_MACHINES

    def _new_machine(self, listing: CatalogueListing, model: Accelerator) -> Machine:
        terms = self._terms
        as_of = terms.as_of.isoformat() if terms.as_of else "undated"
        machine = make_undescribed_machine(
            terms.cloud, listing.instance_type, model, listing.accelerator_count, terms.source, as_of
        )
        return replace(machine, vcpus=listing.vcpus, memory_gib=listing.memory_gib)
