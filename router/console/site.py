"""What all routes of a console share: the query context, who asks, and cached answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.access.identity import Identity
from router.console.answers import AnswerCache
from router.queries.context import QueryContext
from router.render.page_frame import NavigationLink, PageFrame

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.requests import Request

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


@dataclass(frozen=True, slots=True)
class ConsoleSite:
    """The parts of a console. ``context`` is asked as whoever a request is from: see :meth:`asked_by`.

    ``identify`` returns who asks, None for somebody unknown.
    """

    context: QueryContext
    identify: Callable[[Request], Identity | None]
    answers: AnswerCache

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
        """Return the frame of the page whose URL in the navigation is ``here``."""
        from markupsafe import Markup

        return PageFrame(
            links=tuple(NavigationLink(title, url, url == here) for title, url in PAGES),
            stylesheet="/static/pages.css",
            script="/static/htmx.min.js",
            who=request.state.identity.name,
            message=message,
            actions=actions or Markup(),
            data_links=data_links,
        )
