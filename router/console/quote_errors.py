"""Answers to what goes wrong with quotes, the same to people and programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from router.app.queries.quote_acceptance import QuoteAcceptedError, QuoteStaleError
from router.app.stored_quotes import NoSuchQuoteError
from router.console.error_answers import answer_error

_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (NoSuchQuoteError, 404, "the list of quotes has those that you may see"),
    (QuoteAcceptedError, 409, "a quote is accepted once"),
    (QuoteStaleError, 409, QuoteStaleError.remedy),
)


def add_quote_errors(app: FastAPI) -> None:
    """Let the application answer these errors with their statuses."""
    for kind, status, remedy in _STATUSES:
        app.add_exception_handler(kind, _answer(status, remedy))


def _answer(status: int, remedy: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        message = str(error.problems[0].what) if isinstance(error, NoSuchQuoteError) else str(error)
        return answer_error(request, status, message, remedy)

    return answer
