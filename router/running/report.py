"""What runs and what it has cost so far, gathered for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pricing.money import Usd
from router.running.metering import spent
from router.state.records import Attempt, NodeRecord
from router.state.store import Store


@dataclass(frozen=True, slots=True)
class GangReport:
    """An attempt with its machines; ``spent_usd`` until now, ``quiet`` since the rank that was silent longest last
    called (None while none has)."""

    attempt: Attempt
    nodes: tuple[NodeRecord, ...]
    spent_usd: Usd
    quiet: timedelta | None

    @property
    def calling(self) -> int:
        """Ranks that have called at all."""
        return sum(bool(node.agent) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Report:
    """Attempts in the order in which they were begun; ``spent_usd`` of all of them."""

    gangs: tuple[GangReport, ...]
    spent_usd: Usd
    now: datetime


def report(store: Store, wanted: Sequence[str], now: datetime, *, everything: bool) -> Report:
    """Those of these jobs, attempts or plans (none: all); of what is over only the last of each job, unless
    ``everything``."""
    found = [a for a in store.attempts() if not wanted or {a.id, a.job, a.plan, a.plan[:12]} & set(wanted)]
    if not everything and not wanted:
        last = {attempt.job: attempt.id for attempt in found}
        found = [a for a in found if not a.phase.is_over or last[a.job] == a.id]
    gangs = tuple(_gang(store, attempt, now) for attempt in found)
    return Report(gangs, Usd.total(gang.spent_usd for gang in gangs), now)


def _gang(store: Store, attempt: Attempt, now: datetime) -> GangReport:
    nodes = store.nodes(attempt.id)
    heard = [node.heard_at for node in nodes if node.heard_at is not None]
    quiet = None if not heard or attempt.phase.is_over else max(now - min(heard), timedelta(0))
    return GangReport(attempt, nodes, spent(nodes, now), quiet)
