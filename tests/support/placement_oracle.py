"""Judge gangs by a stated placement, from the words of rules-of-the-plan.md. Shares no code with the planner."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pricing.book import PriceBook
from pricing.machines import RDMA_FABRICS, Machine
from pricing.places import Region, RegionId
from router.jobs.spec import Job


def forbidden(residency: Any, region: Region) -> str:
    """Why a job may not run there; "" when it may."""
    tokens = _tokens(region)
    rules = [*residency.allow, *residency.deny]
    vague = any(str(rule).isupper() for rule in rules)
    if vague and (region.country is None or region.residency_group is None):
        return "country or group unknown"
    for rule in residency.deny:
        if str(rule) in tokens:
            return f"denied by {rule}"
    if residency.allow and not any(str(rule) in tokens for rule in residency.allow):
        return f"not among {[str(rule) for rule in residency.allow]}"
    return ""


def _tokens(region: Region) -> set[str]:
    group = region.residency_group or ""
    groups = {group, "EEA"} if group in {"EU", "EEA"} else {group}
    return {region.id.cloud, region.id.region, str(region.id), region.country or "", *groups}


USABLE = 0.92
SPARED = 0.85


def unplaceable(
    job: Job, book: PriceBook, machine: Machine, accelerators: int, zones: Collection[str | None], region: Region
) -> str:
    """Why the job's stated placement forbids the gang; empty where it does not."""
    if job.placement == "communication" and accelerators > machine.accelerator_count:
        if len(set(zones)) > 1:
            return "its gang lies in several zones"
        fixed = job.gang.same_zone or None not in zones
        if machine.fabric not in RDMA_FABRICS and not fixed:
            return "no fabric, and nothing says that its machines share a zone"
    if job.placement == "memory" and not _roomy(job, book, machine, accelerators):
        return f"{machine.accelerator} has too little memory to spare"
    if job.placement == "data" and not _near(job, book, region):
        return f"{region.id} is not near the data"
    return ""


def _roomy(job: Job, book: PriceBook, machine: Machine, accelerators: int) -> bool:
    here = book.accelerator(machine.accelerator)
    assert here is not None
    shape = job.workload.transformer
    if shape is None:
        sizes = [a.memory_gib for a in book.accelerators if a.name in {o.accelerator for o in job.gang.options}]
        return here.memory_gib == max(sizes)
    state = {
        "none": shape.optimizer_bytes_per_parameter,
        "zero1": 4 + (shape.optimizer_bytes_per_parameter - 4) / accelerators,
        "zero3": shape.optimizer_bytes_per_parameter / accelerators,
    }[shape.sharding]
    if shape.lora:
        state = 2.5 / accelerators if shape.sharding == "zero3" else 2.5
    tokens = shape.sequence_length * shape.hidden * shape.layers

    def gib(bytes_a_token: int) -> float:
        return (state * shape.parameters + bytes_a_token * tokens) / 2**30

    asked = gib({"none": 34, "selective": 18, "full": 2}[shape.recompute])
    return asked <= SPARED * here.memory_gib or gib(34) <= USABLE * here.memory_gib


def _near(job: Job, book: PriceBook, region: Region) -> bool:
    assert job.data is not None
    homes: set[RegionId] = {job.data.at, *(job.status.data_in if job.status is not None else ())}
    if region.id in homes:
        return True
    known = [found for found in book.regions if found.id in homes]
    return any(found.id.cloud == region.id.cloud and found.continent == region.continent for found in known)
