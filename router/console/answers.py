"""Answers that many readers share: each is made once, by one thread, and given until its time is over.

A page is drawn with marks that nobody can guess in place of the reader's name and the token of their session, so that
those who see the same rows share it; a response puts the reader's own there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from markupsafe import escape
from starlette.responses import RedirectResponse, Response

from router.state.errors import StateError

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")
HTML, CSV, JSON = "text/html; charset=utf-8", "text/csv; charset=utf-8", "application/json"
# Of this process: no name or text of anybody can have them.
WHO_MARK = f"who{secrets.token_hex(12)}"
CSRF_MARK = f"csrf{secrets.token_hex(12)}"


class ManyQuestionsError(StateError):
    """More different answers are being made than a server takes on."""


def lead_on(request: Request, url: str) -> Response:
    """Return the answer to a form that was done: it leads to the page with what came of it."""
    if request.headers.get("HX-Request"):
        return Response(status_code=204, headers={"HX-Redirect": url})
    return RedirectResponse(url, 303)


def fill_marks(page: bytes, request: Request) -> bytes:
    """Return a page with its reader's name and token in place of the marks."""
    identity = getattr(request.state, "identity", None)
    name = "" if identity is None else identity.name
    token = getattr(request.state, "csrf_token", "")
    return page.replace(WHO_MARK.encode(), escape(name).encode()).replace(CSRF_MARK.encode(), escape(token).encode())


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A body, its type and its tag. The tag of a page with marks is that of the page that a reader gets."""

    body: bytes
    media_type: str
    status: int
    tag: str
    has_marks: bool

    @classmethod
    def of(cls, text: str | bytes, media_type: str, status: int = 200) -> CachedAnswer:
        """Return the answer with this text."""
        body = text.encode() if isinstance(text, str) else text
        return cls(body, media_type, status, _tag(body), WHO_MARK.encode() in body or CSRF_MARK.encode() in body)

    @classmethod
    def of_json(cls, document: object) -> CachedAnswer:
        """Return the answer with a document as JSON."""
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return cls.of(text, JSON)

    def response(self, request: Request) -> Response:
        """Return the response for a request: 304 where the reader has it."""
        body, tag = self.body, self.tag
        if self.has_marks:
            body = fill_marks(body, request)
            tag = _tag(body)
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Cookie"}
        if self.status == 200 and tag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, self.status, headers, self.media_type)


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:24]}"'


@dataclass(slots=True)
class AnswerCache:
    """The answers last used, by key. A key has all that an answer depends on but the state and the moment.

    An answer is given for ``fresh_seconds`` from when it was asked for, and until ``stale_seconds`` while a newer one
    is made. Without either, only those share an answer who ask while it is made; by default a key says everything.
    ``max_answers`` are kept, of ``max_bytes`` together; ``max_making`` are made at a time, by ``threads`` of its own
    where given. An answer with another status than 200 is not kept. A cache belongs to one event loop.
    """

    fresh_seconds: float = float("inf")
    stale_seconds: float = float("inf")
    max_answers: int = 256
    max_bytes: int = 128 << 20
    max_making: int | None = None
    threads: int | None = None
    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[Hashable, tuple[float, object]] = field(default_factory=OrderedDict)
    _making: dict[Hashable, asyncio.Task[object]] = field(default_factory=dict)
    _under_way: set[asyncio.Task[object]] = field(default_factory=set)
    _bytes: int = 0
    _generation: int = 0
    _limiter: CapacityLimiter | None = None

    async def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the answer of that key; ``make`` runs in a thread, and what it raises is raised for all who wait.

        ManyQuestionsError where too many others are being made, and there is none to give.
        """
        now, kept = self.clock(), self._kept.get(key)
        age = float("inf") if kept is None else now - kept[0]
        making = self._making.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        if kept is not None and age < self.fresh_seconds:
            return cast("T", kept[1])
        has_room = self.max_making is None or len(self._making) < self.max_making
        if making is None or making.get_loop() is not asyncio.get_running_loop():
            making = self._begin(key, make, now) if has_room else None
        if kept is not None and age < self.stale_seconds:
            return cast("T", kept[1])
        if making is None:
            raise ManyQuestionsError(f"{len(self._making)} other reports are being made; ask again in a minute")
        # Those who wait for it go on where another one of them leaves.
        return cast("T", await asyncio.shield(making))

    async def respond(
        self, request: Request, key: Hashable, draw: Callable[[], str | bytes], media_type: str = HTML
    ) -> Response:
        """Return the response with the answer of that key, whose body ``draw`` returns; as :meth:`get`."""
        answer = await self.get(key, lambda: CachedAnswer.of(draw(), media_type))
        return answer.response(request)

    def last(self, key: Hashable) -> object | None:
        """Return the answer of that key however old it is; None where none is kept. Any thread may ask."""
        kept = self._kept.get(key)
        return None if kept is None else kept[1]

    def forget(self) -> None:
        """Give nobody what was made until now, or begun: it may lack what was written meanwhile."""
        self._generation += 1
        self._kept.clear()
        self._making.clear()
        self._bytes = 0

    async def finish(self) -> None:
        """Wait for all that is being made: a thread that outlives the event loop may end the process with an abort."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _begin(self, key: Hashable, make: Callable[[], T], now: float) -> asyncio.Task[object]:
        making: asyncio.Task[object] = asyncio.ensure_future(self._make(key, make, now, self._generation))
        self._making[key] = making
        self._under_way.add(making)
        making.add_done_callback(lambda done: self._end(key, done))
        return making

    async def _make(self, key: Hashable, make: Callable[[], T], now: float, generation: int) -> T:
        if self._limiter is None and self.threads is not None:
            # The limiter belongs to the running event loop, so it is made inside it.
            self._limiter = CapacityLimiter(self.threads)
        value = await run_sync(make, limiter=self._limiter)
        if generation == self._generation and not (isinstance(value, CachedAnswer) and value.status != 200):
            self._keep(key, value, now)
        return value

    def _keep(self, key: Hashable, value: object, now: float) -> None:
        self._bytes += _size(value) - _size(self.last(key))
        self._kept[key] = now, value
        self._kept.move_to_end(key)
        while len(self._kept) > self.max_answers or (self._bytes > self.max_bytes and len(self._kept) > 1):
            self._bytes -= _size(self._kept.popitem(last=False)[1][1])

    def _end(self, key: Hashable, done: asyncio.Task[object]) -> None:
        self._under_way.discard(done)
        if self._making.get(key) is done:
            del self._making[key]
        if not done.cancelled():
            done.exception()  # Whoever waited was told; where nobody did, the next one asks again.


def _size(value: object) -> int:
    return len(value.body) if isinstance(value, CachedAnswer) else 0
