"""Limits of a transfer (time, bandwidth, cancellation), and the measurement of its rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from router.checkpoints.object_store import CancelledError, OutOfTimeError

# Unused bandwidth is saved for the first time at most; waits are divided into naps of the second.
_SAVED_SECONDS, _NAP_SECONDS = 1.0, 0.2
# Early bytes lie in buffers, not at the target, so the rate is unknown before this many seconds.
_MEASURED_SECONDS = 2.0


class TransferLimits:
    """The limits of one or more transfers, one after the other; shared by their threads.

    ``seconds``: the time left from now; ``bytes_per_second``: the most bandwidth to use; ``rate``: the known bytes per
    second, if any; ``counted`` is called with the bytes moved so far, one call at a time.
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        bytes_per_second: float | None = None,
        rate: float | None = None,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        counted: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._ticks, self._sleep, self._most, self._counted = ticks, sleep, bytes_per_second, counted
        self._end = None if seconds is None else ticks() + seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._free_at = ticks()
        self._moved, self._began = 0, ticks()
        self._rate = rate
        # The last error of a store, "" once it answers again.
        self.trouble = ""

    def cancel(self) -> None:
        """Stop the transfer at its next chunk, with CancelledError."""
        self._cancelled = True

    def lift(self) -> None:
        """Remove the limit of bandwidth from now on."""
        self._most = None

    def check(self) -> None:
        """Raise OutOfTimeError or CancelledError if the transfer has to stop."""
        if self._cancelled:
            raise CancelledError("cancelled")
        if self._end is not None and self._ticks() >= self._end:
            raise OutOfTimeError(self.time_over, "run it again: what was copied is not copied twice")

    @property
    def time_over(self) -> str:
        """The words for a transfer that took too long, with the error that it was waiting to pass."""
        return f"the time was over; {self.trouble}" if self.trouble else "the time was over"

    def take(self, count: int) -> None:
        """Count bytes that are moved now, and wait while they exceed the bandwidth."""
        self.check()
        with self._lock:
            self._moved += count
            self._counted(self._moved)
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
        return self._moved

    @property
    def rate(self) -> float | None:
        """The bytes per second since the beginning, or as given then; None while unknown."""
        took = self._ticks() - self._began
        return self._moved / took if self._moved and took >= _MEASURED_SECONDS else self._rate

    @property
    def left(self) -> float | None:
        """The seconds left; None without a limit."""
        return None if self._end is None else max(0.0, self._end - self._ticks())

    def can_end(self, count: int) -> bool:
        """Return whether this many bytes can be moved in the time left, as far as is known."""
        left, rate = self.left, self.rate
        return left is None or (left > 0 and (rate is None or count <= rate * left))
