"""The HTTP routes of the coordinator; :mod:`router.coordinator.handlers` decides the answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import resource
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
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
from router.coordinator.saves import NO_ORDER
from router.state.errors import StateError

if TYPE_CHECKING:
    from router.coordinator.metrics import Metrics

# Seconds between checks for changes by other processes.
LOOK_SECONDS = 0.5
# Each held request is an open file; the rest of what the process may open is for others.
SHARE_HELD = 0.5
# A request that cannot be held is repeated after this many seconds.
RETRY_SECONDS = 2.0


class LongPoll:
    """Holds requests of agents until their attempt changes.

    ``look`` returns, from a thread, which attempts other processes changed since its last call. It is called only while
    requests wait. At most ``max_held`` requests are held at once; by default half of the files that the process may
    open.
    """

    def __init__(
        self, look: Callable[[], Collection[str]], *, every: float = LOOK_SECONDS, max_held: int | None = None
    ) -> None:
        self._look, self._every, self._max_held = look, every, max_held
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._held = 0
        self._closed = False
        # Both belong to the event loop that holds the requests.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._check_task: asyncio.Task[None] | None = None

    async def answer(
        self,
        attempt: str,
        seconds: float,
        ask: Callable[[], Awaitable[AgentReply]],
        peek: Callable[[], AgentReply | None],
    ) -> AgentReply:
        """Return the answer of ``ask`` once there is something to do, or after that many seconds at the latest.

        Where no more requests can be held, the answer comes at once, with ``retry_seconds``. Later checks are made by
        ``peek``, which never blocks, and returns None where ``ask`` has to be called.
        """
        if seconds <= 0:
            return await ask()
        limit = asyncio.get_running_loop().time() + seconds
        # The place is taken before the first check, so that nothing after it is missed.
        with self._place(attempt) as bell:
            reply = await ask()
            while True:
                if reply != (200, NO_ORDER) or self._closed:
                    return reply
                if bell is None:
                    return 200, {**NO_ORDER, "retry_seconds": RETRY_SECONDS}
                try:
                    async with asyncio.timeout_at(limit):
                        await bell.wait()
                except TimeoutError:
                    return reply
                bell.clear()
                reply = peek() or await ask()

    def ring(self, attempt: str) -> None:
        """Wake the requests of the attempt. From any thread, at any time."""
        self._call_in_loop(self._ring, attempt)

    def close(self) -> None:
        """Answer all held requests and hold no more. From any thread, at any time."""
        self._call_in_loop(self._close)

    @contextmanager
    def _place(self, attempt: str) -> Iterator[asyncio.Event | None]:
        """Yield an event that is set whenever something happens to the attempt; None where no more can be held."""
        if self._max_held is None:
            self._max_held = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_HELD)
        if self._closed or self._held >= self._max_held:
            yield None
            return
        self._loop = asyncio.get_running_loop()
        bell = asyncio.Event()
        self._bells.setdefault(attempt, set()).add(bell)
        self._held += 1
        if self._check_task is None or self._check_task.done():
            self._check_task = self._loop.create_task(self._check_repeatedly())
        try:
            yield bell
        finally:
            self._held -= 1
            self._bells[attempt].discard(bell)
            if not self._bells[attempt]:
                del self._bells[attempt]

    def _call_in_loop(self, action: Callable[..., None], *arguments: str) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and all requests with it.
                self._loop.call_soon_threadsafe(action, *arguments)

    def _ring(self, attempt: str) -> None:
        for bell in self._bells.get(attempt, ()):
            bell.set()

    def _close(self) -> None:
        self._closed = True
        for attempt in self._bells:
            self._ring(attempt)

    async def _check_repeatedly(self) -> None:
        thread = CapacityLimiter(1)
        while self._bells and not self._closed:
            await asyncio.sleep(self._every)
            for attempt in await run_sync(self._look, limiter=thread):
                self._ring(attempt)


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
