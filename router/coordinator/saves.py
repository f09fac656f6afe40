"""Orders to save: how a notice changes an attempt, what a rank is told, and what a gang answered.

Moments of orders are real time of day.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from router.agent import protocol
from router.state.records import Attempt, JournalEntry, NoticeRecord, Phase
from router.state.store import StateStore

SAVED, NOT_SAVED, NOT_BELIEVED = "saved", "not_saved", "not_believed"
NO_ORDER: dict[str, Any] = {"order": protocol.CONTINUE}
# The other ranks get at least this many seconds, however little time the machine has left.
MIN_ORDER_SECONDS = 1.0
# In these phases the training runs, or is about to, and no move is decided yet.
_UNDISTURBED = (Phase.READY, Phase.RESUMING, Phase.RUNNING)


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


def order_after_notice(notice: NoticeRecord, now: datetime) -> Callable[[Attempt], Attempt | None]:
    """Return the change that an interruption notice to one machine makes to its attempt.

    Every rank is ordered to save within the time that the machine has left, less the time to report it. The change is
    None where the gang is not up yet or moves already, and where such an order is open; an order for another reason, or
    whose time is over, is replaced.
    """
    time_left = protocol.SHORTEST_SECONDS if notice.seconds is None else notice.seconds
    seconds = max(MIN_ORDER_SECONDS, time_left / 2, time_left - protocol.REPORTING_SECONDS)

    def change(attempt: Attempt) -> Attempt | None:
        has_interruption_order = attempt.order_reason == protocol.INTERRUPTION
        phases = _UNDISTURBED if has_interruption_order else (*_UNDISTURBED, Phase.CHECKPOINTING)
        if (
            attempt.phase not in phases
            or attempt.result
            or (has_interruption_order and order_seconds_left(attempt, now) > 0)
        ):
            return None
        return replace(
            attempt,
            phase=Phase.NOTICED,
            order_id=notice.id,
            order_reason=protocol.INTERRUPTION,
            order_seconds=seconds,
            ordered_at=now,
        )

    return change


def order_seconds_left(attempt: Attempt, now: datetime) -> float:
    """Return the seconds left for the attempt's order; 0 where it has none."""
    if not attempt.order_id or attempt.ordered_at is None:
        return 0.0
    # A clock that was set back must not extend the time.
    return min(attempt.order_seconds, max(0.0, attempt.order_seconds - (now - attempt.ordered_at).total_seconds()))


def order_for_rank(attempt: Attempt, *, stopping: bool, answered: Container[str], now: datetime) -> dict[str, Any]:
    """Return the order for a rank that answered these orders already. An order whose time is over is none."""
    if stopping:
        return {"order": protocol.STOP}
    time_left = order_seconds_left(attempt, now)
    if time_left <= 0 or attempt.order_id in answered:
        return NO_ORDER
    return {
        "order": protocol.CHECKPOINT,
        "id": attempt.order_id,
        "seconds": round(time_left, 3),
        "reason": attempt.order_reason,
    }
