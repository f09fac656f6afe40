"""Staying with gangs: what their ranks and clouds say becomes their phase; those that cannot stay are saved, released
and made again elsewhere; those that ended are released.

Everything that was decided is in the state before it is done, so that whoever looks next goes on from there. A pass is
short: machines are made and released beside it (:mod:`router.controller.worker_pool`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial

from router.agent import control
from router.agent.config import Config
from router.controller.attempt_history import Chain, chain_of, chains_of, give_up, waits
from router.controller.context import Site
from router.controller.errors import NotReleasedError
from router.controller.handover import hand_over, order_save
from router.controller.heartbeats import Silence
from router.controller.lifecycle import GIVEN_UP, Leave, Reason, Seen, Turn, next_step
from router.controller.policy_runner import Advice, Adviser
from router.controller.provision_order import Outcome, Placed, Result, is_interrupted, make_placed, release_interrupted
from router.controller.quarantine import UNHEALTHY, quarantine, quarantine_all
from router.controller.release import release
from router.controller.replanner import Answer, Go, Never, Replanner, Wanting
from router.controller.run_policies import name_of
from router.controller.status_snapshot import Picture, picture
from router.controller.worker_pool import Work
from router.planning.candidates import LONGEST_RUN
from router.spot.policies.interface import Event, Move, Rule, Save
from router.state.records import Attempt, Phase

# Gangs that leave within so many seconds of one another are planned together; nobody waits longer than the second.
_TOGETHER_S, _AT_MOST_S = 0.5, 2.0
_SILENT_S = 2 * Config.heartbeat_seconds + 5.0
# Who found no place asks again after so long, and after so many times what it took to think about it.
_LEAST_PAUSE_S, _SHARE = 2.0, 10.0
_REASONS = {Event.REBALANCE: control.REBALANCE, Event.MAINTENANCE: control.MAINTENANCE}
_OVER = (Reason.FINISHED, Reason.FAILED)


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
    _unreadable: set[tuple[str, ...]] = field(default_factory=set)
    _not_before: dict[str, float] = field(default_factory=dict)

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
        now = picture(self.site.store, self.plan)
        self._say_unreadable()
        alive = [attempt for attempt in now.alive if attempt.id not in besides]
        leaving = self._looked_at(alive, now)
        waiting = self._waiting()
        self._forget_but({a.id for a in now.alive}, {_key(a) for a in (*now.alive, *(c.last for c in waiting))})
        advised = self.adviser.advise([a for a in alive if not self._work.is_busy(_key(a))], now)
        moving = self._moved([one for one in advised if isinstance(one.decision, Move) and one.decision.to])
        for advice in advised:
            if advice.attempt.id not in moving:
                self._heed(advice)
        abandoned = [a for a in alive if is_interrupted(a) and not self._work.is_busy(_key(a)) and self._is_mine(a)]
        due = [chain for chain in waiting if self._is_due(chain)]
        if (leaving or due or abandoned) and self._work.holds():
            self._tidy(abandoned)
            self._end([one for one in leaving if one[1].reason in _OVER])
            # Read again: whoever had the lock before may have given them up, or made them.
            due = [chain for chain in self._waiting() if self._is_due(chain)] if due else []
            self._go_on([one for one in leaving if one[1].reason not in _OVER], due)
            self._work.rest()
        return bool(alive or waiting) or not self._work.idle

    def _say_unreadable(self) -> None:
        """Says once of each attempt that it cannot be looked after; the others are."""
        bad = {error.key: error for error in self.site.store.overview.unreadable}
        for key in sorted(bad.keys() - self._unreadable):
            self.site.tell(key[0], f"{bad[key]} ({bad[key].remedy})")
        self._unreadable = set(bad)

    def close(self) -> None:
        """Waits for what is being made and released; with ``site.stop`` set, making ends soon."""
        self._work.finish()

    def _forget_but(self, attempts: Collection[str], jobs: Collection[str]) -> None:
        """A watcher may run for months."""
        self._silence.forget_but(attempts)
        self._leaving = {name: at for name, at in self._leaving.items() if name in attempts}
        self._told = {key: why for key, why in self._told.items() if key in jobs or self._work.is_busy(key)}
        self._not_before = {key: at for key, at in self._not_before.items() if key in jobs or self._work.is_busy(key)}

    def _waiting(self) -> Sequence[Chain]:
        now = self.site.clock()
        since = now - self.site.deploy.patience.again
        # A job that waits for spot because its policy says so may wait for long.
        gone = self.site.store.ended_last(now - LONGEST_RUN)
        found = tuple(a for a in gone if (a.gone_at or now) >= since or self._waits_long(a))
        ended = [a for a in found if self.plan in (None, a.plan) and not self._work.is_busy(_key(a))]
        return waits(self.site.store, ended, crashes=self.site.deploy.patience.crashes)

    def _waits_long(self, attempt: Attempt) -> bool:
        return name_of(attempt, self.site.deploy) != Rule.GREEDY and self.replanner.has_time(attempt)

    def _looked_at(self, alive: Sequence[Attempt], now: Picture) -> list[tuple[Attempt, Leave]]:
        """Turns are done at once; who leaves is said."""
        leaving, turns = [], []
        for attempt in alive:
            if not attempt.phase.is_up or self._work.is_busy(_key(attempt)):
                continue
            step = next_step(self._seen(attempt, now))
            if isinstance(step, Leave):
                leaving.append((attempt, step))
            elif isinstance(step, Turn):
                turns.append((attempt, step))
        after = self.site.store.update_all({a.id: partial(_turned, a.phase, turn.phase) for a, turn in turns})
        for attempt, turn in turns:
            if after[attempt.id].phase is turn.phase:
                self.site.tell(attempt.job, turn.text)
        return leaving

    def _seen(self, attempt: Attempt, now: Picture) -> Seen:
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
        # While the others of a training that crashed stop as they are told, who says nothing is known sooner.
        lost = self._silence.lost(attempt, nodes, _SILENT_S if attempt.result else None)
        return Seen(attempt, nodes, notices, lost, up_s, ordered_s, saved, refused)

    def _is_mine(self, attempt: Attempt) -> bool:
        """Whether it was to go on from an attempt that came up, or was being released: what else never came up is for
        whoever applied the plan."""
        if attempt.phase is Phase.RELEASING:
            return True
        return any(a.met_at is not None for a in chain_of(self.site.store, attempt).attempts)

    def _heed(self, advice: Advice) -> None:
        """A checkpoint that the policy wants is ordered; a gang that is to move saves first, then leaves."""
        attempt, decision = advice.attempt, advice.decision
        if not isinstance(decision, Save | Move) or (isinstance(decision, Move) and decision.keep):
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
            quarantine(self.site, attempt, (notice.rank,), UNHEALTHY)

    def _moved(self, advised: Sequence[Advice]) -> set[str]:
        """The attempts whose next gang is being made while they go on; not where none can be had, or others are at
        work. Machines that are not well are not waited for."""
        wishes = [one for one in advised if one.event is not Event.HEALTH]
        if not wishes or not self._work.holds():
            return set()
        for one in wishes:
            if one.notice is not None:
                quarantine(self.site, one.attempt, (one.notice.rank,), one.event.value)
        chains = chains_of(self.site.store, [one.attempt for one in wishes])
        wanting = [Wanting(chains[one.attempt.id], None, _move(one)) for one in wishes]
        answers = self.replanner.replan(wanting)
        asked = zip(wishes, wanting, answers, strict=True)
        found = [(one, want, go) for one, want, go in asked if isinstance(go, Go)]
        self._migrate([(one.attempt, _wish(one)) for one, _, _ in found])
        going = set()
        placed = self.replanner.placed([(want, go) for _, want, go in found])
        for (one, _, go), new in zip(found, placed, strict=True):
            if isinstance(new, Placed):
                going.add(one.attempt.id)
                self._work.begin(_key(one.attempt), partial(self._hand_over, one.attempt, go, new))
            else:
                self._stays(one.attempt)
        return going

    def _hand_over(self, attempt: Attempt, go: Go, placed: Placed) -> None:
        """The new gang comes; when it is whole, the old one saves and goes."""

        def whole() -> None:
            now = self.site.store.attempt(attempt.id) or attempt
            hand_over(self.site, now, placed.attempt, now.reason, now.message, go.errand.book)

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
                self._work.begin(_key(now), partial(self._released, now))

    def _end(self, ended: Sequence[tuple[Attempt, Leave]]) -> None:
        for attempt, leave in ended:
            how = "finished" if leave.reason is Reason.FINISHED else attempt.result
            self.site.tell(attempt.job, f"{attempt.id} {how}, releasing its machines")
            self._work.begin(_key(attempt), partial(self._release, attempt, leave))

    def _go_on(self, leaving: Sequence[tuple[Attempt, Leave]], due: Sequence[Chain]) -> None:
        """Those that leave, and those that wait for a place, are planned together."""
        now = time.monotonic()
        self._migrate([pair for pair in leaving if pair[0].id not in self._leaving])
        since = [self._leaving.setdefault(attempt.id, now) for attempt, _ in leaving]
        if since and now - max(since) < _TOGETHER_S and now - min(since) < _AT_MOST_S:
            return
        read = self.site.store.overview.attempts(attempt.id for attempt, _ in leaving)
        going = [read[attempt.id] for attempt, _ in leaving if read[attempt.id].phase.is_up]
        chains = chains_of(self.site.store, going)
        wanting = [Wanting(chains[attempt.id], attempt) for attempt in going]
        wanting += [Wanting(chain) for chain in due]
        if not wanting:
            return
        began = time.monotonic()
        answers = self.replanner.replan(wanting)
        took = time.monotonic() - began
        for want in wanting:
            if want.leaving is not None:
                self._leaving.pop(want.leaving.id, None)
        self._carry_out(list(zip(wanting, answers, strict=True)), max(_LEAST_PAUSE_S, _SHARE * took))

    def _is_due(self, chain: Chain) -> bool:
        """Whether one that found no place asks again: a moment later, or longer where thinking about all takes long."""
        if chain.again_at > self.site.clock():
            return False
        return self._not_before.get(_key(chain.last), 0.0) <= time.monotonic()

    def _migrate(self, leaving: Sequence[tuple[Attempt, Leave]]) -> None:
        after = self.site.store.update_all({a.id: partial(_migrating, leave) for a, leave in leaving})
        new = [
            (attempt, leave)
            for attempt, leave in leaving
            if attempt.phase is not Phase.MIGRATING and after[attempt.id].phase is Phase.MIGRATING
        ]
        notes = [(a.id, {"reason": leave.reason.value, "why": leave.message}) for a, leave in new]
        self.site.store.note_all(notes, "leaving", self.site.clock())
        self._quarantine([(a, leave) for a, leave in new if leave.ranks])
        for attempt, leave in new:
            self.site.tell(attempt.job, f"{attempt.id}: {leave.message}")

    def _quarantine(self, taken: Sequence[tuple[Attempt, Leave]]) -> None:
        if taken:
            nodes = self.site.store.overview.nodes(attempt.id for attempt, _ in taken)
            quarantine_all(self.site, [(a, nodes.get(a.id, ()), lv.ranks, lv.reason.value) for a, lv in taken])

    def _carry_out(self, answered: Sequence[tuple[Wanting, Answer]], pause_s: float) -> None:
        """All that go on are written down before anything is done about one of them."""
        going = [(want, answer) for want, answer in answered if isinstance(answer, Go)]
        placed = dict(zip((_key(want.last) for want, _ in going), self.replanner.placed(going), strict=True))
        for want, answer in answered:
            key = _key(want.last)
            new = placed.get(key)
            if isinstance(answer, Go) and isinstance(new, Placed):
                self._told.pop(key, None)
                self._work.begin(key, partial(self._replace, want, answer, new))
            else:
                why = new.message if isinstance(new, Outcome) else getattr(answer, "why", "")
                self._not_before[key] = time.monotonic() + pause_s
                self._stands(want, why, never=isinstance(answer, Never))

    def _stands(self, want: Wanting, why: str, *, never: bool) -> None:
        """It has no place: not yet, or ``never``."""
        key = _key(want.last)
        if want.leaving is not None:
            # Wherever it goes on, and whenever: here it cannot.
            self._work.begin(key, partial(self._release, want.leaving, None))
        elif never:
            give_up(self.site.store, want.chain, GIVEN_UP, why, self.site.clock())
        if self._told.get(key) != why:
            self._told[key] = why
            self.site.tell(want.last.job, why if never else f"waits for a place: {why}")

    def _release(self, attempt: Attempt, leave: Leave | None) -> None:
        now = self.site.store.attempt(attempt.id)
        if now is None:
            return
        reason, message = (leave.reason.value, leave.message) if leave else (now.reason, now.message)
        release(self.site, now, reason or Reason.MOVED.value, message)

    def _released(self, attempt: Attempt) -> None:
        release_interrupted(self.site, attempt)

    def _replace(self, want: Wanting, go: Go, placed: Placed) -> None:
        """The old gang goes, the new one comes."""
        try:
            if want.leaving is not None:
                self._release(want.leaving, None)
        except NotReleasedError:
            # Two gangs of one job never train at once, so the next try begins with this one's release.
            self._released(placed.attempt)
            raise
        outcome = make_placed(self.site, go.errand, placed, None)
        if outcome.result is Result.READY:
            step = outcome.attempt.first_step if outcome.attempt is not None else 0
            self.site.tell(want.last.job, f"{placed.attempt.id} is whole, it goes on after step {step}")


def _turned(before: Phase, after: Phase, attempt: Attempt) -> Attempt | None:
    return replace(attempt, phase=after) if attempt.phase is before else None


def _migrating(leave: Leave, attempt: Attempt) -> Attempt | None:
    if not attempt.phase.is_up or attempt.phase is Phase.MIGRATING:
        return None
    return replace(attempt, phase=Phase.MIGRATING, reason=leave.reason.value, message=leave.message)


def _move(advice: Advice) -> Move:
    assert isinstance(advice.decision, Move)
    return advice.decision


def _wish(advice: Advice) -> Leave:
    return Leave(Reason.MOVED, f"{advice.event.value}: {advice.decision.why}")


def _key(attempt: Attempt) -> str:
    return attempt.job
