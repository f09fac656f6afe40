"""Staying with gangs: what their ranks and clouds say becomes their phase; those that cannot stay are saved, released
and made again elsewhere; those that ended are released.

Everything that was decided is in the state before it is done, so that whoever looks next goes on from there. A pass is
short: machines are made and released beside it (:mod:`router.running.work`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from router.agent import control
from router.agent.config import Config
from router.coordinator.saves import saved_for
from router.quoting.policy import Event, Move, Save
from router.running.advising import Advice, Adviser
from router.running.chains import Chain, chain_of, give_up, waits
from router.running.deploying import Placed, Result, is_interrupted, make_placed, release_interrupted
from router.running.handing import hand_over, order_save
from router.running.lifecycle import Leave, Reason, Seen, Turn, next_step
from router.running.quarantine import quarantine
from router.running.recovering import Go, Never, Replanner, Wanting
from router.running.release import NotReleasedError, release
from router.running.silence import Silence
from router.running.site import Site
from router.running.work import Work
from router.state.records import Attempt, NoticeRecord, Phase

# Gangs that leave within so many seconds of one another are planned together; nobody waits longer than the second.
_TOGETHER_S, _AT_MOST_S = 0.5, 2.0
_SILENT_S = 2 * Config.heartbeat_seconds + 5.0
_SET_BACK = timedelta(hours=1)
_REASONS = {Event.REBALANCE: control.REBALANCE, Event.MAINTENANCE: control.MAINTENANCE}
_OVER = (Reason.FINISHED, Reason.FAILED)
GIVEN_UP = "given_up"


@dataclass(slots=True)
class Watcher:
    """Looks after the gangs of a site, or of one ``plan``. One thread calls :meth:`look`, again and again, and
    :meth:`close` at the end. ``lock``: that of whoever applies."""

    site: Site
    replanner: Replanner
    adviser: Adviser
    lock: Callable[[], AbstractContextManager[object]]
    plan: str | None = None
    _silence: Silence = field(init=False)
    _work: Work = field(init=False)
    _leaving: dict[str, float] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._silence = Silence(self.site.deploy.patience.lost.total_seconds())
        self._work = Work(self.site, self.lock)

    def is_busy(self, attempt: Attempt) -> bool:
        """Whether something is being done about its job."""
        return self._work.is_busy(_key(attempt))

    @property
    def idle(self) -> bool:
        """Whether nothing is being made or released."""
        return self._work.idle

    def look(self, besides: Collection[str] = ()) -> bool:
        """One pass; whether there is anything left to look after, ``besides`` these attempts. StateError."""
        self._work.reap()
        # Read before the attempts, so that what a notice changed of its attempt is seen with it.
        notices = self._notices(self._alive())
        alive = [attempt for attempt in self._alive() if attempt.id not in besides]
        leaving = [found for a in alive if a.phase.is_up and (found := self._looked_at(a, notices.get(a.id, ())))]
        waiting = waits(self.site.store, self._ended(), crashes=self.site.deploy.patience.crashes)
        for advice in self.adviser.advise([a for a in alive if not self._work.is_busy(_key(a))], notices):
            self._heed(advice)
        abandoned = [a for a in alive if is_interrupted(a) and not self._work.is_busy(_key(a)) and self._is_mine(a)]
        if (leaving or waiting or abandoned) and self._work.holds():
            self._tidy(abandoned)
            self._end([one for one in leaving if one[1].reason in _OVER])
            self._go_on([one for one in leaving if one[1].reason not in _OVER], waiting)
        return bool(alive or waiting) or not self._work.idle

    def close(self) -> None:
        """Waits for what is being made and released; with ``site.stop`` set, making ends soon."""
        self._work.finish()

    def _alive(self) -> list[Attempt]:
        return list(self.site.store.attempts(plan=self.plan, alive=True))

    def _ended(self) -> list[Attempt]:
        now = self.site.clock()
        found = self.site.store.ended_last(now - self.site.deploy.patience.again)
        return [a for a in found if self.plan in (None, a.plan) and not self._work.is_busy(_key(a))]

    def _notices(self, alive: Sequence[Attempt]) -> dict[str, list[NoticeRecord]]:
        found: dict[str, list[NoticeRecord]] = {}
        first = min((a.created_at for a in alive if a.phase.is_up), default=None)
        # Clocks may have been set back since.
        for notice in self.site.store.notices(since=first - _SET_BACK) if first is not None else ():
            found.setdefault(notice.attempt, []).append(notice)
        return found

    def _looked_at(self, attempt: Attempt, notices: Sequence[NoticeRecord]) -> tuple[Attempt, Leave] | None:
        """Turns are done at once; who leaves is said."""
        if self._work.is_busy(_key(attempt)):
            return None
        step = next_step(self._seen(attempt, notices))
        if isinstance(step, Leave):
            return attempt, step
        if isinstance(step, Turn):
            before, phase = attempt.phase, step.phase
            now = self.site.store.update(attempt.id, lambda a: replace(a, phase=phase) if a.phase is before else None)
            if now.phase is phase:
                self.site.tell(attempt.job, step.text)
        return None

    def _seen(self, attempt: Attempt, notices: Sequence[NoticeRecord]) -> Seen:
        store = self.site.store
        nodes = store.nodes(attempt.id)
        ordered_s = None
        saved, refused = None, ""
        if attempt.order_id and attempt.ordered_at is not None and attempt.phase is Phase.CHECKPOINTING:
            ordered_s = (self.site.wall_clock() - attempt.ordered_at).total_seconds()
            answers = saved_for(store, attempt.id, attempt.order_id)
            saved = answers.step
            if len(answers.failed) == attempt.machines:
                rank, why = min(answers.failed.items())
                refused = f"rank {rank}: {why}"
        up_s = 0.0 if attempt.met_at is None else (self.site.clock() - attempt.met_at).total_seconds()
        # While the others of a training that crashed stop as they are told, who says nothing is known sooner.
        lost = self._silence.lost(attempt, nodes, _SILENT_S if attempt.result else None)
        return Seen(attempt, nodes, notices, lost, up_s, ordered_s, saved, refused)

    def _is_mine(self, attempt: Attempt) -> bool:
        """Whether it was to go on from an attempt that came up: what never did is for whoever applied the plan."""
        return any(a.met_at is not None for a in chain_of(self.site.store, attempt).attempts)

    def _heed(self, advice: Advice) -> None:
        """A checkpoint that the policy wants is ordered; a gang that is to move saves first, then leaves."""
        attempt, decision = advice.attempt, advice.decision
        if not isinstance(decision, Save | Move):
            return
        if isinstance(decision, Move) and advice.event is not Event.HEALTH and self._moved(advice, decision):
            return
        notice = advice.notice
        name = f"{advice.event.value}-{attempt.version}" if notice is None else notice.id
        phase = Phase.CHECKPOINTING if isinstance(decision, Move) or advice.event is Event.HEALTH else attempt.phase
        if not order_save(self.site, attempt, name, _REASONS.get(advice.event, control.ORDERED), phase):
            return
        self.site.store.note(attempt.id, "advised", self.site.clock(), event=advice.event.value, why=decision.why)
        what = "is to save and move" if phase is Phase.CHECKPOINTING else "is to save"
        self.site.tell(attempt.job, f"{attempt.id} {what}: {advice.event.value}, {decision.why}")
        if advice.event is Event.HEALTH and notice is not None:
            quarantine(self.site, attempt, (notice.rank,), "unhealthy")

    def _moved(self, advice: Advice, decision: Move) -> bool:
        """Whether its next gang is being made while it goes on; not where none can be had, or others are at work."""
        attempt = advice.attempt
        if not self._work.holds():
            return False
        if advice.notice is not None:
            quarantine(self.site, attempt, (advice.notice.rank,), advice.event.value)
        want = Wanting(chain_of(self.site.store, attempt), None, frozenset(decision.to))
        (answer,) = self.replanner.replan([want])
        if not isinstance(answer, Go):
            return False
        self._migrate(attempt, Leave(Reason.MOVED, f"{advice.event.value}: {decision.why}"))
        placed = self.replanner.placed(want, answer)
        if not isinstance(placed, Placed):
            self._stays(attempt)
            return False
        self._work.begin(_key(attempt), partial(self._hand_over, attempt, answer, placed))
        return True

    def _hand_over(self, attempt: Attempt, go: Go, placed: Placed) -> None:
        """The new gang comes; when it is whole, the old one saves and goes."""

        def whole() -> None:
            now = self.site.store.attempt(attempt.id) or attempt
            hand_over(self.site, now, placed.attempt, now.reason, now.message)

        outcome = make_placed(self.site, go.errand, placed, whole)
        if outcome.result is Result.READY:
            step = outcome.attempt.first_step if outcome.attempt is not None else 0
            self.site.tell(attempt.job, f"{placed.attempt.id} took over from {attempt.id} after step {step}")
        else:
            self._stays(attempt)

    def _stays(self, attempt: Attempt) -> None:
        def stays(current: Attempt) -> Attempt | None:
            if current.phase is not Phase.MIGRATING:
                return None
            return replace(current, phase=attempt.phase, reason="", message="")

        now = self.site.store.update(attempt.id, stays)
        if now.phase.is_up:
            self.site.tell(attempt.job, f"{attempt.id} stays where it is")

    def _tidy(self, abandoned: Sequence[Attempt]) -> None:
        """What stands between two states while nobody is at work was left so by a crash."""
        for attempt in abandoned:
            now = self.site.store.attempt(attempt.id)
            if now is not None and is_interrupted(now):
                self.site.tell(now.job, f"releasing {now.id}, which was interrupted")
                self._work.begin(_key(now), partial(_released, self.site, now))

    def _end(self, ended: Sequence[tuple[Attempt, Leave]]) -> None:
        for attempt, leave in ended:
            how = "finished" if leave.reason is Reason.FINISHED else attempt.result
            self.site.tell(attempt.job, f"{attempt.id} {how}, releasing its machines")
            self._work.begin(_key(attempt), partial(self._release, attempt, leave))

    def _go_on(self, leaving: Sequence[tuple[Attempt, Leave]], waiting: Sequence[Chain]) -> None:
        """Those that leave, and those that wait for a place, are planned together."""
        now = time.monotonic()
        for attempt, leave in leaving:
            if attempt.id not in self._leaving:
                self._leaving[attempt.id] = now
                self._migrate(attempt, leave)
        since = [self._leaving[attempt.id] for attempt, _ in leaving]
        if since and now - max(since) < _TOGETHER_S and now - min(since) < _AT_MOST_S:
            return
        going = [a for attempt, _ in leaving if (a := self.site.store.attempt(attempt.id)) and a.phase.is_up]
        wanting = [Wanting(chain_of(self.site.store, attempt), attempt) for attempt in going]
        clock = self.site.clock()
        wanting += [Wanting(chain) for chain in waiting if chain.again_at <= clock]
        if not wanting:
            return
        answers = self.replanner.replan(wanting)
        for want, answer in zip(wanting, answers, strict=True):
            if want.leaving is not None:
                self._leaving.pop(want.leaving.id, None)
            self._carry_out(want, answer)

    def _migrate(self, attempt: Attempt, leave: Leave) -> None:
        def migrating(current: Attempt) -> Attempt | None:
            if not current.phase.is_up or current.phase is Phase.MIGRATING:
                return None
            return replace(current, phase=Phase.MIGRATING, reason=leave.reason.value, message=leave.message)

        before = attempt.phase
        now = self.site.store.update(attempt.id, migrating)
        if before is not Phase.MIGRATING and now.phase is Phase.MIGRATING:
            self.site.store.note(attempt.id, "leaving", self.site.clock(), reason=leave.reason.value, why=leave.message)
            if leave.ranks:
                quarantine(self.site, attempt, leave.ranks, leave.reason.value)
            self.site.tell(attempt.job, f"{attempt.id}: {leave.message}")

    def _carry_out(self, want: Wanting, answer: object) -> None:
        key = _key(want.last)
        if isinstance(answer, Go):
            placed = self.replanner.placed(want, answer)
            if isinstance(placed, Placed):
                self._told.pop(key, None)
                self._work.begin(key, partial(self._replace, want, answer, placed))
                return
            answer = Never(placed.message)
        if want.leaving is not None:
            # Wherever it goes on, and whenever: here it cannot.
            self._work.begin(key, partial(self._release, want.leaving, None))
        elif isinstance(answer, Never):
            give_up(self.site.store, want.chain, GIVEN_UP, answer.why, self.site.clock())
        why = getattr(answer, "why", "")
        if self._told.get(key) != why:
            self._told[key] = why
            self.site.tell(want.last.job, f"waits for a place: {why}" if not isinstance(answer, Never) else why)

    def _release(self, attempt: Attempt, leave: Leave | None) -> None:
        now = self.site.store.attempt(attempt.id)
        if now is None:
            return
        reason, message = (leave.reason.value, leave.message) if leave else (now.reason, now.message)
        release(self.site, now, reason or Reason.MOVED.value, message)

    def _replace(self, want: Wanting, go: Go, placed: Placed) -> None:
        """The old gang goes, the new one comes."""
        try:
            if want.leaving is not None:
                self._release(want.leaving, None)
        except NotReleasedError:
            # Two gangs of one job never train at once, so the next try begins with this one's release.
            _released(self.site, placed.attempt)
            raise
        outcome = make_placed(self.site, go.errand, placed, None)
        if outcome.result is Result.READY:
            step = outcome.attempt.first_step if outcome.attempt is not None else 0
            self.site.tell(want.last.job, f"{placed.attempt.id} is whole, it goes on after step {step}")


def _released(site: Site, attempt: Attempt) -> None:
    release_interrupted(site, attempt)


def _key(attempt: Attempt) -> str:
    return attempt.job
