"""The parts that all routes of a console share: query context, identification, cached answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from router.access.identity import Identity
from router.app.queries.context import QueryContext
from router.app.queries.spend import spend_version
from router.console.answers import AnswerCache
from router.console.error_answers import SCRIPTS, STYLESHEET
from router.console.kept_answers import KeptAnswers
from router.console.query_work import QueryWork
from router.console.rates import RateLimits
from router.console.reader_slots import CSRF_MARK, WHO_MARK
from router.console.readiness import Readiness
from router.console.recent_answers import RecentAnswers
from router.render.figures import day_clock
from router.render.page_frame import NavigationLink, PageFrame

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.requests import Request

    from router.console.sign_in.oidc import OidcClient
    from router.console.sign_in.sign_in import SignIn

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


def _no_rates() -> RateLimits:
    return RateLimits("", "", lambda: datetime.fromtimestamp(0, UTC))


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """How a console is reached: host names beside those of loopback, whether by https, and its rates."""

    hosts: frozenset[str] = frozenset()
    is_secure: bool = False
    rates: RateLimits = field(default_factory=_no_rates)


@dataclass(frozen=True, slots=True)
class ConsoleSite:
    """The parts of a console. ``context`` is asked as whoever a request is from: see :meth:`asked_by`.

    ``identify`` returns who asks, None for somebody unknown; it may be a coroutine. One that knows people by a cookie
    notes their CSRF token as ``request.state.csrf_token``. Without ``sign_in`` there is no page to sign in,
    and without ``oidc`` none by OpenID Connect. ``costs`` are answers about what was spent, which take seconds to make
    from a large ledger.
    """

    context: QueryContext
    identify: Callable[[Request], Identity | Awaitable[Identity | None] | None]
    answers: AnswerCache
    access: ConsoleAccess = field(default_factory=ConsoleAccess)
    sign_in: SignIn | None = None
    oidc: OidcClient | None = None
    banner: str = ""
    costs: KeptAnswers = field(init=False)
    cost_work: QueryWork = field(init=False)
    job_work: QueryWork = field(init=False)
    recent: RecentAnswers = field(default_factory=RecentAnswers)
    readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        costs = KeptAnswers(lambda: spend_version(self.context, self.context.clock()))
        object.__setattr__(self, "costs", costs)
        object.__setattr__(self, "cost_work", QueryWork(self.context))
        # Readers wait for what is drawn of jobs, as they wait for the server itself.
        object.__setattr__(self, "job_work", QueryWork(self.context, niceness=0))
        object.__setattr__(self, "readiness", Readiness(lambda: self.context.store.check_version()))

    def asked_by(self, request: Request) -> QueryContext:
        """Return the context of who asks; the guard of the application has refused unknown ones before."""
        identity: Identity = request.state.identity
        return self.context.asked_by(identity)

    def frame(
        self,
        request: Request,
        here: str,
        *,
        actions: Markup | None = None,
        data_links: tuple[tuple[str, str], ...] = (),
        message: str = "",
    ) -> PageFrame:
        """Return the frame of the page whose URL in the navigation is ``here``.

        It has marks where the reader's name and token go (:mod:`router.console.reader_slots`), so that those who see
        the same rows share a page.
        """
        from markupsafe import Markup

        return PageFrame(
            links=tuple(NavigationLink(title, url, url == here) for title, url in PAGES),
            stylesheet=STYLESHEET,
            scripts=SCRIPTS,
            who=WHO_MARK,
            message=message,
            actions=actions or Markup(),
            data_links=data_links,
            csrf_token=CSRF_MARK if getattr(request.state, "csrf_token", "") else "",
            banner=f"{self.banner}, as of {day_clock(self.context.clock())} UTC" if self.banner else "",
        )
