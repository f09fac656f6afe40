"""Say whether a server can answer: it is not about to stop, and its state can be read and is of this version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from router.state.errors import StateError, TooNewError

# Probes of many balancers share an answer this long.
SHARED_SECONDS = 0.5
STOPPING = "this server is stopping"
UNREADABLE = "the state cannot be read now"
OTHER_VERSION = "the state was upgraded by a later version of stepfare"


@dataclass(slots=True)
class Readiness:
    """Whether a server is ready. ``check`` raises what :meth:`StateStore.check_version` raises.

    Reasons name no place of the state, since everybody may ask.
    """

    check: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    _is_draining: bool = False
    _last: tuple[float, str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_draining(self) -> bool:
        """Return whether the server was told to stop."""
        return self._is_draining

    def drain(self) -> None:
        """Note that the server was told to stop; a signal handler may call this."""
        self._is_draining = True

    def reason(self) -> str:
        """Return why the server is not ready, "" where it is."""
        if self._is_draining:
            return STOPPING
        with self._lock:
            now = self.clock()
            if self._last is None or now - self._last[0] >= SHARED_SECONDS:
                self._last = (now, self._ask_state())
            return self._last[1]

    def _ask_state(self) -> str:
        try:
            self.check()
        except TooNewError:
            return OTHER_VERSION
        except StateError:
            return UNREADABLE
        return ""
