"""List the quantities behind a job's cost that its file states, instead of a default or a model. Pure.

A value counts as stated where it differs from its default: a job that was stored and read again has no other memory of
its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from pricing.places import Market
from router.jobs.checkpoint_size import with_estimated_size
from router.jobs.fields import RefusedError
from router.jobs.quantities import format_duration
from router.jobs.spec import Checkpoint, Job
from router.planning.document.plan_usage import StatedQuantity
from router.planning.problem.schedule import ScheduledRun

_DEFAULT_STARTUP: timedelta = Job.model_fields["startup"].default
_DEFAULT_WRITE: float = Checkpoint.model_fields["write_gib_per_s"].default


def stated_quantities(job: Job, runs: Sequence[ScheduledRun]) -> Iterator[StatedQuantity]:
    """Yield what the job file states of each term, for runs of the plan; in the order of terms and fields."""
    yield from _speed(job, runs)
    known = job.interruptions
    on_spot = any(part.offer.market is Market.SPOT for run in runs for part in run.candidate.parts)
    rate = None if known is None or not on_spot else known.per_hour
    often = [] if rate is None else [("interruptions.per_hour", f"{rate:g}")]
    for term, found in (
        ("lost_work_usd", [*often, *_loss(job)]),
        ("checkpoints_usd", _checkpoint(job)),
        ("restarts_usd", [*often, *_restart(job)]),
        ("startups_usd", _startup(job)),
        ("moves_usd", _moved(job, "copy")),
        ("stream_usd", _moved(job, "stream")),
        ("idle_usd", _duration("idle", job.idle)),
    ):
        for field, value in found:
            yield StatedQuantity(term, field, value)


def _speed(job: Job, runs: Sequence[ScheduledRun]) -> Iterator[StatedQuantity]:
    """Yield the measured speed that the runs rest on, unless earlier runs or an estimate replaced it."""
    measured = {point.accelerator for point in job.workload.profile}
    stated = (run.candidate for run in runs if run.candidate.accelerator in measured)
    for basis in dict.fromkeys(c.speed_basis for c in stated if c.speed_evidence == "measured"):
        yield StatedQuantity("compute_usd", "workload.profile", basis)


def _loss(job: Job) -> Iterator[tuple[str, str]]:
    """Yield what an interruption loses as stated; else the interval and, of an asynchronous checkpoint, its write."""
    if job.interruptions is not None and job.interruptions.lost_work is not None:
        yield from _duration("interruptions.lost_work", job.interruptions.lost_work)
    elif job.checkpoint is not None:
        yield from _interval(job.checkpoint)
        if job.checkpoint.asynchronous:
            yield from _write(job, job.checkpoint)


def _checkpoint(job: Job) -> Iterator[tuple[str, str]]:
    """Yield what the time of checkpoints rests on: of an asynchronous one its stall, else its write."""
    if job.checkpoint is None:
        return
    yield from _interval(job.checkpoint)
    if job.checkpoint.asynchronous:
        yield from _duration("checkpoint.stall", job.checkpoint.stall)
    else:
        yield from _write(job, job.checkpoint)


def _write(job: Job, checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    if checkpoint.size_gib != _estimated_size(job):
        yield "checkpoint.size_gib", f"{checkpoint.size_gib:g} GiB"
    if checkpoint.write_gib_per_s != _DEFAULT_WRITE:
        yield "checkpoint.write_gib_per_s", f"{checkpoint.write_gib_per_s:g} GiB/s"


def _estimated_size(job: Job) -> float | None:
    """Return the size of a checkpoint by the shape of the job; None where nothing estimates it."""
    shape = job.workload.transformer
    if shape is None:
        return None
    try:
        filled = with_estimated_size({}, {"transformer": shape.model_dump(mode="json")})
    except RefusedError:
        return None
    return float(filled["size_gib"])


def _interval(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    yield from _duration("checkpoint.interval", checkpoint.interval)


def _startup(job: Job) -> Iterator[tuple[str, str]]:
    yield from _duration("startup", None if job.startup == _DEFAULT_STARTUP else job.startup)


def _restart(job: Job) -> Iterator[tuple[str, str]]:
    stated = None if job.interruptions is None else job.interruptions.restart
    yield from _startup(job) if stated is None else _duration("interruptions.restart", stated)


def _moved(job: Job, mode: str) -> Iterator[tuple[str, str]]:
    if job.data is not None and job.data.mode == mode:
        yield "data.gib", f"{job.data.gib:g} GiB"
        if mode == "stream" and job.data.passes != 1:
            yield "data.passes", f"{job.data.passes:g}"


def _duration(field: str, value: timedelta | None) -> Iterator[tuple[str, str]]:
    if value is not None:
        yield field, format_duration(value)
