"""Notices that a machine receives about its own end or its health, and the sources that report them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class MachineNotice:
    """A notice to this machine.

    ``id`` belongs to the announcement itself, whoever reads it and however often; ``kind`` is a word of
    :mod:`router.agent.protocol`. ``seconds``: how long was left ``at`` this moment of the monotonic clock; None: not
    known. ``waits``: whether the cloud waits, at most that long, for this machine alone to let the event begin.
    """

    id: str
    kind: str
    source: str
    seconds: float | None
    what: str
    at: float = field(default_factory=time.monotonic)
    waits: bool = False

    def left(self) -> float | None:
        """Return the seconds left now, at least 0."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - self.at))


class NoticeWatch(Protocol):
    """A source of notices that one thread reads repeatedly."""

    name: str

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Call ``tell`` with each current notice and return the seconds until the next call.

        Notices that were reported before are reported again. May raise anything; the source is then read again later.
        """
