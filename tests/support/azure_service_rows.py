"""What the local Azure service sells: rows of the Retail Prices API and of Azure Resource Manager.

Shapes: the sample answers of "Azure Retail Prices overview", "Resource Skus - List", "Usage - List" and "Capacity
Reservations" (Microsoft Learn), and the models of azure-mgmt-compute 39. Sizes, vCPUs and memory: the GPU size pages;
prices are made up: a base price, dearer from region to region.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

Row = dict[str, Any]

# size, quota family, GPUs, vCPUs, GB, RDMA, dollars an hour
SIZES: tuple[tuple[str, str, int, int, int, bool, str], ...] = (
    ("Standard_NC6s_v3", "standardNCSv3Family", 1, 6, 112, False, "3.06"),
    ("Standard_NC12s_v3", "standardNCSv3Family", 2, 12, 224, False, "6.12"),
    ("Standard_NC24s_v3", "standardNCSv3Family", 4, 24, 448, False, "12.24"),
    ("Standard_NC24rs_v3", "standardNCSv3Family", 4, 24, 448, True, "13.464"),
    ("Standard_NC4as_T4_v3", "Standard NCASv3_T4 Family", 1, 4, 28, False, "0.526"),
    ("Standard_NC8as_T4_v3", "Standard NCASv3_T4 Family", 1, 8, 56, False, "0.752"),
    ("Standard_NC16as_T4_v3", "Standard NCASv3_T4 Family", 1, 16, 110, False, "1.204"),
    ("Standard_NC64as_T4_v3", "Standard NCASv3_T4 Family", 4, 64, 440, False, "4.352"),
    ("Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 1, 24, 220, False, "3.673"),
    ("Standard_NC48ads_A100_v4", "StandardNCADSA100v4Family", 2, 48, 440, False, "7.346"),
    ("Standard_NC96ads_A100_v4", "StandardNCADSA100v4Family", 4, 96, 880, False, "14.692"),
    ("Standard_NC40ads_H100_v5", "StandardNCadsH100v5Family", 1, 40, 320, False, "6.98"),
    ("Standard_NC80adis_H100_v5", "StandardNCadsH100v5Family", 2, 80, 640, False, "13.96"),
    ("Standard_ND40rs_v2", "standardNDSv2Family", 8, 40, 672, True, "22.032"),
    ("Standard_ND96asr_v4", "Standard NDASv4_A100 Family", 8, 96, 900, True, "27.197"),
    ("Standard_ND96amsr_A100_v4", "standardNDAMSv4_A100Family", 8, 96, 1900, True, "32.77"),
    ("Standard_ND96isr_H100_v5", "standardNDSH100v5Family", 8, 96, 1900, True, "98.32"),
    ("Standard_ND96isr_H200_v5", "standardNDISRH200V5Family", 8, 96, 1850, True, "110.24"),
    ("Standard_ND96isr_MI300X_v5", "standardNDISRMI300XV5Family", 8, 96, 1850, True, "64.48"),
    ("Standard_ND128isr_NDR_GB200_v6", "standardNDISRGB200V6Family", 4, 128, 1000, True, "108.16"),
    ("Standard_NV36ads_A10_v5", "StandardNVADSA10v5Family", 1, 36, 440, False, "3.2"),
    ("Standard_NV72ads_A10_v5", "StandardNVADSA10v5Family", 2, 72, 880, False, "6.52"),
    # Not in the price book: a new size with a known accelerator, a share of one, two unknown ones, an FPGA.
    ("Standard_NCC40ads_H100_v5", "StandardNCCads2023Family", 1, 40, 320, False, "7.68"),
    ("Standard_NV6ads_A10_v5", "StandardNVADSA10v5Family", 1, 6, 55, False, "0.454"),
    ("Standard_NV12s_v3", "standardNVSv3Family", 1, 12, 112, False, "1.14"),
    ("Standard_NG32ads_V620_v1", "StandardNGADSV620v1Family", 1, 32, 64, False, "3.162"),
    ("Standard_NP10s", "standardNPSFamily", 1, 10, 168, False, "1.65"),
)
NEW_TYPE = ("Standard_ND72isr_X900_v9", "standardNDISRX900V9Family", 8, 72, 2000, True, "222.2")
_RATES = ("0-5", "5-10", "10-15", "15-20", "20+")
_SPOT_SHARE = Decimal("0.25")
_CPU_SIZES = ("D2s_v5", "D4s_v5", "D8s_v5", "E2s_v5", "E8s_v5", "F4s_v2", "B2ms", "L8s_v3", "M64s", "HB120rs_v3")


def price(size: int, region: int, *, spot: bool = False) -> Decimal:
    """What an hour of the size with that number costs in the region with that number."""
    base = Decimal((*SIZES, NEW_TYPE)[size][6]) * (100 + region % 17) / 100
    return (base * _SPOT_SHARE).quantize(Decimal("0.000001")) if spot else base.quantize(Decimal("0.0001"))


def is_listed(size: int, region: int) -> bool:
    """Whether the subscription's SKUs name the size there; prices are listed nearly everywhere, as in truth."""
    return (size + region) % 4 != 3


