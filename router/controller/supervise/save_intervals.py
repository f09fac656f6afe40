"""Tell running gangs how often to save: by their age, counted interruptions, and how long their saves take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from pricing.book import PriceBook
from pricing.offers import Offer
from pricing.risk import GangRisk, join_risks
from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import MIN_CHECKPOINT_INTERVAL_S, history_of
from router.controller.supervise.replanner import TICK, Replanner
from router.coordinator.saves import SAVED, save_answers_by_attempt
from router.jobs.spec import Checkpoint, Job
from router.planning.find.checkpoint_times import interval_hours, measured_write_hours
from router.planning.find.gang_rates import stated_risk
from router.state.records import Attempt, NodeRecord, Phase

#: The journal's word for another interval of a running gang.
INTERVAL = "interval"
#: A running gang gets another interval only where the best one is so many times longer or shorter than its own.
LEAST_CHANGE = 1.5
_SAVES = 5  # the newest saves, whose median time counts
_LEAST_SAVES = 2
_MOST_IN_ONE_PASS = 20  # gangs, because a pass is short

_Pool = tuple[str, str, str | None, str, str]


class _Part(NamedTuple):
    offer: Offer


@dataclass(slots=True)
class SaveIntervals:
    """Looks at each running gang once a tick, and at once where it has no interval; one thread calls :meth:`adapt`."""

    site: ControllerContext
    replanner: Replanner
    _looked_at: dict[str, datetime] = field(default_factory=dict)
    _book: str = ""
    _offers: Mapping[_Pool, Offer] = field(default_factory=dict)

    def adapt(self, alive: Sequence[Attempt], nodes: Mapping[str, Sequence[NodeRecord]]) -> None:
        """Write an interval for each running gang that has none, or one far from the best. StateError."""
        now = self.site.clock()
        names = {attempt.id for attempt in alive}
        self._looked_at = {name: at for name, at in self._looked_at.items() if name in names}
        due = [a for a in alive if a.phase is Phase.RUNNING and self._is_due(a, now)]
        for attempt in due[:_MOST_IN_ONE_PASS]:
            self._looked_at[attempt.id] = now
            self._adapt_one(attempt, nodes.get(attempt.id, ()))

    def _is_due(self, attempt: Attempt, now: datetime) -> bool:
        if attempt.checkpoint_seconds is None and attempt.id not in self._looked_at:
            return True
        return now - self._looked_at.setdefault(attempt.id, now) >= TICK

    def _adapt_one(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> None:
        job = self.replanner.stated_job(attempt)
        if job is None or job.checkpoint is None or job.checkpoint.interval is not None:
            return  # what cannot save, or states its interval, keeps to that
        risk = self._risk(job, attempt, nodes)
        if risk is None:
            return
        begun = attempt.made_at or attempt.met_at  # lives are counted from their first machine on
        age_hours = 0.0 if begun is None else max(0.0, (self.site.clock() - begun) / timedelta(hours=1))
        rate = risk.per_hour_at(age_hours)
        own = attempt.checkpoint_seconds
        seconds = self._save_seconds(attempt)
        best = best_interval_s(job.checkpoint, rate, seconds)
        if own is not None and (not is_worth_changing(own, best) or (best > own and self._has_lost_a_save(attempt))):
            return
        self._write(attempt, own, best, rate, None if seconds is None else seconds[0])

    def _risk(self, job: Job, attempt: Attempt, nodes: Sequence[NodeRecord]) -> GangRisk | None:
        """Return the gang's interruption risk as a plan computes it; None where the book does not know all machines."""
        book = self.replanner.book()
        counted = self.replanner.counted_pools(book)
        pools = Counter((attempt.cloud, attempt.region, n.zone, n.instance_type, n.market.value) for n in nodes)
        parts, risks = [], []
        for pool, machines in pools.items():
            offer, machine = self._offer(book, pool), book.machine(attempt.cloud, pool[3])
            if offer is None or machine is None:
                return None
            parts.append(_Part(offer))
            risks.append(counted.gang_risk(offer, machine, machines, book))
        if not risks:
            return None
        risk = join_risks(risks)
        return stated_risk(job, parts, risk) or risk

    def _offer(self, book: PriceBook, pool: _Pool) -> Offer | None:
        if self._book != book.digest:
            self._offers = {(o.cloud, o.region, o.zone, o.instance_type, o.market.value): o for o in book.offers}
            self._book = book.digest
        return self._offers.get(pool) or self._offers.get((pool[0], pool[1], None, pool[3], pool[4]))

    def _save_seconds(self, attempt: Attempt) -> tuple[float, bool] | None:
        """Return how long the gang's saves take, and whether an uploader stores them; None before the second save."""
        entries = self.site.store.journal.entries(attempt.id, what=(SAVED,))
        took: dict[str, tuple[float, bool]] = {}
        for entry in entries:
            seconds = entry.details.get("seconds")
            if isinstance(seconds, int | float) and seconds > 0:
                step, manifest = str(entry.details.get("saved_step")), str(entry.details.get("saved_manifest"))
                took[step] = (max(float(seconds), took.get(step, (0.0, False))[0]), "://" in manifest)
        newest = list(took.values())[-_SAVES:]
        if len(newest) < _LEAST_SAVES:
            return None
        return median(seconds for seconds, _ in newest), newest[-1][1]

    def _has_lost_a_save(self, attempt: Attempt) -> bool:
        """Return whether an earlier gang could not save within its notice: its successor saves twice as often."""
        earlier = history_of(self.site.store, attempt).attempts[:-1]
        orders = {a.id: a.order_id for a in earlier if a.order_id and a.order_reason == protocol.INTERRUPTION}
        return any(not answers.is_saved for answers in save_answers_by_attempt(self.site.store, orders).values())

    def _write(
        self, attempt: Attempt, current_s: float | None, best_s: float, rate: float, seconds: float | None
    ) -> None:
        def with_interval(current: Attempt) -> Attempt | None:
            if current.phase is not Phase.RUNNING or current.result:
                return None
            return replace(current, checkpoint_seconds=best_s)

        if self.site.store.attempts.update(attempt.id, with_interval).checkpoint_seconds != best_s:
            return
        about = {"interruptions_per_hour": rate, "save_seconds": seconds}
        self.site.store.journal.note(
            attempt.id, INTERVAL, self.site.clock(), before_seconds=current_s, checkpoint_seconds=best_s, **about
        )
        before = "" if current_s is None else f" instead of {current_s / 60:,.0f}"
        self.site.tell(attempt.job, f"{attempt.id} is to save every {best_s / 60:,.0f} min{before}")


def best_interval_s(checkpoint: Checkpoint, rate: float, measured: tuple[float, bool] | None) -> float:
    """Return the best seconds between saves at ``rate`` interruptions an hour.

    ``measured``: how long saves take, in seconds, and whether an uploader stores them meanwhile; None: as stated.
    """
    write = None if measured is None else measured_write_hours(checkpoint, measured[0], uploaded=measured[1])
    return round(max(MIN_CHECKPOINT_INTERVAL_S, 3600 * interval_hours(checkpoint, rate, write)), 1)


def is_worth_changing(current_s: float, best_s: float) -> bool:
    """Return whether the best interval is so far from the gang's own that it is told."""
    return max(current_s, best_s) >= LEAST_CHANGE * min(current_s, best_s)
