"""The pages to sign in on, and the routes to sign in and out."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from router.console.error_answers import BARE_FRAME, answer_error
from router.console.guard import address_of, answer_too_many
from router.console.sign_in.credentials import SESSION_COOKIE, drop_cookie, local_path, set_cookie
from router.console.sign_in.sign_in import SignIn
from router.console.site import ConsoleSite
from router.render.sign_in_page import sign_in_page, signed_in_page

_WRONG_TOKEN = "That token is not known, has expired or was revoked."
_WRONG_LINK = "That link was used, or has expired. `stepfare serve` prints a new one when it starts."


def make_router(site: ConsoleSite, sign_in: SignIn) -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)
    rates = site.access.rates

    def refused(request: Request, target: str, problem: str) -> Response:
        """Return the page to try again on; a 429 for an address that failed too often."""
        address = address_of(request)
        if seconds := rates.wait_for(address):
            return answer_too_many(request, seconds)
        rates.count_failure(address)
        return HTMLResponse(sign_in_page(BARE_FRAME, target, problem=problem), 401)

    @router.get("/login")
    async def login(request: Request) -> Response:
        target = local_path(request.query_params.get("next", "/"))
        link = request.query_params.get("link")
        # A HEAD request, as scanners of links send, must not use the link up.
        if link is None or getattr(request.state, "is_head", False):
            return HTMLResponse(sign_in_page(BARE_FRAME, target))
        begun = await sign_in.begin_with_link(link, sign_in.session_of(request))
        if begun is None:
            return refused(request, target, _WRONG_LINK)
        return begin_session(sign_in, HTMLResponse(signed_in_page(BARE_FRAME, target)), *begun)

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

    return router


def begin_session(sign_in: SignIn, response: Response, secret: str, lasts: timedelta) -> Response:
    """Give a new session to the browser with an answer."""
    set_cookie(response, SESSION_COOKIE, secret, secure=sign_in.is_secure, seconds=int(lasts.total_seconds()))
    return response
