"""Connections with limits on heads, bytes, times and numbers until their client has shown a token.

The coordinator and the console are both behind them. TLS handshakes are counted from the moment a connection is
accepted: asyncio begins one with each connection and says nothing of it before it is done, and thousands of clients
then hold memory that nobody counts.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from asyncio import sslproto
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.coordinator.messages import LARGEST_BODY

if TYPE_CHECKING:
    from starlette.requests import Request

# Pending connections have at most this part of the files that the process may open.
_SHARE_OF_FILES = 8
# A handshake takes some four rounds of the loop. Whoever is pending keeps a place for at least so many rounds, because
# otherwise nobody in a crowd could end one before newer connections took the place.
_ROUNDS = 16
# What is read at a time.
_READ = 4 * 1024


def gate_handshakes(limits: ConnectionLimits) -> None:
    """Let servers that are created in the running loop with TLS count each connection before its handshake."""
    loop: Any = asyncio.get_running_loop()
    loop.create_server = partial(_create_server, loop.create_server, HandshakeQueue(limits))


def _create_server(
    create: Callable[..., Any], queue: HandshakeQueue, factory: Any, *, ssl: ssl.SSLContext | None = None, **rest: Any
) -> Any:
    if ssl is None:
        return create(factory, **rest)
    # Agents and programs do not resume sessions, and the server would keep each session that it has given a ticket for.
    ssl.num_tickets = 0
    # The loop accepts so many each time that it looks round. Others wait in the queue of the system.
    rest["backlog"] = min(rest["backlog"], max(1, queue.most // _ROUNDS))
    return create(partial(PendingConnection, queue, factory, ssl), **rest)


class EncryptedProtocol(sslproto.SSLProtocol):
    """TLS of one connection without asyncio's buffer, which takes 256 KiB from its first moment."""

    max_size = _READ
    # The loop has what it read here taken over before it looks at another connection.
    _shared = memoryview(bytearray(_READ))

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ssl_buffer, self._ssl_buffer_view = None, self._shared

    def get_buffer(self, _: int) -> memoryview:
        return self._shared

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._sslobj = self._incoming = self._outgoing = None


