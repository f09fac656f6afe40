"""Caller of a cloud: retries with jitter, at the rate the cloud asks for, until a time limit. One ``Caller`` a cloud.

tenacity does the waiting; this module decides how long and whether. All threads of a cloud share its caller, so that a
cloud that throttles one call is left alone by all of them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Generic, TypeVar

from tenacity import RetryCallState, Retrying, wait_random, wait_random_exponential

from providers.errors import NotReachedError, ProviderError, RetryableError, ThrottledError, TransientError
from providers.protocol import PartialFailure

T = TypeVar("T")

ATTEMPTS = 6
# A cloud that throttles gets three times as many attempts.
_THROTTLED_FACTOR = 3
# After this many failures in a row over this time, among all threads, a service is down: no call is tried again.
_DOWN_AFTER = 12
_DOWN_AFTER_S = 8.0
# The wait is anything from zero to twice the last, so that callers that failed together do not return together.
_JITTER = wait_random_exponential(multiplier=0.5, max=8.0)
_SPREAD = wait_random(0, 1.0)
# After this many calls in a row without a connection, a service counts as gone for the rest of the command.
_LOST_AFTER = 3


class Caller:
    """Call a cloud with retries; safe for threads.

    ``limit_s`` counts from construction. :meth:`cancel` cuts every wait of a call short.
    """

    def __init__(self, cloud: str, limit_s: float, *, attempts: int = ATTEMPTS) -> None:
        self._cloud = cloud
        self._began = time.monotonic()
        self._ends = self._began + limit_s
        self._limit_s = limit_s
        self._attempts = attempts
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._quiet_until = 0.0
        self._lost: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._clock: tuple[datetime, float] | None = None
        self._failing: dict[str, tuple[float, int]] = {}  # By service: since when, and how often in a row.
        self._calls: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()

    def call(self, service: str, ask: Callable[[], T], translate: Callable[[Exception], ProviderError]) -> T:
        """Return what ``ask`` returns, after retries with jitter, at least as late as the cloud asks.

        Every exception of ``ask`` goes through ``translate``; a ProviderError passes as it is. Errors that can be
        retried are; the last error is raised. ``service`` names the endpoint: one that cannot be connected to is not
        tried again by later calls. TransientError when the time limit is reached or :meth:`cancel` was called.
        """
        retrying = Retrying(
            sleep=self._sleep,
            wait=self._wait,
            retry=lambda state: self._should_retry(service, state),
            before_sleep=lambda _: self._count(self._retries, service),
            reraise=True,
        )
        answer: T = retrying(self._once, service, ask, translate)
        return answer

    def check(self) -> None:
        """Raise TransientError once the time is up or :meth:`cancel` was called.

        An answer that takes long to read calls it between its parts.
        """
        if self._cancelled.is_set():
            raise TransientError(self._cloud, "stopped")
        if time.monotonic() >= self._ends:
            raise TransientError(self._cloud, f"time limit of {self._limit_s:g} s reached")

    def cancel(self) -> None:
        """End every wait and refuse further calls: the command is being stopped."""
        self._cancelled.set()

    def heard(self, date: datetime) -> None:
        """Record the cloud's clock (aware), as stated by an answer that has just come."""
        with self._lock:
            self._clock = (date, time.monotonic())

    def clock_ahead(self, now: datetime) -> timedelta | None:
        """Return how far this machine's clock is ahead of the cloud's (negative: behind); None when no answer told.

        ``now`` is what this machine's clock showed when the caller was made.
        """
        with self._lock:
            clock = self._clock
        return None if clock is None else now + timedelta(seconds=clock[1] - self._began) - clock[0]

    @property
    def calls(self) -> Mapping[str, int]:
        """Return how often each service was called, retries included."""
        with self._lock:
            return dict(self._calls)

    @property
    def retries(self) -> Mapping[str, int]:
        """Return how often each service was called again."""
        with self._lock:
            return dict(self._retries)

    def _once(self, service: str, ask: Callable[[], T], translate: Callable[[Exception], ProviderError]) -> T:
        self._sleep(max(0.0, self._quiet_until - time.monotonic()))
        self.check()
        self._refuse_lost(service)
        self._count(self._calls, service)
        try:
            answer = ask()
        except Exception as error:
            known = error if isinstance(error, ProviderError) else translate(error)
            self._note(service, known)
            if known is error:
                raise
            raise known from None
        with self._lock:
            self._answered.add(service)
            self._lost.pop(service, None)
            self._failing.pop(service, None)
        return answer

    def _refuse_lost(self, service: str) -> None:
        with self._lock:
            gone = self._lost[service] >= (_LOST_AFTER if service in self._answered else 1)
        if gone:
            raise NotReachedError(self._cloud, f"{service} cannot be connected to")

    def _note(self, service: str, error: ProviderError) -> None:
        with self._lock:
            if isinstance(error, NotReachedError):
                self._lost[service] += 1
            else:
                self._answered.add(service)
                self._lost.pop(service, None)
            if isinstance(error, TransientError):
                since, count = self._failing.get(service, (time.monotonic(), 0))
                self._failing[service] = (since, count + 1)
            else:
                self._failing.pop(service, None)
            if isinstance(error, ThrottledError) and error.retry_after_s:
                self._quiet_until = max(self._quiet_until, time.monotonic() + error.retry_after_s)

    def _should_retry(self, service: str, state: RetryCallState) -> bool:
        """Return whether to try again; a failed connection counts as temporary once the service has answered."""
        error = state.outcome.exception() if state.outcome is not None else None
        factor = _THROTTLED_FACTOR if isinstance(error, ThrottledError) else 1
        if state.attempt_number >= self._attempts * factor:
            return False
        if self._cancelled.is_set() or time.monotonic() >= self._ends:
            return False
        with self._lock:
            if isinstance(error, NotReachedError):
                return service in self._answered and self._lost[service] < _LOST_AFTER
            since, failures = self._failing.get(service, (time.monotonic(), 0))
        down = failures >= _DOWN_AFTER and time.monotonic() - since >= _DOWN_AFTER_S
        return isinstance(error, RetryableError) and not down

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after_s or 0.0 if isinstance(error, ThrottledError) else 0.0
        # A wait that the cloud asks for is kept, plus a little jitter, so that not all come back at that moment.
        wait = asked + _SPREAD(state) if asked else _JITTER(state)
        return max(0.0, min(wait, self._ends - time.monotonic()))

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._cancelled.wait(min(seconds, max(0.0, self._ends - time.monotonic())))

    def _count(self, counter: Counter[str], service: str) -> None:
        with self._lock:
            counter[service] += 1


