"""The coordinator over HTTP. Nothing but the routes: what is answered is decided in
:mod:`router.coordinator.handlers`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import traceback
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from router.coordinator import messages
from router.coordinator.connections import ADMIT, REFUSE
from router.coordinator.handlers import Answer, Attendance
from router.coordinator.long_poll import Waiting
from router.state.errors import StateError

if TYPE_CHECKING:
    from router.coordinator.metrics import Metrics

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# Those that wait for one another at the database are written together.
THREADS = 16
# What machines have seconds for is not to wait behind what the others say: hundreds of gangs that are told in one
# second save in the next one.
_URGENT = ("notice", "orders")
# A body that takes longer is not waited for; nor, where nobody wants it, for longer than that.
BODY_SECONDS = 20.0
DRAIN_SECONDS = 2.0
# Those who show a token that is not known to be right wait for one another, and for nobody else.
STRANGERS = 8
# Of a body that is too long, or of one who has no token, so much is read and dropped, so that the answer is seen.
DRAINED_BYTES = 4 * messages.LARGEST_BODY
# Whoever comes from this machine; what a proxy passed on comes from anywhere.
_LOCAL = ("127.0.0.1", "::1")
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-real-ip")
_RANK = re.compile(r"[0-9]{1,6}")


def make_app(attendance: Attendance, agent: bytes, state_id: str, metrics: Metrics | None = None) -> Starlette:
    """``agent``: the zipapp that machines fetch. ``state_id`` tells coordinators of different states apart. Without
    ``metrics`` there are none to be had."""
    app = Starlette(exception_handlers={HTTPException: _refused})
    digest = hashlib.sha256(agent).hexdigest()
    health = {"state": state_id, "version": own_version()}
    threads: dict[bool | None, CapacityLimiter] = {}
    waiting = Waiting(attendance.look_again)
    attendance.changed, app.state.close = waiting.ring, waiting.close

    async def take(request: Request) -> Response:
        attempt, rank, message = (request.path_params[name] for name in ("attempt", "rank", "message"))
        # Made here because it belongs to the running loop.
        if not threads:
            threads.update({urgent: CapacityLimiter(THREADS) for urgent in (True, False)})
            threads[None] = CapacityLimiter(STRANGERS)
        authorization = request.headers.get("Authorization", "")
        # Before a byte of the body is kept.
        if not attendance.knows(attempt, authorization):
            no = await run_sync(attendance.refusal, attempt, authorization, limiter=threads[None])
            if no is not None:
                _tell(request, REFUSE)
                await _drain(request)
                return _json(*no)
        _tell(request, ADMIT)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                data = await _body(request)
        except TimeoutError:
            return _json(408, {})
        if data is None:
            return _json(413, {"error": "body"})
        work = partial(_answer, attendance, attempt, rank, message, authorization, data)
        ask = partial(run_sync, work, limiter=threads[message in _URGENT])
        seconds, seen = _patience(message, data)
        peek = partial(attendance.peek, attempt, rank, seen)
        return _json(*await waiting.answer(attempt, seconds, ask, peek))

    async def get_agent(request: Request) -> Response:
        if request.path_params["sha256"] != digest:
            return _json(404, {"error": "agent_unknown"})
        return Response(agent, media_type="application/octet-stream")

    async def get_health(_: Request) -> Response:
        return _json(200, health)

    app.add_route("/v1/attempts/{attempt}/ranks/{rank}/{message}", take, ["POST"])
    app.add_route("/v1/agents/{sha256}", get_agent, ["GET"])
    app.add_route("/v1/health", get_health, ["GET"])
    if metrics is not None:
        _serve(metrics, app)
    return app


def _serve(metrics: Metrics, app: Starlette) -> None:
    scrapes: list[CapacityLimiter] = []

    async def get_metrics(request: Request) -> Response:
        if not metrics.admits(request.headers.get("Authorization", ""), is_local=_is_local(request)):
            return _json(401, {"error": "token"})
        # One thread of its own: scrapes never wait for agents, nor agents for them.
        if not scrapes:
            scrapes.append(CapacityLimiter(1))
        try:
            text = await run_sync(metrics.text, limiter=scrapes[0])
        except StateError as error:
            _log.warning("metrics: %s", error)
            return _json(503, {})
        return Response(text, headers={"Content-Type": metrics.content_type})

    app.add_route("/metrics", get_metrics, ["GET"])


def _is_local(request: Request) -> bool:
    here = request.client is not None and request.client.host in _LOCAL
    return here and not any(name in request.headers for name in _PASSED_ON)


def _answer(attendance: Attendance, attempt: str, rank: str, message: str, authorization: str, data: bytes) -> Answer:
    try:
        body = messages.decoded(data)
    except messages.BadBody:
        return 400, {"error": "body"}
    try:
        number = int(rank) if _RANK.fullmatch(rank) else -1
        return attendance.answer(attempt, number, message, authorization, body)
    except Exception as error:
        # Where, not what: a message may quote a value.
        places = "".join(traceback.format_tb(error.__traceback__))
        _log.error("%s: %s\n%s", message, type(error).__name__, places)
        return 500, {}


def _patience(message: str, data: bytes) -> tuple[float, str]:
    """How long the answer to a message may wait for an order, and which one is known."""
    try:
        said = messages.orders(messages.decoded(data)) if message == "orders" else None
    except messages.BadBody:
        return 0.0, ""
    return (0.0, "") if said is None else (said.wait, said.seen)


async def _body(request: Request) -> bytes | None:
    """None when it is too long."""
    data, size, more = bytearray(), 0, True
    while more and size <= DRAINED_BYTES:
        # A client that leaves has sent what it sent: nobody sees the answer to half a body.
        part = await request.receive()
        chunk, more = part.get("body", b""), part.get("more_body", False)
        size += len(chunk)
        if size <= messages.LARGEST_BODY:
            data += chunk
    return bytes(data) if size <= messages.LARGEST_BODY else None


async def _drain(request: Request) -> None:
    """Reads the rest and keeps nothing: a client that is still sending when the connection ends sees no answer."""
    size, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and size <= DRAINED_BYTES:
                part = await request.receive()
                size, more = size + len(part.get("body", b"")), part.get("more_body", False)


def _tell(request: Request, what: str) -> None:
    """Lets the connection know, where it wants to."""
    if (tell := request.scope.get("extensions", {}).get(what)) is not None:
        tell()


def _refused(_: Request, error: Exception) -> Response:
    """No such path, or not this way: nothing that an agent would take for a final word."""
    assert isinstance(error, HTTPException)
    return Response("{}", error.status_code, error.headers, media_type="application/json")


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(json.dumps(content), status_code=status, media_type="application/json")


def own_version() -> str:
    """That of this program, "" where it runs without being installed."""
    try:
        return version("stepfare")
    except PackageNotFoundError:
        return ""
