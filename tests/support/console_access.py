"""A console whose visitors sign in: its state, a clock that tests move, clients with and without credentials."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import anyio.lowlevel
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.sign_in.oidc import OidcClient
from router.console.sign_in.sign_in import SignIn
from router.console.site import ConsoleAccess, ConsoleSite, RateLimits
from router.deploy.console_settings import OidcEntry
from router.state.access_tokens import AccessToken, NewToken, TokenKind
from tests.support.console import NIGHT, query_context

_URL = "http://127.0.0.1:8321"
PAGE = {"Accept": "text/html"}
_CSRF = re.compile(r'name="csrf_token" value="([^"]+)"')


@dataclass(slots=True)
class MovedClock:
    """A clock that stands still until it is moved."""

    now: datetime = NIGHT

    def __call__(self) -> datetime:
        return self.now

    def move(self, **parts: float) -> None:
        """Move it on by a duration."""
        self.now += timedelta(**parts)


@dataclass(slots=True)
class SignInConsole:
    """A console with its state and clock."""

    context: QueryContext
    clock: MovedClock
    site: ConsoleSite
    app: FastAPI

    def client(
        self, *, url: str = "http://127.0.0.1:8321", address: str = "127.0.0.1", raises: bool = True
    ) -> TestClient:
        """Return a browser or program without credentials; redirects are not followed."""
        return TestClient(
            self.app, base_url=url, follow_redirects=False, client=(address, 50_000), raise_server_exceptions=raises
        )

    def token(
        self, name: str = "ana", grants: Sequence[str] = ("viewer",), scopes: Sequence[str] = (), days: float = 30
    ) -> tuple[str, AccessToken]:
        """Make a token and return its secret and record."""
        new = NewToken(TokenKind.TOKEN, name, tuple(grants), self.clock.now + timedelta(days=days), tuple(scopes))
        return self.context.store.access_tokens.make(new, "operator", self.clock.now)

    def signed_in(self, name: str = "ana", grants: Sequence[str] = ("viewer",)) -> tuple[TestClient, str]:
        """Return a browser that pasted a new token, and the CSRF token of its pages."""
        client = self.client()
        assert client.post("/login", data={"token": self.token(name, grants)[0]}).status_code == 303
        return client, csrf_of(client)


def csrf_of(client: TestClient) -> str:
    """Return the CSRF token of a signed-in browser's pages."""
    found = _CSRF.search(client.get("/tonight", headers=PAGE).text)
    assert found is not None
    return found[1]


def bearer(secret: str) -> dict[str, str]:
    """Return the header of a program that has a token."""
    return {"Authorization": f"Bearer {secret}"}


@contextmanager
def sign_in_console(
    folder: Path,
    *,
    hosts: Sequence[str] = (),
    secure: bool = False,
    requests: str = "",
    failures: str = "5/minute",
    oidc: tuple[OidcEntry, str] | None = None,
) -> Iterator[SignInConsole]:
    """Open a console over a new state; it has a route /deed that takes every method, and one that fails."""
    clock = MovedClock()
    with query_context(folder, clock=clock) as context:
        sign_in = SignIn(context.store, clock, secure)
        access = ConsoleAccess(frozenset(hosts), secure, RateLimits(requests, failures, clock))
        provider = None if oidc is None else OidcClient(*oidc, clock)
        site = ConsoleSite(context, sign_in.identify, AnswerCache(), access, sign_in, provider)
        app = make_console(site)

        @app.api_route("/deed", methods=["POST", "PUT", "PATCH", "DELETE"])
        async def deed(request: Request) -> dict[str, object]:
            return {"who": request.state.identity.name, "body": (await request.body()).decode()}

        @app.get("/fault")
        def fault() -> None:
            raise RuntimeError("a canary in a message")

        @app.get("/endless")
        async def endless() -> StreamingResponse:
            async def ticks() -> AsyncIterator[str]:
                while True:
                    yield "data: x\n\n"
                    await anyio.lowlevel.checkpoint()

            return StreamingResponse(ticks(), media_type="text/event-stream")

        yield SignInConsole(context, clock, site, app)
