"""Parser of Microsoft.Compute/skus rows into sizes with accelerators: their properties and their zones.

Columns and capability names: "Resource Skus - List" (Microsoft Learn) and the models of azure-mgmt-compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pricing.book import PriceBook
from pricing.machines import Machine, make_undescribed_machine
from providers.azure.parse.families import accelerator_of, is_accelerator_share
from providers.protocol import DroppedRow

NOT_AN_OBJECT = "not a SKU row"
UNREADABLE = "its number of accelerators, vCPUs or memory cannot be read"
TWICE = "listed twice with different properties"
RESTRICTED = "not available to this subscription"
ACCELERATOR_SHARE = "has only a part of an accelerator"
UNKNOWN_ACCELERATOR = "its accelerator is not in the price book"

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, order=True)
class Sku:
    """A size in a region.

    ``zones`` are those where the subscription may start it; none: the region as a whole. ``restricted``: nowhere in the
    region.
    """

    instance_type: str
    family: str
    accelerators: int
    vcpus: int | None
    memory_gib: float | None
    rdma: bool
    nvme_gib: int | None
    zones: tuple[str, ...]
    restricted: bool


@dataclass(frozen=True)
class SkuList:
    """The sizes with accelerators of a region, by name.

    ``unclear`` holds the sizes whose rows cannot be used ("": a row without a name).
    """

    skus: Mapping[str, Sku]
    dropped: tuple[DroppedRow, ...]
    unclear: frozenset[str]
    rows_read: int


def read_skus(rows: Sequence[object], region: str) -> SkuList:
    """Return virtual machine sizes with accelerators in ``region``; everything else is ignored."""
    skus: dict[str, Sku] = {}
    dropped: list[DroppedRow] = []
    unclear: set[str] = set()
    for row in rows:
        if not isinstance(row, Mapping):
            dropped.append(DroppedRow(region, NOT_AN_OBJECT))
            unclear.add("")
            continue
        name = row.get("name")
        if row.get("resourceType") != "virtualMachines" or not isinstance(name, str) or not _has_accelerators(name):
            continue
        if is_accelerator_share(name):
            continue
        try:
            sku = _sku(row, name, region)
        except (AttributeError, KeyError, TypeError, ValueError):
            dropped.append(DroppedRow(f"{region} {name}", UNREADABLE))
            unclear.add(name)
            continue
        before = skus.get(name)
        if before is not None and replace(before, zones=(), restricted=False) != replace(
            sku, zones=(), restricted=False
        ):
            dropped.append(DroppedRow(f"{region} {name}", TWICE))
            unclear.add(name)
        else:
            skus[name] = sku if before is None else _join_rows(before, sku)
    for name in unclear:
        skus.pop(name, None)
    return SkuList(dict(sorted(skus.items())), tuple(sorted(dropped)), frozenset(unclear), len(rows))


def build_machine(sku: Sku, book: PriceBook, cloud: str, today: date) -> Machine | None:
    """Return the size as a machine; None when the book does not know its accelerator.

    The fabric is known where the API says RDMA, which on Azure is InfiniBand; link rates are not in the API.
    """
    accelerator = book.accelerator(accelerator_of(sku.instance_type) or "")
    if accelerator is None:
        return None
    return replace(
        make_undescribed_machine(
            cloud,
            sku.instance_type,
            accelerator,
            sku.accelerators,
            "Azure Microsoft.Compute/skus",
            today.isoformat(),
        ),
        vcpus=sku.vcpus,
        memory_gib=sku.memory_gib,
        fabric="infiniband" if sku.rdma else None,
        local_nvme_gib=sku.nvme_gib,
    )


def _has_accelerators(name: str) -> bool:
    return accelerator_of(name) is not None


def _join_rows(sku: Sku, other: Sku) -> Sku:
    """Join two rows of one size (one for each zone, for example): wherever either may be started."""
    zones = tuple(sorted({*sku.zones, *other.zones}))
    return replace(sku, zones=zones, restricted=sku.restricted and other.restricted)


def _sku(row: Mapping[str, object], name: str, region: str) -> Sku:
    has = {pair["name"]: pair["value"] for pair in _objects(row.get("capabilities"))}
    vcpus = has.get("vCPUsAvailable") or has.get("vCPUs")
    memory, nvme = has.get("MemoryGB"), has.get("NvmeDiskSizeInMiB")
    listed = {zone for place in _here(row, region) for zone in _strings(place.get("zones"))}
    closed, restricted = _restrictions(row, region)
    family = row.get("family")
    accelerators = int(str(has["GPUs"]))
    if accelerators < 1:
        raise ValueError("no accelerator")
    return Sku(
        instance_type=name,
        family=family if isinstance(family, str) else "",
        accelerators=accelerators,
        vcpus=int(str(vcpus)) if vcpus else None,
        memory_gib=float(str(memory)) if memory else None,
        rdma=has.get("RdmaEnabled") == "True",
        nvme_gib=int(str(nvme)) // _MIB_PER_GIB if nvme else None,
        zones=tuple(sorted(listed - closed)),
        restricted=restricted,
    )


def _here(row: Mapping[str, object], region: str) -> Iterator[Mapping[str, object]]:
    for place in _objects(row.get("locationInfo")):
        if str(place.get("location")).lower() == region:
            yield place


def _restrictions(row: Mapping[str, object], region: str) -> tuple[set[str], bool]:
    """Return the zones that are closed to the subscription, and whether the whole region is.

    With every zone closed a size can still be started without naming one.
    """
    closed: set[str] = set()
    restricted = False
    for restriction in _objects(row.get("restrictions")):
        info = restriction.get("restrictionInfo")
        details = info if isinstance(info, Mapping) else {}
        places = [*_strings(restriction.get("values")), *_strings(details.get("locations"))]
        if region not in {place.lower() for place in places}:
            continue
        if restriction.get("type") == "Zone":
            closed |= set(_strings(details.get("zones")))
        else:
            restricted = True
    return closed, restricted


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
