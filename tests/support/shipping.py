"""Work out a second time which bytes a job must have moved into a region (design note placement-program)."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.book import PriceBook
from pricing.egress import Tariff
from pricing.places import RegionId
from router.jobs.spec import Job
from tests.support.tariff_oracle import GIB, dearest, find_tariff


@dataclass(frozen=True)
class Need:
    """Bytes that must come in. ``tariff`` None: nobody knows what that costs, so it must not be."""

    what: str
    source: RegionId
    gib: float
    volume: int
    tariff: Tariff | None

    @property
    def top_dollars(self) -> float:
        """At the dearest tier: what budgets and dollar caps count."""
        return 0.0 if self.tariff is None else self.volume / 1e9 * dearest(self.tariff) / 1e9


def needs_into(job: Job, to: RegionId, book: PriceBook) -> tuple[Need, ...]:
    """What crosses into region ``to`` when the job first uses it; what lies there already is left out."""
    result = []
    data = job.data
    if data is not None and data.at != to:
        if data.mode == "stream":
            gib = data.gib * data.passes * job.steps_left / job.steps
            result.append(_need("stream", data.at, to, gib, book))
        elif job.status is None or to not in job.status.data_in:
            result.append(_need("data", data.at, to, data.gib, book))
    lies = checkpoint_place(job)
    if lies is not None and lies != to:
        result.append(checkpoint_need(job, lies, to, book))
    return tuple(result)


def checkpoint_need(job: Job, source: RegionId, to: RegionId, book: PriceBook) -> Need:
    """The checkpoint from one region to another; ValueError for a job without one."""
    if job.checkpoint is None:
        raise ValueError(f"{job.name} has no checkpoint")
    return _need("checkpoint", source, to, job.checkpoint.size_gib, book)


def checkpoint_place(job: Job) -> RegionId | None:
    """Where the checkpoint lies; None while there is none."""
    status = job.status
    if job.checkpoint is None or status is None or status.steps_done == 0:
        return None
    if status.checkpoint_in is None and status.running is not None:
        return RegionId(status.running.cloud, status.running.region)
    return status.checkpoint_in


def _need(what: str, source: RegionId, to: RegionId, gib: float, book: PriceBook) -> Need:
    region = book.region(to)
    assert region is not None
    tariff = find_tariff(book.tariffs, source.cloud, book.region(source), region)
    return Need(what, source, gib, round(gib * GIB), tariff)
