"""An accepted plan, carried out: what is due at once, side by side; then, if somebody stays, the rest when it is
due."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from router.agent import states
from router.controller.attempt_history import chain_of
from router.controller.causes import Cause
from router.controller.context import Site
from router.controller.errors import NotReleasedError
from router.controller.lifecycle import Reason, how_it_ended
from router.controller.provision_order import (
    Errand,
    Outcome,
    Result,
    carry_out,
    is_interrupted,
    release_interrupted,
    standing,
)
from router.controller.release import release
from router.controller.supervisor import Watcher
from router.controller.worker_pool import one_at_a_time
from router.state.errors import HeldError, StateError
from router.state.records import Attempt

_POLL_S = 0.25


@dataclass(slots=True)
class Applying:
    """One command's work on one plan."""

    site: Site
    errands: Sequence[Errand]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    _given_up: set[str] = field(default_factory=set)

    def now(
        self, lock: AbstractContextManager[object], accept: Callable[[], None], interrupted: Callable[[], None]
    ) -> tuple[Outcome, ...]:
        """Carries out what is due, the whole lot under the ``lock``. ``accept`` is called once it is had: it writes
        down that this is to be done, or raises. ``interrupted`` is called when the user wants to stop: what is half
        made is then released. HeldError."""
        with lock:
            accept()
            self._tidy()
            self._carry_out(range(len(self.errands)), interrupted)
        return tuple(self.outcomes[number] for number in sorted(self.outcomes))

    def stay(self, watcher: Watcher, interrupted: Callable[[], None]) -> tuple[Outcome, ...]:
        """Until every gang of the plan is over: releases what ends, makes again what is lost, makes what becomes due,
        waits for what others are making or releasing. What cannot be released is left as it is. Ends early when
        stopped; what runs then goes on running."""
        try:
            while not self.site.stop.is_set():
                alive = [a for a in self._alive() if a.id not in self._given_up]
                waiting = [n for n, outcome in self.outcomes.items() if outcome.result is Result.NOT_DUE]
                if not watcher.look(besides=self._given_up) and not waiting:
                    break
                for attempt in alive:
                    if is_interrupted(attempt) and not watcher.is_busy(attempt):
                        self._end(attempt)
                due = [n for n in waiting if standing(self.site, self.errands[n].plan, self.errands[n].order) is None]
                if due and watcher.idle:
                    with one_at_a_time(self.site, within_s=math.inf):
                        self._carry_out(due, interrupted)
                self.site.stop.wait(_POLL_S)
        except BaseException:
            if not watcher.idle:
                self.site.stop.set()
                interrupted()
            raise
        finally:
            watcher.close()
        return tuple(self._as_it_is_now(self.outcomes[number]) for number in sorted(self.outcomes))

    def _as_it_is_now(self, outcome: Outcome) -> Outcome:
        """With the last of the gangs that the order had."""
        if outcome.attempt is None:
            return outcome
        return replace(outcome, attempt=chain_of(self.site.store, outcome.attempt).last)

    def _alive(self) -> list[Attempt]:
        return list(self.site.store.attempts(plan=self.errands[0].plan, alive=True))

    def _end(self, attempt: Attempt) -> None:
        """What stands between two states while nobody is at work was left so; while somebody is, it is theirs."""
        with suppress(HeldError), one_at_a_time(self.site):
            now = self.site.store.attempt(attempt.id)
            if now is None or not is_interrupted(now):
                return
            try:
                release_interrupted(self.site, now)
            except NotReleasedError as error:
                self.site.tell(attempt.job, f"not released: {error}")
                self._given_up.add(attempt.id)

    def _tidy(self) -> None:
        """What earlier commands left: gangs that ended while nobody watched, attempts of other plans that were
        interrupted."""
        alive = self.site.store.attempts(alive=True, skipped=[])
        for attempt in alive:
            if attempt.result and attempt.phase.is_up:
                self._ended(attempt)
        mine = {(e.plan, e.order.job) for e in self.errands}
        jobs = {e.order.job for e in self.errands}
        for attempt in alive:
            if is_interrupted(attempt) and attempt.job not in jobs and (attempt.plan, attempt.job) not in mine:
                self.site.tell(attempt.job, f"releasing {attempt.id}, which was interrupted")
                try:
                    release_interrupted(self.site, attempt)
                except (NotReleasedError, StateError) as error:
                    self.site.tell(attempt.job, f"not released: {error}")

    def _ended(self, attempt: Attempt) -> None:
        fine = attempt.result == states.FINISHED
        reason = Reason.FINISHED if fine else Reason.FAILED
        self.site.tell(attempt.job, f"{attempt.id} {attempt.result}, releasing its machines")
        try:
            nodes = self.site.store.nodes(attempt.id)
            release(self.site, attempt, reason.value, how_it_ended(nodes, attempt.result))
        except (NotReleasedError, StateError) as error:
            self.site.tell(attempt.job, f"not released: {error}")

    def _carry_out(self, numbers: Sequence[int], interrupted: Callable[[], None]) -> None:
        with ThreadPoolExecutor(self.site.deploy.parallel, thread_name_prefix="gang") as pool:
            # The stretches of one job come one after the other.
            by_job: dict[str, list[int]] = {}
            for number in numbers:
                by_job.setdefault(self.errands[number].order.job, []).append(number)
            pending: set[Future[None]] = {pool.submit(self._one_job, group) for group in by_job.values()}
            try:
                while pending:
                    # A short wait, so that Ctrl-C is heard.
                    done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            except BaseException:
                self.site.stop.set()
                interrupted()
                raise

    def _one_job(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            errand = self.errands[number]
            try:
                self.outcomes[number] = carry_out(self.site, errand)
            except NotReleasedError as error:
                self.outcomes[number] = Outcome(errand.order, Result.FAILED, None, f"not released: {error}", Cause.HERE)