class HandshakeQueue:
    """The handshakes under way, and the connections that wait for theirs: ``crowd``, apart from who is encrypted.

    The newest and the oldest begin in turn: somebody who has just come is not behind a crowd, and everybody gets on.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        pending, files = self.limits.pending, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = min(pending, files // _SHARE_OF_FILES)
        self.crowd = ConnectionRegistry(
            replace(self.limits, per_address=pending, strangers=pending, storm_seconds=0.0, connections=self.most)
        )
        self._loop = asyncio.get_running_loop()
        # Oldest first, with the time at which they began.
        self._running: dict[PendingConnection, float] = {}
        self._waiting: OrderedDict[PendingConnection, None] = OrderedDict()
        self._takes_newest = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pending: PendingConnection) -> None:
        """Begin the handshake of a connection as soon as there is room."""
        self._waiting[pending] = None
        self._begin()

    def remove(self, pending: PendingConnection) -> None:
        """Forget a connection whose handshake is done or will not be."""
        self._waiting.pop(pending, None)
        self._running.pop(pending, None)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self.limits.handshakes:
            self._takes_newest = not self._takes_newest
            pending, _ = self._waiting.popitem(last=self._takes_newest)
            self._running[pending] = self._loop.time()
            pending.begin()
        if self._waiting and self._timer is None:
            ends = next(iter(self._running.values())) + self.limits.handshake_seconds
            self._timer = self._loop.call_at(ends, self._drop_slow)

    def _drop_slow(self) -> None:
        """End the handshakes that took too long, as many as wait for their place."""
        self._timer = None
        began_before = self._loop.time() - self.limits.handshake_seconds
        slow = [pending for pending, began in self._running.items() if began <= began_before]
        for pending in slow[: len(self._waiting)]:
            pending.drop()
        self._begin()


class PendingConnection(asyncio.Protocol):
    """A connection until its handshake is done. Where too many are pending the oldest are closed."""

    def __init__(self, queue: HandshakeQueue, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.address = ""
        self._queue, self._factory, self._context = queue, factory, context
        self._timer: asyncio.TimerHandle | None = None
        self._is_counted = False
        self._first = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection and wait for its handshake. Called by asyncio."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._is_counted = self._queue.crowd.enter(self)
        if not self._is_counted:
            self._transport.abort()
            return
        self._transport.max_size = _READ
        self._timer = self.loop.call_later(self._queue.limits.head_seconds, self.drop)

    def data_received(self, data: bytes) -> None:
        """Wait for the handshake that the client begins. Called by asyncio."""
        self._transport.pause_reading()
        self._first = data
        self._queue.add(self)

    def begin(self) -> None:
        """Begin the handshake. What the client sends after its first bytes is read then."""
        done = self.loop.create_future()
        done.add_done_callback(self._end)
        make: Any = EncryptedProtocol
        protocol = make(
            self.loop,
            self._factory(),
            self._context,
            done,
            server_side=True,
            ssl_handshake_timeout=self._queue.limits.head_seconds,
        )
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        # The first bytes are as many as are read at a time, at most.
        protocol.get_buffer(-1)[: len(self._first)] = self._first
        protocol.buffer_updated(len(self._first))
        self._first = b""
        self._transport.resume_reading()

    def drop(self) -> None:
        """End the connection at once and stop counting it."""
        self._leave()
        self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._leave()

    def _end(self, done: asyncio.Future[None]) -> None:
        failed = not done.cancelled() and done.exception() is not None
        self._leave()
        if failed:
            self._transport.abort()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_counted:
            self._is_counted = False
            self._queue.crowd.leave(self)
        self._queue.remove(self)


_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# Names of the extensions by which the application tells the connection that its token was right, or was not.
ADMIT, REFUSE = "stepfare.admit", "stepfare.refuse"
_TOKEN_HEADERS = (b"authorization", b"cookie")
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
# Files for the database and logs, and for connections that were accepted and are about to be closed.
_OTHER_FILES = 256
# The most that is read at a time from a client before its token was right, and after that.
_STRANGER_READ, _READ = 4 * 1024, 64 * 1024
# Seconds between warnings during a flood of connections.
_SAY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on what connections may use.

    A stranger is a connection that has shown no token, or an unknown one: there may be ``per_address`` and
    ``strangers`` of them at a time, each for ``stranger_seconds`` at most. Connections whose token is being checked are
    counted separately, ``strangers`` at most, because thousands of agents may call at once from one address.

    ``stranger_bytes``: what the process holds of all their heads and bodies. ``token_path``: how paths begin whose
    requests show a token.

    ``handshakes``: TLS handshakes at a time, each of which takes some 60 KiB until it is done; ``pending`` connections
    at most are in one or wait for it, unread, in the buffers of the system. A handshake that takes longer than
    ``handshake_seconds`` makes room for those that wait. They are strangers once they are encrypted.

    ``storm_seconds``: how long there may be more than ``per_address``, because after an outage agents call back all at
    once. ``head_seconds``: until the head of a request is complete. ``message_bytes``: of all that follows the head, as
    it is sent. ``connections``: in total; None: as many as files allow.

    ``sending``: those with a valid token whose body is not complete; the oldest are closed first. None: any number.
    """

    head_bytes: int = 32 * 1024
    head_seconds: float = 15.0
    stranger_seconds: float = 60.0
    storm_seconds: float = 5.0
    message_bytes: int = 16 * LARGEST_BODY
    per_address: int = 1024
    strangers: int = 4096
    connections: int | None = None
    sending: int | None = None
    stranger_bytes: int = 16 * 1024 * 1024
    handshakes: int = 128
    pending: int = 4096
    handshake_seconds: float = 5.0
    token_path: bytes = b"/v1/attempts/"


DEFAULT_LIMITS = ConnectionLimits()


def tell_connection(request: Request, what: str) -> None:
    """Tell the connection of a request about its token, :data:`ADMIT` or :data:`REFUSE`, where it asked for that."""
    if (tell := request.scope.get("extensions", {}).get(what)) is not None:
        tell()


class CountedConnection(Protocol):
    """A connection as the registry counts it: before its handshake, or with requests."""

    address: str
    loop: asyncio.AbstractEventLoop

    def drop(self) -> None:
        """End the connection at once and stop counting it."""


