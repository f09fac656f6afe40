"""Answer a repeated request as it was answered first, where it has an idempotency key.

It is plain ASGI, between the guard, which says who asks, and the routes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response

from router.console.error_answers import answer_error
from router.console.guard import replay_body
from router.state.errors import StateError
from router.state.idempotency import IdempotencyKeys, KeyState, StoredAnswer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from router.console.site import ConsoleSite

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_PREFIX = "/api/"
_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_KEPT_HEADERS = ("content-type", "location")
# Who asks, and the key that they sent.
_Key = tuple[str, str]


@dataclass(slots=True)
class IdempotentRequests:
    """The middleware. A request that made nothing (400 and above) leaves its key free."""

    app: ASGIApp
    site: ConsoleSite

    @property
    def _keys(self) -> IdempotencyKeys:
        return self.site.context.store.idempotency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(_PREFIX):
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        keys = request.headers.getlist(HEADER)
        if not keys:
            await self.app(scope, receive, send)
            return
        response = await self._begin(request, keys)
        if isinstance(response, Response):
            await response(scope, receive, send)
            return
        key, body = response
        await self._answer(key, scope, replay_body(body, receive), send)

    async def _begin(self, request: Request, keys: list[str]) -> Response | tuple[_Key, bytes]:
        """Return the answer where there is one already, else the key and the body of the request."""
        if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
            return answer_error(request, 400, f"{HEADER} is no key", "send 1 to 128 characters without spaces")
        body = await request.body()  # the guard has read it, and refused one that is too long
        key, now = (request.state.identity.name, keys[0]), self.site.context.clock()
        try:
            state, stored = await run_sync(self._keys.begin, *key, _digest(request, body), now)
        except StateError as error:
            return answer_error(request, 503, str(error), error.remedy)
        if state is KeyState.OTHER_REQUEST:
            return answer_error(request, 422, f"{HEADER} was sent with another request", "take a new key")
        if state is KeyState.UNDER_WAY:
            return answer_error(request, 409, "the same request is being answered", "repeat it in a while")
        if stored is not None:
            return Response(stored.body, stored.status, {**stored.headers, REPLAYED: "true"})
        return key, body

    async def _answer(self, key: _Key, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the routes answer, and store the answer before its end is sent."""
        parts: list[bytes] = []
        status, headers, is_stored = 500, dict[str, str](), False

        async def send_stored(message: Message) -> None:
            nonlocal status, headers, is_stored
            if message["type"] == "http.response.start":
                status = message["status"]
                named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
                headers = {name: named[name] for name in _KEPT_HEADERS if name in named}
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                if status < 400 and not message.get("more_body", False):
                    answer = StoredAnswer(status, b"".join(parts).decode(), headers)
                    # Where this fails, the key stays under way, and nothing is made twice for some minutes.
                    await run_sync(self._keys.answer, *key, answer)
                    is_stored = True
            await send(message)

        try:
            await self.app(scope, receive, send_stored)
        finally:
            if not is_stored and status >= 400:
                await run_sync(self._keys.release, *key)


def _digest(request: Request, body: bytes) -> str:
    content = hashlib.sha256()
    for part in (request.url.path, request.url.query, request.headers.get("Content-Type", "")):
        content.update(f"{part}\n".encode("utf-8", "surrogateescape"))
    content.update(body)
    return content.hexdigest()
