"""Metrics for Prometheus: gangs, machines, orders, checkpoints, steps and money, as the state has them.

docs/alerts/stepfare.rules.yaml and docs/runbooks.md use these names. Labels have few values: words of the program,
clouds, and at most :data:`router.coordinator.metrics.MAX_NAMED_JOBS` jobs.
"""

from __future__ import annotations

import hmac
import threading
import time
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from typing import TypeVar

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pricing.money import ZERO, Usd, UsdPerHour
from pricing.places import Market
from router.agent import protocol
from router.coordinator.saves import NOT_BELIEVED, NOT_SAVED, SAVED
from router.ledger.entry import LedgerEntry, MachineUse
from router.state.records import Attempt, JournalEntry, NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore

# Upper bounds in seconds; clouds give 30 and 120 s, and the targets are 3.5 and 6.5 s.
DELAY_BUCKETS = (0.5, 1.0, 2.0, 3.5, 5.0, 6.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
# The number of jobs that are counted by name, in the order in which they first lost steps; later ones are counted
# together.
MAX_NAMED_JOBS = 200
OTHER_JOBS = "(other jobs)"
# The number of notices, and of checkpoints, whose times are remembered.
MOST_REMEMBERED = 20_000
# Notices are dated by a clock that may be set back, so this much time is read once more.
_AGAIN = timedelta(minutes=10)
WASTE_USES = tuple(use for use in MachineUse if use.is_waste)
_Key = tuple[str, str]
_T = TypeVar("_T")


@dataclass(slots=True)
class DelayHistogram:
    """A histogram of durations by the upper bounds in :data:`DELAY_BUCKETS`; the last count is of longer ones."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DELAY_BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(DELAY_BUCKETS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class StateTotals:
    """Totals of all that the state recorded.

    ``metered`` is by cloud and market, ``wasted`` by kind of waste; ``delays`` from a notice, by its kind, to the first
    checkpoint that answered it; ``notices`` counts notices by kind, ``lost_steps`` steps by job.
    """

    notices: Counter[str] = field(default_factory=Counter)
    delays: dict[str, DelayHistogram] = field(default_factory=dict)
    failed_saves: int = 0
    not_believed: int = 0
    lost_steps: Counter[str] = field(default_factory=Counter)
    metered: dict[tuple[str, Market], Usd] = field(default_factory=dict)
    wasted: dict[MachineUse, Usd] = field(default_factory=lambda: dict.fromkeys(WASTE_USES, ZERO))


class StateCounters:
    """Adds to ``totals`` what is new at each :meth:`look`. For one thread at a time."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._seq = self._head = 0
        self._since: datetime | None = None
        self._heard: OrderedDict[_Key, NoticeRecord] = OrderedDict()
        self._saved: OrderedDict[_Key, datetime] = OrderedDict()
        self._seen: dict[tuple[str, int, str], datetime] = {}
        self.totals = StateTotals()

    def look(self) -> None:
        """Read what is new. After a StateError the next call reads it again."""
        for note in self._store.overview.notes((SAVED, NOT_SAVED, NOT_BELIEVED), self._seq):
            self._count_note(note)
        self._read_notices()
        head, entries = self._store.overview.metered(self._head)
        self._count_entries(entries)
        self._head = head

    def answered(self, attempt: Attempt) -> bool:
        """Return whether a checkpoint for the attempt's order is known, as far as that is remembered."""
        return (attempt.id, attempt.order_id) in self._saved

    def _count_note(self, note: JournalEntry) -> None:
        self._seq = note.seq
        if note.what == NOT_BELIEVED:
            self.totals.not_believed += 1
            return
        if note.what == NOT_SAVED:
            self.totals.failed_saves += 1
            return
        key = (note.attempt, str(note.details.get("id") or ""))
        if key[1] and key not in self._saved:
            _remember(self._saved, key, note.at)
            if key in self._heard:
                self._add_delay(self._heard[key], note.at)

    def _read_notices(self) -> None:
        for notice in self._store.notices.find(since=self._since):
            one, key = (notice.attempt, notice.rank, notice.id), (notice.attempt, notice.id)
            if one in self._seen:
                continue
            self._seen[one] = notice.heard_at
            self.totals.notices[notice.kind] += 1
            # One checkpoint answers a notice to several machines.
            if key not in self._heard:
                _remember(self._heard, key, notice)
                # Notices and checkpoints arrive in different ways, so either may come first.
                if key in self._saved:
                    self._add_delay(notice, self._saved[key])
        if self._seen:
            self._since = since = max(self._seen.values()) - _AGAIN
            self._seen = {one: at for one, at in self._seen.items() if at >= since}

    def _add_delay(self, notice: NoticeRecord, saved_at: datetime) -> None:
        delay = max(0.0, (saved_at - notice.heard_at).total_seconds())
        self.totals.delays.setdefault(notice.kind, DelayHistogram()).add(delay)

    def _count_entries(self, entries: Iterable[LedgerEntry]) -> None:
        totals = self.totals
        for entry in entries:
            if entry.market is not None:
                place = (entry.cloud, entry.market)
                totals.metered[place] = totals.metered.get(place, ZERO) + entry.usd
            if entry.lost_steps > 0:
                known = entry.job in totals.lost_steps or len(totals.lost_steps) < MAX_NAMED_JOBS
                totals.lost_steps[entry.job if known else OTHER_JOBS] += entry.lost_steps
            if entry.use is not None and entry.use.is_waste:
                totals.wasted[entry.use] += entry.usd


def _remember(cache: OrderedDict[_Key, _T], key: _Key, value: _T) -> None:
    cache[key] = value
    while len(cache) > MOST_REMEMBERED:
        cache.popitem(last=False)


# Six heartbeats: the machine, its agent or the network is down.
SILENT_SECONDS = 60.0
# A second scrape within this many seconds receives the text of the first.
FRESH_SECONDS = 1.0
_BEARER = "Bearer "
_ALIVE = tuple(phase for phase in Phase if not phase.is_over)
# Agent states of a machine that exists and will not train any more.
_DONE = (protocol.ENDED, protocol.FAILED)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The values of all metrics at one moment.

    ``counts``: attempts by phase and reason, ever; ``attempts`` and ``nodes``: those alive; ``silent``: machines that
    have not called for :data:`SILENT_SECONDS`; ``open_orders``, ``overdue_orders``: orders to save without an answer.
    """

    version: str
    now: datetime
    counts: Mapping[tuple[Phase, str], int] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    nodes: Sequence[NodeRecord] = ()
    shortages: int = 0
    silent: int = 0
    open_orders: int = 0
    overdue_orders: int = 0
    totals: StateTotals = field(default_factory=StateTotals)


def render_metrics(snapshot: MetricsSnapshot) -> bytes:
    return generate_latest(_SnapshotCollector(snapshot))


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        yield from _gang_metrics(self._snapshot)
        yield from _machine_metrics(self._snapshot)
        yield from _checkpoint_metrics(self._snapshot)
        yield from _cost_metrics(self._snapshot)


def _gang_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    version_info = GaugeMetricFamily("stepfare_info", "The coordinator's version; always 1.", labels=["version"])
    version_info.add_metric([snapshot.version], 1)
    yield version_info
    phases = Counter(attempt.phase for attempt in snapshot.attempts)
    yield _gauges("stepfare_attempts", "Attempts that are not over, by phase.", "phase", {p: phases[p] for p in _ALIVE})
    ended: Counter[str] = Counter()
    for (phase, reason), count in snapshot.counts.items():
        if phase.is_over:
            ended[reason or "none"] += count
    # This is no counter, because giving up a job changes the reason of its last attempt.
    yield _gauges("stepfare_attempts_over", "Attempts that are over, by reason.", "reason", ended)
    late = sum(attempt.end < snapshot.now for attempt in snapshot.attempts)
    yield GaugeMetricFamily("stepfare_gangs_late", "Attempts that run past their planned end.", late)
    yield GaugeMetricFamily("stepfare_shortages", "Pools that are taken to be short.", snapshot.shortages)


def _machine_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    by_id = {attempt.id: attempt for attempt in snapshot.attempts}
    up = [(by_id[node.attempt], node) for node in snapshot.nodes if node.made_at and not node.gone_at]
    yield GaugeMetricFamily("stepfare_nodes", "Machines that exist and cost.", len(up))
    yield GaugeMetricFamily(
        "stepfare_nodes_silent", f"Machines of whole gangs without a word for {SILENT_SECONDS:g} s.", snapshot.silent
    )
    accelerators: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    hourly_cost: dict[str, UsdPerHour] = {}
    for attempt, node in up:
        accelerators[attempt.cloud] += node.accelerators
        trains = attempt.phase.is_up and not attempt.result and node.agent == protocol.RUNNING
        idle[attempt.cloud] += 0 if trains else node.accelerators
        hourly_cost[attempt.cloud] = hourly_cost.get(attempt.cloud, UsdPerHour(0)) + node.usd_per_hour
    yield _gauges("stepfare_accelerators", "Accelerators of machines that exist.", "cloud", accelerators)
    yield _gauges("stepfare_idle_accelerators", "Accelerators on which no training runs.", "cloud", idle)
    prices = {cloud: price.dollars() for cloud, price in hourly_cost.items()}
    yield _gauges("stepfare_spending_usd_per_hour", "Cost per hour of machines that exist.", "cloud", prices)


def _checkpoint_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("stepfare_orders_open", "Orders to save without an answer yet.", snapshot.open_orders)
    yield GaugeMetricFamily("stepfare_orders_overdue", "Orders to save whose time is over.", snapshot.overdue_orders)
    notices = {kind: snapshot.totals.notices.get(kind, 0) for kind in protocol.NOTICES}
    yield _counters("stepfare_notices", "Notices to machines, by kind.", "kind", notices)
    delays = HistogramMetricFamily(
        "stepfare_notice_to_checkpoint_seconds",
        "Time from a notice's arrival to the first checkpoint that answered it, by the kind of notice.",
        labels=["kind"],
    )
    for kind in protocol.NOTICES:
        delay = snapshot.totals.delays.get(kind, DelayHistogram())
        ends = [*(str(end) for end in DELAY_BUCKETS), "+Inf"]
        delays.add_metric([kind], list(zip(ends, accumulate(delay.counts), strict=True)), delay.seconds)
    yield delays
    yield CounterMetricFamily(
        "stepfare_checkpoints_failed", "Checkpoints that were ordered and failed.", snapshot.totals.failed_saves
    )
    text = "Ranks that reported steps or checkpoints that cannot be true."
    yield CounterMetricFamily("stepfare_reports_refused", text, snapshot.totals.not_believed)
    yield _counters("stepfare_lost_steps", "Steps done and then lost, by job.", "job", snapshot.totals.lost_steps)


def _cost_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    metered = CounterMetricFamily("stepfare_metered_usd", "Cost of machines that are gone.", labels=["cloud", "market"])
    for (cloud, market), usd in sorted(snapshot.totals.metered.items()):
        metered.add_metric([cloud, market.value], usd.dollars())
    yield metered
    yield _counters(
        "stepfare_wasted_usd",
        "Cost of time that trained nothing, by the ledger's kinds of waste.",
        "kind",
        {use.value: usd.dollars() for use, usd in snapshot.totals.wasted.items()},
    )


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _add_values(GaugeMetricFamily(name, text, labels=[label]), values)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _add_values(CounterMetricFamily(name, text, labels=[label]), values)


def _add_values(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for word, value in sorted(values.items()):
        family.add_metric([str(word)], value)
    return family


class Metrics:
    """Answers ``GET /metrics``. May be shared by threads.

    ``token``: clients from other machines must show it; "": they are not answered. ``clock`` dates the state's records,
    ``wall_clock`` orders to save.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        store: StateStore,
        clock: Callable[[], datetime],
        wall_clock: Callable[[], datetime],
        *,
        version: str = "",
        token: str = "",
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._clock, self._wall_clock, self._ticks = store, clock, wall_clock, ticks
        self._version, self._token = version, token
        self._lock = threading.Lock()
        self._tallies = StateCounters(store)
        self._heard: dict[tuple[str, int], tuple[datetime | None, float]] = {}
        self._text, self._made_at = b"", float("-inf")

    def admits(self, authorization: str, *, is_local: bool) -> bool:
        """Return whether a client may read the metrics: it comes from this machine, or shows the token."""
        shown = authorization.removeprefix(_BEARER) if authorization.startswith(_BEARER) else ""
        return is_local or (bool(self._token) and hmac.compare_digest(shown.encode(), self._token.encode()))

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format, at most :data:`FRESH_SECONDS` old. StateError."""
        with self._lock:
            now = self._ticks()
            if now - self._made_at >= FRESH_SECONDS:
                self._text, self._made_at = render_metrics(self._take_snapshot(now)), now
            return self._text

    def _take_snapshot(self, ticks: float) -> MetricsSnapshot:
        now, tallies = self._clock(), self._tallies
        # Attempts are read first, so that the counters know every checkpoint that answers an order read here.
        attempts, nodes = self._store.overview.alive()
        tallies.look()
        orders = [a for a in attempts if a.order_id and a.phase.is_up and not tallies.answered(a)]
        return MetricsSnapshot(
            version=self._version,
            now=now,
            counts=self._store.overview.counts(),
            attempts=attempts,
            nodes=nodes,
            shortages=len(self._store.shortages.in_force(now)),
            silent=self._count_silent(attempts, nodes, ticks),
            open_orders=len(orders),
            overdue_orders=sum(self._is_overdue(attempt) for attempt in orders),
            totals=tallies.totals,
        )

    def _is_overdue(self, attempt: Attempt) -> bool:
        time_limit = timedelta(seconds=attempt.order_seconds)
        return attempt.ordered_at is not None and self._wall_clock() > attempt.ordered_at + time_limit

    def _count_silent(self, attempts: Sequence[Attempt], nodes: Sequence[NodeRecord], ticks: float) -> int:
        """Return the number of silent machines, by this process's own clock, because the state's clock may run fast."""
        up = {attempt.id for attempt in attempts if attempt.phase.is_up}
        heard: dict[tuple[str, int], tuple[datetime | None, float]] = {}
        for node in nodes:
            if node.attempt in up and node.agent not in _DONE:
                known, since = self._heard.get((node.attempt, node.rank), (None, ticks))
                is_same = (node.attempt, node.rank) in self._heard and known == node.heard_at
                heard[node.attempt, node.rank] = (node.heard_at, since if is_same else ticks)
        self._heard = heard
        return sum(ticks - since >= SILENT_SECONDS for _, since in heard.values())
