"""The history of one order's attempts: progress, what the next attempt resumes from, and failures without progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from router.controller.history.heartbeats import group_by_attempt
from router.controller.history.lifecycle import (
    GAVE_UP,
    RESUMABLE_REASONS,
    ReleaseReason,
    confirmed_manifest,
    confirmed_step,
    is_transient,
)
from router.faults.fault import REFUSED_PLACES
from router.jobs.job_json import read_job
from router.state.errors import BusyError, StateError, UnreadableError
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore

_LONGEST_PAUSE = timedelta(minutes=15)
_FIRST_PAUSE = timedelta(seconds=15)
# A shorter checkpoint interval would leave no time for training, however short the notices are.
MIN_CHECKPOINT_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The point that an attempt resumes from: the attempt before it, and the last step confirmed as saved."""

    attempt: str = ""
    step: int = 0
    manifest: str = ""


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """The attempts of one order, sorted by number; there is at least one.

    ``steps`` and ``manifests`` hold the last checkpoint that the machines of each attempt confirmed. ``transient``: the
    training of the last attempt crashed in a way that need not happen again. ``nodes``: the machines of each attempt,
    by rank.
    """

    attempts: tuple[Attempt, ...]
    steps: tuple[int, ...]
    manifests: tuple[str, ...]
    transient: bool = False
    nodes: tuple[tuple[NodeRecord, ...], ...] = ()

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def before(self) -> ResumePoint:
        """Return what the next attempt resumes from.

        That is the last confirmed step of any attempt, with the id of the attempt that may still be training.
        """
        alive = next((attempt for attempt in reversed(self.attempts) if not attempt.phase.is_over), self.last)
        return ResumePoint(alive.id, max(self.steps), self._manifest)

    @property
    def saved_by(self) -> Attempt:
        """Return the attempt in whose region the checkpoint lies that the next attempt resumes from.

        That is the attempt that saved it, or the one to whose region it was copied.
        """
        step, manifest = max(self.steps), self._manifest
        known = zip(self.attempts, self.steps, self.manifests, strict=True)
        return next((a for a, at, own_manifest in known if (at, own_manifest) == (step, manifest)), self.last)

    @property
    def _manifest(self) -> str:
        """Return the manifest of the last confirmed step, or of its newest copy; "" for a job that starts anew."""
        if not max(self.steps):
            return ""
        known = zip(reversed(self.steps), reversed(self.manifests), strict=True)
        return next(
            (own_manifest for step_at, own_manifest in known if step_at == max(self.steps) and own_manifest), ""
        )

    @property
    def in_vain(self) -> int:
        """Return how many attempts in a row, up to the last, saved nothing.

        An attempt that found no machines does not count: its place is avoided for a while and the next is tried at
        once.
        """
        return sum(attempt.reason not in REFUSED_PLACES for attempt in self._attempts_without_save)

    @property
    def has_crashed(self) -> bool:
        """Return whether the training itself ended the last attempt."""
        return self.last.reason == ReleaseReason.FAILED and self.last.met_at is not None

    @property
    def crashed_in_vain(self) -> int:
        """Return how many of the attempts without progress ended by a crash of the training itself.

        Lost machines say nothing about the training and do not count.
        """
        return sum(attempt.reason == ReleaseReason.FAILED for attempt in self._attempts_without_save)

    @property
    def _attempts_without_save(self) -> tuple[Attempt, ...]:
        with_progress = [
            n for n, (a, step) in enumerate(zip(self.attempts, self.steps, strict=True), 1) if step > a.first_step
        ]
        return self.attempts[with_progress[-1] if with_progress else 0 :]

    @property
    def again_at(self) -> datetime:
        """Return when the next attempt may start: at once, or later after several attempts without progress."""
        gone = self.last.gone_at or self.last.created_at
        if self.in_vain <= 1:
            return gone
        return gone + min(_LONGEST_PAUSE, _FIRST_PAUSE * (1 << min(self.in_vain - 2, 10)))


def history_of(store: StateStore, attempt: Attempt) -> AttemptHistory:
    history = order_history(store, attempt.plan, attempt.job, attempt.gang, attempt.start)
    assert history is not None
    return history


def order_history(store: StateStore, plan: str, job: str, gang: str, start: datetime) -> AttemptHistory | None:
    """Return the history of an order; None before its first attempt."""
    attempts = [a for a in store.attempts.find(plan=plan, job=job, gang=gang) if a.start == start]
    if not attempts:
        return None
    return _chain(attempts, {attempt.id: store.attempts.nodes(attempt.id) for attempt in attempts})


def histories_of(store: StateStore, attempts: Iterable[Attempt]) -> dict[str, AttemptHistory]:
    """Return the histories of these attempts, by attempt id.

    A job with an attempt that cannot be read has no history.
    """
    requested = tuple(attempts)
    if not requested:
        return {}
    lives, machines = store.overview.lives(attempt.job for attempt in requested)
    nodes = group_by_attempt(machines)
    orders: dict[tuple[str, str, str, datetime], list[Attempt]] = {}
    for life in lives:
        orders.setdefault(order_key(life), []).append(life)
    # A job with an unreadable attempt is left out: what it could resume from is unknown.
    chains = {order: _chain(orders[order], nodes) for order in {order_key(a) for a in requested} if order in orders}
    return {attempt.id: chains[order_key(attempt)] for attempt in requested if order_key(attempt) in chains}