def is_restricted(size: int, region: int) -> bool:
    """Whether the whole region is closed to the subscription for this size."""
    return (size + 7 * region) % 11 == 0


def zones(region: int) -> tuple[str, ...]:
    """The region's zones; every third region has none."""
    return () if region % 3 == 2 else ("1", "2", "3")


def closed_zones(size: int, region: int) -> tuple[str, ...]:
    """Zones in which the subscription may not start the size."""
    return ("1",) if zones(region) and (size + region) % 5 == 0 else ()


def price_row(size: int, name: str, region: int, **changes: Any) -> Row:
    """A pay-as-you-go Linux row; ``changes`` make it something else."""
    arm_sku = (*SIZES, NEW_TYPE)[size][0]
    meter = arm_sku.removeprefix("Standard_").replace("_", "")
    series = arm_sku.removeprefix("Standard_").rstrip("0123456789")[:3]
    amount = price(size, region)
    row = {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": amount,
        "unitPrice": amount,
        "armRegionName": name,
        "location": f"Location {name}",
        "effectiveStartDate": "2025-03-01T00:00:00Z",
        "meterId": f"00000000-0000-0000-{region:04d}-{size:012d}",
        "meterName": meter,
        "productId": f"DZH318Z0{size:04d}",
        "skuId": f"DZH318Z0{size:04d}/{region:04d}",
        "productName": f"Virtual Machines {series} Series",
        "skuName": meter,
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": arm_sku,
    }
    return {**row, **changes}


def gpu_price_rows(name: str, region: int) -> Iterator[Row]:
    """Every kind of row that there is of a size: Linux and Windows, three markets, other products."""
    for size in range(len(SIZES)):
        linux = price_row(size, name, region)
        meter, product, spot = linux["meterName"], linux["productName"], price(size, region, spot=True)
        yield linux
        cheap = {"meterName": f"{meter} Spot", "skuName": f"{meter} Spot", "retailPrice": spot}
        yield {**linux, **cheap, "effectiveStartDate": "2026-11-01T00:00:00Z"}
        low = {"meterName": f"{meter} Low Priority", "skuName": f"{meter} Low Priority"}
        yield {**linux, **low, "retailPrice": spot * 2}
        for twin in (linux, {**linux, "meterName": f"{meter} Spot", "skuName": f"{meter} Spot"}):
            yield {**twin, "productName": f"{product} Windows", "retailPrice": twin["retailPrice"] * 2}
        yield {**linux, "type": "DevTestConsumption", "productName": f"{product} Windows"}
        yield {**linux, "type": "Reservation", "reservationTerm": "1 Year", "retailPrice": Decimal(8760)}
        if size % 5 == 0:
            yield {**linux, "productName": f"{product} CloudServices", "retailPrice": Decimal("9.99")}
        # A meter of another region that this one is billed by: the same price, not the primary.
        if size % 7 == 0:
            yield {**linux, "isPrimaryMeterRegion": False, "meterId": "secondary"}


def other_price_rows(name: str, region: int, count: int) -> Iterator[Row]:
    """Rows of machines without accelerators."""
    for number in range(count):
        size = f"Standard_{_CPU_SIZES[number % len(_CPU_SIZES)]}"
        yield price_row(0, name, region, armSkuName=size, meterId=f"cpu-{number}", meterName=f"cpu {number}")


def gpu_sku(size: int, name: str, region: int) -> Row:
    sku, family, gpus, vcpus, memory, rdma, _ = (*SIZES, NEW_TYPE)[size]
    restrictions = []
    if is_restricted(size, region):
        info = {"locations": [name]}
        restrictions.append(_restriction("Location", name, info))
    if closed_zones(size, region):
        info = {"locations": [name], "zones": list(closed_zones(size, region))}
        restrictions.append(_restriction("Zone", name, info))
    has = {"GPUs": gpus, "vCPUs": vcpus, "vCPUsAvailable": vcpus, "MemoryGB": memory, "RdmaEnabled": rdma}
    return _sku(sku, family, name, list(zones(region)), has, restrictions)


def eviction_rate(size: int, region: int) -> str:
    """The chance of eviction in an hour, in per cent, of the size with that number in the region with that number."""
    return _RATES[(size + region) % len(_RATES)]


def eviction_rows(subscription: str, name: str, region: int) -> Iterator[Row]:
    """Rows of SpotResources; every sixth size has none. The table writes names in small letters."""
    for number, (size, *_) in enumerate(SIZES):
        if number % 6 != 5:
            small = size.lower()
            path = f"/subscriptions/{subscription}/providers/microsoft.compute/skuspotevictionrate/location/{name}"
            yield {
                "id": f"{path}/{small}",
                "skuName": small,
                "location": name,
                "evictionRate": eviction_rate(number, region),
            }


