"""Observe gangs: their state in a few queries, ranks without a heartbeat, and steps that suddenly take longer."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from router.agent import protocol
from router.coordinator.saves import SaveAnswers, save_answers_by_attempt
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore

# A gang is slow when its steps take SLOW_FACTOR times its own best, in SLOW_OBSERVATIONS consecutive observations.
SLOW_FACTOR, SLOW_OBSERVATIONS = 2.0, 3
_UNOBSERVED_SHARE = 0.5


@dataclass(slots=True)
class StragglerMonitor:
    """The step times of each attempt, observation by observation.

    A gang trains as fast as its slowest rank, so step times do not tell which rank is slow.
    """

    _best: dict[str, float] = field(default_factory=dict)
    _slow_counts: dict[str, int] = field(default_factory=dict)

    def slower(self, attempt: str, nodes: Sequence[NodeRecord]) -> float | None:
        """Return the slowdown factor of an attempt that has been slow for long enough, and then forget the attempt.

        None where all is well, or where its training reports no times.
        """
        step_times = [node.step_seconds for node in nodes if node.step_seconds]
        if not step_times:
            return None
        now = max(step_times)
        best = self._best[attempt] = min(now, self._best.get(attempt, now))
        if now < SLOW_FACTOR * best:
            self._slow_counts.pop(attempt, None)
            return None
        self._slow_counts[attempt] = self._slow_counts.get(attempt, 0) + 1
        if self._slow_counts[attempt] < SLOW_OBSERVATIONS:
            return None
        del self._slow_counts[attempt], self._best[attempt]
        return now / best

    def forget_but(self, attempts: Collection[str]) -> None:
        self._best = {name: seconds for name, seconds in self._best.items() if name in attempts}
        self._slow_counts = {name: looks for name, looks in self._slow_counts.items() if name in attempts}


@dataclass(slots=True)
class HeartbeatMonitor:
    """Measures how long each rank has been silent, by this process's own clock.

    The clocks of machines cannot be trusted, and a cloud's may run fast. A time in which nobody observed counts as half
    of the limit at most, because a process that was stopped or asleep did not receive heartbeats either.
    """

    limit_s: float
    _heard: dict[tuple[str, int], tuple[datetime | None, float]] = field(default_factory=dict)
    _observed_at: dict[str, float] = field(default_factory=dict)

    def lost(self, attempt: Attempt, nodes: Sequence[NodeRecord], limit_s: float | None = None) -> list[int]:
        """Return the ranks that were silent for too long and have not ended; ``limit_s`` shortens the limit."""
        now, limit = time.monotonic(), self.limit_s if limit_s is None else min(limit_s, self.limit_s)
        unobserved = max(0.0, now - self._observed_at.get(attempt.id, now) - self.limit_s * _UNOBSERVED_SHARE)
        self._observed_at[attempt.id] = now
        lost = []
        for node in nodes:
            heard_before, since = self._heard.get((attempt.id, node.rank), (None, now))
            if (attempt.id, node.rank) not in self._heard or heard_before != node.heard_at:
                self._heard[attempt.id, node.rank] = (node.heard_at, now)
                continue
            since += unobserved
            self._heard[attempt.id, node.rank] = (heard_before, since)
            if node.agent not in (protocol.ENDED, protocol.FAILED) and now - since > limit:
                lost.append(node.rank)
        return lost

    def forget_but(self, attempts: Collection[str]) -> None:
        self._heard = {key: heard for key, heard in self._heard.items() if key[0] in attempts}
        self._observed_at = {name: at for name, at in self._observed_at.items() if name in attempts}


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """The state of living attempts at one moment.

    ``alive``: attempts that are not over, by creation time and id. By attempt: ``nodes``, the machines by rank;
    ``notices`` to them; ``answers`` to the order to save, for those in CHECKPOINTING.
    """

    alive: tuple[Attempt, ...]
    nodes: Mapping[str, Sequence[NodeRecord]]
    notices: Mapping[str, Sequence[NoticeRecord]]
    answers: Mapping[str, SaveAnswers]


def take_snapshot(store: StateStore, plan: str | None = None) -> StatusSnapshot:
    """Return the snapshot of a plan's attempts (None: of all). StateError."""
    # Notices are read before the attempts, so that what a notice changed of its attempt is seen with it.
    notices = store.overview.notices()
    attempts, nodes = store.overview.alive()
    alive = tuple(attempt for attempt in attempts if plan in (None, attempt.plan))
    orders = {a.id: a.order_id for a in alive if a.phase is Phase.CHECKPOINTING and a.order_id}
    return StatusSnapshot(
        alive, group_by_attempt(nodes), group_by_attempt(notices), save_answers_by_attempt(store, orders)
    )


class _OfAttempt(Protocol):
    @property
    def attempt(self) -> str: ...


_T = TypeVar("_T", bound=_OfAttempt)


def group_by_attempt(records: Iterable[_T]) -> dict[str, list[_T]]:
    """Return the records of each attempt, in the order in which they came."""
    groups: dict[str, list[_T]] = {}
    for record in records:
        groups.setdefault(record.attempt, []).append(record)
    return groups
