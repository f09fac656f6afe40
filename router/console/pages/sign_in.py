"""The pages to sign in on, and the routes to sign in and out."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from router.console.error_answers import BARE_FRAME, answer_error
from router.console.guard import address_of, answer_too_many
from router.console.sign_in.sign_in import (
    SESSION_COOKIE,
    SIGN_IN_COOKIE,
    ProviderUnavailableError,
    SignIn,
    SignInRefusedError,
    cookie_name,
    drop_cookie,
    local_path,
    set_cookie,
)
from router.console.site import ConsoleSite
from router.render.pages import fill_template

if TYPE_CHECKING:
    from router.console.sign_in.oidc import OidcClient

_WRONG_TOKEN = "That token is not known, has expired or was revoked."
_OIDC, _CALLBACK = "/login/oidc", "/login/oidc/callback"
# How long somebody may take at the identity provider.
_PROVIDER_SECONDS = 600
_WRONG_LINK = "That link was used, or has expired. `stepfare serve` prints a new one when it starts."


def make_router(site: ConsoleSite, sign_in: SignIn) -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)
    rates = site.access.rates

    def shown(target: str, problem: str = "", status: int = 200) -> Response:
        """Return the page to sign in on."""
        oidc_url = "" if site.oidc is None else f"{_OIDC}?next={quote(target, safe='/')}"
        words = {"target": target, "problem": problem, "oidc_url": oidc_url, "takes_tokens": sign_in.accepts_tokens}
        return HTMLResponse(fill_template("sign_in.html", frame=BARE_FRAME, **words), status)

    def refused(request: Request, target: str, problem: str) -> Response:
        """Return the page to try again on; a 429 for an address that failed too often."""
        address = address_of(request)
        if seconds := rates.wait_for(address):
            return answer_too_many(request, seconds)
        rates.count_failure(address)
        return shown(target, problem, 401)

    @router.get("/login")
    async def login(request: Request) -> Response:
        target = local_path(request.query_params.get("next", "/"))
        link = request.query_params.get("link")
        # A HEAD request, as scanners of links send, must not use the link up.
        if link is None or getattr(request.state, "is_head", False):
            return shown(target)
        begun = await sign_in.begin_with_link(link, sign_in.session_of(request))
        if begun is None:
            return refused(request, target, _WRONG_LINK)
        return begin_session(sign_in, _lead_on(target), *begun)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=10)
        token, target = form.get("token", ""), local_path(str(form.get("next", "/")))
        if not isinstance(token, str):
            return answer_error(request, 400, "the token is no text")
        begun = await sign_in.begin_with_token(token.strip(), sign_in.session_of(request))
        if begun is None:
            return refused(request, target, _WRONG_TOKEN)
        return begin_session(sign_in, RedirectResponse(target, 303), *begun)

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        await sign_in.end(sign_in.session_of(request))
        response = RedirectResponse("/login", 303)
        drop_cookie(response, SESSION_COOKIE, secure=sign_in.is_secure)
        return response

    if site.oidc is not None:
        _add_oidc_routes(router, site.oidc, sign_in, refused)
    return router


def _add_oidc_routes(
    router: APIRouter, oidc: OidcClient, sign_in: SignIn, refused: Callable[[Request, str, str], Response]
) -> None:
    cookie = cookie_name(SIGN_IN_COOKIE, secure=sign_in.is_secure)

    def redirect_url(request: Request) -> str:
        # The guard has refused hosts that are not ours.
        return f"{'https' if sign_in.is_secure else 'http'}://{request.headers['Host']}{_CALLBACK}"

    @router.get(_OIDC)
    async def leave(request: Request) -> Response:
        secret = secrets.token_urlsafe(32)
        try:
            url = await oidc.authorization_url(secret, redirect_url(request))
        except ProviderUnavailableError as error:
            return answer_error(request, 503, str(error), "try again later")
        response = RedirectResponse(url, 303)
        target = quote(local_path(request.query_params.get("next", "/")), safe="")
        value = f"{secret}.{target}"
        # The provider leads back from its own site, which a strict cookie would not survive.
        set_cookie(
            response, SIGN_IN_COOKIE, value, secure=sign_in.is_secure, seconds=_PROVIDER_SECONDS, across_sites=True
        )
        return response

    @router.get(_CALLBACK)
    async def come_back(request: Request) -> Response:
        secret, _, quoted = request.cookies.get(cookie, "").partition(".")
        target = local_path(unquote(quoted))
        # A HEAD request must not use the provider's code up.
        if getattr(request.state, "is_head", False):
            return Response()
        try:
            identity = await oidc.identify(secret, request.query_params, redirect_url(request))
        except SignInRefusedError as error:
            return refused(request, target, str(error))
        except ProviderUnavailableError as error:
            return answer_error(request, 503, str(error), "try again later")
        begun = await sign_in.begin_for(identity, sign_in.session_of(request))
        response = begin_session(sign_in, _lead_on(target), *begun)
        drop_cookie(response, SIGN_IN_COOKIE, secure=sign_in.is_secure)
        return response


def _lead_on(target: str) -> Response:
    """Return a page of this server that leads on at once.

    A redirect would not do: a browser that comes from another site keeps a strict cookie back until the end.
    """
    return HTMLResponse(fill_template("signed_in.html", frame=BARE_FRAME, target=target))


def begin_session(sign_in: SignIn, response: Response, secret: str, lasts: timedelta) -> Response:
    """Give a new session to the browser with an answer."""
    set_cookie(response, SESSION_COOKIE, secret, secure=sign_in.is_secure, seconds=int(lasts.total_seconds()))
    return response
