"""What the policy says about gangs that run: at every tick, when a cloud hints at something, when prices changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from router.agent import states
from router.planning.candidates import CandidateFinder
from router.quoting.places import place_of
from router.quoting.policy import Decision, Event, Here, Move, Observation
from router.running.lifecycle import kept_step, last_step
from router.running.quarantine import is_short
from router.running.recovering import TICK, Replanner, same_machines
from router.state.records import Attempt, NoticeRecord, Phase

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


@dataclass(slots=True)
class Adviser:
    """Asks the policy of a replanner: about each hint once, about deadlines at every tick, about all when there is
    another price book."""

    replanner: Replanner
    _heeded: set[tuple[str, int, str]] = field(default_factory=set)
    _asked_at: dict[str, datetime] = field(default_factory=dict)
    _book: str = ""

    def advise(
        self, alive: Sequence[Attempt], notices: Mapping[str, Sequence[NoticeRecord]]
    ) -> tuple[Advice, ...]:  # fmt: skip
        """For each attempt that runs undisturbed and about which there is something to ask."""
        running = [a for a in alive if a.phase in (Phase.RUNNING, Phase.RESUMING)]
        digest = self.replanner.book().digest if running else self._book
        priced = bool(self._book) and digest != self._book
        self._book = digest
        found = []
        for attempt in running:
            asked = self._event(attempt, notices.get(attempt.id, ()), priced=priced)
            if asked is not None and (decision := self._decided(attempt, *asked)) is not None:
                found.append(Advice(attempt, asked[0], decision, asked[1]))
        return tuple(found)

    def _event(
        self, attempt: Attempt, notices: Sequence[NoticeRecord], *, priced: bool
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
            return Event.TICK, None
        return None

    def _decided(self, attempt: Attempt, event: Event, notice: NoticeRecord | None) -> Decision | None:
        """None where its job or its place is not known any more: then it stays."""
        site, now = self.replanner.site, self.replanner.site.clock()
        job, limits = self.replanner.left_of(attempt), self.replanner.limits_of(attempt)
        if job is None or (event is Event.TICK and job.deadline is None):
            return None
        found = CandidateFinder(self.replanner.book(), limits, now, advisory=False).find(job)[0]
        nodes = site.store.nodes(attempt.id)
        here = next((c for c in found if same_machines(c, attempt, nodes)), None)
        if here is None:
            return None
        shortages = site.store.shortages(now)
        others = tuple(
            place_of(c, job, limits) for c in found if c.key != here.key and not is_short(c, shortages)
        )  # fmt: skip
        leaves_in = None
        if notice is not None and notice.seconds is not None and event is not Event.REBALANCE:
            leaves_in = timedelta(seconds=notice.seconds)
        unsaved = last_step(attempt, nodes) - kept_step(attempt, nodes)
        # A gang that moves because it wants to saves when the next one is there.
        saved = unsaved == 0 or event in _WISHES
        at = Here(
            place_of(replace(here, running=True), job, limits), leaves_in, saved=saved,
            unsaved_hours=unsaved / here.on_time_steps_per_hour,
        )  # fmt: skip
        save = timedelta(0)
        if job.checkpoint is not None:
            save = timedelta(seconds=job.checkpoint.size_gib / job.checkpoint.write_gib_per_s)
        deadline = None if job.deadline is None else job.deadline.at(now)
        decision = self.replanner.policy.decide(Observation(now, deadline, TICK, event, at, others, save))
        settled = attempt.met_at is not None and now - attempt.met_at >= _SETTLED
        if isinstance(decision, Move) and event in _WISHES and not settled:
            return None  # what moved a moment ago would only go to and fro
        return decision
