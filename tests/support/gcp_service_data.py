"""What the stand-in for Google Cloud knows: regions, machine types, SKUs, quotas, reservations.

Shapes: google-cloud-compute 1.56's own messages and the Cloud Billing REST reference (services.skus.list). Names of
SKUs and the us-central1 prices of their parts are Google's public ones as open-source price tools quote them: A2, G2,
G4, A3 (so that eight H100 come to the published 88.49), Mega and B200. Other regions are made up from those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pricing.book_file import embedded_book

Row = dict[str, Any]
PROJECT = "a-project"
COMPUTE_URL = "https://www.googleapis.com/compute/v1"
AMERICAS = ("us-central1", "us-east1", "us-west1")

# name: vCPUs, MiB, accelerator, count, Local SSD partitions (0: the API does not say)
GPU_TYPES: Mapping[str, tuple[int, int, str, int, int]] = {
    **{f"a2-highgpu-{n}g": (12 * n, 85 * 1024 * n, "nvidia-tesla-a100", n, 0) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": (96, 1360 * 1024, "nvidia-tesla-a100", 16, 0),
    **{f"a2-ultragpu-{n}g": (12 * n, 170 * 1024 * n, "nvidia-a100-80gb", n, n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": (26 * n, 234 * 1024 * n, "nvidia-h100-80gb", n, 2 * n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": (208, 1872 * 1024, "nvidia-h100-mega-80gb", 8, 16),
    "a3-ultragpu-8g": (224, 2952 * 1024, "nvidia-h200-141gb", 8, 32),
    "a3-edgegpu-8g": (208, 1872 * 1024, "nvidia-h100-80gb", 8, 16),
    "a4-highgpu-8g": (224, 3968 * 1024, "nvidia-b200", 8, 32),
    "a4x-maxgpu-4g-metal": (144, 960 * 1024, "nvidia-gb300", 4, 4),
    **{
        f"g2-standard-{v}": (v, v * 4096, "nvidia-l4", n, 0)
        for v, n in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8))
    },
    **{f"g4-standard-{48 * n}": (48 * n, 180 * 1024 * n, "nvidia-rtx-pro-6000", n, 0) for n in (1, 2, 4, 8)},
    "g4-standard-6": (6, 22 * 1024, "nvidia-rtx-pro-6000", 1, 0),
}
CPU_FAMILIES = ("c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "e2", "m1", "m3", "n1", "n2", "n2d", "n4", "t2d", "z3")

# part: description, unit, nano-dollars in us-central1 on demand, nano-dollars as Spot
PARTS: Mapping[str, tuple[str, str, int, int]] = {
    "a2 core": ("A2 Instance Core", "h", 31_611_000, 18_966_000),
    "a2 ram": ("A2 Instance Ram", "GiBy.h", 4_237_000, 2_542_000),
    "a3 core": ("A3 Instance Core", "h", 25_498_000, 14_200_000),
    "a3 ram": ("A3 Instance Ram", "GiBy.h", 2_220_342, 1_240_000),
    "a3plus core": ("A3Plus Instance Core", "h", 26_924_000, 9_100_000),
    "a3plus ram": ("A3Plus Instance Ram", "GiBy.h", 2_344_000, 800_000),
    "a3ultra core": ("A3Ultra Instance Core", "h", 24_300_000, 12_000_000),
    "a3ultra ram": ("A3Ultra Instance Ram", "GBy.h", 1_810_000, 900_000),
    "g2 core": ("G2 Instance Core", "h", 24_990_000, 14_050_000),
    "g2 ram": ("G2 Instance Ram", "GiBy.h", 2_927_000, 1_646_000),
    "g4 core": ("G4 Instance Core", "h", 48_910_000, 19_560_000),
    "g4 ram": ("G4 Instance Ram", "GiBy.h", 5_870_000, 2_348_000),
    "a100": ("Nvidia Tesla A100 GPU", "h", 2_933_908_000, 1_484_310_000),
    "a100 80": ("Nvidia Tesla A100 80GB GPU", "h", 3_928_080_000, 2_058_990_000),
    "h100": ("Nvidia H100 80GB GPU", "h", 9_796_550_569, 5_621_500_000),
    "h100 mega": ("Nvidia H100 80GB Plus GPU", "h", 10_344_275_712, 3_161_000_000),
    "h200": ("H200 141GB GPU", "h", 9_311_740_000, 4_310_000_000),
    "l4": ("Nvidia L4 GPU", "h", 560_040_000, 314_800_000),
    "rtx": ("RTX 6000 96GB", "h", 1_095_650_000, 438_260_000),
    "ssd": ("SSD backed Local Storage", "GiBy.mo", 80_000_000, 48_000_000),
    "b200": ("A4 Nvidia B200 (1 gpu slice)", "h", 16_110_000_000, 4_954_200_000),
}


def region_names(regions: int | list[str]) -> list[str]:
    """The names given, or so many of Google's: us-central1 first, then in alphabetical order."""
    if not isinstance(regions, int):
        return list(regions)
    known = sorted(r.id.region for r in embedded_book().regions if r.id.cloud == "gcp" and r.id.region != "us-central1")
    return ["us-central1", *known, *(f"made-up{n}" for n in range(1, 100))][:regions]


