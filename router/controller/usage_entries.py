"""Ledger entries of what an attempt used beside its machines' hours: their disks, and checkpoints that were copied to
it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from pricing.money import Usd
from pricing.units import BYTES_PER_GB
from router.controller.time_use import in_months
from router.ledger.entry import GB, GIB_HOURS, Entry, Kind, What, utc
from router.ledger.month import Month
from router.state.records import Attempt, JournalEntry, NodeRecord

# Words of the journal: a checkpoint was copied to where the attempt is; it was not, or not wholly; machines are begun.
COPIED, NOT_COPIED, PROVISIONING = "copied", "not copied", "provisioning"
DISK_GIB = "disk_gib"
_HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)


def moved_entries(attempt: Attempt, journal: Iterable[JournalEntry], at: datetime) -> tuple[Entry, ...]:
    """Bytes that were copied to the region of the attempt, wholly or not: one entry for each time that something was.
    ``unpriced`` where no tariff was known."""
    return tuple(
        _moved(attempt, note, at) for note in journal if note.what in (COPIED, NOT_COPIED) and _bytes(note) > 0
    )


def disk_entries(attempt: Attempt, nodes: Sequence[NodeRecord], gib: int | None, at: datetime) -> tuple[Entry, ...]:
    """The disk of each machine for as long as the machine was there, a month an entry; the price is not known. None
    where ``gib`` is None: the machines brought their own."""
    if gib is None:
        return ()
    return tuple(
        Entry(
            key=f"disk {attempt.id} {node.rank} {start.isoformat()}",
            what=What.DISK,
            period=Month.of(start),
            start=start,
            end=end,
            quantity=gib * Fraction((end - start) // _TICK, _HOUR // _TICK),
            unit=GIB_HOURS,
            unpriced=True,
            usd=Usd(0),
            # The cloud's own id of the disk is in no output; a bill names it beside the machine.
            resource=f"{node.machine_id}/disk" if node.machine_id else "",
            rank=node.rank,
            zone=node.zone,
            cloud=attempt.cloud,
            region=attempt.region,
            **whose(attempt, at),
        )
        for node in nodes
        if node.made_at is not None and node.gone_at is not None
        for start, end in in_months(utc(node.made_at), utc(node.gone_at))
    )


def disk_gib(journal: Iterable[JournalEntry]) -> int | None:
    """How large the disks are that the machines of an attempt were made with; None where it is not written down."""
    known = [note.details.get(DISK_GIB) for note in journal if note.what == PROVISIONING]
    return next((size for size in reversed(known) if isinstance(size, int)), None)


def whose(attempt: Attempt, at: datetime) -> dict[str, Any]:
    """The fields of every metered entry of an attempt."""
    return {
        "kind": Kind.METERED, "recorded_at": utc(at), "plan": attempt.plan, "job": attempt.job,
        "job_digest": attempt.job_digest, "team": attempt.team, "project": attempt.project,
        "cost_center": attempt.cost_center, "gang": attempt.gang, "attempt": attempt.id,
    }  # fmt: skip


def _bytes(note: JournalEntry) -> int:
    count = note.details.get("bytes")
    return count if isinstance(count, int) else 0


def _moved(attempt: Attempt, note: JournalEntry, at: datetime) -> Entry:
    usd, seconds = note.details.get("usd"), note.details.get("seconds")
    end = utc(note.at)
    took = timedelta(seconds=float(seconds)) if isinstance(seconds, int | float) else timedelta(0)
    # In the month in which it was done.
    start = max(end - max(took, _TICK), Month.of(end - _TICK).begins)
    cloud, _, region = str(note.details.get("origin") or "").partition("/")
    return Entry(
        key=f"egress {attempt.id} {note.seq}",
        what=What.EGRESS,
        period=Month.of(start),
        start=start,
        end=end,
        quantity=Fraction(_bytes(note), BYTES_PER_GB),
        unit=GB,
        unpriced=not isinstance(usd, str),
        usd=Usd.parse(usd) if isinstance(usd, str) else Usd(0),
        cloud=cloud,
        region=region,
        resource=str(note.details.get("from") or ""),
        price_as_of=str(note.details.get("price_as_of") or ""),
        price_source=str(note.details.get("price_source") or ""),
        reference=f"{note.details.get('from', '')} -> {note.details.get('to', '')}",
        **whose(attempt, at),
    )
