"""Sign people and programs in: credentials of requests, and what the state knows of tokens, sessions and links."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response

from router.access.identity import Grant, Identity, Permission
from router.state.access_tokens import AccessToken, NewToken, TokenKind, hash_secret

if TYPE_CHECKING:
    from starlette.requests import Request

    from router.state.store import StateStore


SESSION_COOKIE = "stepfare_session"
SIGN_IN_COOKIE = "stepfare_sign_in"
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "X-CSRF-Token"
_LONGEST_NEXT = 2000
# Printable ASCII without a backslash, which browsers read as a slash.
_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


def bearer_token(request: Request) -> str | None:
    """Return the token of an Authorization header, "" for one that is no bearer token, None without the header."""
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def cookie_name(name: str, *, secure: bool) -> str:
    """Return the name of a cookie; over https browsers let only this host, over https, set one with that prefix."""
    return f"__Host-{name}" if secure else name


def set_cookie(
    response: Response, name: str, value: str, *, secure: bool, seconds: int, across_sites: bool = False
) -> None:
    """Set a cookie that scripts cannot read; ``across_sites`` sends it when another site leads back here."""
    response.set_cookie(
        cookie_name(name, secure=secure),
        value,
        max_age=seconds,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax" if across_sites else "strict",
    )


def drop_cookie(response: Response, name: str, *, secure: bool) -> None:
    """Tell the browser to forget a cookie."""
    response.delete_cookie(cookie_name(name, secure=secure), path="/", secure=secure, httponly=True, samesite="strict")


def derive_value(secret: str, purpose: str) -> str:
    """Return a value that only who has the secret can tell; it says nothing of the secret or of other purposes."""
    digest = hmac.new(secret.encode("utf-8", "surrogatepass"), purpose.encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def csrf_token_of(session: str) -> str:
    """Return the token that forms of this session carry."""
    return derive_value(session, "csrf")


def is_equal(given: str, expected: str) -> bool:
    """Compare secrets in a time that does not tell how much of them is equal."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass"))


def local_path(url: str) -> str:
    """Return a path of this server to go to after signing in: that of ``url``, or / where it leads elsewhere."""
    if len(url) > _LONGEST_NEXT or not _PATH.fullmatch(url):
        return "/"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or parts.path.startswith(("/login", "/logout")) else url


SESSION_LENGTH = timedelta(hours=12)
LINK_LENGTH = timedelta(minutes=15)
# How long a server goes on believing what it read: a token that was revoked elsewhere works as long as this.
KNOWN_FOR = timedelta(seconds=1)
_MOST_KNOWN = 10_000
# Lookups of credentials wait for one another, and not for queries.
_THREADS = 8


class SignInRefusedError(Exception):
    """The provider's answer signs nobody in; the message may be shown to whoever tries."""


class ProviderUnavailableError(Exception):
    """The provider cannot be asked now, or answers what it must not."""


def identity_of(token: AccessToken) -> Identity:
    """Return whom a token stands for. A grant or scope that this version does not know permits nothing."""
    known = set(Permission)
    scopes = frozenset(Permission(scope) for scope in token.scopes if scope in known) if token.scopes else None
    grants: list[Grant] = []
    for text in token.grants:
        try:
            grants.append(Grant.parse(text))
        except ValueError:
            continue
    return Identity(token.subject, tuple(grants), scopes)


