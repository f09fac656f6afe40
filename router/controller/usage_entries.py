"""Build ledger entries of an attempt's disks and of checkpoints copied to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

from pricing.money import Usd
from pricing.units import BYTES_PER_GB
from router.controller.metering import metered_entry
from router.controller.time_use import split_by_month
from router.ledger.entry import GB, GIB_HOURS, CostItem, LedgerEntry, utc
from router.ledger.month import Month
from router.state.records import Attempt, JournalEntry, NodeRecord

# Words of the journal: a checkpoint was copied to the attempt's region; it was not, or only in part; provisioning
# begins.
COPIED, NOT_COPIED, PROVISIONING = "copied", "not copied", "provisioning"
DISK_GIB = "disk_gib"
_HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)


def transfer_entries(attempt: Attempt, journal: Iterable[JournalEntry], at: datetime) -> tuple[LedgerEntry, ...]:
    """Return one entry for each copy of bytes to the region of the attempt, complete or not.

    ``unpriced`` where no tariff was known.
    """
    return tuple(
        _transfer_entry(attempt, note, at)
        for note in journal
        if note.what in (COPIED, NOT_COPIED) and _byte_count(note) > 0
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
