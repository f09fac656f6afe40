"""The order to save: what a notice makes of an attempt, and what a rank is told. Pure; moments are real time of day."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from datetime import datetime
from typing import Any

from router.agent import control, states
from router.state.records import Attempt, NoticeRecord, Phase

NOTHING: dict[str, Any] = {"order": states.CONTINUE}
# However little the machine has left, the others are asked.
LEAST_SECONDS = 1.0
# Here the training runs, or is about to, and nobody decided yet where it goes.
_UNDISTURBED = (Phase.READY, Phase.RESUMING, Phase.RUNNING)


def after_notice(notice: NoticeRecord, now: datetime) -> Callable[[Attempt], Attempt | None]:
    """What an interruption that was announced to one machine changes of its attempt: every rank is told to save, within
    what the machine has left but for the time to say so. None where the gang is not up yet or goes elsewhere already,
    and where such an order is open; one for another reason, or whose time is over, gives way."""
    left = control.SHORTEST_SECONDS if notice.seconds is None else notice.seconds
    seconds = max(LEAST_SECONDS, left / 2, left - control.SAYING_SECONDS)

    def change(attempt: Attempt) -> Attempt | None:
        pressing = attempt.order_reason == control.INTERRUPTION
        phases = _UNDISTURBED if pressing else (*_UNDISTURBED, Phase.CHECKPOINTING)
        if attempt.phase not in phases or attempt.result or (pressing and seconds_left(attempt, now) > 0):
            return None
        return replace(
            attempt,
            phase=Phase.NOTICED,
            order_id=notice.id,
            order_reason=control.INTERRUPTION,
            order_seconds=seconds,
            ordered_at=now,
        )

    return change


def seconds_left(attempt: Attempt, now: datetime) -> float:
    """Of the time for the attempt's order; 0 where it has none."""
    if not attempt.order_id or attempt.ordered_at is None:
        return 0.0
    # A clock that was set back gives nobody more time than there was.
    return min(attempt.order_seconds, max(0.0, attempt.order_seconds - (now - attempt.ordered_at).total_seconds()))


def order_of(attempt: Attempt, *, stopping: bool, answered: Container[str], now: datetime) -> dict[str, Any]:
    """What a rank is told that answered these orders already. An order whose time is over is none any more."""
    if stopping:
        return {"order": states.STOP}
    left = seconds_left(attempt, now)
    if left <= 0 or attempt.order_id in answered:
        return NOTHING
    return {
        "order": states.CHECKPOINT,
        "id": attempt.order_id,
        "seconds": round(left, 3),
        "reason": attempt.order_reason,
    }
