"""Gangs whose steps suddenly take much longer: a machine among them is slow, though nobody says so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from router.state.records import NodeRecord

# So many times as long as the best that the same gang has shown, at so many looks in a row.
SLOW, LOOKS = 2.0, 3


@dataclass(slots=True)
class Paces:
    """What each attempt was seen to do, look by look. A gang trains as fast as its slowest rank, so nothing says which
    one it is."""

    _best: dict[str, float] = field(default_factory=dict)
    _slow: dict[str, int] = field(default_factory=dict)

    def slower(self, attempt: str, nodes: Sequence[NodeRecord]) -> float | None:
        """How many times as long as before its steps take, once that is so for long enough; then it is forgotten. None
        where all is well, or its training says no times."""
        known = [node.step_seconds for node in nodes if node.step_seconds]
        if not known:
            return None
        now = max(known)
        best = self._best[attempt] = min(now, self._best.get(attempt, now))
        if now < SLOW * best:
            self._slow.pop(attempt, None)
            return None
        self._slow[attempt] = self._slow.get(attempt, 0) + 1
        if self._slow[attempt] < LOOKS:
            return None
        del self._slow[attempt], self._best[attempt]
        return now / best

    def forget_but(self, attempts: Collection[str]) -> None:
        """Those that are over."""
        self._best = {name: seconds for name, seconds in self._best.items() if name in attempts}
        self._slow = {name: looks for name, looks in self._slow.items() if name in attempts}
