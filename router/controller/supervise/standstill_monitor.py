"""Watch for gangs that cost money without a reason: trainings that stand still, gangs that are late or too dear."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import history_of
from router.controller.history.events import find_events
from router.controller.history.heartbeats import STANDSTILL, GangStandstill, find_gang_standstill, rule_of
from router.controller.supervise.handover import order_save
from router.deploy.notify_settings import EventKind
from router.state.records import Attempt, NodeRecord, Phase
from terraform.module_metadata import module_facts

# A standstill is acted upon once this process has seen it for so many seconds of its own: a clock may run fast.
OBSERVED_S = 10.0
# Gangs that are late or too dear are looked for this often, in seconds.
_LATENESS_S = 5.0
# A watched gang moves this long before its cloud ends its machines for their age.
_BEFORE_LIMIT = timedelta(minutes=30)
_UNDISTURBED = (Phase.READY, Phase.RESUMING, Phase.RUNNING)
_COSTLY = (EventKind.LATE, EventKind.BUDGET)


@dataclass(slots=True)
class StandstillMonitor:
    """Names each standstill once, and orders gangs that are to leave for it to save. For one thread."""

    site: ControllerContext
    ticks: Callable[[], float] = time.monotonic
    _jobs: dict[str, str | None] = field(default_factory=dict)
    _since: dict[str, tuple[tuple[int | None, datetime | None], float]] = field(default_factory=dict)
    _named: dict[str, tuple[int | None, bool]] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)
    _looked_at: float = -_LATENESS_S

    def reconcile(self, alive: Sequence[Attempt], nodes: Mapping[str, Sequence[NodeRecord]]) -> None:
        """Name what stands still, is late or over its agreed cost, and order what is to leave to save. StateError."""
        self._read_jobs(alive)
        for attempt in alive:
            if attempt.phase not in _UNDISTURBED:
                continue
            standstill = self._find(attempt, nodes.get(attempt.id, ()))
            if standstill is not None:
                self._name(attempt, standstill)
                if standstill.is_to_leave:
                    order = f"{STANDSTILL}-{attempt.version}"
                    order_save(self.site, attempt, order, STANDSTILL, Phase.CHECKPOINTING, standstill.saves_within_s)
            elif self._is_near_limit(attempt):
                order = f"limit-{attempt.version}"
                if order_save(self.site, attempt, order, protocol.MAINTENANCE, Phase.CHECKPOINTING):
                    self.site.tell(attempt.job, f"{attempt.id} is to save and move: its cloud ends old machines")
        if self.ticks() - self._looked_at >= _LATENESS_S:
            self._looked_at = self.ticks()
            self._tell_lateness(alive, nodes)

    def is_last_move(self, attempt: Attempt) -> bool:
        """Return whether a gang that stands still was moved before as often as its job allows. StateError."""
        self._read_jobs([attempt])
        before = history_of(self.site.store, attempt).attempts
        moves = sum(one.reason == STANDSTILL and one.id != attempt.id for one in before)
        return moves >= rule_of(self._jobs.get(attempt.job_digest), self.site.deploy.standstill).moves

    def forget_but(self, attempts: Collection[str]) -> None:
        self._since = {name: since for name, since in self._since.items() if name in attempts}
        self._named = {name: what for name, what in self._named.items() if name in attempts}
        self._told = {key for key in self._told if key[0] in attempts}

    def _find(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> GangStandstill | None:
        steps = [node.step for node in nodes if node.step is not None]
        signs = (max(steps, default=None), attempt.met_at)
        if self._since.get(attempt.id, (None,))[0] != signs:
            self._since[attempt.id] = (signs, self.ticks())
        if self.ticks() - self._since[attempt.id][1] < OBSERVED_S:
            return None
        return find_gang_standstill(attempt, nodes, self._jobs.get(attempt.job_digest), self.site.deploy.standstill)

    def _name(self, attempt: Attempt, standstill: GangStandstill) -> None:
        what = (standstill.finding.step, standstill.is_to_leave)
        if self._named.get(attempt.id) == what:
            return
        self._named[attempt.id] = what
        now, text = self.site.clock(), standstill.finding.text
        self.site.store.journal.note(attempt.id, STANDSTILL, now, why=text)
        then = "; it is to save, stop and go on elsewhere" if standstill.is_to_leave else ""
        self.site.tell(attempt.job, f"{attempt.id} {text}{then}")

    def _is_near_limit(self, attempt: Attempt) -> bool:
        if not module_facts(attempt.cloud).lifetime_limited or attempt.made_at is None:
            return False
        most = timedelta(seconds=self.site.deploy.lifetime.most_seconds(attempt.planned_time))
        return self.site.clock() > attempt.made_at + most - _BEFORE_LIMIT

    def _tell_lateness(self, alive: Sequence[Attempt], nodes: Mapping[str, Sequence[NodeRecord]]) -> None:
        for event in find_events(alive, nodes, (), (), self.site.clock()):
            if event.what in _COSTLY and event.key not in self._told:
                self._told.add(event.key)
                self.site.tell(event.job, event.text.removeprefix(f"{event.job} "))

    def _read_jobs(self, alive: Sequence[Attempt]) -> None:
        """Read the specifications of new attempts; what a digest stands for never changes."""
        if new := {attempt.job_digest for attempt in alive} - self._jobs.keys():
            texts = self.site.store.plans.jobs(new)
            self._jobs |= {digest: texts.get(digest) for digest in new}