@dataclass(slots=True)
class SignIn:
    """Credentials of requests, looked up in the state. Its methods may be called by many requests at once.

    ``is_secure``: browsers reach the console over https, so that cookies are for https alone. Without
    ``accepts_tokens`` only sessions count, which links or an identity provider begin.
    """

    store: StateStore
    clock: Callable[[], datetime]
    is_secure: bool = False
    accepts_tokens: bool = True
    _known: dict[tuple[TokenKind, str], tuple[datetime, AccessToken]] = field(default_factory=dict)
    _threads: CapacityLimiter | None = None

    async def identify(self, request: Request) -> Identity | None:
        """Return who asks, None for nobody that is known. A request by cookie gets its session's CSRF token noted.

        A bearer token that is wrong is not replaced by a cookie that is right.
        """
        token = bearer_token(request)
        if token is not None:
            found = await self._find(token, TokenKind.TOKEN) if self.accepts_tokens else None
            return None if found is None else identity_of(found)
        session = self.session_of(request)
        found = await self._find(session, TokenKind.SESSION) if session else None
        if found is None:
            return None
        request.state.csrf_token = csrf_token_of(session)
        return identity_of(found)

    def session_of(self, request: Request) -> str:
        """Return the secret of the session cookie, valid or not, "" without one."""
        return request.cookies.get(cookie_name(SESSION_COOKIE, secure=self.is_secure), "")

    async def begin_with_token(self, token: str, old_session: str = "") -> tuple[str, timedelta] | None:
        """Begin a session for who pasted a token; return its secret and how long it lasts, None for a wrong token.

        The session before it, if any, ends.
        """

        def begin() -> tuple[str, timedelta] | None:
            now = self.clock()
            found = self.store.access_tokens.find(token, TokenKind.TOKEN, now) if self.accepts_tokens else None
            if found is None:
                return None
            self._end(old_session, now)
            return self._begin(found.subject, found.grants, found.scopes, found.id, found.expires_at)

        return await run_sync(begin)

    async def begin_with_link(self, link: str, old_session: str = "") -> tuple[str, timedelta] | None:
        """Begin a session for who opened a one-time link; None where it is not valid or was used."""

        def begin() -> tuple[str, timedelta] | None:
            now = self.clock()
            found = self.store.access_tokens.redeem(link, now)
            if found is None:
                return None
            self._end(old_session, now)
            return self._begin(found.subject, found.grants, found.scopes, "", None)

        return await run_sync(begin)

    async def begin_for(self, identity: Identity, old_session: str = "") -> tuple[str, timedelta]:
        """Begin a session for an identity that somebody else vouches for."""

        def begin() -> tuple[str, timedelta]:
            self._end(old_session, self.clock())
            return self._begin(identity.name, tuple(map(str, identity.grants)), (), "", None)

        return await run_sync(begin)

    async def end(self, session: str) -> None:
        """End a session, on all servers."""
        await run_sync(lambda: self._end(session, self.clock()))

    def _begin(
        self, subject: str, grants: tuple[str, ...], scopes: tuple[str, ...], parent: str, latest: datetime | None
    ) -> tuple[str, timedelta]:
        now = self.clock()
        until = now + SESSION_LENGTH if latest is None else min(now + SESSION_LENGTH, latest)
        new = NewToken(TokenKind.SESSION, subject, grants, until, scopes, parent=parent)
        secret, _ = self.store.access_tokens.make(new, subject, now)
        return secret, until - now

    def _end(self, session: str, now: datetime) -> None:
        if session and (found := self.store.access_tokens.find(session, TokenKind.SESSION, now)) is not None:
            self.store.access_tokens.revoke(found.id, now)
            self._known.pop((TokenKind.SESSION, found.digest), None)

    async def _find(self, secret: str, kind: TokenKind) -> AccessToken | None:
        now = self.clock()
        key = (kind, hash_secret(secret))
        known = self._known.get(key)
        if known is not None and timedelta(0) <= now - known[0] < KNOWN_FOR and known[1].is_valid(now):
            return known[1]
        # The limiter belongs to the running event loop, so it is made inside it.
        self._threads = self._threads or CapacityLimiter(_THREADS)
        token = await run_sync(self.store.access_tokens.find, secret, kind, now, limiter=self._threads)
        self._known.pop(key, None)
        if token is not None:
            while len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = (now, token)
        return token


def make_link(store: StateStore, subject: str, now: datetime) -> str:
    """Store a one-time link for the local operator, who may do everything, and return its secret."""
    new = NewToken(TokenKind.LINK, subject, ("admin",), now + LINK_LENGTH)
    return store.access_tokens.make(new, subject, now)[0]
