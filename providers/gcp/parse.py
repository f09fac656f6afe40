"""Builder of offers, machines and dropped rows from a region's machine types and the price catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import Any

from pricing.book import PriceBook
from pricing.machines import Accelerator, Machine, make_undescribed_machine
from pricing.money import UsdPerHour, divide_half_even
from pricing.offers import Offer
from pricing.places import Market
from providers.gcp.series import ACCELERATORS, FRACTION, LOCAL_SSD_PARTITION_GIB, MachineSeries, find_series, is_sold
from providers.gcp.skus import BilledComponent, BilledPart, SkuTable
from providers.protocol import DroppedRow, FetchResult

SOURCE = "Google Cloud Billing catalogue, summed by component"
MACHINE_SOURCE = "Google Compute Engine machineTypes.list"
PRICE_BASIS = "component-sum"
MARKETS = (Market.ON_DEMAND, Market.SPOT)
_WITHDRAWN = frozenset({"OBSOLETE", "DELETED"})


@dataclass(frozen=True, slots=True)
class GcpMachineType:
    """One machine type as the API describes it.

    ``local_ssd_gib`` is None where it does not say. ``accelerator`` is the price book's.
    """

    name: str
    series: MachineSeries
    guest_accelerator: str
    accelerator: Accelerator
    count: int
    vcpus: int
    memory_mib: int
    local_ssd_gib: int | None


def read_machine_type(row: Mapping[str, Any], cloud: str, book: PriceBook) -> GcpMachineType | str:
    """Return a machine type with accelerators, or why it is left out, in words for ``DroppedRow``."""
    try:
        name, vcpus, memory = row["name"], int(row["guestCpus"]), int(row["memoryMb"])
        kinds = [(a["guestAcceleratorType"], int(a["guestAcceleratorCount"])) for a in row["accelerators"]]
        partitions = row.get("bundledLocalSsds", {}).get("partitionCount")
        local = None if partitions is None else int(partitions) * LOCAL_SSD_PARTITION_GIB
    except (KeyError, TypeError, ValueError, AttributeError):
        return "a field that cannot be read"
    if row.get("deprecated", {}).get("state") in _WITHDRAWN:
        return "withdrawn by Google"
    if len(kinds) != 1 or kinds[0][1] < 1 or vcpus < 1 or memory < 1:
        return "a field that cannot be read"
    guest, count = kinds[0]
    accelerator = book.accelerator(ACCELERATORS.get(guest, ""))
    if accelerator is None:
        return "an accelerator that the price book does not know"
    if FRACTION.search(row.get("description", "")):
        return "holds part of an accelerator"
    series = find_series(name)
    if series is None:
        return "a series whose billing is not known"
    known = book.machine(cloud, name)
    if known is not None and (known.accelerator, known.accelerator_count) != (accelerator.name, count):
        return "other accelerators than the price book has for it"
    return GcpMachineType(name, series, guest, accelerator, count, vcpus, memory, local)


def find_offers(
    cloud: str,
    region: str,
    zones: Mapping[str, Sequence[Mapping[str, Any]]],
    table: SkuTable,
    book: PriceBook,
    today: date,
) -> tuple[FetchResult, frozenset[Market]]:
    """Return offers of a region: one for each zone that lists the machine type, all at the region's price.

    There is one per zone and not one per region, since a plan must not place a gang in a zone that lacks the type; with
    stock unknown, zones of one price are equal to the planner and cost it nothing. Beside them stand the markets in
    which a price exists that could not be used.
    """
    offers: list[Offer] = []
    dropped: dict[DroppedRow, None] = {}
    machines: dict[str, Machine] = {}
    doubtful: set[Market] = set()
    prices: dict[tuple[GcpMachineType, Market], UsdPerHour | str] = {}
    for zone, rows in sorted(zones.items()):
        for row in rows:
            machine_type = read_machine_type(row, cloud, book)
            if isinstance(machine_type, str):
                dropped[DroppedRow(f"{zone}/{row.get('name', '?')}", machine_type)] = None
                continue
            known = book.machine(cloud, machine_type.name)
            local_gib = _local_ssd_gib(machine_type, known)
            for market in MARKETS:
                key = (machine_type, market)
                if key not in prices:
                    prices[key] = compute_price(machine_type, local_gib, market, region, table)
                    faulty = any(
                        table.faulty(c, market, region) for c, _ in list_components(machine_type, local_gib, table)
                    )
                    if faulty and is_sold(machine_type.series, machine_type.count, market):
                        doubtful.add(market)
                price = prices[key]
                if isinstance(price, str):
                    dropped[DroppedRow(f"{region}/{machine_type.name}/{market}", price)] = None
                    continue
                if known is None:
                    machines[machine_type.name] = build_new_machine(cloud, machine_type, today)
                offers.append(
                    Offer(cloud, region, zone, machine_type.name, market, price, SOURCE, today, price_basis=PRICE_BASIS)
                )
    found = FetchResult(
        offers=tuple(sorted(offers, key=lambda o: o.key)),
        machines=tuple(machines[name] for name in sorted(machines)),
        dropped=(*dropped, *table.dropped(region)),
    )
    return found, frozenset(doubtful)


def list_components(
    machine_type: GcpMachineType, local_gib: int, table: SkuTable
) -> list[tuple[BilledComponent, Fraction]]:
    """Return the components billed for a machine, and the amount of each."""
    if machine_type.series.by_slice:
        return [(BilledComponent(BilledPart.SLICE, machine_type.guest_accelerator), Fraction(machine_type.count))]
    family = machine_type.series.family
    billed = [
        (BilledComponent(BilledPart.VCPU, family), Fraction(machine_type.vcpus)),
        (BilledComponent(BilledPart.RAM, family), Fraction(machine_type.memory_mib, 1024)),
        (BilledComponent(BilledPart.GPU, machine_type.guest_accelerator), Fraction(machine_type.count)),
    ]
    if local_gib:
        own = family if table.has_own_local_ssd(family) else ""
        billed.append((BilledComponent(BilledPart.LOCAL_SSD, own), Fraction(local_gib)))
    return billed


def compute_price(
    machine_type: GcpMachineType, local_gib: int, market: Market, region: str, table: SkuTable
) -> UsdPerHour | str:
    """Return the hourly price: the exact sum over its parts, rounded once to the nano-dollar (half to even).

    Returns the reason where there is none. One part without a price leaves the machine without one.
    """
    if not is_sold(machine_type.series, machine_type.count, market):
        return "cannot be started on demand: Spot, Flex-start or a reservation only"
    total = Fraction(0)
    for component, amount in list_components(machine_type, local_gib, table):
        rate = table.rate(component, market, region)
        if isinstance(rate, str):
            return rate
        total += rate * amount
    return UsdPerHour(divide_half_even(total.numerator, total.denominator))


def build_new_machine(cloud: str, machine_type: GcpMachineType, today: date) -> Machine:
    """Return a machine that the book does not know yet; its network is unknown, since the API does not state it."""
    machine = make_undescribed_machine(
        cloud, machine_type.name, machine_type.accelerator, machine_type.count, MACHINE_SOURCE, today.isoformat()
    )
    return replace(
        machine,
        vcpus=machine_type.vcpus,
        memory_gib=machine_type.memory_mib / 1024,
        intra_node_interconnect=None,
        local_nvme_gib=machine_type.local_ssd_gib,
    )


def _local_ssd_gib(machine_type: GcpMachineType, book_machine: Machine | None) -> int:
    """Return the bundled Local SSD, which is billed: as the API says, else as the book does."""
    if machine_type.local_ssd_gib is not None:
        return machine_type.local_ssd_gib
    return (book_machine.local_nvme_gib or 0) if book_machine is not None else 0


def list_unpriced_accelerators(zone: str, listed: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[DroppedRow]:
    """Return accelerators of a zone that no machine type there has.

    They are those attached to N1 machines, which are not priced. Virtual workstations (``-vws``) are another product
    and are not named.
    """
    carried = {a.get("guestAcceleratorType") for row in rows for a in row.get("accelerators", ())}
    return [
        DroppedRow(f"{zone}/{name}", "an accelerator that is attached to N1 machines, which are not priced here")
        for name in sorted(set(listed) - carried)
        if ACCELERATORS.get(name) and not name.endswith("-vws")
    ]
