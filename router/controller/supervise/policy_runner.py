"""Ask the policy about running gangs: at every tick, on hints of a cloud, and when prices changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from router.agent import protocol
from router.controller.history.attempt_history import AttemptHistory, histories_of
from router.controller.history.heartbeats import StatusSnapshot, StragglerMonitor
from router.controller.history.job_history import matches_machines, with_history
from router.controller.history.lifecycle import confirmed_step, last_step
from router.controller.provision.quarantine import CurrentShortages, current_shortages
from router.controller.supervise.replanner import TICK, Replanner
from router.jobs.limits import Limits
from router.planning.find.candidates import CandidateFinder
from router.planning.problem.remaining_work import fits_reservations
from router.spot.options import build_option, checkpoint_transfer_hours, partition_options
from router.spot.policies.interface import CurrentPlacement, Decision, MoveDecision, Observation, PolicyEvent
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase, Shortage

_HINTS = {
    protocol.REBALANCE: PolicyEvent.REBALANCE,
    protocol.MAINTENANCE: PolicyEvent.MAINTENANCE,
    protocol.HEALTH: PolicyEvent.HEALTH,
}
_VOLUNTARY_EVENTS = (PolicyEvent.REBALANCE, PolicyEvent.MAINTENANCE, PolicyEvent.PRICE)
_LEAST_STAY = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Advice:
    """The policy's decision about an attempt, and the event that it was asked about.

    ``notice`` is set where a cloud gave a notice.
    """

    attempt: Attempt
    event: PolicyEvent
    decision: Decision
    notice: NoticeRecord | None = None


@dataclass(frozen=True, slots=True)
class _PlanContext:
    limits: Limits
    finder: CandidateFinder
    short: CurrentShortages
    lately: Sequence[Shortage]


@dataclass(slots=True)
class Adviser:
    """Asks the policy of a replanner about running gangs.

    It asks about each hint once, about deadlines at every tick, about a gang that became slow, and about all gangs when
    there is another price book.
    """

    replanner: Replanner
    most_s: float = 0.2
    _seen_hints: set[tuple[str, int, str]] = field(default_factory=set)
    _asked_at: dict[str, datetime] = field(default_factory=dict)
    _pending: dict[str, tuple[PolicyEvent, NoticeRecord | None]] = field(default_factory=dict)
    _paces: StragglerMonitor = field(default_factory=StragglerMonitor)
    _book: str = ""

    def advise(self, alive: Sequence[Attempt], now: StatusSnapshot) -> tuple[Advice, ...]:
        """Return the advice for each attempt that runs undisturbed and about which there is something to ask.

        What takes longer than ``most_s`` is left for the next call; hints come first.
        """
        running = {a.id: a for a in alive if a.phase in (Phase.RUNNING, Phase.RESUMING)}
        digest = self.replanner.book().digest if running else self._book
        priced = bool(self._book) and digest != self._book
        self._book = digest
        for attempt in running.values():
            nodes = now.nodes.get(attempt.id, ())
            asked = self._event_of(attempt, now.notices.get(attempt.id, ()), nodes, priced=priced)
            before = self._pending.get(attempt.id)
            if asked is not None and (before is None or (before[1] is None and asked[0] is not PolicyEvent.TICK)):
                self._pending[attempt.id] = asked
        known = {attempt.id for attempt in now.alive}
        self._pending = {name: asked for name, asked in self._pending.items() if name in known}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in known}
        self._seen_hints = {key for key in self._seen_hints if key[0] in known}
        self._paces.forget_but(known)
        return self._ask_pending({name: running[name] for name in self._pending if name in running}, now)

    def _ask_pending(self, running: Mapping[str, Attempt], now: StatusSnapshot) -> tuple[Advice, ...]:
        ends = time.monotonic() + self.most_s
        advice = []
        chains = histories_of(self.replanner.site.store, running.values())
        contexts: dict[str, _PlanContext] = {}
        for name in sorted(running, key=lambda attempt_id: self._pending[attempt_id][1] is None):
            attempt = running[name]
            if attempt.plan not in contexts:
                limits = self.replanner.limits_of(attempt)
                short, lately = current_shortages(self.replanner.site), self.replanner.lately()
                contexts[attempt.plan] = _PlanContext(limits, self.replanner.finder(limits), short, lately)
            asked = self._pending.pop(name)
            nodes = now.nodes.get(name, ())
            decision = self._decide(attempt, *asked, nodes, chains[name], contexts[attempt.plan])
            if decision is not None:
                advice.append(Advice(attempt, asked[0], decision, asked[1]))
            if time.monotonic() > ends:
                break
        return tuple(advice)

    def _event_of(
        self, attempt: Attempt, notices: Sequence[NoticeRecord], nodes: Sequence[NodeRecord], *, priced: bool
    ) -> tuple[PolicyEvent, NoticeRecord | None] | None:
        for notice in notices:
            key = (notice.attempt, notice.rank, notice.id)
            if notice.kind in _HINTS and key not in self._seen_hints:
                self._seen_hints.add(key)
                return _HINTS[notice.kind], notice
        now = self.replanner.site.clock()
        if priced:
            return PolicyEvent.PRICE, None
        if now - self._asked_at.setdefault(attempt.id, now) >= TICK:
            self._asked_at[attempt.id] = now
            slow = attempt.phase is Phase.RUNNING and self._paces.slower(attempt.id, nodes)
            return (PolicyEvent.HEALTH if slow else PolicyEvent.TICK), None
        return None

    def _decide(
        self,
        attempt: Attempt,
        event: PolicyEvent,
        notice: NoticeRecord | None,
        nodes: Sequence[NodeRecord],
        chain: AttemptHistory,
        context: _PlanContext,
    ) -> Decision | None:
        """Return the decision; None where the attempt stays as it is, or its job or place is not known any more."""
        now, limits = self.replanner.site.clock(), context.limits
        job = self.replanner.left_of(chain)
        if job is None or (event is PolicyEvent.TICK and job.deadline is None):
            return None
        candidates = context.finder.find(job)[0]
        here = next((c for c in candidates if matches_machines(c, attempt, nodes)), None)
        if here is None:
            return None
        alive = () if job.group is None else self.replanner.site.store.overview.alive()[0]
        mates_in = self.replanner.mates_in(job, alive)
        elsewhere = [
            c
            for c in candidates
            if c.key != here.key and fits_reservations(c, job, now) and (not mates_in or c.region in mates_in)
        ]
        policy = self.replanner.policy_for(attempt)
        short = context.short.under(policy)
        others, closed = partition_options(elsewhere, [c for c in elsewhere if not short.has(c)], job, limits)
        if event is PolicyEvent.HEALTH and notice is None and not others:
            return None  # A slow gang is better than none.
        leaves_in = None
        if notice is not None and notice.seconds is not None and event is not PolicyEvent.REBALANCE:
            leaves_in = timedelta(seconds=notice.seconds)
        unsaved = last_step(attempt, nodes) - confirmed_step(attempt, nodes)
        # A gang that moves voluntarily saves when the next one is ready.
        saved = unsaved == 0 or event in _VOLUNTARY_EVENTS
        current = CurrentPlacement(
            build_option(replace(here, running=True), job, limits),
            leaves_in,
            saved=saved,
            unsaved_hours=here.run_hours(unsaved),
            checkpoint_transfer_hours=checkpoint_transfer_hours(here),
        )
        save = timedelta(0)
        if job.checkpoint is not None:
            save = timedelta(seconds=job.checkpoint.size_gib / job.checkpoint.write_gib_per_s)
        deadline = None if job.deadline is None else job.deadline.at(now)
        observation = Observation(now, deadline, TICK, event, current, others, save, closed)
        decision = policy.decide(with_history(observation, chain, job, candidates, context.lately))
        if isinstance(decision, MoveDecision) and here.key in decision.to:
            # A running gang is not stopped to be provisioned anew in the same place.
            decision = replace(decision, to=decision.to[: decision.to.index(here.key)], keep=True)
            if not decision.to:
                return None
        stayed = attempt.met_at is not None and now - attempt.met_at >= _LEAST_STAY
        if isinstance(decision, MoveDecision) and event in _VOLUNTARY_EVENTS and not stayed:
            return None  # A gang that moved a moment ago would only move to and fro.
        return decision
