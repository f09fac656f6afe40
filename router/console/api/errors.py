"""Forms of answers of the API: JSON or CSV, and errors in one form for all, declared in its description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from router.app.queries.tasks import NotCancellableError, TooManyTasksError
from router.console.error_answers import answer_error

_MEANINGS = {
    400: "What was asked cannot be answered: the message names line and field.",
    401: "Nobody is known by these credentials.",
    403: "Who asks has no permission for this, or not for that team.",
    404: "There is no such thing, or none that may be seen.",
    409: "It is in another state, or the same request is being answered.",
    413: "The request is too long.",
    422: "The request has not the form that this description requires.",
    429: "Too many requests, or too much work is queued.",
    503: "The state cannot be read or written now.",
}
_MAX_NAMED = 5
_MAX_MESSAGE = 1000


class ErrorDetail(BaseModel):
    """The status, what is wrong, and what to do."""

    status: int
    message: str
    remedy: str = Field(description="What to do; empty where nothing is known.")


class ErrorAnswer(BaseModel):
    """Every answer that is an error."""

    error: ErrorDetail


# The answers that any operation may give beside its own; given to each router when it is included.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": meaning} for status, meaning in _MEANINGS.items()
}
Form = Annotated[Literal["json", "csv"], Query(description="Form of the answer.")]
# Operations whose answer is JSON, or with ``format=csv`` a table.
JSON_OR_CSV: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A document, or with `format=csv` a table.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/csv": {"schema": {"type": "string"}}},
    }
}


def install_errors(app: FastAPI) -> None:
    """Let an application answer errors of its framework and of tasks in the form of all others."""

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return answer_error(request, 422, describe_validation(error), "GET /api/v1/openapi.json describes the request")

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        what = {404: "there is nothing here", 405: "that cannot be done here"}.get(error.status_code, error.detail)
        response = answer_error(request, error.status_code, what)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(TooManyTasksError)
    async def too_many(request: Request, error: TooManyTasksError) -> Response:
        return answer_error(request, 429, str(error), "wait until some have ended, or cancel some")

    @app.exception_handler(NotCancellableError)
    async def begun(request: Request, error: NotCancellableError) -> Response:
        return answer_error(request, 409, str(error))


def describe_validation(error: RequestValidationError) -> str:
    """Return the fields that are wrong, and why; nothing that was sent is repeated."""
    found = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()]
    more = f"; and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    text = "; ".join(found[:_MAX_NAMED])[:_MAX_MESSAGE] + more
    # Names of fields may hold halves of surrogate pairs, which no answer can.
    return text.encode("utf-8", "replace").decode()
