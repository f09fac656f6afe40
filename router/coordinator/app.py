"""The HTTP routes of the coordinator; :mod:`router.coordinator.handlers` decides the answers."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from router import installed_version
from router.coordinator import messages
from router.coordinator.bodies import BodyMemory, body_size, drain, read_body
from router.coordinator.connections import ADMIT, REFUSE, tell_connection
from router.coordinator.handlers import AgentMessageHandler, AgentReply
from router.coordinator.long_poll import LongPoll
from router.state.errors import StateError

if TYPE_CHECKING:
    from router.coordinator.metrics import Metrics

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# Messages that wait for the database at the same time are written together.
THREADS = 16
# Messages that machines have only seconds for must not wait behind the others: hundreds of gangs that are told in one
# second save in the next one.
_URGENT = ("notice", "orders")
# Requests with an unverified token wait for one another, and for nobody else.
STRANGERS = 8
# The most that is read and dropped of a body that is too long or has no token, so that the client sees the answer.
DRAINED_BYTES = 4 * messages.LARGEST_BODY
# Addresses of this machine; a request with one of the headers below was passed on by a proxy and may come from
# anywhere.
_LOCAL = ("127.0.0.1", "::1")
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-real-ip")
_RANK = re.compile(r"[0-9]{1,6}")


def make_app(attendance: AgentMessageHandler, agent: bytes, state_id: str, metrics: Metrics | None = None) -> Starlette:
    """Return the coordinator's application.

    ``agent``: the zipapp that machines fetch. ``state_id`` tells coordinators of different states apart. Without
    ``metrics`` none are served.
    """
    app = Starlette(exception_handlers={HTTPException: _http_error})
    digest = hashlib.sha256(agent).hexdigest()
    health = {"state": state_id, "version": installed_version()}
    threads: dict[bool | None, CapacityLimiter] = {}
    long_poll = LongPoll(attendance.look_again)
    attendance.changed, app.state.close = long_poll.ring, long_poll.close
    memory = BodyMemory()

    async def take(request: Request) -> Response:
        attempt, rank, message = (request.path_params[name] for name in ("attempt", "rank", "message"))
        # The limiters belong to the running event loop, so they are created inside it.
        if not threads:
            threads.update({urgent: CapacityLimiter(THREADS) for urgent in (True, False)})
            threads[None] = CapacityLimiter(STRANGERS)
        authorization = request.headers.get("Authorization", "")
        # The token is checked before a byte of the body is stored.
        if not attendance.knows(attempt, authorization):
            refusal = await run_sync(attendance.refusal, attempt, authorization, limiter=threads[None])
            if refusal is not None:
                tell_connection(request, REFUSE)
                await drain(request, DRAINED_BYTES)
                return _json(*refusal)
        tell_connection(request, ADMIT)
        size = body_size(request, messages.LARGEST_BODY)
        if size > messages.LARGEST_BODY:
            await drain(request, DRAINED_BYTES)
            return _json(413, {"error": "body"})
        try:
            async with memory.reserved(attempt, size):
                data = await read_body(request, messages.LARGEST_BODY)
                if data is None:
                    await drain(request, DRAINED_BYTES)
                    return _json(413, {"error": "body"})
                work = partial(_answer, attendance, attempt, rank, message, authorization, data)
                ask = partial(run_sync, work, limiter=threads[message in _URGENT])
                seconds, seen = _longest_wait(message, data)
                peek = partial(attendance.peek, attempt, rank, seen)
                return _json(*await long_poll.answer(attempt, seconds, ask, peek))
        except TimeoutError:
            return _json(408, {})

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
        _add_metrics_route(metrics, app)
    return app


def _add_metrics_route(metrics: Metrics, app: Starlette) -> None:
    scrapes: list[CapacityLimiter] = []

    async def get_metrics(request: Request) -> Response:
        if not metrics.admits(request.headers.get("Authorization", ""), is_local=_is_local(request)):
            return _json(401, {"error": "token"})
        # Scrapes have a thread of their own: they never wait for agents, nor agents for them.
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
    is_loopback = request.client is not None and request.client.host in _LOCAL
    return is_loopback and not any(name in request.headers for name in _PASSED_ON)


def _answer(
    attendance: AgentMessageHandler, attempt: str, rank: str, message: str, authorization: str, data: bytes
) -> AgentReply:
    try:
        body = messages.decode_body(data)
    except messages.InvalidBodyError:
        return 400, {"error": "body"}
    try:
        number = int(rank) if _RANK.fullmatch(rank) else -1
        return attendance.answer(attempt, number, message, authorization, body)
    except Exception as error:
        # The log says where the error occurred, not its message, which may quote a value.
        stack = "".join(traceback.format_tb(error.__traceback__))
        _log.error("%s: %s\n%s", message, type(error).__name__, stack)
        return 500, {}


def _longest_wait(message: str, data: bytes) -> tuple[float, str]:
    """Return how long the answer to a message may wait for an order, and which order the rank knows."""
    try:
        if message != "orders":
            return 0.0, ""
        poll = messages.parse_body(messages.OrdersRequest, messages.decode_body(data))
    except messages.InvalidBodyError:
        return 0.0, ""
    return poll.wait, poll.seen


def _http_error(_: Request, error: Exception) -> Response:
    """Return an answer for unknown paths and methods that no agent takes for a final one."""
    assert isinstance(error, HTTPException)
    return Response("{}", error.status_code, error.headers, media_type="application/json")


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(json.dumps(content), status_code=status, media_type="application/json")
