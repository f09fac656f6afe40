"""Detect gangs whose steps suddenly take much longer, because one of their machines is slow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from router.state.records import NodeRecord

# A gang is slow when its steps take SLOW_FACTOR times its own best, in SLOW_OBSERVATIONS consecutive observations.
SLOW_FACTOR, SLOW_OBSERVATIONS = 2.0, 3


@dataclass(slots=True)
class StragglerMonitor:
    """Tracks the step times of each attempt, observation by observation.

    A gang trains as fast as its slowest rank, so step times do not tell which rank is slow.
    """

    _best: dict[str, float] = field(default_factory=dict)
    _slow_counts: dict[str, int] = field(default_factory=dict)

    def slower(self, attempt: str, nodes: Sequence[NodeRecord]) -> float | None:
        """Return the slowdown factor of an attempt that has been slow for long enough, and then forget the attempt.

        None where all is well, or where its training reports no times.
        """
        step_times = [node.step_seconds for node in nodes if node.step_seconds]
        if not step_times:
            return None
        now = max(step_times)
        best = self._best[attempt] = min(now, self._best.get(attempt, now))
        if now < SLOW_FACTOR * best:
            self._slow_counts.pop(attempt, None)
            return None
        self._slow_counts[attempt] = self._slow_counts.get(attempt, 0) + 1
        if self._slow_counts[attempt] < SLOW_OBSERVATIONS:
            return None
        del self._slow_counts[attempt], self._best[attempt]
        return now / best

    def forget_but(self, attempts: Collection[str]) -> None:
        """Forget all attempts but these."""
        self._best = {name: seconds for name, seconds in self._best.items() if name in attempts}
        self._slow_counts = {name: looks for name, looks in self._slow_counts.items() if name in attempts}
