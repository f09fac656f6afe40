"""The parts that all routes of a console share: query context, identification, rates, cached answers, readiness."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING

from limits import RateLimitItem, parse

from router.access.identity import Identity
from router.app.queries.context import QueryContext
from router.console.answers import CSRF_MARK, WHO_MARK, AnswerCache
from router.console.query_work import QueryWork
from router.render.figures import day_clock
from router.render.pages import PageFrame
from router.state.errors import StateError, TooNewError

if TYPE_CHECKING:
    from starlette.requests import Request

    from router.console.sign_in.oidc import OidcClient
    from router.console.sign_in.sign_in import SignIn


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


# Titles and URLs of the pages, in the order of the navigation.
PAGES = (
    ("Tonight", "/tonight"),
    ("Jobs", "/jobs"),
    ("Quotes", "/quotes"),
    ("Prices", "/prices"),
    ("Spend", "/spend"),
    ("Waste", "/waste"),
    ("Budgets", "/budgets"),
    ("Audit", "/audit"),
)

# For how many seconds an answer is given, and until when while a newer one is made. What is written through this
# server is never missing from a recent one.
RECENT_SECONDS = (1.0, 1.5)
COST_SECONDS = (10.0, 60.0)
# Probes of many balancers share an answer this long.
SHARED_SECONDS = 0.5
STOPPING = "this server is stopping"
UNREADABLE = "the state cannot be read now"
OTHER_VERSION = "the state was upgraded by a later version of stepfare"


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """How a console is reached: host names beside those of loopback, whether by https, and its rates."""

    hosts: frozenset[str] = frozenset()
    is_secure: bool = False
    rates: RateLimits = field(default_factory=lambda: RateLimits("", "", lambda: datetime.fromtimestamp(0, UTC)))


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


@dataclass(frozen=True, slots=True)
class ConsoleSite:
    """The parts of a console. ``context`` is asked as whoever a request is from: see :meth:`asked_by`.

    ``identify`` returns who asks, None for somebody unknown; it may be a coroutine. One that knows people by a cookie
    notes their CSRF token as ``request.state.csrf_token``. Without ``sign_in`` there is no page to sign in,
    and without ``oidc`` none by OpenID Connect. ``answers`` have keys that say everything; ``recent`` ones are of the
    state as it was read a moment ago; ``costs`` are of what was spent, and take seconds to make from a large ledger.
    """

    context: QueryContext
    identify: Callable[[Request], Identity | Awaitable[Identity | None] | None]
    answers: AnswerCache
    access: ConsoleAccess = field(default_factory=ConsoleAccess)
    sign_in: SignIn | None = None
    oidc: OidcClient | None = None
    banner: str = ""
    cost_work: QueryWork = field(init=False)
    job_work: QueryWork = field(init=False)
    recent: AnswerCache = field(default_factory=lambda: AnswerCache(0.0, 0.0, max_answers=512))
    costs: AnswerCache = field(default_factory=lambda: AnswerCache(0.0, 0.0, max_answers=64, max_making=24, threads=4))
    readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost_work", QueryWork(self.context))
        # Readers wait for what is drawn of jobs, as they wait for the server itself.
        object.__setattr__(self, "job_work", QueryWork(self.context, niceness=0))
        object.__setattr__(self, "readiness", Readiness(lambda: self.context.store.check_version()))

    async def finish_answers(self) -> None:
        """Wait for all answers that are being made, before the server ends."""
        for answers in (self.answers, self.recent, self.costs):
            await answers.finish()

    def share_answers(self) -> None:
        """Let what was read from the state serve for a moment from now on, as a server wants that many people read."""
        self.recent.fresh_seconds, self.recent.stale_seconds = RECENT_SECONDS
        self.costs.fresh_seconds, self.costs.stale_seconds = COST_SECONDS

    def asked_by(self, request: Request) -> QueryContext:
        """Return the context of who asks; the guard of the application has refused unknown ones before."""
        identity: Identity = request.state.identity
        return self.context.asked_by(identity)

    def frame(
        self,
        request: Request,
        here: str,
        *,
        data_links: tuple[tuple[str, str], ...] = (),
        message: str = "",
    ) -> PageFrame:
        """Return the frame of the page whose URL in the navigation is ``here``.

        It has marks where the reader's name and token go (:mod:`router.console.answers`), so that those who see the
        same rows share a page.
        """
        return PageFrame(
            links=tuple((title, url, url == here) for title, url in PAGES),
            who=WHO_MARK,
            message=message,
            data_links=data_links,
            csrf_token=CSRF_MARK if getattr(request.state, "csrf_token", "") else "",
            banner=f"{self.banner}, as of {day_clock(self.context.clock())} UTC" if self.banner else "",
        )
