"""Parser of ``vms.csv`` of SkyPilot's public catalogues: on-demand and spot side by side, a row for each zone.

Columns as in the catalogue's README (schema v5 to v8): see :data:`NEEDED` and :data:`OPTIONAL`; others are ignored.
Where all zones of a region agree, the on-demand price is the region's; spot stays by zone. Some catalogues (RunPod's)
fill the spot column with the on-demand prices; then it says nothing.

Some catalogues (GCP's) price the machine and its accelerators in separate rows. Their sum is not formed: the
accelerator rows are known to mix tariffs, and half of a price is no price.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pricing.money import UsdPerHour
from pricing.places import Market
from providers.neoclouds.parse.catalogue_rows import (
    CELLS,
    FRACTION,
    NOT_ABOVE_ZERO,
    BadRow,
    CatalogueContent,
    CatalogueListing,
    CellParser,
    WrongCellError,
    read_table,
)

NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region")
OPTIONAL = ("vCPUs", "MemoryGiB", "AvailabilityZone")
APART = "an accelerator priced apart from its machine"
HALF = "the machine is priced without its accelerators"
REPEATED = "the spot column repeats the on-demand prices"
NOT_SOLD = "neither an on-demand nor a spot price"

# With fewer rows, equal spot and on-demand prices may be chance.
_FEWEST_TO_TELL = 10
# SkyPilot names the larger of two memory sizes and leaves the smaller one bare.
_BARE_MEMORY_GIB = {"A100": 40.0, "V100": 16.0}


def read_vms(lines: Iterable[str], machines: frozenset[str]) -> CatalogueContent:
    """Return the content of the catalogue; ``machines`` are names known to have accelerators.

    Machines without any are ignored. NotACatalogueError when it is no such table.
    """
    columns, rows = read_table(lines, NEEDED)
    reading = CatalogueContent()
    reader = _RowReader(columns)
    at_name, at_accelerator, at_region = (columns[c] for c in ("InstanceType", "AcceleratorName", "Region"))
    for line, row in rows:
        reading.rows += 1
        if len(row) != len(columns):
            reading.bad.append(BadRow(line, "", CELLS, "", ",".join(row)[:60], ""))
            continue
        name, accelerator, region = row[at_name].strip(), row[at_accelerator].strip(), row[at_region].strip()
        if region:
            reading.locations.add(region)
        label = f"{name or accelerator} in {region}"
        if not accelerator:
            if name in machines:
                reading.leave_out(label, HALF, region, sure=False)
            continue
        if not name:
            reading.leave_out(label, APART, region, sure=False)
            continue
        reading.take(line, row, columns, label, region, reader.read)
    reading.listings = _by_region(_drop_repeated_spot(reading))
    return reading


class _RowReader:
    """Read rows of one table."""

    def __init__(self, columns: dict[str, int]) -> None:
        self._cells = CellParser()
        self._needed = tuple(columns[name] for name in NEEDED)
        self._optional = tuple(columns.get(name, -1) for name in OPTIONAL)

    def read(self, line: int, row: list[str]) -> list[CatalogueListing] | str:
        """Return one listing for each price of the row, or why there is none."""
        name, accelerator, count_text, on_demand, spot, region = (row[at].strip() for at in self._needed)
        vcpus, memory, zone = (row[at].strip() if at >= 0 else "" for at in self._optional)
        if not region:
            raise WrongCellError("Region", "is blank")
        if not count_text:
            raise WrongCellError("AcceleratorCount", "is blank")
        count = self._cells.whole("AcceleratorCount", count_text)
        vcpu_count, memory_gib = self._cells.whole("vCPUs", vcpus), self._cells.number("MemoryGiB", memory)
        prices = [
            (market, self._cells.price(column, text))
            for market, column, text in ((Market.ON_DEMAND, "Price", on_demand), (Market.SPOT, "SpotPrice", spot))
            if text
        ]
        if not count:
            return FRACTION
        if not prices:
            return NOT_SOLD
        sold = [
            CatalogueListing(
                line=line,
                instance_type=name,
                location=region,
                zone=zone if zone and zone != region else None,
                market=market,
                usd_per_hour=price,
                accelerator=accelerator,
                accelerator_count=count,
                accelerator_gib=_BARE_MEMORY_GIB.get(accelerator),
                vcpus=vcpu_count,
                memory_gib=memory_gib,
            )
            for market, price in prices
            if price.nanos > 0  # Some catalogues write 0.00 for a market in which the machine is not sold.
        ]
        return sold or NOT_ABOVE_ZERO


def _drop_repeated_spot(reading: CatalogueContent) -> list[CatalogueListing]:
    """Return the listings without a spot column that repeats the on-demand prices in all of ten rows or more."""
    by_line: dict[int, list[CatalogueListing]] = {}
    for listing in reading.listings:
        by_line.setdefault(listing.line, []).append(listing)
    pairs = [row for row in by_line.values() if len(row) == 2]
    if len(pairs) < _FEWEST_TO_TELL or any(a.usd_per_hour != b.usd_per_hour for a, b in pairs):
        return reading.listings
    for listed, _ in pairs:
        reading.leave_out(f"{listed.instance_type} in {listed.location}", REPEATED, listed.location)
    return [listing for listing in reading.listings if listing.market is Market.ON_DEMAND]


def _by_region(listings: list[CatalogueListing]) -> list[CatalogueListing]:
    """Return on-demand prices that are equal in all zones of a region once, without a zone."""
    prices: dict[tuple[str, str], set[UsdPerHour]] = {}
    for listing in listings:
        if listing.market is Market.ON_DEMAND:
            prices.setdefault((listing.instance_type, listing.location), set()).add(listing.usd_per_hour)
    listed: list[CatalogueListing] = []
    for listing in listings:
        place = (listing.instance_type, listing.location)
        if listing.market is not Market.ON_DEMAND or len(prices[place]) > 1:
            listed.append(listing)
        elif prices[place]:
            listed.append(replace(listing, zone=None))
            prices[place] = set()  # Further zones of this region are skipped.
    return listed
