"""Find gangs whose training stands still, and what the order of a gang agreed to and has cost. Pure but for a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from pricing.money import ZERO, Usd
from router.agent import protocol
from router.jobs.job_json import read_job
from router.jobs.spec import Job
from router.jobs.standstill import Standstill, StandstillFinding, TrainingSigns, TrainingTerms, find_standstill
from router.state.records import Attempt, NodeRecord, Phase

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
