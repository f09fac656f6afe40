"""Compute how long checkpoints take and how far apart they are, in hours. Pure."""

from __future__ import annotations

from datetime import timedelta

from router.jobs import goodput
from router.jobs.spec import Checkpoint


def write_hours(checkpoint: Checkpoint) -> tuple[float, float]:
    """Return how long a checkpoint stops the training, and how long it is written meanwhile, in hours.

    The first is zero for an asynchronous checkpoint unless its ``stall`` is stated, the second for a synchronous one.
    """
    write = checkpoint.size_gib / checkpoint.write_gib_per_s / 3600
    if not checkpoint.asynchronous:
        return write, 0.0
    return (0.0 if checkpoint.stall is None else checkpoint.stall / timedelta(hours=1)), write


def measured_write_hours(checkpoint: Checkpoint, seconds: float, *, uploaded: bool) -> tuple[float, float]:
    """Return the same where saves were measured to take ``seconds`` until they are durable.

    ``uploaded``: an uploader stores them while the training goes on, so that no more than what the job states of it
    stops the training.
    """
    stated, hours = write_hours(checkpoint)[0], seconds / 3600
    stall = min(stated, hours) if uploaded or checkpoint.asynchronous else hours
    return stall, hours - stall


def interval_hours(
    checkpoint: Checkpoint, interruptions_per_hour: float, write: tuple[float, float] | None = None
) -> float:
    """Return the hours of compute between checkpoints.

    They are as stated, else the best at this rate of interruptions of the gang. ``write`` is how long a checkpoint
    stops the training and how long it is written meanwhile, where that was measured.
    """
    if checkpoint.interval is not None:
        return checkpoint.interval / timedelta(hours=1)
    return goodput.best_interval_hours(interruptions_per_hour, *(write or write_hours(checkpoint)))
