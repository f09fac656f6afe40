"""Check which gangs a job's stated placement rules out (design note rules-of-the-plan)."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.book import PriceBook
from pricing.machines import Accelerator
from pricing.places import Region
from router.jobs.gang import GangOption
from router.jobs.spec import Data, Job
from router.jobs.speed import memory_need_gib, usable_memory_gib
from router.planning.find.feasibility import ListingRefusal
from router.planning.find.listings import OfferListing

_SPARED = 0.15  # share of an accelerator's memory that stays free


def placement_refusal(
    job: Job, option: GangOption, listings: Sequence[OfferListing], book: PriceBook
) -> ListingRefusal | None:
    """Return why the job's stated placement rules out a gang on these listings; None where it does not.

    All listings are in one region and of one machine type; several differ in their zone.
    """
    reason = None
    if job.placement == "communication":
        reason = _scattered(job, option, listings)
    elif job.placement == "memory":
        reason = _cramped(job, option, listings[0].accelerator, book)
    elif job.placement == "data" and job.data is not None:
        reason = _far_from_data(job, job.data, listings[0].region, book)
    return None if reason is None else ListingRefusal("placement", f"placement {job.placement}: {reason}")


def _scattered(job: Job, option: GangOption, listings: Sequence[OfferListing]) -> str | None:
    """Return why machines may lie too far apart: no RDMA fabric reaches from one zone to another."""
    if len(listings) > 1:
        return f"its machines would lie in {len(listings)} zones"
    machine = listings[0].machine
    alone = option.count <= machine.accelerator_count
    if alone or machine.has_rdma or job.gang.same_zone or listings[0].offer.zone is not None:
        return None
    return f"{machine.instance_type} has no RDMA fabric, and nothing says that its machines share a zone"


def _cramped(job: Job, option: GangOption, accelerator: Accelerator, book: PriceBook) -> str | None:
    """Return why the accelerator's memory leaves too little to spare.

    Where the job has no shape, its memory need is unknown: then the largest accelerators that it allows are wanted.
    """
    model = job.workload.transformer
    if model is None:
        known = [book.accelerator(allowed.accelerator) for allowed in job.gang.options]
        largest = max(found.memory_gib for found in known if found is not None)
        if accelerator.memory_gib >= largest:
            return None
        return f"{accelerator.name} has {accelerator.memory_gib} GiB, another that it allows has {largest}"
    need = memory_need_gib(model, option.count)
    whole = memory_need_gib(model, option.count, recompute="none")
    if need <= (1 - _SPARED) * accelerator.memory_gib or whole <= usable_memory_gib(accelerator):
        return None
    return f"{need:.0f} of {accelerator.memory_gib} GiB a {accelerator.name} leave less than {_SPARED:.0%} to spare"


def _far_from_data(job: Job, data: Data, region: Region, book: PriceBook) -> str | None:
    """Return why the region is far from the data: neither where they lie nor on that cloud and continent."""
    homes = {data.at, *(job.status.data_in if job.status is not None else ())}
    if region.id in homes:
        return None
    known = [home for home in map(book.region, homes) if home is not None]
    if any((home.id.cloud, home.continent) == (region.id.cloud, region.continent) for home in known):
        return None
    return f"{region.id} is neither where the data lie nor on that cloud and continent"