def order_key(attempt: Attempt) -> tuple[str, str, str, datetime]:
    """Return what all attempts of one order share."""
    return attempt.plan, attempt.job, attempt.gang, attempt.start


def _chain(attempts_unsorted: Iterable[Attempt], nodes: Mapping[str, Sequence[NodeRecord]]) -> AttemptHistory:
    attempts = tuple(sorted(attempts_unsorted, key=lambda a: a.number))
    steps, manifests = [], []
    for attempt in attempts:
        attempt_nodes = nodes.get(attempt.id, ())
        steps.append(confirmed_step(attempt, attempt_nodes) if attempt.kept_step is None else attempt.kept_step)
        manifests.append(confirmed_manifest(attempt, attempt_nodes))
    last = attempts[-1]
    machines = tuple(tuple(nodes.get(attempt.id, ())) for attempt in attempts)
    return AttemptHistory(attempts, tuple(steps), tuple(manifests), is_transient(last, machines[-1]), machines)


def resumable_histories(store: StateStore, attempts: Sequence[Attempt], *, crashes: int) -> tuple[AttemptHistory, ...]:
    """Return the histories, among those whose newest attempt is in ``attempts`` and over, that are to resume.

    A job resumes when machines were lost, when none could be obtained, or after a crash of its training: as often as
    its ``retries`` allow, and without them if it need not happen again, fewer than ``crashes`` times without progress.
    """
    return tuple(
        chain
        for attempt_id, chain in histories_of(store, attempts).items()
        if chain.last.id == attempt_id
        and _is_over(chain)
        and (_may_crash_again(store, chain, crashes) if chain.has_crashed else _lost_its_place(chain.last))
    )


def give_up(store: StateStore, chain: AttemptHistory, reason: str, why: str, at: datetime) -> None:
    """Mark the job of a history as given up; attempts that are not over stay as they are."""

    def marked(attempt: Attempt) -> Attempt | None:
        return replace(attempt, reason=reason, message=why) if attempt.phase is Phase.FAILED else None

    store.journal.note(chain.last.id, GAVE_UP, at, why=why)
    store.attempts.update(chain.last.id, marked)


def _is_over(chain: AttemptHistory) -> bool:
    """Return whether nothing of the history runs; a gang that never came up is left to the command that applied it."""
    over = chain.last.phase is Phase.FAILED and all(attempt.phase.is_over for attempt in chain.attempts)
    return over and any(attempt.met_at is not None for attempt in chain.attempts)


def _may_crash_again(store: StateStore, chain: AttemptHistory, crashes: int) -> bool:
    job = read_job(store.plans.job(chain.last.job_digest, []))
    if job is None or job.retries is None:
        return chain.transient and chain.crashed_in_vain < crashes
    return job.retries > 0 and chain.crashed_in_vain <= job.retries


def _lost_its_place(last: Attempt) -> bool:
    # A gang that failed before all ranks met says nothing about the training.
    return last.reason in RESUMABLE_REASONS or last.reason == ReleaseReason.FAILED


def plan_time(store: StateStore, attempt: Attempt) -> datetime:
    """Return when the attempt's plan was made, which the relative times of its jobs count from.

    Without that plan, return when the attempt was created.
    """
    plan = store.plans.plan(attempt.plan)
    return attempt.created_at if plan is None else datetime.fromisoformat(json.loads(plan)["as_of"]).astimezone(UTC)


def deadline_of(store: StateStore, attempt: Attempt, skipped: list[StateError] | None = None) -> datetime | None:
    """Return the deadline of the attempt's job, or None.

    The plan says it where the job's specification is not in the state or cannot be read any more; None where it has
    none, or neither can be read. What cannot be read is added to ``skipped``. BusyError.
    """
    trouble: list[StateError] = [] if skipped is None else skipped
    unreadable: list[UnreadableError] = []
    try:
        text = store.plans.job(attempt.job_digest, unreadable)
        job = read_job(text)
        if text is not None and job is None:
            unreadable.append(UnreadableError("jobs", (attempt.job_digest,)))
        trouble += unreadable
        if job is None:
            return _planned_deadline(store, attempt)
        return None if job.deadline is None else job.deadline.at(plan_time(store, attempt))
    except BusyError:
        raise
    except StateError as error:
        trouble.append(error)
    except (ValueError, KeyError, TypeError):
        trouble.append(UnreadableError("plans", (attempt.plan,)))
    # Released machines are metered even where nobody can read any more when their job had to be done.
    return None


def _planned_deadline(store: StateStore, attempt: Attempt) -> datetime | None:
    plan = store.plans.plan(attempt.plan)
    jobs = [] if plan is None else json.loads(plan)["jobs"]
    deadline = next((job["deadline"] for job in jobs if job["job"] == attempt.job), None)
    return None if deadline is None else datetime.fromisoformat(deadline).astimezone(UTC)
