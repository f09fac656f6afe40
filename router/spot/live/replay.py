"""Replay of a job's past to a blind policy, tick by tick, as views of one window. Pure.

It brings a policy that was just begun to the state of one that had been there all the time. The views are
:class:`router.spot.simulator.blind_policy.BlindView`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from math import inf, isfinite
from operator import attrgetter

import numpy as np

from router.spot.simulator.blind_policy import (
    NEVER,
    BlindView,
    LaunchRequest,
    PolicySession,
    ReplayableSession,
)
from router.spot.simulator.inputs import SimulationSpec
from router.spot.simulator.simulation import IDLE, NOWHERE, SPOT

_since_s, _at_s = attrgetter("since_s"), attrgetter("at_s")


@dataclass(frozen=True, slots=True)
class Tenure:
    """One stay of the job in ``zone`` on ``kind``; times are seconds since the job began.

    It lasted from ``since_s``, working from ``ready_s``, until ``until_s`` (infinite: still). ``from_s`` and ``to_s``
    are the seconds of work left then and at the end.
    """

    kind: int
    zone: int
    since_s: float
    ready_s: float
    until_s: float
    taken: bool
    from_s: float
    to_s: float

    def there(self, at_s: float) -> bool:
        """Return whether it was there just before ``at_s`` and was not preempted until then."""
        return self.since_s < at_s and (self.until_s > at_s or (self.until_s == at_s and not self.taken))

    def alike(self, other: Tenure, until_s: float) -> bool:
        """Return whether both are the same before ``until_s``."""
        ends = self.until_s == other.until_s and self.taken == other.taken
        same = (self.kind, self.zone, self.since_s) == (other.kind, other.zone, other.since_s)
        return same and (ends or min(self.until_s, other.until_s) >= until_s)

    def left_s(self, at_s: float, now_s: float) -> float:
        """Return the work left at ``at_s``, as if it was done evenly."""
        end = min(self.until_s, now_s)
        if at_s >= end or end <= self.ready_s:
            return self.to_s if at_s >= end else self.from_s
        part = max(0.0, at_s - self.ready_s) / (end - self.ready_s)
        return self.from_s + (self.to_s - self.from_s) * part


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply that ``zone`` had spot (``up``) or not, to a ``launch`` or to a probe."""

    at_s: float
    zone: int
    up: bool
    launch: bool


