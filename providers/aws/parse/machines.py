"""Parser of regions, zones, and instance types with accelerators: EC2's Describe calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from pricing.book import PriceBook
from pricing.machines import Machine, make_undescribed_machine
from providers.errors import UnreadableError
from providers.protocol import DroppedRow

SOURCE = "AWS EC2 DescribeInstanceTypes"
UNKNOWN_ACCELERATOR = "accelerator not known to the book"
FRACTION = "has a fraction of an accelerator"
UNREADABLE_TYPE = "instance type without a readable accelerator count, memory or processor count"

# The families that EC2 builds around accelerators. There is no filter for "has a GPU", and describing all of the
# 1,400 types in every region would take longer than everything else together.
ACCELERATED = ("p*", "g*", "trn*", "inf*", "dl*")

# GPU names of the API to accelerators of the book; where there are several, memory decides.
_NAMES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("NVIDIA", "T4"): ("T4",),
    ("NVIDIA", "V100"): ("V100-16GB", "V100-32GB"),
    ("NVIDIA", "A10G"): ("A10G",),
    ("NVIDIA", "L4"): ("L4",),
    ("NVIDIA", "L40S"): ("L40S",),
    ("NVIDIA", "RTX PRO Server 6000"): ("RTX-PRO-6000",),
    ("NVIDIA", "A100"): ("A100-40GB", "A100-80GB"),
    ("NVIDIA", "H100"): ("H100",),
    ("NVIDIA", "H200"): ("H200",),
    ("NVIDIA", "B200"): ("B200",),
    ("NVIDIA", "B300"): ("B300",),
    ("NVIDIA", "GB200"): ("GB200",),
}
# The API states usable memory: 22,888 MiB of a 24 GB card.
_MEMORY_TOLERANCE = 0.10
_ACCELERATOR_INFO = ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo")
_PERFORMANCE = re.compile(r"(?:Up to )?(?:(?P<times>\d+)x )?(?P<gbps>\d+(?:\.\d+)?) Gigabit")
_FABRICS: Mapping[object, str] = {True: "efa", False: "ethernet"}
_BYTES_PER_GB, _BYTES_PER_GIB = 10**9, 2**30


@dataclass(frozen=True, slots=True)
class MachineTypes:
    """Machines that are new to the book, and dropped rows; a type in neither field has no accelerator at all."""

    machines: tuple[Machine, ...]
    dropped: tuple[DroppedRow, ...]


def find_zones_by_type(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, frozenset[str]]:
    """Return, from DescribeInstanceTypeOfferings by zone id, the ids of the zones that sell each instance type."""
    zones: dict[str, set[str]] = {}
    for row in rows:
        if row.get("InstanceType") and row.get("Location"):
            zones.setdefault(row["InstanceType"], set()).add(row["Location"])
    return {name: frozenset(ids) for name, ids in zones.items()}


def read_types(cloud: str, rows: Iterable[Mapping[str, Any]], book: PriceBook, today: date) -> MachineTypes:
    """Return, from DescribeInstanceTypes, the new types with an accelerator that the book knows.

    The network rate is the one that the API states, which for small sizes is the peak ("Up to 25 Gigabit").
    """
    machines, dropped = [], []
    for row in rows:
        name = row.get("InstanceType", "?")
        if not any(row.get(info) for info in _ACCELERATOR_INFO):
            continue
        machine = _read_type(cloud, row, book, today)
        if isinstance(machine, str):
            dropped.append(DroppedRow(name, machine))
        else:
            machines.append(machine)
    return MachineTypes(tuple(machines), tuple(dropped))


def _read_type(cloud: str, row: Mapping[str, Any], book: PriceBook, today: date) -> Machine | str:
    gpus: Sequence[Mapping[str, Any]] = (row.get("GpuInfo") or {}).get("Gpus") or []
    if len(gpus) != 1:
        return UNKNOWN_ACCELERATOR
    gpu = gpus[0]
    names = _NAMES.get((gpu.get("Manufacturer", ""), gpu.get("Name", "")), ())
    known = [accelerator for name in names if (accelerator := book.accelerator(name)) is not None]
    if not known:
        return UNKNOWN_ACCELERATOR
    if gpu.get("GpuPartitionSize", 1) != 1:
        return FRACTION
    count = gpu.get("Count")
    mib = (gpu.get("MemoryInfo") or {}).get("SizeInMiB")
    vcpus = (row.get("VCpuInfo") or {}).get("DefaultVCpus")
    memory = (row.get("MemoryInfo") or {}).get("SizeInMiB")
    if not (count and mib and vcpus and memory):
        return UNREADABLE_TYPE
    nearest = min(known, key=lambda accelerator: abs(accelerator.memory_gib - mib / 1024))
    if abs(nearest.memory_gib - mib / 1024) > _MEMORY_TOLERANCE * nearest.memory_gib:
        return UNKNOWN_ACCELERATOR
    network = row.get("NetworkInfo") or {}
    return replace(
        make_undescribed_machine(cloud, row["InstanceType"], nearest, count, SOURCE, today.isoformat()),
        vcpus=vcpus,
        memory_gib=memory / 1024,
        inter_node_gbps=_gbps(network),
        fabric=_FABRICS.get(network.get("EfaSupported")),
        local_nvme_gib=_local_gib(row.get("InstanceStorageInfo") or {}),
    )


def _gbps(network: Mapping[str, Any]) -> float | None:
    """Return the rate of the machine as a whole.

    The rates of its cards may add up to more than it is sold with (g6e.48xlarge).
    """
    match = _PERFORMANCE.fullmatch(network.get("NetworkPerformance") or "")
    return int(match["times"] or 1) * float(match["gbps"]) if match else None


def _local_gib(storage: Mapping[str, Any]) -> int | None:
    gb = storage.get("TotalSizeInGB")
    return round(gb * _BYTES_PER_GB / _BYTES_PER_GIB) if gb else None


# The form of a region; the price list also has codes of local and wavelength zones, such as us-east-1-wl1-bos-wlz-1.
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
# Regions of other partitions, in which an ordinary account cannot buy.
_OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso")
_ON = frozenset({"opt-in-not-required", "opted-in"})


def split_regions_by_status(rows: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return, from DescribeRegions, the enabled regions (sorted), and those that the account has not enabled."""
    status = {str(row["RegionName"]): row.get("OptInStatus") in _ON for row in rows if row.get("RegionName")}
    enabled = tuple(sorted(name for name, on in status.items() if on))
    return enabled, frozenset(name for name, on in status.items() if not on)


def zone_ids(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return, from DescribeAvailabilityZones, zone id by zone name.

    A name such as us-east-1a means another data centre in every account; the id (use1-az4) is the same for all.
    """
    return {row["ZoneName"]: row["ZoneId"] for row in rows if row.get("ZoneName") and row.get("ZoneId")}


def parse_region_index(cloud: str, index: Any) -> tuple[str, ...]:
    """Return, from the price list's region_index.json, the regions that anyone can buy in, sorted.

    UnreadableError for another form.
    """
    regions = index.get("regions") if isinstance(index, Mapping) else None
    if not isinstance(regions, Mapping):
        raise UnreadableError(cloud, "the price list's index of regions is not of the known form")
    codes = (code for code in regions if _REGION.fullmatch(code))
    return tuple(sorted(code for code in codes if not code.startswith(_OTHER_PARTITIONS)))
