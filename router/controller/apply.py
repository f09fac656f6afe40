"""Apply an accepted plan: provision due orders in parallel, and later ones when they fall due.

Orders that are due later are provisioned only if the command stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from router.agent import protocol
from router.controller.context import MOST_THREADS, ControllerContext, apply_lock
from router.controller.history.attempt_history import history_of
from router.controller.history.lifecycle import NotReleasedError, ReleaseReason, describe_end, describe_release
from router.controller.provision.provision_order import (
    ProvisionRequest,
    ProvisionResult,
    ProvisionStatus,
    existing_result,
    fulfil_order,
    is_abandoned,
    release_half_done,
)
from router.controller.release.release import release
from router.controller.supervise.supervisor import Supervisor
from router.faults.fault import OURS
from router.state.errors import LeaseHeldError, StateError
from router.state.records import Attempt

_POLL_S = 0.25


@dataclass(slots=True)
class PlanExecution:
    """One command's work on one plan."""

    site: ControllerContext
    requests: Sequence[ProvisionRequest]
    outcomes: dict[int, ProvisionResult] = field(default_factory=dict)
    _unreleasable: set[str] = field(default_factory=set)

    def now(
        self, lock: AbstractContextManager[object], accept: Callable[[], None], interrupted: Callable[[], None]
    ) -> tuple[ProvisionResult, ...]:
        """Apply all due orders together under the ``lock`` and return their results.

        ``accept`` is called once the lock is held: it records that the plan is to be applied, or raises.
        ``interrupted`` is called when the user wants to stop; gangs that are half provisioned are then released. Raises
        HeldError when the lock is taken.
        """
        with self.site.workers.held(lock, self._lock):
            accept()
            self._release_leftovers()
            self._provision_due(range(len(self.requests)), interrupted)
        return tuple(self.outcomes[number] for number in sorted(self.outcomes))

    def stay(self, supervisor: Supervisor, interrupted: Callable[[], None]) -> tuple[ProvisionResult, ...]:
        """Watch the gangs of the plan until all are over, and return the final results.

        Releases gangs that end, replaces lost ones, provisions orders that fall due, and waits for what other commands
        provision or release. A gang that cannot be released is left as it is. Ends early when stopped; running gangs
        then keep running.
        """
        try:
            while not self.site.stop.is_set():
                found = self.site.store.attempts.find(plan=self.requests[0].plan, alive=True)
                alive = [attempt for attempt in found if attempt.id not in self._unreleasable]
                waiting = [n for n, outcome in self.outcomes.items() if outcome.result is ProvisionStatus.NOT_DUE]
                if not supervisor.reconcile(besides=self._unreleasable) and not waiting:
                    break
                for attempt in alive:
                    if not supervisor.is_busy(attempt) and is_abandoned(self.site, attempt):
                        self._release_half_done(attempt)
                due = [n for n in waiting if self._is_due(n)]
                if due and supervisor.idle:
                    with self.site.workers.held(apply_lock(self.site, within_s=math.inf), self._lock):
                        self._provision_due(due, interrupted)
                self.site.stop.wait(_POLL_S)
        except BaseException:
            if not supervisor.idle:
                self.site.stop.set()
                interrupted()
            raise
        finally:
            supervisor.close()
        return tuple(self._with_newest_attempt(self.outcomes[number]) for number in sorted(self.outcomes))

    def _lock(self) -> AbstractContextManager[object]:
        return apply_lock(self.site)

    def _is_due(self, number: int) -> bool:
        """Return whether an order that waited is to be provisioned now; one that is done meanwhile no longer waits."""
        request = self.requests[number]
        existing = existing_result(self.site, request.plan, request.order, request.planned_at)
        if existing is not None and existing.result is ProvisionStatus.DONE:
            self.outcomes[number] = existing
        return existing is None

    def _with_newest_attempt(self, outcome: ProvisionResult) -> ProvisionResult:
        if outcome.attempt is None:
            return outcome
        return replace(outcome, attempt=history_of(self.site.store, outcome.attempt).last)

    def _release_half_done(self, attempt: Attempt) -> None:
        """Release an attempt that a crashed process left half done, unless another process holds the lock."""
        with suppress(LeaseHeldError), apply_lock(self.site):
            now = self.site.store.attempts.get(attempt.id)
            if now is None or not is_abandoned(self.site, now):
                return
            try:
                release_half_done(self.site, now)
            except NotReleasedError as error:
                self.site.tell(attempt.job, f"not released: {error}")
                self._unreleasable.add(attempt.id)

    def _release_leftovers(self) -> None:
        """Release what earlier commands left: gangs that ended unwatched, and half-done attempts of other plans."""
        alive = self.site.store.attempts.find(alive=True, skipped=[])
        for attempt in alive:
            if attempt.result and attempt.phase.is_up:
                self._release_ended(attempt)
        own_jobs = {(e.plan, e.order.job) for e in self.requests}
        jobs = {e.order.job for e in self.requests}
        for attempt in alive:
            others = attempt.job not in jobs and (attempt.plan, attempt.job) not in own_jobs
            if others and is_abandoned(self.site, attempt):
                self.site.tell(attempt.job, f"releasing {attempt.id}, which was interrupted")
                try:
                    release_half_done(self.site, attempt)
                except (NotReleasedError, StateError) as error:
                    self.site.tell(attempt.job, f"not released: {error}")

    def _release_ended(self, attempt: Attempt) -> None:
        finished = attempt.result == protocol.FINISHED
        reason = ReleaseReason.FINISHED if finished else ReleaseReason.FAILED
        try:
            message = describe_end(self.site.store.attempts.nodes(attempt.id), attempt.result)
            self.site.tell(attempt.job, describe_release(attempt, reason, message))
            release(self.site, attempt, reason.value, message)
        except (NotReleasedError, StateError) as error:
            self.site.tell(attempt.job, f"not released: {error}")

    def _provision_due(self, numbers: Sequence[int], interrupted: Callable[[], None]) -> None:
        workers = self.site.workers
        with ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="gang") as pool:
            # Orders of one job run one after the other.
            by_job: dict[str, list[int]] = {}
            for number in numbers:
                by_job.setdefault(self.requests[number].order.job, []).append(number)
            pending: set[Future[None]] = {workers.submit(pool, self._provision_job, group) for group in by_job.values()}
            try:
                while pending:
                    # The wait is short so that Ctrl-C is noticed quickly.
                    done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            except BaseException:
                self.site.stop.set()
                interrupted()
                raise

    def _provision_job(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            request = self.requests[number]
            try:
                self.outcomes[number] = fulfil_order(self.site, request)
            except NotReleasedError as error:
                self.outcomes[number] = ProvisionResult(
                    request.order, ProvisionStatus.FAILED, None, f"not released: {error}", OURS
                )
