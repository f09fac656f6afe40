"""Calls to the coordinator: one JSON POST over HTTPS each, with the attempt's token in a header and nowhere else."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from router.agent.imds import parse_timestamp
from router.agent.protocol import LOOPBACK

LARGEST_ANSWER = 65536
LONGEST_WAIT = 60.0  # Also the upper limit for a Retry-After header.


class CoordinatorAwayError(Exception):
    """The coordinator was not reached or could not answer now; the call may be tried again.

    ``wait``: after how many seconds, if the coordinator said so.
    """

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class CoordinatorRefusalError(Exception):
    """The coordinator itself, not something between it and the agent, refused the call; ``word`` is its `error`."""

    def __init__(self, word: str) -> None:
        super().__init__(f"the coordinator refused: {word}")
        self.word = word


class Backoff:
    """Pauses that double from ``first`` to ``last`` seconds.

    Each pause is drawn between half of its length and all of it, so that nodes which lost the same coordinator do not
    return at the same moment.
    """

    def __init__(self, first: float, last: float, rng: random.Random) -> None:
        self._first, self._last, self._rng = first, last, rng
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        whole = min(self._last, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return whole * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again with the first pause, after a success."""
        self._failures = 0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirects: a redirect would carry the token to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class CoordinatorClient:
    """The coordinator as one rank calls it. Safe to use from several threads.

    ``answered`` is called by whichever thread got an answer that is no refusal.
    """

    def __init__(
        self,
        url: str,
        *,
        attempt: str,
        rank: int,
        token: str,
        ca_file: str | None,
        seconds: float,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._answered = answered
        self._url = url
        self._base = f"{url.rstrip('/')}/v1/attempts/{quote(attempt)}/ranks/{rank}"
        self._token, self._seconds = token, seconds
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if urlsplit(url).scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
        if urlsplit(url).hostname in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def post(self, what: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
        """Send one message and return the coordinator's answer.

        The answer may take ``wait`` seconds longer than usual. Raises :class:`CoordinatorAwayError` or
        :class:`CoordinatorRefusalError`; neither quotes the token.
        """
        request = urllib.request.Request(
            f"{self._base}/{what}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=self._seconds + wait) as answer:
                content = json.loads(answer.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            raise _error_of_response(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CoordinatorAwayError(f"{what}: {type(error).__name__}: {error}") from None
        if not isinstance(content, dict):
            raise CoordinatorAwayError(f"{what}: the answer is not an object")
        self._answered()
        return content

    def ask_date(self) -> float | None:
        """Return the coordinator's time in seconds since 1970; None where it does not answer, or says none."""
        try:
            with self._opener.open(self._url, timeout=self._seconds) as answer:
                said = answer.headers.get("Date")
        except urllib.error.HTTPError as error:
            with error:
                said = error.headers.get("Date")
        except (OSError, http.client.HTTPException, ValueError):
            return None
        return parse_timestamp(said)


def _error_of_response(error: urllib.error.HTTPError) -> Exception:
    """Return a refusal for a 4xx with the coordinator's own error word; for what a proxy says, that it is away."""
    with error:
        wait = error.headers.get("Retry-After", "")
        try:
            content = json.loads(error.read(LARGEST_ANSWER))
        except (OSError, http.client.HTTPException, ValueError):
            content = None
    word = content.get("error") if isinstance(content, dict) else None
    if 400 <= error.code < 500 and error.code != 429 and isinstance(word, str):
        return CoordinatorRefusalError(word[:100])
    seconds = min(float(wait), LONGEST_WAIT) if wait.isascii() and wait.isdigit() else None
    return CoordinatorAwayError(f"HTTP {error.code}", seconds)
