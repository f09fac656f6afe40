"""Keep gangs alive: track their phases, replace those that cannot stay, and release those that ended.

Every decision is stored before it is applied, so that the next pass can resume it. A pass is short: machines are
provisioned and released in other threads (:mod:`router.controller.context`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from router.agent import protocol
from router.agent.config import AgentConfig
from router.controller.accept.run_policies import policy_name_of
from router.controller.context import ControllerContext, WorkerPool
from router.controller.history.attempt_history import (
    AttemptHistory,
    give_up,
    histories_of,
    history_of,
    resumable_histories,
)
from router.controller.history.heartbeats import HeartbeatMonitor, StatusSnapshot, take_snapshot
from router.controller.history.lifecycle import (
    GIVEN_UP,
    GangStatus,
    NotReleasedError,
    PhaseChange,
    ReleaseDecision,
    ReleaseReason,
    describe_release,
    next_transition,
)
from router.controller.provision.data_transfer import attempts_in_preparation
from router.controller.provision.provision_order import (
    PlacedAttempt,
    ProvisionResult,
    ProvisionStatus,
    is_abandoned,
    is_half_done,
    provision_recorded,
    release_half_done,
)
from router.controller.provision.quarantine import UNHEALTHY, quarantine, quarantine_all
from router.controller.release.release import release
from router.controller.supervise.handover import hand_over, order_save
from router.controller.supervise.policy_runner import Advice, Adviser
from router.controller.supervise.replanner import (
    PendingGang,
    PlacementAccepted,
    PlacementRejected,
    ReplanAnswer,
    Replanner,
)
from router.controller.supervise.save_intervals import SaveIntervals
from router.controller.supervise.standstill_monitor import StandstillMonitor
from router.jobs.quantities import LONGEST_RUN
from router.spot.policies import Rule
from router.spot.policies.interface import MoveDecision, PolicyEvent, SaveDecision
from router.state.errors import StateError
from router.state.records import Attempt, Phase
from router.state.watchers import MARK_SECONDS

# Gangs that leave within the first number of seconds of one another are planned together; none waits longer than the
# second.
_TOGETHER_S, _AT_MOST_S = 0.5, 2.0
_SILENT_S = 2 * AgentConfig.heartbeat_seconds + 5.0
# A job that found no place asks again after this pause, or after this many times the last planning time.
_LEAST_PAUSE_S, _SHARE = 2.0, 10.0
_REASONS = {PolicyEvent.REBALANCE: protocol.REBALANCE, PolicyEvent.MAINTENANCE: protocol.MAINTENANCE}
_OVER = (ReleaseReason.FINISHED, ReleaseReason.FAILED, ReleaseReason.GIVEN_UP)


@dataclass(slots=True)
class Supervisor:
    """Keeps the gangs of a site, or of one ``plan``, alive.

    One thread calls :meth:`reconcile` repeatedly, and :meth:`close` at the end. ``lock``: the lock of whoever applies.
    """

    site: ControllerContext
    replanner: Replanner
    adviser: Adviser
    lock: Callable[[], AbstractContextManager[object]]
    plan: str | None = None
    _heartbeats: HeartbeatMonitor = field(init=False)
    _work: WorkerPool = field(init=False)
    _intervals: SaveIntervals = field(init=False)
    _standstills: StandstillMonitor = field(init=False)
    _leaving: dict[str, float] = field(default_factory=dict)
    _last_reasons: dict[str, str] = field(default_factory=dict)
    _unreadable: set[tuple[str, ...]] = field(default_factory=set)
    _not_before: dict[str, float] = field(default_factory=dict)
    _marked_at: float | None = None

    def __post_init__(self) -> None:
        self._heartbeats = HeartbeatMonitor(self.site.deploy.timeouts.lost.total_seconds())
        self._work = WorkerPool(self.site, self.lock)
        self._intervals = SaveIntervals(self.site, self.replanner)
        self._standstills = StandstillMonitor(self.site)

    def is_busy(self, attempt: Attempt) -> bool:
        """Return whether an action for the attempt's job is under way."""
        return self._work.is_busy(attempt.job)

    @property
    def idle(self) -> bool:
        """Return whether nothing is being provisioned or released."""
        return self._work.idle

    def reconcile(self, besides: Collection[str] = ()) -> bool:
        """Make one pass, and return whether anything is left to look after.

        The attempts ``besides`` are ignored. StateError.
        """
        self._work.reap()
        self._mark_watched()
        now = take_snapshot(self.site.store, self.plan)
        self._report_unreadable()
        theirs = self._jobs_of_others(now.alive)
        alive = [attempt for attempt in now.alive if attempt.id not in besides and attempt.job not in theirs]
        leaving = self._observe(alive, now)
        self._standstills.reconcile([a for a in alive if not self._work.is_busy(a.job)], now.nodes)
        waiting = self._waiting()
        self._prune({a.id for a in now.alive}, {a.job for a in (*now.alive, *(c.last for c in waiting))})
        advised = self.adviser.advise([a for a in alive if not self._work.is_busy(a.job)], now)
        moving = self._start_migrations(
            [one for one in advised if isinstance(one.decision, MoveDecision) and one.decision.to]
        )
        for advice in advised:
            if advice.attempt.id not in moving:
                self._apply_advice(advice)
        self._intervals.adapt([a for a in alive if not self._work.is_busy(a.job)], now.nodes)
        abandoned = [a for a in alive if is_half_done(a) and not self._work.is_busy(a.job) and self._is_mine(a)]
        due = [chain for chain in waiting if self._is_due(chain)]
        if (leaving or due or abandoned) and self._work.holds():
            self._release_orphans(abandoned)
            for attempt, leave in leaving:
                if leave.reason in _OVER:
                    self.site.tell(attempt.job, describe_release(attempt, leave.reason, leave.message))
                    self._work.begin(attempt.job, partial(self._release, attempt, leave))
            # The jobs are read again, because another process may have given them up, or replaced them, before.
            due = [chain for chain in self._waiting() if self._is_due(chain)] if due else []
            self._replace_gangs([one for one in leaving if one[1].reason not in _OVER], due)
            self._work.rest()
        return bool(alive or waiting) or not self._work.idle

    def _jobs_of_others(self, alive: Sequence[Attempt]) -> set[str]:
        """Return the jobs that other processes copy data for: their gangs are the others' business."""
        planned = [a for a in alive if a.phase is Phase.PLANNED and not self._work.is_busy(a.job)]
        prepared = attempts_in_preparation(self.site) if planned else {}
        return {attempt.job for attempt in planned if attempt.id in prepared}

    def _report_unreadable(self) -> None:
        bad = {error.key: error for error in self.site.store.overview.unreadable}
        for key in sorted(bad.keys() - self._unreadable):
            self.site.tell(key[0], f"{bad[key]} ({bad[key].remedy})")
        self._unreadable = set(bad)

    def close(self) -> None:
        """Wait for what is being provisioned and released; with ``site.stop`` set, provisioning ends soon."""
        self._work.finish()
        with suppress(StateError):
            self.site.store.watchers.unmark(self.plan)

    def _mark_watched(self) -> None:
        if self._marked_at is None or time.monotonic() - self._marked_at >= MARK_SECONDS:
            self._marked_at = time.monotonic()
            self.site.store.watchers.mark(self.plan, self.site.wall_clock())

    def _prune(self, attempts: Collection[str], jobs: Collection[str]) -> None:
        """Forget everything about other attempts and jobs, because a supervisor may run for months."""
        self._heartbeats.forget_but(attempts)
        self._standstills.forget_but(attempts)
        self._leaving = {name: at for name, at in self._leaving.items() if name in attempts}
        self._last_reasons = {
            key: why for key, why in self._last_reasons.items() if key in jobs or self._work.is_busy(key)
        }
        self._not_before = {key: at for key, at in self._not_before.items() if key in jobs or self._work.is_busy(key)}

    def _waiting(self) -> Sequence[AttemptHistory]:
        now = self.site.clock()
        since = now - self.site.deploy.timeouts.retry_for
        # A job whose policy waits for spot may wait for a long time.
        gone = self.site.store.attempts.ended_last(now - LONGEST_RUN)
        found = [
            a
            for a in gone
            if (a.gone_at or now) >= since
            or (policy_name_of(a, self.site.deploy) != Rule.GREEDY and self.replanner.has_time(a))
        ]
        ended = [a for a in found if self.plan in (None, a.plan) and not self._work.is_busy(a.job)]
        return resumable_histories(self.site.store, ended, crashes=self.site.deploy.timeouts.max_crashes)

    def _observe(self, alive: Sequence[Attempt], now: StatusSnapshot) -> list[tuple[Attempt, ReleaseDecision]]:
        """Apply phase changes at once, and return the attempts that are to be released."""
        leaving, turns = [], []
        for attempt in alive:
            if not attempt.phase.is_up or self._work.is_busy(attempt.job):
                continue
            step = next_transition(self._gang_status(attempt, now))
            if isinstance(step, ReleaseDecision):
                leaving.append((attempt, step))
            elif isinstance(step, PhaseChange):
                turns.append((attempt, step))
        after = self.site.store.attempts.update_all(
            {a.id: partial(_change_phase, a.phase, turn.phase) for a, turn in turns}
        )
        for attempt, turn in turns:
            if after[attempt.id].phase is turn.phase:
                self.site.tell(attempt.job, turn.text)
        return leaving

    def _gang_status(self, attempt: Attempt, now: StatusSnapshot) -> GangStatus:
        nodes, notices = now.nodes.get(attempt.id, ()), now.notices.get(attempt.id, ())
        ordered_s = None
        saved, refused = None, ""
        if attempt.id in now.answers and attempt.ordered_at is not None:
            ordered_s = (self.site.wall_clock() - attempt.ordered_at).total_seconds()
            answers = now.answers[attempt.id]
            saved = answers.step
            if len(answers.failed) == attempt.machines:
                rank, why = min(answers.failed.items())
                refused = f"rank {rank}: {why}"
        up_s = 0.0 if attempt.met_at is None else (self.site.clock() - attempt.met_at).total_seconds()
        # After a crash the other ranks stop as they are told, so a silent rank is recognised sooner.
        lost = self._heartbeats.lost(attempt, nodes, _SILENT_S if attempt.result else None)
        last_move = attempt.order_reason == protocol.STANDSTILL and self._standstills.is_last_move(attempt)
        return GangStatus(attempt, nodes, notices, lost, up_s, ordered_s, saved, refused, last_move)

    def _is_mine(self, attempt: Attempt) -> bool:
        """Return whether the half-done attempt is the supervisor's to release.

        It is if it was being released, or was to resume from an attempt that came up. Anything else that never came up
        is left to the process that applied the plan.
        """
        if attempt.phase is Phase.RELEASING:
            return True
        return any(a.met_at is not None for a in history_of(self.site.store, attempt).attempts)

    def _apply_advice(self, advice: Advice) -> None:
        """Order the checkpoint that the policy wants; a gang that is to move saves first and is released then."""
        attempt, decision = advice.attempt, advice.decision
        if not isinstance(decision, SaveDecision | MoveDecision) or (
            isinstance(decision, MoveDecision) and decision.keep
        ):
            return
        notice = advice.notice
        name = f"{advice.event.value}-{attempt.version}" if notice is None else notice.id
        phase = (
            Phase.CHECKPOINTING
            if isinstance(decision, MoveDecision) or advice.event is PolicyEvent.HEALTH
            else attempt.phase
        )
        if not order_save(self.site, attempt, name, _REASONS.get(advice.event, protocol.ORDERED), phase):
            return
        self.site.store.journal.note(
            attempt.id, "advised", self.site.clock(), event=advice.event.value, why=decision.why
        )
        what = "is to save and move" if phase is Phase.CHECKPOINTING else "is to save"
        self.site.tell(attempt.job, f"{attempt.id} {what}: {advice.event.value}, {decision.why}")
        if advice.event is PolicyEvent.HEALTH and notice is not None:
            quarantine(self.site, attempt, (notice.rank,), UNHEALTHY)

    def _start_migrations(self, advised: Sequence[Advice]) -> set[str]:
        """Start voluntary moves, and return the attempts whose next gang is being provisioned while they run.

        A gang does not move where no placement is available, or while another process holds the lock. Moves away from
        unhealthy machines do not wait for the next gang and are left out.
        """
        moves = [one for one in advised if one.event is not PolicyEvent.HEALTH]
        if not moves or not self._work.holds():
            return set()
        for one in moves:
            if one.notice is not None:
                quarantine(self.site, one.attempt, (one.notice.rank,), one.event.value)
        chains = histories_of(self.site.store, [one.attempt for one in moves])
        pending = [PendingGang(chains[one.attempt.id], None, _move(one)) for one in moves]
        answers = self.replanner.replan(pending)
        answered = zip(moves, pending, answers, strict=True)
        accepted = [(one, want, go) for one, want, go in answered if isinstance(go, PlacementAccepted)]
        self._mark_migrating(
            [
                (one.attempt, ReleaseDecision(ReleaseReason.MOVED, f"{one.event.value}: {one.decision.why}"))
                for one, _, _ in accepted
            ]
        )
        going = set()
        placed = self.replanner.placed([(want, go) for _, want, go in accepted])
        for (one, _, go), new in zip(accepted, placed, strict=True):
            if isinstance(new, PlacedAttempt):
                going.add(one.attempt.id)
                self._work.begin(one.attempt.job, partial(self._hand_over, one.attempt, go, new))
            else:
                self._abort_migration(one.attempt)
        return going

    def _hand_over(self, attempt: Attempt, go: PlacementAccepted, placed: PlacedAttempt) -> None:
        def release_old_gang() -> None:
            now = self.site.store.attempts.get(attempt.id) or attempt
            hand_over(self.site, now, placed.attempt, now.reason, now.message, go.request.book)

        outcome = provision_recorded(self.site, go.request, placed, release_old_gang)
        if outcome.result is ProvisionStatus.READY:
            step = outcome.attempt.first_step if outcome.attempt is not None else 0
            self.site.tell(attempt.job, f"{placed.attempt.id} took over from {attempt.id} after step {step}")
        else:
            self._abort_migration(attempt)

    def _abort_migration(self, attempt: Attempt) -> None:
        def stays(current: Attempt) -> Attempt | None:
            if current.phase is not Phase.MIGRATING:
                return None
            return replace(current, phase=attempt.phase, reason="", message="")

        now = self.site.store.attempts.update(attempt.id, stays)
        if now.phase.is_up:
            self.site.tell(attempt.job, f"{attempt.id} stays where it is")

    def _release_orphans(self, abandoned: Sequence[Attempt]) -> None:
        for attempt in abandoned:
            now = self.site.store.attempts.get(attempt.id)
            if now is not None and is_abandoned(self.site, now):
                self.site.tell(now.job, f"releasing {now.id}, which was interrupted")
                self._work.begin(now.job, partial(release_half_done, self.site, now))

    def _replace_gangs(self, leaving: Sequence[tuple[Attempt, ReleaseDecision]], due: Sequence[AttemptHistory]) -> None:
        now = time.monotonic()
        self._mark_migrating([pair for pair in leaving if pair[0].id not in self._leaving])
        since = [self._leaving.setdefault(attempt.id, now) for attempt, _ in leaving]
        if since and now - max(since) < _TOGETHER_S and now - min(since) < _AT_MOST_S:
            return
        read = self.site.store.overview.attempts(attempt.id for attempt, _ in leaving)
        going = [read[attempt.id] for attempt, _ in leaving if read[attempt.id].phase.is_up]
        chains = histories_of(self.site.store, going)
        pending = [PendingGang(chains[attempt.id], attempt) for attempt in going]
        pending += [PendingGang(chain) for chain in due]
        if not pending:
            return
        began = time.monotonic()
        answers = self.replanner.replan(pending)
        took = time.monotonic() - began
        for want in pending:
            if want.leaving is not None:
                self._leaving.pop(want.leaving.id, None)
        self._carry_out(list(zip(pending, answers, strict=True)), max(_LEAST_PAUSE_S, _SHARE * took))

    def _is_due(self, chain: AttemptHistory) -> bool:
        """Return whether a job that found no place asks again: after a moment, or later where planning takes long."""
        if chain.again_at > self.site.clock():
            return False
        return self._not_before.get(chain.last.job, 0.0) <= time.monotonic()

    def _mark_migrating(self, leaving: Sequence[tuple[Attempt, ReleaseDecision]]) -> None:
        after = self.site.store.attempts.update_all({a.id: partial(_start_migrating, leave) for a, leave in leaving})
        new = [
            (attempt, leave)
            for attempt, leave in leaving
            if attempt.phase is not Phase.MIGRATING and after[attempt.id].phase is Phase.MIGRATING
        ]
        notes = [(a.id, {"reason": leave.reason.value, "why": leave.message}) for a, leave in new]
        self.site.store.journal.note_all(notes, "leaving", self.site.clock())
        if losses := [(a, leave) for a, leave in new if leave.ranks]:
            nodes = self.site.store.overview.nodes(attempt.id for attempt, _ in losses)
            quarantine_all(self.site, [(a, nodes.get(a.id, ()), lv.ranks, lv.reason.value) for a, lv in losses])
        for attempt, leave in new:
            self.site.tell(attempt.job, f"{attempt.id}: {leave.message}")

    def _carry_out(self, answered: Sequence[tuple[PendingGang, ReplanAnswer]], pause_s: float) -> None:
        """Record all new attempts before any of them is provisioned."""
        going = [(want, answer) for want, answer in answered if isinstance(answer, PlacementAccepted)]
        placed = dict(zip((want.last.job for want, _ in going), self.replanner.placed(going), strict=True))
        for want, answer in answered:
            key = want.last.job
            new = placed.get(key)
            if isinstance(answer, PlacementAccepted) and isinstance(new, PlacedAttempt):
                self._last_reasons.pop(key, None)
                self._work.begin(key, partial(self._replace, want, answer, new))
            else:
                why = new.message if isinstance(new, ProvisionResult) else getattr(answer, "why", "")
                self._not_before[key] = time.monotonic() + pause_s
                self._handle_no_place(want, why, never=isinstance(answer, PlacementRejected))

    def _handle_no_place(self, want: PendingGang, why: str, *, never: bool) -> None:
        """Handle a job without a place: it waits, or with ``never`` is given up."""
        key = want.last.job
        if want.leaving is not None:
            # The gang is released in any case: it cannot stay here.
            self._work.begin(key, partial(self._release, want.leaving, None))
        elif never:
            give_up(self.site.store, want.chain, GIVEN_UP, why, self.site.clock())
        if self._last_reasons.get(key) != why:
            self._last_reasons[key] = why
            self.site.tell(want.last.job, why if never else f"waits for a place: {why}")

    def _release(self, attempt: Attempt, leave: ReleaseDecision | None) -> None:
        now = self.site.store.attempts.get(attempt.id)
        if now is None:
            return
        reason, message = (leave.reason.value, leave.message) if leave else (now.reason, now.message)
        release(self.site, now, reason or ReleaseReason.MOVED.value, message)

    def _replace(self, want: PendingGang, go: PlacementAccepted, placed: PlacedAttempt) -> None:
        try:
            if want.leaving is not None:
                self._release(want.leaving, None)
        except NotReleasedError:
            # Two gangs of one job never train at the same time, so the next try begins with this gang's release.
            release_half_done(self.site, placed.attempt)
            raise
        outcome = provision_recorded(self.site, go.request, placed, None)
        if outcome.result is ProvisionStatus.READY:
            step = outcome.attempt.first_step if outcome.attempt is not None else 0
            self.site.tell(want.last.job, f"all ranks of {placed.attempt.id} met, the job resumes after step {step}")


def _change_phase(before: Phase, after: Phase, attempt: Attempt) -> Attempt | None:
    return replace(attempt, phase=after) if attempt.phase is before else None


def _start_migrating(leave: ReleaseDecision, attempt: Attempt) -> Attempt | None:
    if not attempt.phase.is_up or attempt.phase is Phase.MIGRATING:
        return None
    return replace(attempt, phase=Phase.MIGRATING, reason=leave.reason.value, message=leave.message)


def _move(advice: Advice) -> MoveDecision:
    assert isinstance(advice.decision, MoveDecision)
    return advice.decision
