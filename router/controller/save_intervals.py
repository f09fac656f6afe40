"""Adapt how often running gangs save: to the interruptions that were counted, and to how long their saves take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median

from pricing.book import PriceBook
from pricing.offers import Offer
from router.agent import protocol
from router.controller.attempt_history import MIN_CHECKPOINT_INTERVAL_S, history_of
from router.controller.context import ControllerContext
from router.controller.replanner import TICK, Replanner
from router.coordinator.saves import SAVED, save_answers_by_attempt
from router.jobs.experience import Experience
from router.jobs.spec import Checkpoint
from router.planning.checkpoint_times import interval_hours, measured_write_hours
from router.state.records import Attempt, NodeRecord, Phase

#: The journal's word for another interval of a running gang.
INTERVAL = "interval"
#: A running gang gets another interval only where the best one is so many times longer or shorter than its own.
LEAST_CHANGE = 1.5
_SAVES = 5  # the newest saves, whose median time counts
_LEAST_SAVES = 2
_MOST_IN_ONE_PASS = 20  # gangs, because a pass is short

_Pool = tuple[str, str, str | None, str, str]


@dataclass(slots=True)
class SaveIntervals:
    """Looks at each running gang once a tick; one thread calls :meth:`adapt`."""

    site: ControllerContext
    replanner: Replanner
    _looked_at: dict[str, datetime] = field(default_factory=dict)
    _book: str = ""
    _offers: Mapping[_Pool, Offer] = field(default_factory=dict)

    def adapt(self, alive: Sequence[Attempt], nodes: Mapping[str, Sequence[NodeRecord]]) -> None:
        """Write another interval for each running gang whose own is far from the best. StateError."""
        now = self.site.clock()
        names = {attempt.id for attempt in alive}
        self._looked_at = {name: at for name, at in self._looked_at.items() if name in names}
        due = [a for a in alive if a.phase is Phase.RUNNING and now - self._looked_at.setdefault(a.id, now) >= TICK]
        for attempt in due[:_MOST_IN_ONE_PASS]:
            self._looked_at[attempt.id] = now
            self._adapt_one(attempt, nodes.get(attempt.id, ()))

    def _adapt_one(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> None:
        job = self.replanner.stated_job(attempt)
        if job is None or job.checkpoint is None or job.checkpoint.interval is not None:
            return  # what cannot save, or states its interval, keeps to that
        book = self.replanner.book()
        planned_rate = self._rate(attempt, nodes, book, Experience())
        rate = self._rate(attempt, nodes, book, self.replanner.counted_pools(book))
        if not planned_rate or not rate:
            return
        own = attempt.checkpoint_seconds or 3600 * interval_hours(job.checkpoint, planned_rate)
        seconds = self._save_seconds(attempt)
        best = best_interval_s(job.checkpoint, rate, seconds)
        if not is_worth_changing(own, best) or (best > own and self._has_lost_a_save(attempt)):
            return
        self._write(attempt, own, best, rate, None if seconds is None else seconds[0])

    def _rate(self, attempt: Attempt, nodes: Sequence[NodeRecord], book: PriceBook, counted: Experience) -> float:
        """Return the interruptions an hour of the gang; 0 where the book does not know all of its machines."""
        parts = Counter((attempt.cloud, attempt.region, n.zone, n.instance_type, n.market.value) for n in nodes)
        rate = 0.0
        for pool, machines in parts.items():
            offer, machine = self._offer(book, pool), book.machine(attempt.cloud, pool[3])
            if offer is None or machine is None:
                return 0.0
            rate += counted.gang_risk(offer, machine, machines, book).interruptions_per_hour
        return rate

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

    def _write(self, attempt: Attempt, own: float, best: float, rate: float, seconds: float | None) -> None:
        def with_interval(current: Attempt) -> Attempt | None:
            if current.phase is not Phase.RUNNING or current.result:
                return None
            return replace(current, checkpoint_seconds=best)

        if self.site.store.attempts.update(attempt.id, with_interval).checkpoint_seconds != best:
            return
        about = {"interruptions_per_hour": rate, "save_seconds": seconds}
        self.site.store.journal.note(
            attempt.id, INTERVAL, self.site.clock(), before_seconds=own, checkpoint_seconds=best, **about
        )
        self.site.tell(attempt.job, f"{attempt.id} is to save every {best / 60:,.0f} min instead of {own / 60:,.0f}")


def best_interval_s(checkpoint: Checkpoint, rate: float, measured: tuple[float, bool] | None) -> float:
    """Return the best seconds between saves at ``rate`` interruptions an hour.

    ``measured``: how long saves take, in seconds, and whether an uploader stores them meanwhile; None: as stated.
    """
    write = None if measured is None else measured_write_hours(checkpoint, measured[0], uploaded=measured[1])
    return round(max(MIN_CHECKPOINT_INTERVAL_S, 3600 * interval_hours(checkpoint, rate, write)), 1)


def is_worth_changing(own: float, best: float) -> bool:
    """Return whether the best interval is so far from the gang's own that it is told."""
    return max(own, best) >= LEAST_CHANGE * min(own, best)
