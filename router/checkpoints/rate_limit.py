"""What bounds a transfer (time, bandwidth, somebody who cancels it), and how fast it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from router.checkpoints.errors import CancelledError, OutOfTimeError

# Bandwidth that was not used is saved up for so long, and slept off in pieces so long.
_SAVED_SECONDS, _NAP_SECONDS = 1.0, 0.2
# What is read first lies in buffers, not at its goal: before so many seconds nothing is known of the speed.
_MEASURED_SECONDS = 2.0


class Pace:
    """Shared by the threads of one or more transfers, one after the other. ``seconds``: how long there is, from now;
    ``bytes_per_second``: the most that is taken; ``rate``: bytes a second, as far as anybody knows."""

    def __init__(
        self,
        *,
        seconds: float | None = None,
        bytes_per_second: float | None = None,
        rate: float | None = None,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ticks, self._sleep, self._most = ticks, sleep, bytes_per_second
        self._end = None if seconds is None else ticks() + seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._free_at = ticks()
        self._moved, self._began = 0, ticks()
        self._rate = rate

    def cancel(self) -> None:
        """Whoever works stops at the next chunk, with CancelledError."""
        self._cancelled = True

    def lift(self) -> None:
        """From now on bandwidth has no bound."""
        self._most = None

    def check(self) -> None:
        """OutOfTimeError, CancelledError."""
        if self._cancelled:
            raise CancelledError("cancelled")
        if self._end is not None and self._ticks() >= self._end:
            raise OutOfTimeError("the time was over", "again: what was copied is not copied twice")

    def take(self, count: int) -> None:
        """So many bytes are moved now; waits while that is too many."""
        self.check()
        with self._lock:
            self._moved += count
            now = self._ticks()
            if self._most is None:
                return
            self._free_at = max(self._free_at, now - _SAVED_SECONDS) + count / self._most
            until = self._free_at
        while (left := until - self._ticks()) > 0 and self._is_bounded():
            self._sleep(min(left, _NAP_SECONDS))
            self.check()

    def _is_bounded(self) -> bool:
        return self._most is not None

    @property
    def moved(self) -> int:
        """Bytes so far."""
        return self._moved

    @property
    def rate(self) -> float | None:
        """Bytes a second since the beginning, or as was said then; None while nobody knows."""
        took = self._ticks() - self._began
        return self._moved / took if self._moved and took >= _MEASURED_SECONDS else self._rate

    @property
    def left(self) -> float | None:
        """Seconds."""
        return None if self._end is None else max(0.0, self._end - self._ticks())

    def can_end(self, count: int) -> bool:
        """Whether so many bytes can be moved in the time that is left, as far as anybody knows."""
        left, rate = self.left, self.rate
        return left is None or (left > 0 and (rate is None or count <= rate * left))
