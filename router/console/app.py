"""Make the console's application: routes, errors as pages or JSON, headers that confine what a page may do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.middleware.gzip import GZipMiddleware

from pricing.problems import InvalidInputError
from router import installed_version
from router.access.identity import AccessDeniedError
from router.app.queries.approvals import ApprovalRefusedError
from router.console.answers import CachedAnswer
from router.console.api import jobs as jobs_api
from router.console.api import me as me_api
from router.console.api import offers as offers_api
from router.console.api import openapi
from router.console.api import plans as plans_api
from router.console.api import prices as prices_api
from router.console.api import quotes as quotes_api
from router.console.api import spend as spend_api
from router.console.api import tasks as tasks_api
from router.console.api.errors import ERRORS, install_errors
from router.console.error_answers import answer_error
from router.console.guard import HEADERS, AccessGuard
from router.console.idempotency import IdempotentRequests
from router.console.pages import audit, budgets, jobs, plans, prices, quotes, sign_in, spend
from router.console.quote_errors import add_quote_errors
from router.console.site import ConsoleSite
from router.console.spend_questions import make_newest_month
from router.render.pages import stylesheet
from router.state.errors import StateError

# Pages and parts of the API, each makes its routes; the first are about a night. Whoever adds one regenerates
# docs/schema/openapi.json (`stepfare schema openapi`).
_PARTS = (
    *(plans, plans_api, quotes, quotes_api, prices, prices_api, offers_api),
    *(audit, jobs, jobs_api, spend, budgets, spend_api, me_api, tasks_api),
)
_WEEK = 7 * 86400
LEAST_COMPRESSED = 1024
COMPRESSION_LEVEL = 5
LOG = logging.getLogger("stepfare.console")


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

    @app.exception_handler(AccessDeniedError)
    async def denied(request: Request, error: AccessDeniedError) -> Response:
        return answer_error(request, 403, str(error))

    @app.exception_handler(InvalidInputError)
    async def invalid(request: Request, error: InvalidInputError) -> Response:
        return answer_error(request, 400, str(error))

    @app.exception_handler(StateError)
    async def unavailable(request: Request, error: StateError) -> Response:
        # The error names the place of the database, which is nobody's business but the operator's.
        LOG.warning("%s: %s", request.url.path, error)
        return answer_error(request, 503, "the state cannot be read or written now", "try again in a while")

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        # This answer is sent outside the guard, which adds the headers of all others. The server logs the error.
        response = answer_error(request, 500, "the server failed to answer")
        response.headers.update(HEADERS)
        return response

    install_errors(app)
    add_quote_errors(app)
    app.add_exception_handler(tasks_api.TaskNotFoundError, tasks_api.answer_missing_task)
    app.add_exception_handler(plans_api.PlanNotFoundError, plans_api.answer_missing_plan)
    app.add_exception_handler(ApprovalRefusedError, plans_api.answer_refused_approval)

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
    app.include_router(openapi.make_router())
    return app


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
    """Return a file of the package, read once."""
    if name == "pages.css":
        return CachedAnswer.of(stylesheet(), "text/css")
    return CachedAnswer.of(files("router.console").joinpath("static", name).read_bytes(), _kind_of(name))


def _kind_of(name: str) -> str:
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
    return next((kind for end, kind in kinds.items() if name.endswith(end)), "")
