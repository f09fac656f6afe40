"""What the policy says about gangs that run: at every tick, when a cloud hints at something, when prices changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from router.agent import states
from router.controller.attempt_history import Chain, chains_of
from router.controller.job_history import past_of, same_machines
from router.controller.lifecycle import kept_step, last_step
from router.controller.quarantine import ShortNow, short_now
from router.controller.replanner import TICK, Replanner
from router.controller.status_snapshot import Picture
from router.controller.stragglers import Paces
from router.jobs.limits import Limits
from router.planning.candidates import CandidateFinder
from router.planning.remaining_work import fits
from router.spot.options import parted, place_of
from router.spot.policies.interface import Decision, Event, Here, Move, Observation
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase, Shortage

_HINTS = {
    states.REBALANCE: Event.REBALANCE,
    states.MAINTENANCE: Event.MAINTENANCE,
    states.HEALTH: Event.HEALTH,
}
_WISHES = (Event.REBALANCE, Event.MAINTENANCE, Event.PRICE)
_SETTLED = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about an attempt, and why it was asked; ``notice`` where a cloud said something."""

    attempt: Attempt
    event: Event
    decision: Decision
    notice: NoticeRecord | None = None


@dataclass(frozen=True, slots=True)
class _Scene:
    """What is the same for all gangs of a plan."""

    limits: Limits
    finder: CandidateFinder
    short: ShortNow
    lately: Sequence[Shortage]


@dataclass(slots=True)
class Adviser:
    """Asks the policy of a replanner: about each hint once, about deadlines at every tick, about a gang that became
    slow, about all when there is another price book."""

    replanner: Replanner
    most_s: float = 0.2
    _heeded: set[tuple[str, int, str]] = field(default_factory=set)
    _asked_at: dict[str, datetime] = field(default_factory=dict)
    _pending: dict[str, tuple[Event, NoticeRecord | None]] = field(default_factory=dict)
    _paces: Paces = field(default_factory=Paces)
    _book: str = ""

    def advise(self, alive: Sequence[Attempt], now: Picture) -> tuple[Advice, ...]:
        """For each attempt that runs undisturbed and about which there is something to ask. Thinking longer than
        ``most_s`` is left for the next call, hints first."""
        running = {a.id: a for a in alive if a.phase in (Phase.RUNNING, Phase.RESUMING)}
        digest = self.replanner.book().digest if running else self._book
        priced = bool(self._book) and digest != self._book
        self._book = digest
        for attempt in running.values():
            nodes = now.nodes.get(attempt.id, ())
            asked = self._event(attempt, now.notices.get(attempt.id, ()), nodes, priced=priced)
            before = self._pending.get(attempt.id)
            if asked is not None and (before is None or (before[1] is None and asked[0] is not Event.TICK)):
                self._pending[attempt.id] = asked
        known = {attempt.id for attempt in now.alive}
        self._pending = {name: asked for name, asked in self._pending.items() if name in known}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in known}
        self._heeded = {key for key in self._heeded if key[0] in known}
        self._paces.forget_but(known)
        return self._asked({name: running[name] for name in self._pending if name in running}, now)

    def _asked(self, running: Mapping[str, Attempt], now: Picture) -> tuple[Advice, ...]:
        ends = time.monotonic() + self.most_s
        found = []
        chains = chains_of(self.replanner.site.store, running.values())
        scenes: dict[str, _Scene] = {}
        for name in sorted(running, key=lambda one: self._pending[one][1] is None):
            attempt = running[name]
            if attempt.plan not in scenes:
                scenes[attempt.plan] = self._scene(attempt)
            asked = self._pending.pop(name)
            nodes = now.nodes.get(name, ())
            decision = self._decided(attempt, *asked, nodes, chains[name], scenes[attempt.plan])
            if decision is not None:
                found.append(Advice(attempt, asked[0], decision, asked[1]))
            if time.monotonic() > ends:
                break
        return tuple(found)

    def _scene(self, attempt: Attempt) -> _Scene:
        limits = self.replanner.limits_of(attempt)
        short = short_now(self.replanner.site)
        return _Scene(limits, self.replanner.finder(limits), short, self.replanner.lately())

    def _event(
        self, attempt: Attempt, notices: Sequence[NoticeRecord], nodes: Sequence[NodeRecord], *, priced: bool
    ) -> tuple[Event, NoticeRecord | None] | None:
        for notice in notices:
            key = (notice.attempt, notice.rank, notice.id)
            if notice.kind in _HINTS and key not in self._heeded:
                self._heeded.add(key)
                return _HINTS[notice.kind], notice
        now = self.replanner.site.clock()
        if priced:
            return Event.PRICE, None
        if now - self._asked_at.setdefault(attempt.id, now) >= TICK:
            self._asked_at[attempt.id] = now
            slow = attempt.phase is Phase.RUNNING and self._paces.slower(attempt.id, nodes)
            return (Event.HEALTH if slow else Event.TICK), None
        return None

    def _decided(
        self,
        attempt: Attempt,
        event: Event,
        notice: NoticeRecord | None,
        nodes: Sequence[NodeRecord],
        chain: Chain,
        scene: _Scene,
    ) -> Decision | None:
        """None where its job or its place is not known any more: then it stays."""
        now, limits = self.replanner.site.clock(), scene.limits
        job = self.replanner.left_of(chain)
        if job is None or (event is Event.TICK and job.deadline is None):
            return None
        found = scene.finder.find(job)[0]
        here = next((c for c in found if same_machines(c, attempt, nodes)), None)
        if here is None:
            return None
        elsewhere = [c for c in found if c.key != here.key and fits(c, job, now)]
        policy = self.replanner.policy_for(attempt)
        short = scene.short.under(policy)
        others, closed = parted(elsewhere, [c for c in elsewhere if not short.has(c)], job, limits)
        if event is Event.HEALTH and notice is None and not others:
            return None  # slow is better than not at all
        leaves_in = None
        if notice is not None and notice.seconds is not None and event is not Event.REBALANCE:
            leaves_in = timedelta(seconds=notice.seconds)
        unsaved = last_step(attempt, nodes) - kept_step(attempt, nodes)
        # A gang that moves because it wants to saves when the next one is there.
        saved = unsaved == 0 or event in _WISHES
        at = Here(
            place_of(replace(here, running=True), job, limits),
            leaves_in,
            saved=saved,
            unsaved_hours=unsaved / here.on_time_steps_per_hour,
        )
        save = timedelta(0)
        if job.checkpoint is not None:
            save = timedelta(seconds=job.checkpoint.size_gib / job.checkpoint.write_gib_per_s)
        deadline = None if job.deadline is None else job.deadline.at(now)
        past = past_of(chain, job, found, scene.lately, now)
        decision = policy.decide(
            Observation(
                now, deadline, TICK, event, at, others, save, closed, past.began, past.share, past.lives, past.answers
            )
        )
        if isinstance(decision, Move) and here.key in decision.to:
            # What runs is not stopped to be made anew.
            decision = replace(decision, to=decision.to[: decision.to.index(here.key)], keep=True)
            if not decision.to:
                return None
        settled = attempt.met_at is not None and now - attempt.met_at >= _SETTLED
        if isinstance(decision, Move) and event in _WISHES and not settled:
            return None  # what moved a moment ago would only go to and fro
        return decision
