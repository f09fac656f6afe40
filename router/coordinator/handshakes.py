"""TLS handshakes of a server: counted from the moment a connection is accepted, and so many at a time.

asyncio begins a handshake with each connection that it accepts and says nothing of it before it is done. Thousands of
clients then hold memory that nobody counts.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from asyncio import sslproto
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from router.coordinator.connections import ConnectionLimits, ConnectionRegistry

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
