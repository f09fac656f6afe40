"""What a machine can be told about its own end, or its health, and whoever looks out for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Notice:
    """``id``: of this announcement, whoever reads it and however often; ``kind``: a word of
    :mod:`router.agent.states`. ``seconds``: how long was left ``at`` this moment of the monotonic clock; None: not
    known. ``waits``: whether the cloud waits, at most so long, for this machine alone to say that it may begin."""

    id: str
    kind: str
    source: str
    seconds: float | None
    what: str
    at: float = field(default_factory=time.monotonic)
    waits: bool = False

    def left(self) -> float | None:
        """Seconds left now, at least 0."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - self.at))


class Watch(Protocol):
    """Something to look at again and again, by one thread."""

    name: str

    def look(self, tell: Callable[[Notice], None]) -> float:
        """Tells what is announced, also what it told before, and returns after how many seconds to look again. May
        raise anything; then it is looked at again later."""
