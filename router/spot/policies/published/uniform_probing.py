"""Uniform Progress over zones that have to be asked: "UP(S)", "UP(A)" and "UP(AP)".

They follow the released simulator of SkyNomad (NSDI 2027) and need the guard
:attr:`router.spot.simulator.simulation.GuardMode.PUBLISHED`.

C work, R deadline, d changeover, t seconds since the start, cp work done, ep(t) = t * C / R. Idle: spot is tried zone
by zone; where there is none, on demand if cp < ep(t); on demand at once where C + 2d does not fit any more. On demand:
it stays until cp > ep(t + 2d), then goes for spot, and waits where there is none. On-demand runs where the job last
ran, else in the first zone ("AP": always there), not where it is cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.policies import Rule
from router.spot.policies.published.baselines import UniformProgress, rank_by_price_elsewhere
from router.spot.policies.registry import LivePolicy, RegisteredPolicy
from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import HOUR_S, SimulationSpec
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT
from router.spot.simulator.traces import Bools, Floats, Ints

_UNKNOWN: Final = 0.5  # success rate assumed of a zone that never answered
_SAMPLES: Final = 5  # number of answers that UP(A) remembers of each zone
_TOLERANCE: Final = 1e-6
_GOOD_ENOUGH: Final = 0.9  # share of the best score at which UP(AP) stays


@dataclass(frozen=True, slots=True)
class FailoverProgress:
    """UP(S): the cheapest zone first, the region of the zone where it last was for a whole tick last."""

    def begin(self, terms: SimulationSpec) -> PolicySession:
        return _FailoverSession(terms)


@dataclass(frozen=True, slots=True)
class RateProgress:
    """UP(A): the zone with the best share of successes among its last five answers first.

    It leaves spot for a better zone. While it runs on spot it asks one zone at a time, each every ``interval_s``.
    """

    interval_s: int = 2 * HOUR_S

    def begin(self, terms: SimulationSpec) -> PolicySession:
        return _RateSession(terms, self.interval_s)


@dataclass(frozen=True, slots=True)
class RatePerUsdProgress:
    """UP(AP): as UP(A), by share of all answers over price.

    It leaves spot only for a zone a ninth better, and asks all zones that are due.
    """

    interval_s: int = HOUR_S

    def begin(self, terms: SimulationSpec) -> PolicySession:
        return _RatePerUsdSession(terms, self.interval_s)


def _request_uniform_progress(
    terms: SimulationSpec, view: BlindView, order: Floats, place: Ints
) -> tuple[LaunchRequest, Bools]:
    """Return the request of uniform progress, and where it wants spot or has it.

    Spot is tried in ``order``, and on-demand runs in ``place``.
    """
    task, d = terms.task, terms.task.changeover_s
    done, passed = (task.work_s - view.left_s) * task.deadline_s, view.tick * terms.tick_s
    ahead = done > (passed + 2 * d) * task.work_s
    near = view.left_s + 2 * d > (view.ticks - view.tick) * terms.tick_s
    idle, leave = view.kind == IDLE, (view.kind == ON_DEMAND) & ahead
    wants = (idle & ~near) | leave
    spot = np.where(wants, order, np.inf)
    demand = np.where(idle & (near | (done < passed * task.work_s)), place, NOWHERE)
    return LaunchRequest(spot, demand, leave), wants | (view.kind == SPOT)


class _FailoverSession(PolicySession):
    def __init__(self, terms: SimulationSpec) -> None:
        self.terms, self.region = terms, terms.region_numbers
        self.last = np.full(terms.starts.size, NOWHERE)  # region

    def act(self, view: BlindView) -> LaunchRequest:
        runs = view.kind != IDLE
        self.last[view.window[runs]] = self.region[view.zone[runs]]
        was = self.region[:, None] == self.last[view.window]
        order = view.spot_usd + np.where(was, view.spot_usd.max(), 0.0)
        return _request_uniform_progress(self.terms, view, order, np.maximum(view.home, 0))[0]


class _RateSession:
    """The session of UP(A).

    ``samples`` [zone, window, sample] is 1 up, 0 down, -1 nothing yet, newest last.
    """

    def __init__(self, terms: SimulationSpec, interval_s: int) -> None:
        shape = len(terms.zones), terms.starts.size
        self.terms = terms
        self.every = max(1, round(interval_s / terms.tick_s))
        self.samples = np.full((*shape, _SAMPLES), -1, dtype=np.int8)
        self.next_probe, self.next_sample = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.probed = np.zeros(shape, dtype=bool)
        self.wanted = np.empty(0, dtype=bool)

    def act(self, view: BlindView) -> LaunchRequest:
        zone, window = np.nonzero(self.probed[:, view.window] & (view.answer_tick >= view.tick - 1))
        self.record(zone, view.window[window], view.was_up[zone, window])
        self.probed[:] = False
        lost = np.flatnonzero(view.lost)
        self.record(view.zone[lost], view.window[lost], np.zeros(lost.size, dtype=bool))
        spot = np.flatnonzero(view.kind == SPOT)
        due = spot[view.tick >= self.next_sample[view.zone[spot], view.window[spot]]]
        self.record(view.zone[due], view.window[due], np.ones(due.size, dtype=bool))
        self.next_sample[view.zone[due], view.window[due]] = view.tick + self.every
        score = self.score(view)
        wish, self.wanted = _request_uniform_progress(self.terms, view, -score, self.place(view))
        rows = np.arange(view.window.size)
        leaves = (view.kind == SPOT) & ~self.good(score[view.zone, rows], score.max(axis=0))
        wish.spot = np.where(leaves, -score, wish.spot)
        wish.leave = wish.leave | leaves
        return wish

    def look(self, view: BlindView) -> Bools | None:
        zone, window = np.nonzero(view.tried)
        launched = (view.kind[window] == SPOT) & (view.zone[window] == zone)
        self.record(zone, view.window[window], launched)
        self.next_sample[zone[launched], view.window[window[launched]]] = view.tick + self.every
        due = self.due(view)
        due[view.zone, np.arange(view.window.size)] &= view.kind != SPOT
        self.probed[:, view.window] = due
        zone, window = np.nonzero(due)
        self.next_probe[zone, view.window[window]] = view.tick + self.every
        return due

    def record(self, zone: Ints, window: Ints, up: Bools) -> None:
        """Record one more answer each; no zone twice."""
        self.samples[zone, window] = np.concatenate(
            [self.samples[zone, window, 1:], up[:, None].astype(np.int8)], axis=1
        )

    def score(self, view: BlindView) -> Floats:
        samples = self.samples[:, view.window]
        count = (samples >= 0).sum(axis=2)
        return np.where(count > 0, (samples == 1).sum(axis=2) / np.maximum(count, 1), _UNKNOWN)

    def good(self, scores: Floats, best: Floats) -> Bools:
        good: Bools = scores >= best - _TOLERANCE
        return good

    def place(self, view: BlindView) -> Ints:
        at: Ints = np.maximum(view.home, 0)
        return at

    def due(self, view: BlindView) -> Bools:
        """Return the zone with the fewest answers of those that are due."""
        rows = np.arange(view.window.size)
        ready: Bools = (view.tick >= self.next_probe[:, view.window]) & (view.kind == SPOT) & self.wanted
        ready[view.zone, rows] &= view.kind != SPOT
        count = np.where(ready, (self.samples[:, view.window] >= 0).sum(axis=2), _SAMPLES + 1)
        first = np.argmin(count, axis=0)
        ready &= np.arange(len(ready))[:, None] == first
        return ready


class _RatePerUsdSession(_RateSession):
    """The session of UP(AP); ``next_sample`` is ``next_probe``, for an answer of any kind counts."""

    def __init__(self, terms: SimulationSpec, interval_s: int) -> None:
        super().__init__(terms, interval_s)
        self.next_probe = self.next_sample
        self.ups, self.answers = np.zeros_like(self.next_probe), np.zeros_like(self.next_probe)

    def record(self, zone: Ints, window: Ints, up: Bools) -> None:
        self.ups[zone, window] += up
        self.answers[zone, window] += 1

    def score(self, view: BlindView) -> Floats:
        ups, answers = self.ups[:, view.window], self.answers[:, view.window]
        return np.where(answers > 0, ups / np.maximum(answers, 1), _UNKNOWN) / view.spot_usd

    def good(self, scores: Floats, best: Floats) -> Bools:
        good: Bools = scores >= best * _GOOD_ENOUGH
        return good

    def place(self, view: BlindView) -> Ints:
        return np.zeros(view.window.size, dtype=np.int64)

    def due(self, view: BlindView) -> Bools:
        return np.greater_equal(view.tick, self.next_probe[:, view.window]) & self.wanted


POLICIES: Final = (
    RegisteredPolicy(
        "up-s",
        "UP(S): the region where spot was lost comes last",
        lambda *_: UniformProgress(ranking=rank_by_price_elsewhere),
        lambda *_: FailoverProgress(),
        rule=Rule.FAILOVER_PROGRESS,
        live=lambda _: LivePolicy.fixed(FailoverProgress()),
    ),
    RegisteredPolicy(
        "up-a",
        "UP(A): the zone with the best share of answers first",
        asks=lambda *_: RateProgress(),
        rule=Rule.RATE_PROGRESS,
        live=lambda _: LivePolicy.fixed(RateProgress()),
    ),
    RegisteredPolicy(
        "up-ap",
        "UP(AP): share of answers over price",
        asks=lambda *_: RatePerUsdProgress(),
        rule=Rule.RATE_PER_USD_PROGRESS,
        live=lambda _: LivePolicy.fixed(RatePerUsdProgress()),
    ),
)