def factor(region: str) -> int:
    """Per cent of the us-central1 price."""
    return 100 if region in AMERICAS else 101 + sum(region.encode()) % 40


def offered(name: str, region: str, zone_index: int) -> bool:
    """Which zones list a machine type: everything somewhere in us-central1, elsewhere about a third."""
    if name.startswith("g2-"):
        return True
    if region == "us-central1":
        return zone_index != 2 or name.startswith("a3-")
    return (sum(region.encode()) + len(name) + zone_index) % 3 == 0


def machine_types(region: str, zone: str, zone_index: int, cpu_types: int) -> list[Row]:
    """All machine types of a zone, those with accelerators last."""
    rows = []
    for n in range(cpu_types):
        name = f"{CPU_FAMILIES[n % len(CPU_FAMILIES)]}-standard-{n + 2}"
        rows.append(_machine_type(n, name, zone, n + 2, (n + 2) * 4096, f"{n + 2} vCPUs, {(n + 2) * 4} GB RAM"))
    for n, (name, (vcpus, mib, accelerator, count, partitions)) in enumerate(GPU_TYPES.items()):
        if offered(name, region, zone_index):
            part = "1/8" if name == "g4-standard-6" else str(count)
            text = f"Accelerator Optimized: {part} NVIDIA GPU, {vcpus} vCPUs, {mib // 1024}GB RAM"
            row = _machine_type(9000 + n, name, zone, vcpus, mib, text)
            rows.append(with_accelerator(row, accelerator, count, partitions))
    return rows


def with_accelerator(row: Row, accelerator: str, count: int, partitions: int = 0) -> Row:
    more: Row = {"accelerators": [{"guestAcceleratorType": accelerator, "guestAcceleratorCount": count}]}
    if partitions:
        more["bundledLocalSsds"] = {"defaultInterface": "NVME", "partitionCount": partitions}
    return {**row, **more}


def new_types(zone: str) -> list[Row]:
    """A machine type nobody has heard of with an accelerator that is known, and one with another accelerator."""
    known = _machine_type(9900, "a3-highgpu-16g", zone, 416, 3744 * 1024, "16 NVIDIA H100 80GB GPUs")
    unknown = _machine_type(9901, "a9-highgpu-8g", zone, 416, 3744 * 1024, "8 NVIDIA Z999 GPUs")
    return [with_accelerator(known, "nvidia-h100-80gb", 16, 32), with_accelerator(unknown, "nvidia-z999", 8)]


def _machine_type(number: int, name: str, zone: str, vcpus: int, mib: int, description: str) -> Row:
    return {
        "kind": "compute#machineType",
        "id": str(300_000 + number),
        "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
        "name": name,
        "description": description,
        "guestCpus": vcpus,
        "memoryMb": mib,
        "imageSpaceGb": 0,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
        "zone": zone,
        "selfLink": f"{COMPUTE_URL}/projects/{PROJECT}/zones/{zone}/machineTypes/{name}",
        "isSharedCpu": False,
        "architecture": "X86_64",
    }


def preempted_share(zone: str, machine_type: str) -> float:
    """The mean share of preempted among stopped Spot machines over the days published."""
    return sum(f"{zone} {machine_type}".encode()) % 50 / 100 + 0.2


def preemption_records(zone: str, machine_type: str) -> list[Row]:
    """27 days about that mean, and one without a stop and hence without a rate; no day at all of ``a2-megagpu``."""
    if machine_type.startswith("a2-megagpu"):
        return []
    mean = preempted_share(zone, machine_type)
    records: list[Row] = []
    for day in range(28):
        start = datetime(2026, 10, 22, 7, tzinfo=UTC) + timedelta(days=day)
        interval = {"startTime": start.isoformat(), "endTime": (start + timedelta(days=1)).isoformat()}
        rate = {"preemptionRate": round(mean + (day % 3 - 1) * 0.1, 6)} if day < 27 else {}
        records.append({"interval": interval, **rate})
    return records


def accelerator_types(region: str, zone: str, zone_index: int) -> list[Row]:
    names = {spec[2] for name, spec in GPU_TYPES.items() if offered(name, region, zone_index)}
    more = {"nvidia-tesla-t4", "nvidia-tesla-t4-vws"} if zone_index == 0 else set()
    return [
        {
            "kind": "compute#acceleratorType",
            "id": str(10_000 + n),
            "name": name,
            "zone": zone,
            "maximumCardsPerInstance": 8,
        }
        for n, name in enumerate(sorted(names | more))
    ]


