"""Say what went wrong: as JSON to a program, as a page to a person."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from router.render.pages import fill_template

_TITLES = {
    400: "That cannot be answered as asked",
    401: "Sign in first",
    403: "Not permitted",
    404: "There is no such thing here",
    409: "That was refused",
    429: "Too many requests",
    503: "Not available now",
}


def answer_error(request: Request, status: int, what: str, remedy: str = "") -> Response:
    """Return the answer with that status; JSON below ``/api/`` and for whoever does not accept pages."""
    wants_page = "text/html" in request.headers.get("Accept", "") and not request.url.path.startswith("/api/")
    if not wants_page:
        return JSONResponse({"error": {"status": status, "message": what, "remedy": remedy}}, status)
    text = fill_template("error.html", title=_TITLES.get(status, "Something went wrong"), what=what, remedy=remedy)
    return Response(text, status, media_type="text/html")
