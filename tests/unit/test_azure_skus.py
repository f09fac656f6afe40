"""Rows of Microsoft.Compute/skus, and a region's offers out of them and prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from providers.azure.parse import region as r
from providers.azure.parse import skus as s
from providers.azure.parse.prices import RegionPrices, RetailPrice
from providers.azure.parse.skus import build_machine, read_skus

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
BOOK = embedded_book()
CONTEXT = r.RegionContext("azure", BOOK, NOW)
H100, NEW, A100 = "Standard_ND96isr_H100_v5", "Standard_NCC40ads_H100_v5", "Standard_NC24ads_A100_v4"


def sku(name: str = H100, zones: tuple[str, ...] = ("2", "1", "3"), **changes: Any) -> dict[str, Any]:
    """The columns of "Resource Skus - List" (Microsoft Learn), sample "Lists all available Resource SKUs"."""
    standard = {"vCPUs": "96", "vCPUsAvailable": "96", "MemoryGB": "1900", "GPUs": "8", "RdmaEnabled": "True"}
    has: dict[str, str | None] = {**standard, **changes.pop("has", {})}
    row = {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": "standardNDSH100v5Family",
        "locations": ["eastus"],
        "locationInfo": [{"location": "eastus", "zones": list(zones), "zoneDetails": []}],
        "capabilities": [{"name": key, "value": value} for key, value in has.items() if value is not None],
        "restrictions": [],
    }
    return {**row, **changes}


def closed(kind: str, zones: tuple[str, ...] = (), place: str = "eastus") -> dict[str, Any]:
    info = {"locations": [place], "zones": list(zones)} if zones else {"locations": [place]}
    return {"type": kind, "values": [place], "restrictionInfo": info, "reasonCode": "NotAvailableForSubscription"}


def read(*rows: object) -> s.SkuList:
    return read_skus(rows, "eastus")


def test_a_size_and_where_it_may_be_started() -> None:
    found = read(sku())
    assert found.skus == {
        H100: s.Sku(H100, "standardNDSH100v5Family", 8, 96, 1900.0, True, None, ("1", "2", "3"), False)
    }
    assert (found.dropped, found.unclear, found.rows_read) == ((), frozenset(), 1)


def test_restrictions() -> None:
    found = read(
        sku(restrictions=[closed("Zone", ("1", "3"))]),
        sku(A100, restrictions=[closed("Location")]),
        sku("Standard_ND96isr_H200_v5", restrictions=[closed("Location", place="westus")]),
        sku("Standard_ND96asr_v4", restrictions=[closed("Zone", ("1", "2", "3"))]),
    ).skus
    assert found[H100].zones == ("2",)
    assert found[A100].restricted
    assert not found["Standard_ND96isr_H200_v5"].restricted
    # Every zone closed: a machine without a zone is still allowed.
    assert (found["Standard_ND96asr_v4"].zones, found["Standard_ND96asr_v4"].restricted) == ((), False)


def test_what_has_no_whole_accelerator_is_passed_over() -> None:
    disk = {"resourceType": "disks", "name": "Premium_LRS"}
    found = read(disk, sku("Standard_D2s_v5"), sku("Standard_NV6ads_A10_v5"), sku("Standard_NP10s"))
    assert (dict(found.skus), found.dropped, found.rows_read) == ({}, (), 4)


@pytest.mark.parametrize(
    "has", [{"GPUs": None}, {"GPUs": "0"}, {"GPUs": "0.5"}, {"GPUs": "many"}, {"vCPUs": "x", "vCPUsAvailable": None}]
)
def test_a_size_that_cannot_be_read_is_named(has: dict[str, Any]) -> None:
    found = read(sku(has=has))
    assert (dict(found.skus), [d.why for d in found.dropped]) == ({}, [s.UNREADABLE])
    assert found.unclear == {H100}


def test_two_rows_of_a_size() -> None:
    one, other = sku(zones=("1",)), sku(zones=("2",))
    assert read(one, other).skus[H100].zones == ("1", "2")
    contradiction = read(one, sku(has={"GPUs": "4"}))
    assert (dict(contradiction.skus), [d.why for d in contradiction.dropped]) == ({}, [s.TWICE])
    assert read("nonsense").unclear == {""}


def test_a_size_that_the_book_does_not_know_becomes_a_machine() -> None:
    new = read(sku(NEW, has={"GPUs": "1", "RdmaEnabled": "False", "NvmeDiskSizeInMiB": "3571712"})).skus[NEW]
    machine = build_machine(new, BOOK, "azure", NOW.date())
    assert machine is not None
    assert (machine.accelerator, machine.accelerator_count, machine.accelerator_memory_gib) == ("H100-NVL", 1, 94)
    assert (machine.vcpus, machine.memory_gib, machine.local_nvme_gib) == (96, 1900.0, 3488)
    assert (machine.fabric, machine.inter_node_gbps, machine.intra_node_gb_per_s, machine.checked) == (
        None,
        None,
        None,
        False,
    )
    unknown = read(sku("Standard_NV12s_v3", has={"GPUs": "1"})).skus["Standard_NV12s_v3"]
    assert build_machine(unknown, BOOK, "azure", NOW.date()) is None


def prices(*names: str, doubtful: frozenset[Market] = frozenset()) -> RegionPrices:
    since = datetime(2025, 3, 1, tzinfo=UTC)
    listed = [
        RetailPrice(name, market, UsdPerHour.parse(price), since, True)
        for name in names
        for market, price in ((Market.ON_DEMAND, "10"), (Market.SPOT, "4"))
    ]
    return RegionPrices(tuple(sorted(listed)), (), doubtful, len(listed))


def places(offers: tuple[Offer, ...]) -> set[tuple[str, str | None, str, str]]:
    return {(o.instance_type, o.zone, o.market.value, str(o.usd_per_hour)) for o in offers}


def test_offers_by_zone() -> None:
    found = r.read_region(CONTEXT, "eastus", prices(H100), read(sku(zones=("1", "2"))), whole=True)
    assert places(found.offers) == {
        (H100, "1", "on_demand", "10.00"),
        (H100, "2", "on_demand", "10.00"),
        (H100, "1", "spot", "4.00"),
        (H100, "2", "spot", "4.00"),
    }
    assert {(o.source, o.as_of, o.price_basis) for o in found.offers} == {(r.SOURCE, NOW.date(), "list")}
    assert found.covered == {("eastus", Market.ON_DEMAND), ("eastus", Market.SPOT)}
    assert (found.machines, found.regions, found.dropped, found.rows_read) == ((), (), (), 3)


def test_offers_without_an_account_are_of_known_machines_and_the_region() -> None:
    found = r.read_region(CONTEXT, "eastus", prices(H100, NEW, "Standard_NV12s_v3"), None, whole=True)
    assert {(o.instance_type, o.zone) for o in found.offers} == {(H100, None)}
    why = {d.row.split()[1]: d.why for d in found.dropped}
    assert why == {NEW: r.NOT_IN_BOOK, "Standard_NV12s_v3": s.UNKNOWN_ACCELERATOR}


def test_with_an_account_a_price_alone_is_no_offer() -> None:
    listed = prices(H100, A100, NEW, "Standard_ND96asr_v4", "Standard_NV6ads_A10_v5")
    skus = read(
        sku(A100, restrictions=[closed("Location")]),
        sku(NEW, zones=(), has={"GPUs": "1"}),
        sku("Standard_ND96asr_v4", has={"GPUs": "?"}),
        sku("Standard_ND96isr_H200_v5"),
    )
    found = r.read_region(CONTEXT, "eastus", listed, skus, whole=True)
    assert {(o.instance_type, o.zone) for o in found.offers} == {(NEW, None)}
    assert [m.instance_type for m in found.machines] == [NEW]
    assert {(d.row.split()[1], d.why) for d in found.dropped} == {
        (H100, r.NOT_A_SKU),
        (A100, s.RESTRICTED),
        ("Standard_ND96asr_v4", s.UNREADABLE),
        ("Standard_NV6ads_A10_v5", s.ACCELERATOR_SHARE),
        ("Standard_ND96isr_H200_v5", r.NO_LISTED_PRICE),
    }
    assert found.covered == frozenset(), "a size that could not be read may be for sale"


def test_a_doubtful_market_and_a_missing_source_are_not_covered() -> None:
    doubtful = prices(H100, doubtful=frozenset({Market.SPOT}))
    assert r.read_region(CONTEXT, "eastus", doubtful, None, whole=True).covered == {("eastus", Market.ON_DEMAND)}
    assert r.read_region(CONTEXT, "eastus", prices(H100), None, whole=False).covered == frozenset()


def test_a_region_that_the_book_does_not_know() -> None:
    found = r.read_region(CONTEXT, "moonbase", prices(H100), None, whole=True)
    assert [(region.id.region, region.country) for region in found.regions] == [("moonbase", None)]
    assert r.read_region(CONTEXT, "moonbase", prices(), None, whole=True).regions == ()


def test_points_are_from_the_day_of_the_price() -> None:
    since = datetime(2025, 3, 1, tzinfo=UTC)
    listed = prices(H100, "Standard_NV12s_v3", "Standard_NV6ads_A10_v5")
    points = r.read_points(CONTEXT, "eastus", listed, since)
    assert {(p.instance_type, p.market, p.at, str(p.usd_per_hour)) for p in points} == {
        (H100, Market.ON_DEMAND, since, "10.00"),
        (H100, Market.SPOT, since, "4.00"),
    }
    assert r.read_points(CONTEXT, "eastus", listed, since + timedelta(seconds=1)) == ()


def test_only_physical_locations_are_regions() -> None:
    rows = [
        {"name": "eastus", "metadata": {"regionType": "Physical"}},
        {"name": "europe", "metadata": {"regionType": "Logical"}},
        {"displayName": "nameless"},
        "nonsense",
    ]
    assert r.read_locations(rows) == {"eastus"}
