"""Read the answers of a gang to an order to save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.state.records import JournalEntry
from router.state.store import StateStore

SAVED, NOT_SAVED, NOT_BELIEVED = "saved", "not_saved", "not_believed"


@dataclass(frozen=True, slots=True)
class SaveAnswers:
    """The answers of a gang to one order to save.

    ``step``: the last step of the complete checkpoint, as the lowest rank that has it reports; None while there is
    none. ``ranks``: those that saved it. ``failed``: the reason by rank, for ranks without a later success.
    """

    step: int | None
    ranks: frozenset[int]
    failed: Mapping[int, str]

    @property
    def is_saved(self) -> bool:
        """Return whether there is a checkpoint."""
        return self.step is not None


def save_answers(store: StateStore, attempt_id: str, order_id: str) -> SaveAnswers:
    """Return the answers to that order of the attempt. Reads only journal entries about that order."""
    return _parse_answers(store.journal.entries(attempt_id, what=(SAVED, NOT_SAVED), id_=order_id))


def save_answers_by_attempt(store: StateStore, orders: Mapping[str, str]) -> dict[str, SaveAnswers]:
    """Return the answers to many orders, given and returned by attempt, as :func:`save_answers` does."""
    entries: dict[str, list[JournalEntry]] = {}
    for entry in store.overview.answers(orders, (SAVED, NOT_SAVED)) if orders else ():
        if entry.details.get("id") == orders[entry.attempt]:
            entries.setdefault(entry.attempt, []).append(entry)
    return {attempt: _parse_answers(entries.get(attempt, ())) for attempt in orders}


def _parse_answers(entries: Sequence[JournalEntry]) -> SaveAnswers:
    saved = {int(str(entry.details["rank"])): entry for entry in reversed(entries) if entry.what == SAVED}
    failed = {int(str(e.details["rank"])): str(e.details["failed"]) for e in entries if e.what == NOT_SAVED}
    failed = {rank: why for rank, why in failed.items() if rank not in saved}
    step = int(str(saved[min(saved)].details["saved_step"])) if saved else None
    return SaveAnswers(step, frozenset(saved), failed)
