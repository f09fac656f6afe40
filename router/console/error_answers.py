"""Say what went wrong: as JSON to a program, as a page to a person."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from router.console.answers import fill_marks
from router.render.page_frame import PageFrame
from router.render.pages import fill_template

_TITLES = {
    400: "That cannot be answered as asked",
    401: "Sign in first",
    403: "Not permitted",
    404: "There is no such thing here",
    405: "That cannot be done here",
    408: "That took too long",
    409: "That was refused",
    413: "That is too long",
    421: "That is not a name of this server",
    429: "Too many requests",
    503: "Not available now",
}
STYLESHEET = "/static/pages.css"
SCRIPTS = ("/static/htmx.min.js", "/static/console.js")
# For pages before anybody is known: its files, and no navigation.
BARE_FRAME = PageFrame((), STYLESHEET, SCRIPTS)


def answer_error(request: Request, status: int, what: str, remedy: str = "") -> Response:
    """Return the answer with that status; JSON below ``/api/`` and for whoever does not accept pages."""
    wants_page = "text/html" in request.headers.get("Accept", "") and not request.scope["path"].startswith("/api/")
    if not wants_page:
        return JSONResponse({"error": {"status": status, "message": what, "remedy": remedy}}, status)
    site = getattr(request.app.state, "site", None)
    is_known = getattr(request.state, "identity", None) is not None
    frame = site.frame(request, "") if site is not None and is_known else BARE_FRAME
    title = _TITLES.get(status, "Something went wrong")
    text = fill_template("error.html", title=title, what=what, remedy=remedy, frame=frame)
    return Response(fill_marks(text.encode(), request), status, media_type="text/html")