def _restriction(kind: str, name: str, info: Row) -> Row:
    return {"type": kind, "values": [name], "restrictionInfo": info, "reasonCode": "NotAvailableForSubscription"}


def _sku(sku: str, family: str, name: str, where: list[str], has: Row, restrictions: list[Row]) -> Row:
    common = {
        "MaxResourceVolumeMB": 1024000, "OSVhdSizeMB": 1047552, "HyperVGenerations": "V1,V2", "MaxDataDiskCount": 32,
        "CpuArchitectureType": "x64", "LowPriorityCapable": True, "PremiumIO": True, "VMDeploymentTypes": "IaaS",
        "vCPUsPerCore": 2, "CombinedTempDiskAndCachedIOPS": 100000, "UncachedDiskIOPS": 80000,
        "EphemeralOSDiskSupported": True, "EncryptionAtHostSupported": True, "CapacityReservationSupported": True,
        "AcceleratedNetworkingEnabled": True, "MaxNetworkInterfaces": 8, "MemoryPreservingMaintenanceSupported": False,
    }  # fmt: skip
    return {
        "resourceType": "virtualMachines",
        "name": sku,
        "tier": "Standard",
        "size": sku.removeprefix("Standard_"),
        "family": family,
        "locations": [name],
        "locationInfo": [{"location": name, "zones": where, "zoneDetails": []}],
        "capabilities": [{"name": key, "value": str(value)} for key, value in {**common, **has}.items()],
        "restrictions": restrictions,
    }


def other_skus(name: str, count: int) -> Iterator[Row]:
    """Sizes without accelerators, and the other resource types that share the listing."""
    for number in range(count):
        if number % 5 == 4:
            disk = {"resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "size": f"P{number}"}
            yield {**disk, "locations": [name], "capabilities": [{"name": "MaxSizeGiB", "value": "128"}]}
        else:
            has = {"vCPUs": 8, "vCPUsAvailable": 8, "MemoryGB": 32, "RdmaEnabled": False}
            yield _sku(f"Standard_D{number}s_v5", "standardDSv5Family", name, ["1", "2", "3"], has, [])


def usage_rows(region: int) -> Iterator[Row]:
    """Regional quotas, spot's, and one for each family."""
    families = sorted({size[1] for size in SIZES} | {"standardDSv5Family"})
    regional = [("cores", "Total Regional vCPUs"), ("lowPriorityCores", "Total Regional Spot vCPUs")]
    for value, words in (*regional, ("virtualMachines", "Virtual Machines"), *((f, f"{f} vCPUs") for f in families)):
        limit = 25000 if value == "virtualMachines" else 96 * (1 + region % 4)
        yield {"unit": "Count", "currentValue": 8, "limit": limit, "name": {"value": value, "localizedValue": words}}


def group_rows(subscription: str, names: list[str]) -> list[Row]:
    """Two capacity reservation groups, in the first two regions."""
    groups = []
    for name, place in zip(("trainers", "block"), names, strict=False):
        path = f"/subscriptions/{subscription}/resourceGroups/ml-{name}/providers/Microsoft.Compute"
        groups.append(
            {
                "id": f"{path}/capacityReservationGroups/{name}",
                "name": name,
                "type": "Microsoft.Compute/capacityReservationGroups",
                "location": place,
                "zones": ["1", "2"],
                "properties": {"capacityReservations": [{"id": f"{path}/capacityReservationGroups/{name}/x"}]},
            }
        )
    return groups


def reservation_rows(group: str, place: str) -> list[Row]:
    """The reservations of a group: eight H100 machines and two without accelerators, or a block for two weeks."""
    if group == "block":
        schedule = {"start": "2026-11-25", "end": "2026-12-09"}
        block = {"provisioningState": "Succeeded", "scheduleProfile": schedule}
        return [_reservation("fortnight", place, "Standard_ND96isr_H200_v5", 4, ["2"], block)]
    ready = {"provisioningState": "Succeeded", "timeCreated": "2026-08-01T00:00:00Z"}
    return [
        _reservation("h100", place, "Standard_ND96isr_H100_v5", 8, ["1"], ready),
        _reservation("feeders", place, "Standard_D8s_v5", 2, ["1"], ready),
        _reservation("never", place, "Standard_ND96isr_H100_v5", 3, ["2"], {"provisioningState": "Failed"}),
    ]


def _reservation(name: str, place: str, size: str, machines: int, where: list[str], properties: Row) -> Row:
    sku = {"name": size, "capacity": machines}
    return {"name": name, "location": place, "sku": sku, "zones": where, "properties": properties}


def instance_view(group: str) -> Row:
    """Three of the H100 machines are in use."""
    if group == "block":
        return {"capacityReservations": [{"name": "fortnight", "utilizationInfo": {"currentCapacity": 4}}]}
    running = [{"id": f"/subscriptions/s/resourceGroups/r/vm{number}"} for number in range(3)]
    use = {"currentCapacity": 8, "virtualMachinesAllocated": running}
    return {"capacityReservations": [{"name": "h100", "utilizationInfo": use}]}
