"""Say what went wrong: as JSON to a program, as a page to a person; the same words for an error wherever raised."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from pricing.problems import InvalidInputError
from router.access.identity import AccessDeniedError
from router.app.queries.approvals import ApprovalRefusedError
from router.app.queries.quote_acceptance import QuoteAcceptedError, QuoteStaleError
from router.app.queries.tasks import NotCancellableError, TooManyTasksError
from router.app.stored_quotes import NoSuchQuoteError
from router.console.answers import fill_marks
from router.render.pages import PageFrame, fill_template
from router.state.errors import StateError

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
# The statuses of errors, and what to do where they do not say it themselves.
_STATUSES: dict[type[Exception], tuple[int, str]] = {
    AccessDeniedError: (403, ""),
    ApprovalRefusedError: (409, ""),
    InvalidInputError: (400, ""),
    NoSuchQuoteError: (404, "the list of quotes has those that you may see"),
    NotCancellableError: (409, ""),
    QuoteAcceptedError: (409, "a quote is accepted once"),
    QuoteStaleError: (409, ""),
    TooManyTasksError: (429, "wait until some have ended, or cancel some"),
}
_MAX_NAMED = 5
_MAX_MESSAGE = 1000
LOG = logging.getLogger("stepfare.console")
# For pages before anybody is known: no navigation.
BARE_FRAME = PageFrame()


class NothingThereError(Exception):
    """There is no such thing that may be seen; ``remedy`` says where those are that may."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


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


def answer_raised_errors(app: FastAPI) -> None:
    """Let an application answer the errors that its routes raise, those of its framework in the form of all others."""

    async def stated(request: Request, error: Exception) -> Response:
        status, remedy = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
        message = error.problems[0].what if isinstance(error, NoSuchQuoteError) else str(error)
        return answer_error(request, status, message, remedy or getattr(error, "remedy", ""))

    for kind in _STATUSES:
        app.add_exception_handler(kind, stated)

    @app.exception_handler(NothingThereError)
    async def missing(request: Request, error: NothingThereError) -> Response:
        return answer_error(request, 404, str(error), error.remedy)

    @app.exception_handler(StateError)
    async def unavailable(request: Request, error: StateError) -> Response:
        # The error names the place of the database, which is nobody's business but the operator's.
        LOG.warning("%s: %s", request.url.path, error)
        return answer_error(request, 503, "the state cannot be read or written now", "try again in a while")

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return answer_error(request, 422, _wrong_fields(error), "GET /api/v1/openapi.json describes the request")

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        what = {404: "there is nothing here", 405: "that cannot be done here"}.get(error.status_code, error.detail)
        response = answer_error(request, error.status_code, what)
        response.headers.update(error.headers or {})
        return response


def _wrong_fields(error: RequestValidationError) -> str:
    """Return the fields that are wrong, and why; nothing that was sent is repeated."""
    found = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()]
    more = f"; and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    text = "; ".join(found[:_MAX_NAMED])[:_MAX_MESSAGE] + more
    # Names of fields may hold halves of surrogate pairs, which no answer can.
    return text.encode("utf-8", "replace").decode()
