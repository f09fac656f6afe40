"""Who has not called for too long."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from router.agent import states
from router.state.records import Attempt, NodeRecord

_COUNTS = 0.5


@dataclass(slots=True)
class Silence:
    """How long each rank has not called, by this process's own clock: theirs are not to be trusted, and a cloud's may
    be sped up. Of a time in which nobody looked, half of the limit counts at most: whoever was stopped or asleep did
    not listen either."""

    limit_s: float
    _heard: dict[tuple[str, int], tuple[datetime | None, float]] = field(default_factory=dict)
    _looked: dict[str, float] = field(default_factory=dict)

    def lost(self, attempt: Attempt, nodes: Sequence[NodeRecord], limit_s: float | None = None) -> list[int]:
        """The ranks that have been silent for too long and have not ended; ``limit_s``: for so long already."""
        now, limit = time.monotonic(), self.limit_s if limit_s is None else min(limit_s, self.limit_s)
        unseen = max(0.0, now - self._looked.get(attempt.id, now) - self.limit_s * _COUNTS)
        self._looked[attempt.id] = now
        lost = []
        for node in nodes:
            known, since = self._heard.get((attempt.id, node.rank), (None, now))
            if (attempt.id, node.rank) not in self._heard or known != node.heard_at:
                self._heard[attempt.id, node.rank] = (node.heard_at, now)
                continue
            since += unseen
            self._heard[attempt.id, node.rank] = (known, since)
            if node.agent not in (states.ENDED, states.FAILED) and now - since > limit:
                lost.append(node.rank)
        return lost

    def forget_but(self, attempts: Collection[str]) -> None:
        """Those that are over call no more."""
        self._heard = {key: heard for key, heard in self._heard.items() if key[0] in attempts}
        self._looked = {name: at for name, at in self._looked.items() if name in attempts}
