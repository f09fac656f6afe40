"""Split the life of a machine into time segments with one use each. Pure.

A machine's life is its startup, until all ranks had met; its training, until that ended or the machine was gone; and
its idle time after the end. Inside the training the duration of each use is known, not its moment: the work comes
first, then the time spent saving, then the work that was lost, which is the last that was done. docs/ledger.md has the
rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from router.agent import protocol
from router.ledger.entry import MachineUse, utc
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord

_TICK = timedelta(microseconds=1)
_TICKS_A_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class TimeSegment:
    """The time from ``start`` until before ``end`` (UTC, in one month). ``use`` None: not known."""

    start: datetime
    end: datetime
    use: MachineUse | None

    @property
    def ticks(self) -> int:
        return (self.end - self.start) // _TICK


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """The training of a gang, as far as it is known.

    ``first_step``, ``last_step``, ``kept_step``: where it began, how far it came, and what of that is saved.
    ``step_seconds``: the time of a step; None where nobody reported it. ``saving``: how long the training stood still
    to save. ``told``: its ranks reported how far it is. ``deadline``: when the job had to be done.
    """

    met_at: datetime | None
    ended_at: datetime | None
    finished: bool
    told: bool
    first_step: int
    last_step: int
    kept_step: int
    step_seconds: float | None = None
    saving: timedelta = timedelta(0)
    deadline: datetime | None = None


def training_record_of(
    attempt: Attempt, nodes: Sequence[NodeRecord], saved: Sequence[Mapping[str, object]], deadline: datetime | None
) -> TrainingRecord:
    """Return the training of an attempt that is over, from its records.

    ``saved``: what its ranks reported of each checkpoint (``saved_step``, ``seconds``).
    """
    step_times = [node.step_seconds for node in nodes if node.step_seconds]
    kept_step = attempt.first_step if attempt.kept_step is None else attempt.kept_step
    return TrainingRecord(
        met_at=attempt.met_at,
        ended_at=attempt.result_at or _first_silence(nodes),
        finished=attempt.result == protocol.FINISHED,
        told=any(node.step is not None or node.saved_step is not None for node in nodes),
        first_step=attempt.first_step,
        last_step=max(kept_step, attempt.last_step or 0),
        kept_step=kept_step,
        # A gang is as fast as its slowest rank.
        step_seconds=max(step_times, default=None),
        saving=_saving_time(saved),
        deadline=deadline,
    )


def split_machine_time(made_at: datetime, gone_at: datetime, course: TrainingRecord) -> tuple[TimeSegment, ...]:
    """Return the life of a machine as consecutive segments without gaps, from ``made_at`` until before ``gone_at``.

    Empty where the machine was gone when it was created, or before.
    """
    made, gone = utc(made_at), utc(gone_at)
    if gone <= made:
        return ()
    if course.met_at is None:
        return _segments([(made, gone, MachineUse.FAILED_LAUNCH)])
    met = min(max(utc(course.met_at), made), gone)
    ended = gone if course.ended_at is None else min(max(utc(course.ended_at), met), gone)
    training_parts = _split_training(met, ended, course)
    return _segments([(made, met, MachineUse.STARTUP), *training_parts, (ended, gone, MachineUse.IDLE_ALLOCATED)])


def split_by_month(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the time from ``start`` until before ``end`` (UTC), cut where a month ends; nothing for an empty time."""
    while start < end:
        stop = min(end, Month.of(start).ends)
        yield start, stop
        start = stop


_Part = tuple[datetime, datetime, MachineUse | None]


def _split_training(met: datetime, ended: datetime, course: TrainingRecord) -> list[_Part]:
    if not course.told and not course.finished:
        return [(met, ended, None)]
    lost = _lost_time(ended - met, course)
    saving = min(max(course.saving, timedelta(0)), ended - met - lost)
    worked = ended - lost - saving
    late = worked if course.deadline is None else min(max(utc(course.deadline), met), worked)
    return [
        (met, late, MachineUse.WORK),
        (late, worked, MachineUse.OVERRUN),
        (worked, worked + saving, MachineUse.CHECKPOINT_OVERHEAD),
        (worked + saving, ended, MachineUse.RESTART_LOST_WORK),
    ]


def _lost_time(length: timedelta, course: TrainingRecord) -> timedelta:
    if course.finished:
        return timedelta(0)
    if course.kept_step <= course.first_step:
        return length
    steps, done = course.last_step - course.kept_step, course.last_step - course.first_step
    if steps <= 0:
        return timedelta(0)
    if course.step_seconds is None or not math.isfinite(course.step_seconds):
        return timedelta(microseconds=length // _TICK * steps // done)
    return _TICK * min(length // _TICK, round(Fraction(course.step_seconds) * steps * _TICKS_A_SECOND))


def _first_silence(nodes: Sequence[NodeRecord]) -> datetime | None:
    """Return when the first rank that never reported its end was last heard of: no step is done without it."""
    return min((utc(n.heard_at) for n in nodes if n.heard_at is not None and not n.ended_reason), default=None)


def _saving_time(saved: Sequence[Mapping[str, object]]) -> timedelta:
    """Return the time spent saving; a gang waits for the slowest rank of each checkpoint."""
    longest: dict[object, float] = {}
    for report in saved:
        seconds = report.get("seconds")
        if isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0:
            step = report.get("saved_step")
            longest[step] = max(longest.get(step, 0.0), float(seconds))
    try:
        return timedelta(seconds=sum(longest.values()))
    except OverflowError:
        return timedelta.max


def _segments(parts: Sequence[_Part]) -> tuple[TimeSegment, ...]:
    return tuple(
        TimeSegment(begin, end, use) for start, stop, use in parts for begin, end in split_by_month(start, stop)
    )