class PartialCalls:
    """Make calls one after the other; a failed call becomes a partial failure, and earlier results stay.

    After an error of a ``fatal`` kind the next call to the same cloud fails as well, and is not made.
    """

    def __init__(self, fatal: tuple[type[ProviderError], ...] = ()) -> None:
        self.gaps: list[PartialFailure] = []
        self._fatal_kinds = fatal
        self._fatal: ProviderError | None = None

    def __call__(self, subject: str, ask: Callable[[], T], would_add: str = "", *, elsewhere: bool = False) -> T | None:
        """Return what ``ask`` gives; None, and a partial failure, when it cannot be obtained.

        ``elsewhere``: the call needs no account and no region, so that it is made even when these fail.
        """
        error = None if elsewhere else self._fatal
        if error is None:
            try:
                return ask()
            except ProviderError as met:
                error = met
            if isinstance(error, self._fatal_kinds) and not elsewhere:
                self._fatal = error
        self.gaps.append(PartialFailure(subject, error, would_add))
        return None


class Once(Generic[T]):
    """Fetch a value once for many threads.

    A failure is stored as well, so that forty regions do not each wait for what cannot be obtained.
    """

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._outcome: tuple[T] | ProviderError | None = None

    def get(self) -> T:
        """Return the value; ProviderError each time where it could not be fetched."""
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = (self._fetch(),)
                except ProviderError as error:
                    self._outcome = error
        if isinstance(self._outcome, ProviderError):
            raise self._outcome.with_traceback(None)
        return self._outcome[0]


def parse_http_date(text: str | None) -> datetime | None:
    """Return the moment of a ``Date`` header, in UTC; None without one, or where it cannot be read."""
    try:
        moment = parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is None else moment.astimezone(UTC)


def parse_retry_after(text: str | None, date: str | None = None) -> float | None:
    """Return the seconds of a ``Retry-After``: a number, or a moment seen from the answer's own ``Date``."""
    seconds = (text or "").strip()
    if seconds.isascii() and seconds.replace(".", "", 1).isdecimal():
        return float(seconds)
    until, since = parse_http_date(seconds), parse_http_date(date)
    return max(0.0, (until - since).total_seconds()) if until and since else None
