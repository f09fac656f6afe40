"""Count requests and failed sign-ins against rates, in the memory of each server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import ceil

from limits import RateLimitItem, parse

# More names and addresses than this are not remembered; those whose window has ended go first.
_MOST_KEYS = 50_000


class RateLimits:
    """The rates of a console: requests by identity, failed sign-ins by address. A rate of "" is no limit.

    A window begins with the first request of a name. It is measured by the clock that is given: strategies of the
    library ask the system's, and their memory starts a thread.
    """

    def __init__(self, requests: str, failed_sign_ins: str, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._requests = parse(requests) if requests else None
        self._failures = parse(failed_sign_ins) if failed_sign_ins else None
        # The count of each name, and when its window ends.
        self._windows: dict[tuple[str, str], tuple[int, float]] = {}

    def count_request(self, name: str) -> int:
        """Count a request of somebody; return the seconds to wait where that is too many, else 0."""
        key = ("request", name)
        self._count(self._requests, key)
        return self._seconds_over(self._requests, key, 1)

    def count_failure(self, address: str) -> None:
        """Count a failed sign-in from an address."""
        self._count(self._failures, ("failure", address))

    def wait_for(self, address: str) -> int:
        """Return the seconds until an address may sign in again; 0 where it may now."""
        return self._seconds_over(self._failures, ("failure", address), 0)

    def _count(self, rate: RateLimitItem | None, key: tuple[str, str]) -> None:
        if rate is None:
            return
        now = self._clock().timestamp()
        count, ends = self._windows.get(key, (0, 0.0))
        if ends <= now:
            if len(self._windows) >= _MOST_KEYS:
                self._drop_ended(now)
            count, ends = 0, now + rate.get_expiry()
        self._windows[key] = (count + 1, ends)

    def _seconds_over(self, rate: RateLimitItem | None, key: tuple[str, str], counted: int) -> int:
        """Return the seconds to wait where the count, of which ``counted`` are this request, leaves no room; else 0."""
        now = self._clock().timestamp()
        count, ends = self._windows.get(key, (0, 0.0))
        if rate is None or ends <= now or count - counted < rate.amount:
            return 0
        return max(1, ceil(ends - now))

    def _drop_ended(self, now: float) -> None:
        self._windows = {key: window for key, window in self._windows.items() if window[1] > now}
        if len(self._windows) >= _MOST_KEYS:
            self._windows.clear()
