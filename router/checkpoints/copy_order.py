"""Which checkpoint to copy next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A checkpoint that is not durable yet; ``bytes``: what is left to copy."""

    step: int
    bytes: int


def choose(waiting: Sequence[Waiting], running: int | None, rate: float | None, seconds: float | None) -> int | None:
    """The step to copy now, of those that wait, in the order in which they were written; ``running`` is the one under
    way, if any. ``rate``: bytes a second; ``seconds``: how long there is; None: not known, or as long as it takes.

    Without an end what is under way is finished, else the newest: were a newer one always first, checkpoints that come
    faster than they are copied would never be durable. With an end: the newest that can be durable by then, after the
    one under way if there is time for both. Where none can, the newest is tried, or the one under way gone on with.
    """
    if not waiting:
        return None
    newest, under_way = waiting[-1], next((one for one in waiting if one.step == running), None)
    if seconds is None:
        return (under_way or newest).step
    if rate is None:
        return newest.step
    most = rate * seconds
    if under_way is not None and under_way.bytes + (newest.bytes if newest is not under_way else 0) <= most:
        return under_way.step
    can = [one for one in waiting if one.bytes <= most]
    return (can[-1] if can else under_way or newest).step
