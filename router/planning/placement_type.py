"""Find what limits a job's speed: communication, memory, data or compute; stated, or derived from its workload.

Formulas and thresholds: design note 042. A derived type is advice and rules nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from pricing.machines import Accelerator, Machine
from router.jobs.spec import Data, Job
from router.jobs.speed import StepTimes, memory_need_gib, step_times
from router.planning.candidates import Candidate, DroppedListing
from router.planning.plan_usage import JobPlacementType, PlacementType

# From these shares on a job is bound by what they are the share of.
_EXCHANGE_SHARE = 0.25  # of the seconds of a step
_MEMORY_SHARE = 0.85  # of an accelerator's memory
_READING_SHARE = 0.25  # of the run time
_READ_GIB_PER_S = 1.0  # assumed for a gang, as the default of `checkpoint.write_gib_per_s`

_Gang = tuple[Machine, int, Accelerator]


def placement_type_of(job: Job, candidates: Sequence[Candidate], dropped: Sequence[DroppedListing]) -> JobPlacementType:
    """Return the job's type: as stated, else derived over the gangs that it allows, those too small included."""
    if job.placement is not None:
        return JobPlacementType(job.name, job.placement, "stated", "the job file says so")
    gangs = list({(m.cloud, m.instance_type, n): (m, n, a) for m, n, a in _gangs(candidates, dropped)}.values())
    found: list[tuple[float, PlacementType, str]] = []
    words: list[str] = []
    for name, share, threshold, what in (
        ("data", _reading_share(job, candidates), _READING_SHARE, "reading its data takes {:.0%} of the run time"),
        ("memory", _memory_share(job, gangs), _MEMORY_SHARE, "it needs {:.0%} of the accelerators' memory"),
        ("communication", _exchange_share(job, gangs), _EXCHANGE_SHARE, "exchange is {:.0%} of a step"),
    ):
        if share is None:
            continue
        words.append(what.format(share))
        if share >= threshold:
            found.append((share / threshold, name, words[-1]))  # type: ignore[arg-type]
    if found:
        _, kind, why = max(found, key=lambda row: row[0])
        return JobPlacementType(job.name, kind, "derived", why)
    why = "; ".join(words) if words else "nothing says how much it exchanges, holds in memory or reads"
    return JobPlacementType(job.name, "compute", "derived", why)


def _gangs(candidates: Sequence[Candidate], dropped: Sequence[DroppedListing]) -> Iterator[_Gang]:
    """Yield the gangs that the job's rules allow, those that cannot be timed or do not fit included."""
    for c in candidates:
        for part in c.parts:
            yield part.machine, c.accelerators, part.listing.accelerator
    for drop in dropped:
        if drop.code == "speed":
            yield drop.listing.machine, drop.accelerators, drop.listing.accelerator


def _exchange_share(job: Job, gangs: Sequence[_Gang]) -> float | None:
    """Return the median share of exchange in a step, compute and exchange taken one after the other."""
    model = job.workload.transformer
    if model is None:
        return None
    times = (step_times(model, machine, count // machine.accelerator_count, a) for machine, count, a in gangs)
    shares = [t.exchange / (t.compute + t.exchange) for t in times if isinstance(t, StepTimes)]
    return median(shares) if shares else None


def _memory_share(job: Job, gangs: Sequence[_Gang]) -> float | None:
    """Return the median need of memory as a share of what an accelerator has; above 1 where it does not fit."""
    model = job.workload.transformer
    if model is None or not gangs:
        return None
    return median(memory_need_gib(model, count) / accelerator.memory_gib for _, count, accelerator in gangs)


def _reading_share(job: Job, candidates: Sequence[Candidate]) -> float | None:
    """Return the hours of copying or streaming the data as a share of the median run time."""
    if job.data is None or not candidates:
        return None
    hours = _gib_to_read(job, job.data) / _READ_GIB_PER_S / 3600
    return hours / median(job.steps_left / c.steps_per_hour for c in candidates)


def _gib_to_read(job: Job, data: Data) -> float:
    if data.mode == "copy":
        return data.gib
    return data.gib * data.passes * job.steps_left / job.steps