@dataclass(slots=True)
class ConnectionRegistry:
    """The connections of one server. Belongs to its event loop."""

    limits: ConnectionLimits
    # The strangers by address, with their start, oldest first.
    _strangers: dict[str, dict[CountedConnection, float]] = field(default_factory=dict)
    _checking: set[CountedConnection] = field(default_factory=set)
    # Those with a valid token whose body is not complete yet, oldest first.
    _sending: dict[CountedConnection, None] = field(default_factory=dict)
    _count: int = 0
    _open: int = 0
    _most: int = 0
    _warned_at: float | None = None
    _held: dict[CountedConnection, int] = field(default_factory=dict)
    _held_bytes: int = 0

    def enter(self, connection: CountedConnection) -> bool:
        """Count the connection, and return whether it may stay.

        Where there are too many strangers the oldest is closed: a connection that only holds a place has held it for
        longer than one that is about to show a token.
        """
        if not self._most:
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self._most = self.limits.connections or max(files - _OTHER_FILES, files // 2)
        self._make_room(connection.address)
        if self._open >= self._most:
            return False
        self._add(connection)
        self._open += 1
        return True

    def hold(self, connection: CountedConnection, size: int) -> None:
        """Note how many bytes the process holds for a connection that has shown no valid token.

        Where all of them hold too much, those are closed, oldest first, that hold at least as much as the others.
        """
        self._held_bytes += size - self._held.get(connection, 0)
        self._held[connection] = size
        while self._held_bytes > self.limits.stranger_bytes:
            mean = self._held_bytes / len(self._held)
            heavy = next(each for each, held in self._held.items() if held >= mean)
            self._drop(heavy, "with long requests and without a token")

    def begin_again(self, connection: CountedConnection) -> None:
        """Count the connection as a stranger, because another request may come on it."""
        self._forget(connection)
        self._make_room(connection.address)
        self._add(connection)

    def check(self, connection: CountedConnection) -> bool:
        """Count a connection whose token is about to be checked, and return whether it may be; False: too many are."""
        self._remove(connection)
        if len(self._checking) >= self.limits.strangers:
            return False
        self._checking.add(connection)
        return True

    def refuse(self, connection: CountedConnection) -> None:
        if connection in self._checking:
            self._checking.discard(connection)
            self._make_room(connection.address)
            self._add(connection)

    def admit(self, connection: CountedConnection, *, is_complete: bool) -> None:
        """Stop counting the connection as a stranger, because its token was right.

        Until its body ``is_complete`` it may have to leave all the same, where no files are left.
        """
        self._forget(connection)
        if not is_complete:
            self._sending[connection] = None
            if self.limits.sending is not None and len(self._sending) > self.limits.sending:
                self._drop(next(iter(self._sending)), "with half a body")

    def complete(self, connection: CountedConnection) -> None:
        self._sending.pop(connection, None)

    def _forget(self, connection: CountedConnection) -> None:
        self._checking.discard(connection)
        self._sending.pop(connection, None)
        self._remove(connection)
        self._held_bytes -= self._held.pop(connection, 0)

    def _make_room(self, address: str) -> None:
        same = self._strangers.get(address, {})
        oldest = next(iter(same), None)
        now = 0.0 if oldest is None else oldest.loop.time()
        if (
            oldest is not None
            and len(same) >= self.limits.per_address
            and now - same[oldest] >= self.limits.storm_seconds
        ):
            self._drop(oldest, "of one address without a token")
        elif self._open >= self._most and len(self._sending) > self._count:
            self._drop(next(iter(self._sending)), "with half a body")
        elif self._count >= self.limits.strangers or (self._open >= self._most and self._count):
            # The address with the most strangers loses one, so that others do not suffer for it.
            largest = max(self._strangers.values(), key=len)
            self._drop(next(iter(largest)), "in all without a token")

    def _add(self, connection: CountedConnection) -> None:
        self._strangers.setdefault(connection.address, {})[connection] = connection.loop.time()
        self._count += 1

    def _remove(self, connection: CountedConnection) -> None:
        same = self._strangers.get(connection.address, {})
        if connection in same:
            del same[connection]
            self._count -= 1
            if not same:
                del self._strangers[connection.address]

    def leave(self, connection: CountedConnection) -> None:
        self._forget(connection)
        self._open -= 1

    def is_stranger(self, connection: CountedConnection) -> bool:
        """Return whether the connection has not shown a valid token."""
        return connection in self._checking or connection in self._strangers.get(connection.address, {})

    def _drop(self, connection: CountedConnection, which: str) -> None:
        now = connection.loop.time()
        if self._warned_at is None or now - self._warned_at >= _SAY_SECONDS:
            self._warned_at = now
            _log.warning("too many connections %s: the oldest are closed", which)
        connection.drop()


class Connection(HttpToolsProtocol):
    """A connection that carries one request after the other, if the server lets it stay open.

    Before each it counts as a stranger. Its head is parsed only up to the permitted length, and its body is not read
    before the application asks for it.
    """

    # None until the head of a request came, although uvicorn does not declare it so.
    cycle: Any

    def __init__(self, crowd: ConnectionRegistry, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._crowd, self._limits = crowd, crowd.limits
        self.address = ""
        self._entered = False
        self._timers: list[asyncio.TimerHandle] = []
        self._expect_request()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its timers. Called by asyncio."""
        super().connection_made(transport)
        self.address = str(self.client[0]) if self.client else ""
        if not self._crowd.enter(self):
            transport.abort()
            return
        self._entered = True
        self._start_timers()

    def _expect_request(self) -> None:
        self._head_left = self._limits.head_bytes
        self._rest_left = self._limits.message_bytes
        self._has_head = self._is_complete = False

    def _start_timers(self) -> None:
        self._read_at_most(_STRANGER_READ)
        self._stop_timers()
        self._timers = [
            self.loop.call_later(self._limits.head_seconds, self._close_without_head),
            self.loop.call_later(self._limits.stranger_seconds, self._close_stranger),
        ]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        if self._entered:
            self._entered = False
            self._crowd.leave(self)
        super().connection_lost(exc)

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _read_at_most(self, size: int) -> None:
        # Its own limit of 256 KiB is too much for thousands of clients that pause after their first piece.
        limit_encrypted = getattr(self.transport, "set_read_buffer_limits", None)
        if limit_encrypted is not None:
            # Of an encrypted connection that is what waits to be decrypted while the application pauses.
            limit_encrypted(_STRANGER_READ)
        else:
            self.transport.max_size = size  # type: ignore[attr-defined]

    def drop(self) -> None:
        """End the connection at once and stop counting it."""
        if self._entered:
            self._entered = False
            self._crowd.leave(self)
        self.transport.abort()

    def admit(self) -> None:
        if self._entered:
            self._crowd.admit(self, is_complete=self._is_complete)
            self._read_at_most(_READ)

    def refuse(self) -> None:
        if self._entered:
            self._crowd.refuse(self)

    def data_received(self, data: bytes) -> None:
        """Parse received data; of a head never more than its limit is parsed and stored. Called by asyncio."""
        if self.transport.is_closing():
            return
        if self._is_complete:
            # Whoever sends the next request before this one is answered sends it once more.
            self.cycle.keep_alive = False
            return
        self._feed(data)
        if self._entered and not self.transport.is_closing() and self._crowd.is_stranger(self):
            head = self._limits.head_bytes - self._head_left
            self._crowd.hold(self, head + (len(self.cycle.body) if self._has_head else 0))

    def _feed(self, data: bytes) -> None:
        if not self._has_head:
            first, data = data[: self._head_left], data[self._head_left :]
            self._head_left -= len(first)
            super().data_received(first)
            if self.transport.is_closing():
                return
            if not self._has_head:
                if self._head_left <= 0:
                    self.transport.write(_TOO_LARGE)
                    self.transport.close()
                return
        if data and not self._is_complete:
            self._rest_left -= len(data)
            if self._rest_left < 0:
                self.transport.abort()
                return
            super().data_received(data)

    def on_message_begin(self) -> None:
        if self._is_complete:
            self.cycle.keep_alive = False
        else:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_complete:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass a header on, unless it follows the body. Called by the parser."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the connection's place among strangers once the head is complete. Called by the parser."""
        if self._has_head:
            return
        self._has_head = True
        self.scope["extensions"] = {ADMIT: self.admit, REFUSE: self.refuse}  # type: ignore[dict-item]
        shows_token = self.url.startswith(self._limits.token_path) and any(
            name in _TOKEN_HEADERS for name, _ in self.headers
        )
        if shows_token and self._entered and not self._crowd.check(self):
            self._is_complete = True
            self.drop()
            return
        super().on_headers_complete()
        # Reading pauses until the application asks for the body.
        self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        if not self._is_complete:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_complete:
            super().on_message_complete()
            self._is_complete = True
            self._crowd.complete(self)

    def on_response_complete(self) -> None:
        """Expect another request, unless the connection ends. Called when a response was written."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._entered:
            return
        if not self._is_complete:
            # What still comes of the body would be taken for the next head.
            self.transport.close()
            return
        self._crowd.begin_again(self)
        self._expect_request()
        self._start_timers()

    def _close_without_head(self) -> None:
        if not self._has_head and not self.transport.is_closing():
            self.transport.close()

    def _close_stranger(self) -> None:
        if self._entered and self._crowd.is_stranger(self):
            self.transport.abort()