@dataclass(frozen=True, eq=False, slots=True)
class ReplayedHistory:
    """A job's past until ``now_s``, when ``left_s`` of work is left.

    ``tenures`` and ``replies`` are in order; ``is_there``: the last tenure goes on. ``spot_usd`` is by zone the times
    from which on prices held, and the prices.
    """

    terms: SimulationSpec
    now_s: float
    left_s: int
    is_there: bool
    tenures: Sequence[Tenure]
    replies: Sequence[Reply]
    spot_usd: Sequence[tuple[Sequence[float], Sequence[float]]]

    @property
    def tick(self) -> int:
        return int(self.now_s // self.terms.tick_s)


class HistoryReplay:
    """A replay of a history; ``known`` is the view at its current moment."""

    def __init__(self, history: ReplayedHistory) -> None:
        self.history, self.terms = history, history.terms
        zones = len(history.terms.zones)
        self.answer_tick, self.was_up, self.tried = [NEVER] * zones, [False] * zones, [False] * zones
        self.heard = 0
        self.kind, self.zone, self.home, self.lost = IDLE, 0, NOWHERE, False
        self.since, self.delay_s, self.left_s = NEVER, 0.0, float(history.terms.task.work_s)
        self.tick, self.at_s, self.next = 0, 0.0, 0
        self.spot_usd = np.empty((zones, 1))

    def replay_to(self, player: PolicySession | None) -> None:
        """Replay to ``player`` all ticks before the present one that were not replayed before.

        None: there is no session. A session that can be shown the past without deciding is not asked.
        """
        # Asked once: the check of a protocol takes as long as the replay of a tick.
        listener = player if isinstance(player, ReplayableSession) else None
        for tick in range(self.next, self.history.tick):
            self._begin(tick, tick * self.terms.tick_s)
            wish = None
            if listener is not None:
                listener.hear(self.known)
            elif player is not None:
                wish = player.act(self.known)
            self._launch((tick + 1) * self.terms.tick_s, wish)
            if player is not None:
                player.look(self.known)
            self._take_replies((tick + 1) * self.terms.tick_s)
        self.next = max(self.next, self.history.tick)

    def is_continued_by(self, history: ReplayedHistory) -> bool:
        """Return whether ``history`` begins with what was replayed, and more of it can be replayed."""
        replayed_s, old = self.next * self.terms.tick_s, self.history
        same = (history.terms.zones, history.terms.tick_s) == (self.terms.zones, self.terms.tick_s)
        if not same or history.tick < self.next or history.replies[: self.heard] != old.replies[: self.heard]:
            return False
        if self.heard < len(history.replies) and history.replies[self.heard].at_s < replayed_s:
            return False
        before = [[s for s in one.tenures if s.since_s < replayed_s] for one in (old, history)]
        return len(before[0]) == len(before[1]) and all(map(lambda a, b: a.alike(b, replayed_s), *before))

    def of(self, history: ReplayedHistory) -> HistoryReplay:
        """Return this replay, as far as it is, as one of a history that continues it (:meth:`is_continued_by`)."""
        continued = copy(self)
        continued.history, continued.terms = history, history.terms
        continued.answer_tick, continued.was_up, continued.tried = [*self.answer_tick], [*self.was_up], [*self.tried]
        return continued

    def now(self, *, launched: bool = False) -> BlindView:
        """Return the present view, before anything is done about it.

        ``launched``: before what was done just now.
        """
        history = self.history
        self._begin(history.tick, history.now_s)
        if launched:
            return self.known
        last = history.tenures[-1] if history.tenures else None
        if history.is_there and last is not None:
            self._enter_tenure(last)
        else:
            self.kind = IDLE
        self.left_s = history.left_s
        return self.known

    def after(self, wish: LaunchRequest) -> BlindView:
        """Return the present view once the launches are done; ``wish`` is what was requested."""
        self._launch(float(np.nextafter(self.history.now_s, inf)), wish)
        return self.known

    @property
    def known(self) -> BlindView:
        zones = len(self.answer_tick)
        numbers = map(round, (max(1.0, self.left_s), self.zone, self.home, self.delay_s, self.since))
        # Two arrays in place of eight: views are made twice a tick, and making arrays is most of their time.
        counts = np.array([*numbers, 0, *self.answer_tick], dtype=np.int64)
        left_s, zone, home, delay_s, since, window = counts[:6, None]
        answers = np.array([*self.was_up, *self.tried, self.lost])
        return BlindView(
            tick=self.tick,
            ticks=self.terms.ticks,
            window=window,
            left_s=left_s,
            kind=np.array([self.kind], dtype=np.int8),
            zone=zone,
            lost=answers[-1:],
            home=home,
            delay_s=delay_s,
            since=since,
            spot_usd=self.spot_usd,
            answer_tick=counts[6:, None],
            was_up=answers[:zones, None],
            tried=answers[zones:-1, None],
        )

    def _begin(self, tick: int, at_s: float) -> None:
        """Set the view before anything is decided at ``at_s``."""
        self._take_replies(at_s)
        self.tick, self.at_s = tick, at_s
        self.spot_usd = np.array([[usd[bisect_right(since, at_s) - 1]] for since, usd in self.history.spot_usd])
        begun = bisect_left(self.history.tenures, at_s, key=_since_s)
        self.kind, self.lost = IDLE, False
        if not begun:
            return
        last = self.history.tenures[begun - 1]
        self.left_s = last.left_s(at_s, self.history.now_s)
        self.home = last.zone
        if last.there(at_s):
            self._enter_tenure(last)
            return
        self.zone, self.delay_s = last.zone, 0.0
        before = (tick - 1) * self.terms.tick_s
        if last.kind == SPOT and last.taken and last.until_s > before:
            self.lost = True
            self.answer_tick[last.zone], self.was_up[last.zone] = tick, False

    def _stay_in(self, tenure: Tenure) -> None:
        self.kind, self.zone = tenure.kind, tenure.zone
        self.since = int(tenure.since_s // self.terms.tick_s)
        self.delay_s = max(0.0, tenure.ready_s - max(tenure.since_s, self.at_s))

    def _enter_tenure(self, tenure: Tenure) -> None:
        self._stay_in(tenure)
        self.lost = False
        if tenure.kind == SPOT:
            self.answer_tick[tenure.zone], self.was_up[tenure.zone] = self.tick, True

    def _launch(self, before_s: float, wish: LaunchRequest | None) -> None:
        """Apply what was done in the tick before ``before_s``.

        Spot that runs and is requested counts as tried.
        """
        own = self.zone if self.kind == SPOT and wish is not None and not wish.leave[0] else NOWHERE
        replies, tenures = self.history.replies, self.history.tenures
        self.tried = [False] * len(self.answer_tick)
        for one in replies[bisect_left(replies, self.tick * self.terms.tick_s, key=_at_s) :]:
            if one.at_s >= before_s:
                break
            if one.launch:
                self.tried[one.zone] = True
                self.answer_tick[one.zone], self.was_up[one.zone] = self.tick, one.up
        begun = bisect_left(tenures, before_s, key=_since_s)
        tenure = next((s for s in reversed(tenures[:begun]) if s.until_s > self.at_s), None)
        self.kind = IDLE
        if tenure is not None:
            self._stay_in(tenure)
            if own == tenure.zone and wish is not None and isfinite(wish.spot[own, 0]) and tenure.since_s < self.at_s:
                self.tried[own] = True

    def _take_replies(self, before_s: float) -> None:
        replies = self.history.replies
        while self.heard < len(replies) and replies[self.heard].at_s < before_s:
            one = replies[self.heard]
            self.answer_tick[one.zone], self.was_up[one.zone] = int(one.at_s // self.terms.tick_s), one.up
            self.heard += 1


class SessionMemory:
    """The memory of one job's session from one decision to the next, so that only new ticks are replayed.

    Decisions are the same as those of a session to which everything is replayed; it is for callers that play thousands
    of them.
    """

    def __init__(self) -> None:
        self._replay: HistoryReplay | None = None
        self._session: PolicySession | None = None

    def replay_to(self, player: PolicySession, history: ReplayedHistory) -> HistoryReplay:
        """Return the replay of ``history`` to a session that was just begun, up to the present tick."""
        replay = HistoryReplay(history)
        before = self._replay
        if (
            before is not None
            and before.is_continued_by(history)
            and isinstance(player, ReplayableSession)
            and player.recall(self._session)
        ):
            replay = before.of(history)
        replay.replay_to(player)
        if isinstance(player, ReplayableSession):
            twin = copy(player)
            twin.recall(player)
            self._replay, self._session = replay.of(history), twin
        return replay
