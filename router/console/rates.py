"""Count requests and failed sign-ins against rates, in the memory of each server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import ceil

from limits import RateLimitItem, parse
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter

# More addresses than this are not remembered; those whose window has ended go first.
_MOST_KEYS = 50_000


class WindowCounts(Storage):
    """Counts by key until a moment of the clock that is given. The library's own asks the system's clock."""

    STORAGE_SCHEME = None

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[str, tuple[int, float]] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        """Return the errors that it can raise."""
        return ValueError

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to the count of a key, whose window begins where it has none, and return it."""
        now = self._clock().timestamp()
        count, ends = self._counts.get(key, (0, 0.0))
        if ends <= now:
            if len(self._counts) >= _MOST_KEYS:
                self._drop_ended(now)
            count, ends = 0, now + expiry
        self._counts[key] = (count + amount, ends)
        return count + amount

    def get(self, key: str) -> int:
        """Return the count of a key."""
        count, ends = self._counts.get(key, (0, 0.0))
        return count if ends > self._clock().timestamp() else 0

    def get_expiry(self, key: str) -> float:
        """Return when the window of a key ends, as seconds since 1970."""
        now = self._clock().timestamp()
        return max(self._counts.get(key, (0, now))[1], now)

    def check(self) -> bool:
        """Return True: memory is always there."""
        return True

    def reset(self) -> int:
        """Forget all counts and return how many there were."""
        count = len(self._counts)
        self._counts.clear()
        return count

    def clear(self, key: str) -> None:
        """Forget the count of a key."""
        self._counts.pop(key, None)

    def _drop_ended(self, now: float) -> None:
        self._counts = {key: entry for key, entry in self._counts.items() if entry[1] > now}
        if len(self._counts) >= _MOST_KEYS:
            self._counts.clear()


class RateLimits:
    """The rates of a console: requests by identity, failed sign-ins by address. A rate of "" is no limit."""

    def __init__(self, requests: str, failed_sign_ins: str, clock: Callable[[], datetime]) -> None:
        self._counts = WindowCounts(clock)
        self._limiter = FixedWindowRateLimiter(self._counts)
        self._clock = clock
        self._requests = parse(requests) if requests else None
        self._failures = parse(failed_sign_ins) if failed_sign_ins else None

    def count_request(self, name: str) -> int:
        """Count a request of somebody; return the seconds to wait where that is too many, else 0."""
        if self._requests is None or self._limiter.hit(self._requests, "request", name):
            return 0
        return self._seconds(self._requests, "request", name)

    def count_failure(self, address: str) -> None:
        """Count a failed sign-in from an address."""
        if self._failures is not None:
            self._limiter.hit(self._failures, "failure", address)

    def wait_for(self, address: str) -> int:
        """Return the seconds until an address may sign in again; 0 where it may now."""
        if self._failures is None or self._limiter.test(self._failures, "failure", address):
            return 0
        return self._seconds(self._failures, "failure", address)

    def _seconds(self, rate: RateLimitItem, *key: str) -> int:
        ends = self._limiter.get_window_stats(rate, *key).reset_time
        return max(1, ceil(ends - self._clock().timestamp()))
