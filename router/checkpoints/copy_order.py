"""The choice of the checkpoint to copy next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PendingCheckpoint:
    """A checkpoint that is not durable yet; ``bytes``: the remaining bytes to copy."""

    step: int
    bytes: int


def choose_checkpoint(
    waiting: Sequence[PendingCheckpoint], running: int | None, rate: float | None, seconds: float | None
) -> int | None:
    """Return the step to copy now, of those in ``waiting``, which are in the order of their writing.

    ``running`` is the one under way, if any. ``rate``: bytes per second; ``seconds``: the time left; None: not known,
    or as long as it takes.

    Without a deadline the copy under way is finished, else the newest is copied: if a newer one always came first,
    checkpoints written faster than they are copied would never be durable. With a deadline: the newest that can be
    durable by then, after the one under way if there is time for both. If none can, the newest is tried, or the one
    under way continued.
    """
    if not waiting:
        return None
    newest, under_way = waiting[-1], next((one for one in waiting if one.step == running), None)
    if seconds is None:
        return (under_way or newest).step
    if rate is None:
        return newest.step
    capacity = rate * seconds
    if under_way is not None and under_way.bytes + (newest.bytes if newest is not under_way else 0) <= capacity:
        return under_way.step
    fitting = [one for one in waiting if one.bytes <= capacity]
    return (fitting[-1] if fitting else under_way or newest).step
