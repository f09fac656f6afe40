"""Compute how long checkpoints take and how far apart they are, in hours. Pure."""

from __future__ import annotations

from datetime import timedelta

from router.jobs import goodput
from router.jobs.spec import Checkpoint


def write_hours(checkpoint: Checkpoint) -> tuple[float, float]:
    """Return how long a checkpoint stops the training, and how long it is written meanwhile, in hours.

    The first is zero for an asynchronous checkpoint, the second for a synchronous one.
    """
    write = checkpoint.size_gib / checkpoint.write_gib_per_s / 3600
    return (0.0, write) if checkpoint.asynchronous else (write, 0.0)


def interval_hours(checkpoint: Checkpoint, interruptions_per_hour: float) -> float:
    """Return the hours of compute between checkpoints.

    They are as stated, else the best at this rate of interruptions of the gang.
    """
    if checkpoint.interval is not None:
        return checkpoint.interval / timedelta(hours=1)
    return goodput.best_interval_hours(interruptions_per_hour, *write_hours(checkpoint))
