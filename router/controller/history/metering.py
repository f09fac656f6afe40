"""Build ledger entries for planned orders and for the life of machines, split into segments with one use each. Pure.

A machine's life is its startup, until all ranks had met; its training, until that ended or the machine was gone; and
its idle time after the end. Inside the training the duration of each use is known, not its moment: the work comes
first, then the time spent saving, then the work that was lost, which is the last that was done. docs/ledger.md has the
rules.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from pricing.money import Usd
from pricing.places import Market
from pricing.units import BYTES_PER_GB
from router.agent import protocol
from router.ledger.entry import GB, GIB_HOURS, CostItem, LedgerEntry, LedgerEntryKind, MachineUse, utc
from router.ledger.month import Month
from router.state.records import Attempt, JournalEntry, NodeRecord

if TYPE_CHECKING:  # What a machine cost is computed without a plan.
    from router.controller.plans import Order
    from router.jobs.spec import Job

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


_HOUR = timedelta(hours=1)
SUNK = "sunk"


def planned_entries(
    plan: str, orders: Iterable[Order], jobs: dict[str, Job], digests: dict[str, str], at: datetime
) -> tuple[LedgerEntry, ...]:
    """Return one entry per line of every order; reservations are entered at their amortised price.

    ``jobs`` and ``digests`` are by job name: KeyError for a job that is missing.
    """
    return tuple(
        _planned_entry(plan, order, number, jobs[order.job], digests[order.job], at)
        for order in orders
        for number in range(len(order.lines))
    )


def _planned_entry(plan: str, order: Order, number: int, job: Job, digest: str, at: datetime) -> LedgerEntry:
    line = order.lines[number]
    return LedgerEntry(
        key=f"planned {plan} {order.gang} {utc(order.start).isoformat()} {number}",
        kind=LedgerEntryKind.PLANNED,
        recorded_at=utc(at),
        plan=plan,
        job=order.job,
        job_digest=digest,
        team=job.team,
        project=job.project,
        cost_center=job.cost_center,
        gang=order.gang,
        cloud=line.cloud,
        region=line.region,
        zone=line.zone,
        instance_type=line.instance_type,
        market=Market(line.market),
        accelerator=line.accelerator,
        accelerators=line.accelerators,
        machines=line.machines,
        period=Month.of(line.start),
        start=utc(line.start),
        end=utc(line.end),
        quantity=line.hours,
        usd_per_hour=line.amortised_usd_per_hour,
        usd=line.amortised_usd or Usd(0),
        unpriced=line.amortised_usd is None,
        steps=line.steps,
        price_as_of=line.price_as_of,
        price_source=line.price_source,
    )


def metered_entries(
    attempt: Attempt, nodes: Sequence[NodeRecord], at: datetime, course: TrainingRecord | None = None
) -> tuple[LedgerEntry, ...]:
    """Return the entries for the life of every machine that existed and is gone, at its planned price.

    A machine has one entry for each segment of time with one use, with the machine's id, what priced it, and what one
    such machine cost on demand. The segments of a machine have no gap or overlap, and their money adds up to that of
    its whole time, which is rounded once. A reserved machine has its amortised price, and none (unpriced) where that is
    unknown. ``course``: how the training went; without it, as the attempt and its machines say.

    A machine that was gone within the same microsecond cost nothing and has no entry. The gang's steps are entered with
    rank 0, on its work; the lost ones on its lost work.
    """
    course = course or training_record_of(attempt, nodes, (), None)
    return tuple(
        entry
        for node in nodes
        if node.made_at is not None and node.gone_at is not None
        for entry in _machine_entries(attempt, node, split_machine_time(node.made_at, node.gone_at, course), at)
    )


def _machine_entries(
    attempt: Attempt, node: NodeRecord, segments: Sequence[TimeSegment], at: datetime
) -> Iterator[LedgerEntry]:
    saved_steps = (attempt.kept_step or attempt.first_step) - attempt.first_step
    lost_total = (attempt.last_step or 0) - (attempt.kept_step or 0)
    steps = _spread_steps(saved_steps if node.rank == 0 else 0, segments, (MachineUse.WORK, MachineUse.OVERRUN))
    lost_steps = _spread_steps(lost_total if node.rank == 0 else 0, segments, (MachineUse.RESTART_LOST_WORK,))
    cost_before = Usd(0)
    sunk = node.reservation_cost == SUNK
    for number, segment in enumerate(segments):
        cost_until = Usd(0) if node.unpriced else node.usd_per_hour.over(segment.end - segments[0].start)
        entry = metered_entry(
            attempt,
            at,
            key=f"metered {attempt.id} {node.rank} {segment.start.isoformat()}",
            what=CostItem.MACHINE,
            start=segment.start,
            end=segment.end,
            usd=cost_until - cost_before,
            unpriced=node.unpriced,
            rank=node.rank,
        )
        yield replace(
            entry,
            use=segment.use,
            cloud=attempt.cloud,
            region=attempt.region,
            zone=node.zone,
            instance_type=node.instance_type,
            market=node.market,
            accelerator=node.accelerator,
            accelerators=node.accelerators,
            quantity=Fraction(segment.ticks, _HOUR // _TICK),
            usd_per_hour=None if node.unpriced else node.usd_per_hour,
            resource=node.machine_id or "",
            price_as_of=node.price_as_of,
            price_source=f"{node.price_source}, sunk".lstrip(", ") if sunk else node.price_source,
            on_demand_usd_per_hour=node.on_demand_usd_per_hour,
            steps=steps[number],
            lost_steps=lost_steps[number],
        )
        cost_before = cost_until


def metered_entry(
    attempt: Attempt,
    at: datetime,
    *,
    key: str,
    what: CostItem,
    start: datetime,
    end: datetime,
    usd: Usd,
    unpriced: bool,
    rank: int | None,
) -> LedgerEntry:
    """Return an entry of something metered for an attempt, in the books of the month in which it starts.

    Times are UTC; ``at`` is when it is recorded. The caller adds quantity, place and price by ``dataclasses.replace``.
    """
    return LedgerEntry(
        key=key,
        kind=LedgerEntryKind.METERED,
        recorded_at=utc(at),
        plan=attempt.plan,
        job=attempt.job,
        job_digest=attempt.job_digest,
        team=attempt.team,
        project=attempt.project,
        cost_center=attempt.cost_center,
        gang=attempt.gang,
        attempt=attempt.id,
        what=what,
        period=Month.of(start),
        start=start,
        end=end,
        usd=usd,
        unpriced=unpriced,
        rank=rank,
        machines=1 if what is CostItem.MACHINE else 0,
    )


def _spread_steps(steps: int, segments: Sequence[TimeSegment], uses: Collection[MachineUse]) -> list[int]:
    """Return the steps spread over the segments of these uses, by time; over the last segment where there are none."""
    weights = [segment.ticks if segment.use in uses else 0 for segment in segments]
    if not any(weights):
        weights = [0] * (len(segments) - 1) + [1] * bool(segments)
    ends = [steps * done // sum(weights) for done in accumulate(weights)]
    return [end - begin for begin, end in pairwise([0, *ends])]


def cost_so_far(nodes: Iterable[NodeRecord], now: datetime) -> Usd:
    """Return what the machines have cost until now, running ones included."""
    return Usd.total(
        node.usd_per_hour.over(max((node.gone_at or now) - node.made_at, timedelta(0)))
        for node in nodes
        if node.made_at is not None
    )


# Words of the journal: a checkpoint was copied to the attempt's region; it was not, or only in part; provisioning
# begins.
COPIED, NOT_COPIED, PROVISIONING = "copied", "not copied", "provisioning"
# The same of the job's data.
DATA_COPIED, DATA_NOT_COPIED = "data copied", "data not copied"
TRANSFERS = (COPIED, NOT_COPIED, DATA_COPIED, DATA_NOT_COPIED)
DISK_GIB = "disk_gib"


def transfer_entries(attempt: Attempt, journal: Iterable[JournalEntry], at: datetime) -> tuple[LedgerEntry, ...]:
    """Return one entry for each copy of bytes to the region of the attempt, complete or not.

    ``unpriced`` where no tariff was known.
    """
    return tuple(
        _transfer_entry(attempt, note, at) for note in journal if note.what in TRANSFERS and _byte_count(note) > 0
    )


def disk_entries(
    attempt: Attempt, nodes: Sequence[NodeRecord], gib: int | None, at: datetime
) -> tuple[LedgerEntry, ...]:
    """Return entries for the disk of each machine, one per month of the machine's life; their price is not known.

    Empty where ``gib`` is None: the machines brought their own disks.
    """
    if gib is None:
        return ()
    return tuple(
        replace(
            metered_entry(
                attempt,
                at,
                key=f"disk {attempt.id} {node.rank} {start.isoformat()}",
                what=CostItem.DISK,
                start=start,
                end=end,
                usd=Usd(0),
                unpriced=True,
                rank=node.rank,
            ),
            quantity=gib * Fraction((end - start) // _TICK, _HOUR // _TICK),
            unit=GIB_HOURS,
            # The cloud's id of the disk is in no output; a bill names it next to the machine.
            resource=f"{node.machine_id}/disk" if node.machine_id else "",
            zone=node.zone,
            cloud=attempt.cloud,
            region=attempt.region,
        )
        for node in nodes
        if node.made_at is not None and node.gone_at is not None
        for start, end in split_by_month(utc(node.made_at), utc(node.gone_at))
    )


def disk_gib(journal: Iterable[JournalEntry]) -> int | None:
    """Return the disk size that the machines of an attempt were created with; None where it is not recorded."""
    known = [note.details.get(DISK_GIB) for note in journal if note.what == PROVISIONING]
    return next((size for size in reversed(known) if isinstance(size, int)), None)


def _byte_count(note: JournalEntry) -> int:
    count = note.details.get("bytes")
    return count if isinstance(count, int) else 0


def _transfer_entry(attempt: Attempt, note: JournalEntry, at: datetime) -> LedgerEntry:
    usd, seconds = note.details.get("usd"), note.details.get("seconds")
    end = utc(note.at)
    duration = timedelta(seconds=float(seconds)) if isinstance(seconds, int | float) else timedelta(0)
    # The entry belongs to the month in which the copy was made.
    start = max(end - max(duration, _TICK), Month.of(end - _TICK).begins)
    cloud, _, region = str(note.details.get("origin") or "").partition("/")
    entry = metered_entry(
        attempt,
        at,
        key=f"egress {attempt.id} {note.seq}",
        what=CostItem.EGRESS,
        start=start,
        end=end,
        usd=Usd.parse(usd) if isinstance(usd, str) else Usd(0),
        unpriced=not isinstance(usd, str),
        rank=None,
    )
    return replace(
        entry,
        quantity=Fraction(_byte_count(note), BYTES_PER_GB),
        unit=GB,
        cloud=cloud,
        region=region,
        resource=str(note.details.get("from") or ""),
        price_as_of=str(note.details.get("price_as_of") or ""),
        price_source=str(note.details.get("price_source") or ""),
        reference=f"{note.details.get('from', '')} -> {note.details.get('to', '')}",
    )
