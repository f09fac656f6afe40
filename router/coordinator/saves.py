"""What a gang answered to an order to save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from router.state.records import JournalEntry
from router.state.store import Store

SAVED, NOT_SAVED, NOT_BELIEVED = "saved", "not_saved", "not_believed"


@dataclass(frozen=True, slots=True)
class Answers:
    """``step`` and ``manifest``: the checkpoint that is complete, as the lowest rank that has it says; None while there
    is none. ``saved_at``: when the first rank said so; ``seconds``: how long that rank took, where it knows.
    ``failed``: why not, by rank, for those that said nothing better since."""

    step: int | None
    manifest: str | None
    saved_at: datetime | None
    seconds: float | None
    ranks: frozenset[int]
    failed: Mapping[int, str]

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint."""
        return self.manifest is not None


def saved_for(store: Store, attempt_id: str, order_id: str) -> Answers:
    """Who answered that order of the attempt, and what. Reads entries of the journal about that order alone."""
    return _answers(store.journal(attempt_id, what=(SAVED, NOT_SAVED), id_=order_id))


def saved_for_all(store: Store, orders: Mapping[str, str]) -> dict[str, Answers]:
    """As :func:`saved_for`, for many: order by attempt."""
    found: dict[str, list[JournalEntry]] = {}
    for entry in store.overview.answers(orders, (SAVED, NOT_SAVED)) if orders else ():
        if entry.details.get("id") == orders[entry.attempt]:
            found.setdefault(entry.attempt, []).append(entry)
    return {attempt: _answers(found.get(attempt, ())) for attempt in orders}


def _answers(found: Sequence[JournalEntry]) -> Answers:
    saved = {int(str(entry.details["rank"])): entry for entry in reversed(found) if entry.what == SAVED}
    failed = {int(str(e.details["rank"])): str(e.details["failed"]) for e in found if e.what == NOT_SAVED}
    failed = {rank: why for rank, why in failed.items() if rank not in saved}
    if not saved:
        return Answers(None, None, None, None, frozenset(), failed)
    lowest, first = saved[min(saved)].details, min(saved.values(), key=lambda entry: entry.seq)
    step, manifest, seconds = lowest["saved_step"], lowest["saved_manifest"], first.details["seconds"]
    return Answers(
        int(str(step)),
        str(manifest),
        first.at,
        None if seconds is None else float(str(seconds)),
        frozenset(saved),
        failed,
    )
