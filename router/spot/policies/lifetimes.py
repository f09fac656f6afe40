"""Expected remaining life of a zone's spot, learned during one job: Nelson-Aalen with a burst factor.

It learns from runs and probes there, as SkyNomad has it (NSDI 2027, sections on lifetimes; its released code where the
two differ). Times are hours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import exp, inf
from typing import Final

_NO_HAZARD: Final = 1e-8  # hazard of a zone never seen to fail
_SAME: Final = 1e-9
_MOST_RISK: Final = 8.0  # the burst factor looks back over this number of expected failures
_BURST_RISK: Final = 1.0  # expected failures of the stretch in which failures are dense


@dataclass(frozen=True, slots=True)
class InstanceRun:
    """A run from ``start`` to ``end``; ``failed`` says that it was preempted, else it was given up."""

    start: float
    end: float
    failed: bool


@dataclass(eq=False, slots=True)
class LifetimeEstimator:
    """The lifetimes of one zone.

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
    """Return the expected failures up to ``age``."""
    total, last = 0.0, 0.0
    for at, step in knots:
        if at >= age:
            break
        total += step
        last = at
    return total + max(0.0, age - last) * tail
