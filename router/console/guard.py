"""Let a request through to the routes, or refuse it: host, who asks, rates, size, forged forms; headers on all answers.

It is plain ASGI, without a task and a stream for each request.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import anyio
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from router.console.error_answers import answer_error
from router.console.sign_in.sign_in import CSRF_FIELD, CSRF_HEADER, is_equal
from router.coordinator.bodies import BODY_SECONDS, BodyMemory, body_size, drain, read_body
from router.coordinator.connections import ADMIT, REFUSE, tell_connection

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from router.access.identity import Identity
    from router.console.site import ConsoleSite

# Styles may stand in attributes of drawings; scripts come from this server alone.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SECURE_HEADERS = {"Strict-Transport-Security": "max-age=31536000"}
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# These are answered to everybody; the first two also to a probe that knows no name of this host.
_PROBES = ("/health", "/ready")
_OPEN_PATHS = ("/login", "/login/oidc", "/login/oidc/callback", *_PROBES)
_OPEN_FOLDER = "/static/"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
LARGEST_BODY = 1 << 20
# Whoever has not signed in sends a token, or a code of the identity provider.
LARGEST_OPEN_BODY = 1 << 12


class _RefusedError(Exception):
    """Carries the answer to a request that is not let through."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@dataclass(slots=True)
