"""Observe gangs: their state in a few queries, ranks without a heartbeat, slow steps, trainings that stand still."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol, TypeVar

from pricing.money import ZERO, Usd
from router.agent import protocol
from router.coordinator.saves import SaveAnswers, save_answers_by_attempt
from router.jobs.job_json import read_job
from router.jobs.spec import Job
from router.jobs.standstill import Standstill, StandstillFinding, TrainingSigns, TrainingTerms, find_standstill
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


# The word of the journal for a training that stands still; also the reason of an attempt that was released for it.
STANDSTILL = protocol.STANDSTILL
_TRAINING_PHASES = (Phase.READY, Phase.RESUMING, Phase.RUNNING)
# How long a training may take to save before it is stopped, beyond twice the time of a checkpoint, in seconds; and how
# long its agents have to keep the stacks of one that never said anything.
_SAVES_WITHIN_S, _STACKS_WITHIN_S = 60.0, 10.0
_USUAL_START = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class GangStandstill:
    """A gang whose training stands still, and what is to be done: ``rule`` is the job's, or the deploy file's."""

    finding: StandstillFinding
    rule: Standstill
    saves_within_s: float

    @property
    def is_to_leave(self) -> bool:
        """Return whether the gang is to be replaced, or its job to fail."""
        return self.rule.action == "replace" and self.finding.is_certain


def find_gang_standstill(
    attempt: Attempt, nodes: Sequence[NodeRecord], job_text: str | None, default: Standstill
) -> GangStandstill | None:
    """Return what stands still of a gang that trains; None where it goes on, or nobody can tell."""
    training = [node for node in nodes if node.agent == protocol.RUNNING]
    heard = [node.heard_at for node in training if node.heard_at is not None]
    is_open = attempt.phase in _TRAINING_PHASES or attempt.order_reason == STANDSTILL
    if not is_open or attempt.met_at is None or attempt.result or len(heard) < max(len(training), 1):
        return None
    job, rule = _read_job(job_text), rule_of(job_text, default)
    save = timedelta(0)
    if job is not None and job.checkpoint is not None:
        save = timedelta(seconds=job.checkpoint.size_gib / job.checkpoint.write_gib_per_s)
    finding = find_standstill(_signs(attempt, nodes, min(heard)), _terms(attempt, job, save), rule)
    if finding is None:
        return None
    spoke = any(node.step is not None or node.saved_step is not None for node in nodes)
    return GangStandstill(finding, rule, _SAVES_WITHIN_S + 2 * save.total_seconds() if spoke else _STACKS_WITHIN_S)


def rule_of(job_text: str | None, default: Standstill) -> Standstill:
    """Return the job's own rule, else the ``default`` of the deploy file."""
    job = _read_job(job_text)
    return default if job is None or job.standstill is None else job.standstill


def agreed_cost(attempts: Sequence[Attempt]) -> Usd:
    """Return what was agreed to for an order: the most that its gang may cost where it was to begin.

    What an attempt after it may cost is no new agreement.
    """
    return max((attempt.at_risk_usd for attempt in attempts if not attempt.resumes), default=ZERO)


def _signs(attempt: Attempt, nodes: Sequence[NodeRecord], heard: datetime) -> TrainingSigns:
    steps = [node.step for node in nodes if node.step is not None]
    times = [at for node in nodes for at in (node.progress_at, node.saved_at) if at is not None]
    paces = [node.step_seconds for node in nodes if node.step_seconds]
    assert attempt.met_at is not None
    return TrainingSigns(
        attempt.met_at, heard, max(steps, default=None), max(times, default=None), max(paces, default=None)
    )


def _terms(attempt: Attempt, job: Job | None, save: timedelta) -> TrainingTerms:
    if job is None:
        return TrainingTerms(_USUAL_START, save)
    done = max(attempt.first_step, job.status.steps_done if job.status else 0)
    planned = attempt.planned_time.total_seconds() / max(job.steps - done, 1)
    return TrainingTerms(job.restart_time if attempt.first_step else job.start_time, save, planned, job.steps)


@lru_cache(maxsize=4096)
def _read_job(text: str | None) -> Job | None:
    return read_job(text)