def quotas(region: str) -> list[Row]:
    """A region's quotas: some hundred metrics, the accelerators among them."""
    rows: list[Row] = [{"metric": f"METRIC_{n}", "limit": 100.0, "usage": 3.0} for n in range(100)]
    for model, limit in (("A100", 16), ("A100_80GB", 8), ("H100", 64), ("H100_MEGA", 32), ("L4", 8), ("T4_VWS", 1)):
        rows.append({"metric": f"NVIDIA_{model}_GPUS", "limit": float(limit), "usage": 2.0})
        rows.append({"metric": f"PREEMPTIBLE_NVIDIA_{model}_GPUS", "limit": float(limit * 2), "usage": 0.0})
    rows.append({"metric": "COMMITTED_NVIDIA_H100_GPUS", "limit": 8.0, "usage": 8.0})
    return rows


def sku_rows(regions: list[str], total: int) -> Iterator[Row]:
    """SKUs of the machines above, then near misses and others up to ``total``."""
    number = 0
    for place, service_regions in _places(regions):
        for name, (description, unit, on_demand, spot) in PARTS.items():
            for nanos, is_spot in ((on_demand, False), (spot, True)):
                number += 1
                price = nanos * factor(service_regions[0]) // 100
                yield _sku(
                    number, _worded(name, description, place, is_spot), unit, price, service_regions, is_spot, name
                )
    for other in range(number + 1, total + 1):
        yield _other_sku(other, regions[other % len(regions)])


def _places(regions: list[str]) -> Iterator[tuple[str, list[str]]]:
    shared = [region for region in AMERICAS if region in regions]
    if shared:
        yield "Americas", shared
    for region in regions:
        if region not in AMERICAS:
            yield region.title(), [region]


def _worded(name: str, description: str, place: str, spot: bool) -> str:
    if name == "ssd":
        middle = " attached to Spot Preemptible VMs" if spot else ""
        return f"{description}{middle}" if place == "Americas" else f"{description}{middle} in {place}"
    if not spot:
        return f"{description} running in {place}"
    if "Instance" in description or "slice" in description:
        return f"Spot Preemptible {description} running in {place}"
    return f"{description} attached to Spot Preemptible VMs running in {place}"


_OTHERS = (
    ("Commitment v1: A3 Cpu in {} for 1 Year", "Commit1Yr", "h"),
    ("Commitment v1: Nvidia H100 80GB GPU running in {} for 3 Years", "Commit3Yr", "h"),
    ("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in {}", "OnDemand", "h"),
    ("DWS Defined Duration A3 Core running in {}", "OnDemand", "h"),
    ("Reserved Nvidia H100 80GB Mega GPU in {} in Calendar Mode", "OnDemand", "h"),
    ("Nvidia L4 Virtual Workstation GPU running in {}", "OnDemand", "h"),
    ("1/8 vGPU no lssd running in {}", "OnDemand", "h"),
    ("C3 Sole Tenancy Instance Core running in {}", "OnDemand", "h"),
    ("N2D AMD Custom Instance Ram running in {}", "OnDemand", "GiBy.h"),
    ("Spot Preemptible C4 Instance Core running in {}", "Preemptible", "h"),
    ("E2 Instance Core running in {}", "OnDemand", "h"),
    ("Storage PD Capacity in {}", "OnDemand", "GiBy.mo"),
    ("Network Inter Region Data Transfer Out from {} to Tokyo", "OnDemand", "GiBy"),
)


def _other_sku(number: int, region: str) -> Row:
    text, usage, unit = _OTHERS[number % len(_OTHERS)]
    row = _sku(number, text.format(region.title()), unit, 1_000_000 + number, [region], False, "")
    row["category"]["usageType"] = usage
    return row


def _sku(number: int, description: str, unit: str, nanos: int, regions: list[str], spot: bool, part: str) -> Row:
    sku_id = f"{number >> 16:04X}-{number & 0xFFFF:04X}-{number * 40503 & 0xFFFF:04X}"
    # Slices and Local SSD of Spot machines have been seen filed as "OnDemand": the description tells.
    usage = "Preemptible" if spot and part not in ("b200", "ssd") else "OnDemand"
    return {
        "name": f"services/6F81-5844-456A/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Storage" if unit == "GiBy.mo" else "Compute",
            "resourceGroup": "GPU" if unit == "h" else "RAM",
            "usageType": usage,
        },
        "serviceRegions": regions,
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "usageUnitDescription": "hour",
                    "baseUnit": "s",
                    "baseUnitDescription": "second",
                    "baseUnitConversionFactor": 3600,
                    "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": unit_price(nanos)}],
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-01T07:00:00.000Z",
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": regions},
    }


def unit_price(nanos: int, currency: str = "USD") -> Row:
    return {"currencyCode": currency, "units": str(nanos // 10**9), "nanos": nanos % 10**9}
