"""Running totals over the append-only records of a state: its journal, its notices and its ledger."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from pricing.money import ZERO, Usd
from pricing.places import Market
from router.ledger.entry import LedgerEntry, MachineUse
from router.state.records import Attempt, JournalEntry, NoticeRecord
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
SAVED, NOT_SAVED, NOT_BELIEVED = "saved", "not_saved", "not_believed"
WASTE_USES = tuple(use for use in MachineUse if use.is_waste)

_Key = tuple[str, str]
_T = TypeVar("_T")


@dataclass(slots=True)
class DelayHistogram:
    """A histogram of durations by the upper bounds in :data:`DELAY_BUCKETS`; the last count is of longer ones."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DELAY_BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(DELAY_BUCKETS, seconds)] += 1
        self.seconds += seconds


class StateCounters:
    """Running totals, updated by each :meth:`look` with what is new. For one thread at a time.

    ``metered`` is by cloud and market, ``wasted`` by kind of waste; ``delays`` from a notice, by its kind, to the first
    checkpoint that answered it; ``notices`` counts notices by kind.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._seq = self._head = 0
        self._since: datetime | None = None
        self._heard: OrderedDict[_Key, NoticeRecord] = OrderedDict()
        self._saved: OrderedDict[_Key, datetime] = OrderedDict()
        self._seen: dict[tuple[str, int, str], datetime] = {}
        self.delays: dict[str, DelayHistogram] = {}
        self.notices: Counter[str] = Counter()
        self.failed_saves = self.not_believed = 0
        self.lost_steps: Counter[str] = Counter()
        self.metered: dict[tuple[str, Market], Usd] = {}
        self.wasted: dict[MachineUse, Usd] = dict.fromkeys(WASTE_USES, ZERO)

    def look(self) -> None:
        """Read what is new. After a StateError the next call reads it again."""
        for note in self._store.overview.notes((SAVED, NOT_SAVED, NOT_BELIEVED), self._seq):
            self._count_note(note)
        self._read_notices()
        self._read_ledger()

    def answered(self, attempt: Attempt) -> bool:
        """Return whether a checkpoint for the attempt's order is known, as far as that is remembered."""
        return (attempt.id, attempt.order_id) in self._saved

    def _count_note(self, note: JournalEntry) -> None:
        self._seq = note.seq
        if note.what == NOT_BELIEVED:
            self.not_believed += 1
            return
        if note.what == NOT_SAVED:
            self.failed_saves += 1
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
            self.notices[notice.kind] += 1
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
        self.delays.setdefault(notice.kind, DelayHistogram()).add(delay)

    def _read_ledger(self) -> None:
        head, entries = self._store.overview.metered(self._head)
        self._count_entries(entries)
        self._head = head

    def _count_entries(self, entries: Iterable[LedgerEntry]) -> None:
        for entry in entries:
            if entry.market is not None:
                place = (entry.cloud, entry.market)
                self.metered[place] = self.metered.get(place, ZERO) + entry.usd
            if entry.lost_steps > 0:
                known = entry.job in self.lost_steps or len(self.lost_steps) < MAX_NAMED_JOBS
                self.lost_steps[entry.job if known else OTHER_JOBS] += entry.lost_steps
            if entry.use is not None and entry.use.is_waste:
                self.wasted[entry.use] += entry.usd


def _remember(known: OrderedDict[_Key, _T], key: _Key, value: _T) -> None:
    known[key] = value
    while len(known) > MOST_REMEMBERED:
        known.popitem(last=False)
