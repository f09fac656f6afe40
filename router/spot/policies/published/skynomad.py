"""SkyNomad's policy (NSDI 2027; its released code where the paper's text differs), for comparison.

Each tick, a zone is worth U = V (L - d)+ / L - price - egress / L on spot, V - price where it runs already, V - price
less (d V + egress elsewhere) on demand, and 0 idle; V: the value of an hour of work, L: its expected lifetime. The
action of the highest worth is tried first, until something launches. It needs the guard
:attr:`router.spot.simulator.simulation.GuardMode.PUBLISHED`.

Book-keeping of the released code that its figures rest on is preserved: a zone left for another one counts as running
on until spot or a probe succeeds there again; a probe that succeeded is not repeated until spot is tried there; an
instance put in the place of on-demand in its own zone counts as given up when it is preempted. One thing is not
preserved: a probe where spot runs, which makes that tick cheaper there, is none here.

Lifetimes are learned during one job, from runs and probes there: Nelson-Aalen with a burst factor.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from math import exp, inf
from typing import Final

import numpy as np

from router.spot.policies import Rule
from router.spot.policies.registry import LivePolicy, RegisteredPolicy
from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession
from router.spot.simulator.blind_simulator import PROBE_S
from router.spot.simulator.inputs import HOUR_S, SimulationSpec
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT
from router.spot.simulator.traces import Bools

PROBE_TICKS: Final = 6
_MARGIN_USD, _MARGIN_GB, _MARGIN_V = 0.5, 0.0002, 0.05  # the margin by which an action must be better than staying
_OVER_PLAN: Final = 1.2
_PLAN_EGRESS_USD: Final = 0.02  # dollars a GB
_AVAILABLE_H: Final = 12.0
_RECENT_H: Final = 10.0
_FIRST_S: Final = 600
_CLOSE: Final = 1e-6
_NO_HAZARD: Final = 1e-8  # hazard of a zone never seen to fail
_SAME: Final = 1e-9
_MOST_RISK: Final = 8.0  # the burst factor looks back over this number of expected failures
_BURST_RISK: Final = 1.0  # expected failures of the stretch in which failures are dense


class HourValue(Enum):
    """The value V of an hour of work.

    ``PLAN`` is 1.2 times the dollars an hour of a plan for the rest. ``RATE`` is c_od times the needed rate over the
    planned rate; ``BARRIER``, the paper's, is c_od times the needed rate over the rate so far; both are at least the
    cheapest spot price.
    """

    PLAN = "plan"
    RATE = "rate"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class SkyNomad:
    """SkyNomad with the settings of the H100 figures; :meth:`v100` has those of the V100 ones.

    ``most_h`` is the longest lifetime that it believes in. ``follows``: what probes and launches say of a zone counts
    as a run there (the "virtual availability" of the code). ``gated``: whether the margin holds.
    """

    value: HourValue = HourValue.PLAN
    most_h: float = 2.0
    follows: bool = False
    checkpoint_gb: float = 50.0
    probe_ticks: int = PROBE_TICKS
    gated: bool = True

    @classmethod
    def v100(cls) -> SkyNomad:
        """Return the policy with the settings of the V100 figure."""
        return cls(HourValue.RATE, inf, True)

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        return _SkyNomadSession(self, terms)


class _SkyNomadSession:
    def __init__(self, rule: SkyNomad, terms: SimulationSpec) -> None:
        self.jobs = [_WindowState(rule, terms) for _ in range(terms.starts.size)]

    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        for row, window in enumerate(view.window.tolist()):
            tries, wish.demand[row] = self.jobs[window].act(view, row)
            wish.spot[tries, row] = np.arange(len(tries))
        return wish

    def look(self, view: BlindView, /) -> Bools | None:
        looks = np.zeros(view.answer_tick.shape, dtype=bool)
        for row, window in enumerate(view.window.tolist()):
            looks[self.jobs[window].look(view, row), row] = True
        return looks


class _WindowState:
    """The state of one window.

    ``spot`` is the zone of the instance that it takes for running; ``imagined`` are zones with a probe that succeeded
    and was not followed up; ``last`` is where it last ran, by its own book-keeping.
    """

    def __init__(self, rule: SkyNomad, terms: SimulationSpec) -> None:
        self.rule, self.terms = rule, terms
        self.tick_h, self.d_h = terms.tick_s / HOUR_S, terms.task.changeover_s / HOUR_S
        self.on_demand = [float(usd) for usd in terms.on_demand_usd]
        self.zones = range(len(self.on_demand))
        self.lives = [LifetimeEstimator(self.tick_h, rule.follows) for _ in self.zones]
        self.next_probe = [0 for _ in self.zones]
        self.imagined: set[int] = set()
        self.probed: list[int] = []
        self.beside: int | None = None  # where on-demand ran while it probed
        self.probed_h = [0.0 for _ in self.zones]
        self.seen: list[bool | None] = [None for _ in self.zones]
        self.done_h: list[float] = []
        self.spot: int | None = None
        self.given_up = False
        self.last: int | None = None
        self.before: int | None = None  # where something ran when the tick began
        self.tries: list[int] = []
        self.rests = False
        self.now = 0.0
        self.left_h = self.time_h = 0.0
        self.price: list[float] = []
        self.hours: list[float] = []

    def act(self, view: BlindView, row: int) -> tuple[list[int], int]:
        """Return the zones to try on spot, best first, and where to run on demand then."""
        self._take_answers(view, row)
        self.now = view.tick * self.tick_h
        kind, zone = int(view.kind[row]), int(view.zone[row])
        if self.spot is not None and not (kind == SPOT and zone == self.spot):
            self.lives[self.spot].close(self.now, not self.given_up)
            self.spot, self.given_up = None, False
        for life in self.lives:
            life.pass_tick(self.now)
        self.left_h = float(view.left_s[row]) / HOUR_S
        self.done_h.append(self.terms.task.work_s / HOUR_S - self.left_h)
        self.time_h = self.terms.task.deadline_s / HOUR_S - self.now
        self.price = view.spot_usd[:, row].tolist()
        self.hours = [self._lifetime(z) for z in self.zones]
        self.before = None if kind == IDLE else zone
        self.last = self.last if self.before is None else zone
        return self._choose(self._hour_value(), kind)

    def look(self, view: BlindView, row: int) -> list[int]:
        """Record what launched, and return the zones to probe."""
        launched = int(view.zone[row]) if view.since[row] == view.tick else None
        on_spot = launched is not None and view.kind[row] == SPOT
        failed = set()
        for z in self.tries:
            if not view.tried[z, row]:
                continue
            if z in self.imagined:
                self.lives[z].close(self.now, False)
                self._stop_imagining(z)
            if on_spot and z == launched:
                self._launched(z)
                break
            failed.add(z)
            self.lives[z].failed_to_start()
            self._follow_availability(z, False)
        here = self.before
        if launched is not None or self.rests:
            self.last = here = launched
        if launched is not None and self.before is not None:
            self.given_up |= self.spot == self.before
            self._follow_availability(self.before, False)
        self.beside = int(view.zone[row]) if view.kind[row] == ON_DEMAND else None
        self.probed = [
            z
            for z in self.zones
            if z != here and z not in self.imagined and z not in failed and view.tick >= self.next_probe[z]
        ]
        for z in self.probed:
            self.next_probe[z] = view.tick + self.rule.probe_ticks
        return self.probed

    def _take_answers(self, view: BlindView, row: int) -> None:
        for z in self.probed:
            life = self.lives[z]
            if view.answer_tick[z, row] < view.tick - 1:
                continue
            if view.was_up[z, row]:
                life.open(self.now, real=False)
                self.imagined.add(z)
                life.imagined(0.0)
                self.probed_h[z] += self._probe_age_h(z)
                self._follow_availability(z, True)
            else:
                life.failed_to_start()
                life.imagined(None)
                self._follow_availability(z, False)
        self.probed = []

    def _probe_age_h(self, zone: int) -> float:
        """Return the hours of age that a probe adds: its bill over the spot price.

        The released code takes the whole tick's bill where on-demand runs in the same zone; without that its figures
        are not reproduced.
        """
        return self.on_demand[zone] * self.tick_h / self.price[zone] if zone == self.beside else PROBE_S / HOUR_S

    def _launched(self, zone: int) -> None:
        self.lives[zone].open(self.now, real=True)
        self.lives[zone].launched()
        self.spot, self.given_up = zone, False

    def _stop_imagining(self, zone: int) -> None:
        self.imagined.discard(zone)
        self.lives[zone].imagined(None)

    def _follow_availability(self, zone: int, up: bool) -> None:
        if not self.rule.follows or zone == self.spot or (was := self.seen[zone]) == up:
            return
        self.seen[zone] = up
        if up:
            self.lives[zone].open(self.now, real=False)
        elif was is not None:
            self.lives[zone].close(self.now, True)

    def _lifetime(self, zone: int) -> float:
        life = self.lives[zone]
        age = max(life.age(self.now), self.probed_h[zone] if self.rule.follows else 0.0)
        return min(life.expected(age, self.now), self.rule.most_h, self.time_h)

    def _choose(self, value: float, kind: int) -> tuple[list[int], int]:
        here, ways, d = self.before, self.terms.ways.egress_usd, self.d_h
        origin = here if here is not None else self.last
        stay_worth = 0.0
        if here is not None:
            stay_worth = value - (self.price[here] if kind == SPOT else self.on_demand[here])
        least = stay_worth + _MARGIN_USD + _MARGIN_GB * self.rule.checkpoint_gb + _MARGIN_V * value
        gated = self.rule.gated and here is not None
        options: list[tuple[float, int, int]] = [(0.0, IDLE, NOWHERE)]
        for z in self.zones:
            hours, stays = self.hours[z], kind == SPOT and z == here
            works = hours if stays else hours - d
            if works <= 0 or stays:
                continue
            worth = value * works / hours - self.price[z]
            worth -= 0.0 if origin is None or z == origin else float(ways[origin, z]) / max(hours, _CLOSE)
            if worth >= 0 and not (gated and z != here and worth <= least):
                options.append((worth, SPOT, z))
        for z in self.zones:
            worth = value - self.on_demand[z]
            worth -= 0.0 if origin is None or z == origin else d * value + float(ways[origin, z])
            if worth >= 0 and not (kind == ON_DEMAND and z == here) and not (gated and worth <= least):
                options.append((worth, ON_DEMAND, z))
        self.tries, self.rests = [], False
        for worth, what, z in sorted(options, key=lambda o: -o[0]):
            if worth <= stay_worth:
                break
            if what == SPOT:
                self.tries.append(z)
                continue
            self.rests = what == IDLE
            return self.tries, z
        return self.tries, NOWHERE

    def _hour_value(self) -> float:
        task, done = self.terms.task, self.done_h[-1]
        if self.rule.value is HourValue.PLAN:
            return _OVER_PLAN * self._plan_usd_per_hour()
        planned = task.work_s / task.deadline_s
        so_far = done / self.now if self.rule.value is HourValue.BARRIER and done > 0 else planned
        return max(min(self.on_demand) * (self.left_h / self.time_h) / so_far, min(self.price))

    def _plan_usd_per_hour(self) -> float:
        """Return the dollars an hour of a plan for the rest.

        The plan takes a share on demand, the rest on spot where an hour of work is cheapest first, as much as each zone
        was available, what is missing on demand, and egress.
        """
        d, demand_usd = self.d_h, min(self.on_demand)
        on_demand = min(1.0, max(0.0, self._on_demand_share())) * self.left_h
        target = self.left_h - on_demand
        zones = []
        for z in self.zones:
            hours = self.hours[z]
            gives = self.lives[z].availability(self.now, _AVAILABLE_H) * self.time_h * max(hours - d, 0.0) / hours
            if gives > 0:
                zones.append((self.price[z] * hours / max(hours - d, _CLOSE), gives))
        usd, spot, places = 0.0, 0.0, 0
        for price, gives in sorted(zones, key=lambda zone: zone[0]):
            if spot >= target:
                break
            more = min(gives, target - spot)
            usd, spot, places = usd + more * price, spot + more, places + 1
        on_demand += max(0.0, target - spot)
        places += on_demand > 0
        usd += on_demand * demand_usd + max(0, places - 1) * self.rule.checkpoint_gb * _PLAN_EGRESS_USD
        return usd / max(self.left_h, _CLOSE)

    def _on_demand_share(self) -> float:
        """Return the share to run on demand.

        It follows from where the line of recent progress meets the last moment for on-demand, T - (C - cp) - 2d.
        """
        t, done, task = self.now, self.done_h[-1], self.terms.task
        if t <= 0:
            return 0.0
        if abs(done - t) < _CLOSE / HOUR_S:
            return 0.5
        rate, end = self._recent_rate(), task.deadline_s / HOUR_S
        if abs(rate - 1) < _CLOSE:
            return 0.0
        meets = (rate * t - done + task.work_s / HOUR_S + 2 * self.d_h - end) / (rate - 1)
        return 0.0 if meets >= end else 1.0 if meets <= 0 else (end - meets) / (end - t)

    def _recent_rate(self) -> float:
        """Return the work done an hour over the last ten hours, or since the beginning."""
        done, t = self.done_h[-1], self.now
        if t * HOUR_S < _FIRST_S:
            return done / t
        begin = max(0.0, t - _RECENT_H)
        first = int(begin / self.tick_h + _CLOSE)
        before = self.done_h[first - 1] if first else 0.0
        return max(0.0, min(1.0, (done - before) / (t - begin)))


@dataclass(frozen=True, slots=True)
class InstanceRun:
    """A run from ``start`` to ``end``; ``failed`` says that it was preempted, else it was given up."""

    start: float
    end: float
    failed: bool


@dataclass(eq=False, slots=True)
class LifetimeEstimator:
    """The lifetimes of one zone, in hours.

    ``runs`` are over; ``opened`` is when the present one began, None if there is none. A real run is of an instance;
    the others are imagined, from a probe that succeeded on. ``counts_present``: the present run counts as one that has
    not failed so far.

    Each tick: call :meth:`pass_tick` once, then the methods for what happens in it.
    """

    tick_h: float
    counts_present: bool = False
    runs: list[InstanceRun] = field(default_factory=list)
    opened: float | None = None
    real: bool = False
    burst: float = 1.0
    _failures: int = 0
    _last_age: float | None = None
    _last_imagined: float | None = None
    _recent: deque[tuple[float, int]] = field(default_factory=deque)
    _knots: list[tuple[float, float]] | None = None

    def open(self, now: float, real: bool) -> None:
        """Begin a run; one that was open is discarded."""
        self.opened, self.real = now, real

    def close(self, now: float, failed: bool) -> None:
        """End the present run, if there is one; a failure counts for the burst factor in any case."""
        if self.opened is not None:
            self.runs.append(InstanceRun(self.opened, now, failed))
            self._knots = None
        self.opened = None
        self._failures += failed

    def failed_to_start(self) -> None:
        """Record that a launch or a probe found the zone down."""
        self._failures += 1

    def launched(self) -> None:
        """Start the age of a real run."""
        self._last_age, self._last_imagined = 0.0, None

    def imagined(self, age: float | None) -> None:
        """Start the age of an imagined run at 0.0, or end it (None)."""
        self._last_imagined = age

    def age(self, now: float) -> float:
        """Return the age of the present run; 0 without one."""
        return 0.0 if self.opened is None else max(0.0, now - self.opened)

    def expected(self, age: float, now: float) -> float:
        """Return the hours that a run of this age will still last."""
        knots, tail = self._hazard(now)
        total, share, t = 0.0, 1.0, max(0.0, age)
        for at, step in knots:
            if at > t + 1e-12:
                total += share * (at - t)
                share *= exp(-self.burst * step)
                t = at
        ends = 1.0 - exp(-self.burst * tail)
        rest = share * self.tick_h / (ends if ends > _SAME else max(self.burst * tail, _SAME))
        return max(total + rest, 0.0)

    def availability(self, now: float, hours: float) -> float:
        """Return the share of the last ``hours``, or of all since 0, in which it is known to have run.

        It is 0 if it never ran.
        """
        begin, over = max(0.0, now - hours), min(hours, now)
        if over <= 0:
            return 0.0
        up = sum(max(0.0, min(run.end, now) - max(run.start, begin)) for run in self.runs)
        if self.opened is not None:
            up += max(0.0, now - max(self.opened, begin))
        return min(1.0, up / over)

    def pass_tick(self, now: float) -> None:
        """Add the expected and the actual failures of the last tick to the burst factor."""
        knots, tail = self._hazard(now)
        before = after = None
        if self.opened is not None:
            after = self.age(now)
            last = self._last_age if self.real else self._last_imagined
            before = max(after - self.tick_h, 0.0) if last is None else last
        self._record_age(after)
        risk = (
            0.0
            if before is None or after is None
            else max(0.0, _cumulative_hazard(knots, after, tail) - _cumulative_hazard(knots, before, tail))
        )
        if risk <= 0 and (after is not None or self._failures):
            if not knots:
                risk = tail * self.tick_h
            elif before is not None and after is not None and before >= knots[-1][0]:
                risk = max(risk, tail * max(0.0, after - before))
        if self._failures and risk <= 0:
            risk = tail * self.tick_h
        if risk > 0 or self._failures:
            self._recent.append((risk, self._failures))
            self._update_burst()
        self._failures = 0

    def _record_age(self, age: float | None) -> None:
        if age is not None and not self.real:
            self._last_age, self._last_imagined = None, age
            return
        self._last_age = age
        if not self.counts_present:
            self._last_imagined = None

    def _hazard(self, now: float) -> tuple[list[tuple[float, float]], float]:
        """Return (age, d_j / n_j) of each age at which a run failed, and the hazard beyond the last."""
        if self._knots is None or (self.counts_present and self.opened is not None):
            lasted = [(run.end - run.start, run.failed) for run in self.runs]
            if self.counts_present and self.age(now) > 0:
                lasted.append((self.age(now), False))
            self._knots = [
                (at, sum(f and abs(x - at) <= _SAME for x, f in lasted) / sum(x + _SAME >= at for x, _ in lasted))
                for at in sorted({x for x, f in lasted if f})
            ]
        return self._knots, max(self._knots[-1][1], _NO_HAZARD) if self._knots else _NO_HAZARD

    def _update_burst(self) -> None:
        total = sum(risk for risk, _ in self._recent)
        while self._recent and total - self._recent[0][0] >= _MOST_RISK:
            total -= self._recent.popleft()[0]
        self.burst = 1.0 if total < 1.0 else max(1.0, self._densest_ratio())

    def _densest_ratio(self) -> float:
        """Return failures over expected ones in the densest recent stretch of at most one expected failure."""
        risk, failures, best = 0.0, 0, -inf
        for count, (more, failed) in enumerate(reversed(self._recent), start=1):
            risk += more
            failures += failed
            if risk > _BURST_RISK + _SAME:
                if count == 1:
                    best = failures / risk
                break
            if count > 1 or risk > 1e-6 or failures:
                best = max(best, failures / risk if risk > 0 else failures / 1e-6)
        return best


def _cumulative_hazard(knots: list[tuple[float, float]], age: float, tail: float) -> float:
    total, last = 0.0, 0.0
    for at, step in knots:
        if at >= age:
            break
        total += step
        last = at
    return total + max(0.0, age - last) * tail


POLICIES: Final = (
    RegisteredPolicy(
        "skynomad",
        "SkyNomad as its H100 figures have it",
        asks=lambda _, __, gb: SkyNomad(checkpoint_gb=gb),
        rule=Rule.SKYNOMAD,
        live=lambda _: LivePolicy.fixed(SkyNomad()),
    ),
    RegisteredPolicy("skynomad-v100", "SkyNomad as its V100 figure has it", asks=lambda *_: SkyNomad.v100()),
)
