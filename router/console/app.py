"""Make the console's application: routes, errors as pages or JSON, headers that confine what a page may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.middleware.gzip import GZipMiddleware

from router import installed_version
from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache, CachedAnswer
from router.console.api import description
from router.console.api import jobs as jobs_api
from router.console.api import plans as plans_api
from router.console.api import prices as prices_api
from router.console.api import quotes as quotes_api
from router.console.api import spend as spend_api
from router.console.api import tasks as tasks_api
from router.console.api.description import ERRORS, openapi_document
from router.console.error_answers import answer_error, answer_raised_errors
from router.console.guard import HEADERS, AccessGuard
from router.console.idempotency import IdempotentRequests
from router.console.pages import audit, budgets, jobs, plans, prices, quotes, sign_in, spend
from router.console.site import ConsoleSite
from router.console.spend_questions import make_newest_month
from router.render.pages import stylesheet

# Pages and parts of the API, each makes its routes; the first are about a night. Whoever adds one regenerates
# docs/schema/openapi.json (`stepfare schema openapi`).
_PARTS = (
    *(plans, plans_api, quotes, quotes_api, prices, prices_api),
    *(audit, jobs, jobs_api, spend, budgets, spend_api, description, tasks_api),
)
_WEEK = 7 * 86400
LEAST_COMPRESSED = 1024
COMPRESSION_LEVEL = 5


def make_console(site: ConsoleSite) -> FastAPI:
    """Return the application; the caller opens and closes what the site holds."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        making = asyncio.ensure_future(make_newest_month(site))
        yield
        making.cancel()
        await site.finish_answers()

    app = FastAPI(
        title="stepfare",
        version=installed_version(),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.state.site = site
    # The last one added is the first to get a request: answers are stored for idempotency keys as they are read.
    app.add_middleware(IdempotentRequests, site=site)
    app.add_middleware(GZipMiddleware, minimum_size=LEAST_COMPRESSED, compresslevel=COMPRESSION_LEVEL)
    app.add_middleware(AccessGuard, site=site)

    answer_raised_errors(app)

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        # This answer is sent outside the guard, which adds the headers of all others. The server logs the error.
        response = answer_error(request, 500, "the server failed to answer")
        response.headers.update(HEADERS)
        return response

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return RedirectResponse("/tonight", 307)

    @app.get("/static/{name}", include_in_schema=False)
    async def static(request: Request, name: str) -> Response:
        return _static_file(request, name)

    @app.get("/health", include_in_schema=False)
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": installed_version()}

    probes = CapacityLimiter(1)

    @app.get("/ready", include_in_schema=False)
    async def ready(request: Request) -> Response:
        # One thread for all probes: where the state does not answer, they wait for it, and take no thread of others.
        reason = await run_sync(site.readiness.reason, limiter=probes)
        return answer_error(request, 503, reason) if reason else JSONResponse({"status": "ready"})

    if site.sign_in is not None:
        app.include_router(sign_in.make_router(site, site.sign_in))
    for part in _PARTS:
        app.include_router(part.make_router(site), responses=ERRORS)
    return app


def openapi_text() -> str:
    """Return the description of the console's API as it is published."""
    # Describing it opens nothing, so there is no state to ask.
    site = ConsoleSite(cast("QueryContext", None), lambda _: None, AnswerCache())
    return json.dumps(openapi_document(make_console(site)), indent=2, ensure_ascii=False) + "\n"


def _static_file(request: Request, name: str) -> Response:
    found = _static_answer(name) if name in _static_names() else None
    if found is None:
        return answer_error(request, 404, "no such file")
    response = found.response(request)
    response.headers["Cache-Control"] = f"public, max-age={_WEEK}" if request.url.query else "no-cache"
    return response


@cache
def _static_names() -> frozenset[str]:
    folder = files("router.console").joinpath("static")
    names = (file.name for file in folder.iterdir() if file.is_file())
    return frozenset({"pages.css", *(name for name in names if _kind_of(name))})


@cache
def _static_answer(name: str) -> CachedAnswer:
    if name == "pages.css":
        return CachedAnswer.of(stylesheet(), "text/css")
    return CachedAnswer.of(files("router.console").joinpath("static", name).read_bytes(), _kind_of(name))


def _kind_of(name: str) -> str:
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
    return next((kind for end, kind in kinds.items() if name.endswith(end)), "")