class AccessGuard:
    """The middleware in front of all routes of a console."""

    app: ASGIApp
    site: ConsoleSite
    _headers: dict[str, str] = field(default_factory=dict)
    _memory: BodyMemory = field(default_factory=BodyMemory)

    def __post_init__(self) -> None:
        self._headers = HEADERS | (_SECURE_HEADERS if self.site.access.is_secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["method"] == "HEAD":
            await self._answer_head(scope, receive, send_with_headers)
        else:
            await self._answer(scope, receive, send_with_headers)

    async def _answer_head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as to GET without the body; an endless body is not waited for."""
        with anyio.CancelScope() as answering:
            ended = False

            async def send_start(message: Message) -> None:
                nonlocal ended
                if message["type"] == "http.response.start":
                    await send(message)
                elif not ended:
                    ended = True
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    if message.get("more_body"):
                        answering.cancel()

            state = {**scope.get("state", {}), "is_head": True}
            await self._answer({**scope, "method": "GET", "state": state}, receive, send_start)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        request = Request(scope, receive)
        try:
            self._check_host(request)
            size = _stated_size(request)
            identity = await self._admit(request)
        except _RefusedError as refused:
            tell_connection(request, REFUSE)
            await drain(request, LARGEST_BODY)
            await refused.response(scope, receive, send)
            return
        # Whoever is on an open path has shown nothing.
        tell_connection(request, REFUSE if identity is None else ADMIT)
        if request.method in _SAFE_METHODS:
            await self.app(scope, receive, send)
            return
        try:
            await self._answer_change(request, identity, size, send)
        except _RefusedError as refused:
            await refused.response(scope, receive, send)

    async def _answer_change(self, request: Request, identity: Identity | None, size: int, send: Send) -> None:
        """Answer a request that may change something, once its body has room in memory and is read."""
        most = LARGEST_OPEN_BODY if identity is None else LARGEST_BODY
        async with AsyncExitStack() as stack:
            try:
                if identity is not None:
                    await stack.enter_async_context(self._memory.reserved(identity.name, size))
                body = await read_body(request, most)
            except TimeoutError:
                what = f"the request took longer than {BODY_SECONDS:.0f} s"
                raise _RefusedError(answer_error(request, 408, what)) from None
            if body is None:
                await drain(request, LARGEST_BODY)
                raise _too_long(request, most)
            await _check_form(request, body)

            async def send_after_writing(message: Message) -> None:
                # What was written is committed by now, and whoever hears of it asks next.
                if message["type"] == "http.response.start":
                    self.site.recent.forget()
                await send(message)

            await self.app(request.scope, replay_body(body, request.receive), send_after_writing)

    def _check_host(self, request: Request) -> None:
        """Refuse other names than ours: a page elsewhere could lead its own name to this address."""
        values = request.headers.getlist("Host")
        name = host_name(values[0]) if len(values) == 1 else None
        if name is None:
            raise _RefusedError(answer_error(request, 400, "the request names no host"))
        if name in LOOPBACK_NAMES or name in self.site.access.hosts or request.scope["path"] in _PROBES:
            return
        remedy = "list the name under console.hosts of the deploy file"
        raise _RefusedError(answer_error(request, 421, "this host name is not served here", remedy))

    async def _admit(self, request: Request) -> Identity | None:
        """Return who asks, having noted it, None on a path that is open to everybody; or refuse."""
        has_bearer = "Authorization" in request.headers
        if request.method not in _SAFE_METHODS and not has_bearer:
            _check_origin(request, is_secure=self.site.access.is_secure)
        path = request.scope["path"]
        if path in _OPEN_PATHS or path.startswith(_OPEN_FOLDER):
            return None
        found = self.site.identify(request)
        identity = await found if isawaitable(found) else found
        if identity is None:
            raise _RefusedError(self._unknown(request, address_of(request), has_bearer=has_bearer))
        if seconds := self.site.access.rates.count_request(identity.name):
            raise _RefusedError(answer_too_many(request, seconds))
        request.state.identity = identity
        return identity

    def _unknown(self, request: Request, address: str, *, has_bearer: bool) -> Response:
        rates = self.site.access.rates
        if has_bearer:
            if seconds := rates.wait_for(address):
                return answer_too_many(request, seconds)
            rates.count_failure(address)
        accepts_page = "text/html" in request.headers.get("Accept", "")
        if accepts_page and request.method == "GET" and not has_bearer and self.site.sign_in is not None:
            return RedirectResponse(f"/login?next={quote(_target_of(request), safe='/')}", 303)
        response = answer_error(request, 401, "sign in first", "send Authorization: Bearer TOKEN; see `stepfare token`")
        response.headers["WWW-Authenticate"] = 'Bearer realm="stepfare"'
        return response


def _stated_size(request: Request) -> int:
    try:
        size = body_size(request, LARGEST_BODY)
    except ValueError as error:
        raise _RefusedError(answer_error(request, 400, str(error))) from None
    if size > LARGEST_BODY:
        raise _too_long(request, LARGEST_BODY)
    return size


async def _check_form(request: Request, body: bytes) -> None:
    expected = getattr(request.state, "csrf_token", "")
    if expected and not is_equal(await _given_token(request, body), expected):
        message = "this form is not of your session"
        raise _RefusedError(answer_error(request, 403, message, "open the page again and send it from there"))


def _too_long(request: Request, max_bytes: int) -> _RefusedError:
    what = f"the request is longer than {max_bytes} bytes"
    return _RefusedError(answer_error(request, 413, what, "send less at a time"))


def _target_of(request: Request) -> str:
    path: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    query: bytes = request.scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("latin-1")


def host_name(header: str) -> str | None:
    """Return the name of a Host header in lower case, without its port; None for what is no name and port."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    name = parts.hostname.rstrip(".").lower()
    return f"[{name}]" if ":" in name else name


def address_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else ""


def answer_too_many(request: Request, seconds: int) -> Response:
    """Return the refusal of a request that comes too soon."""
    response = answer_error(request, 429, f"too many requests; try again in {seconds} s")
    response.headers["Retry-After"] = str(seconds)
    return response


def _check_origin(request: Request, *, is_secure: bool) -> None:
    """Refuse what a page of another site sent. Programs send neither header."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    own = f"{'https' if is_secure else 'http'}://{request.headers['Host']}"
    if site not in (None, "same-origin", "none") or (origin is not None and origin.lower() != own.lower()):
        raise _RefusedError(answer_error(request, 403, "the request comes from a page of another site"))


async def _given_token(request: Request, body: bytes) -> str:
    """Return the CSRF token of a request: that of its header, else of its form."""
    header = request.headers.get(CSRF_HEADER)
    if header is not None:
        return header
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() not in _FORMS:
        return ""
    try:
        form = await Request(request.scope, replay_body(body)).form(max_files=10, max_fields=1000)
    except (HTTPException, MultiPartException):
        return ""
    value = form.get(CSRF_FIELD, "")
    await form.close()
    return value if isinstance(value, str) else ""


def replay_body(body: bytes, then: Receive | None = None) -> Receive:
    """Return a channel that gives a body that was read, and after it what the client does."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await then() if then is not None else {"type": "http.disconnect"}

    return receive
