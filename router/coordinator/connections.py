"""Connections that cost little before whoever opened them has shown a token: limits on heads, times and numbers."""

from __future__ import annotations

import asyncio
import logging
import resource
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.coordinator.messages import LARGEST_BODY

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# How whoever answers tells the connection that its token was right, or was not.
ADMIT, REFUSE = "stepfare.admit", "stepfare.refuse"
_WITH_TOKEN = b"/v1/attempts/"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
# The rest of the files that the process may open are for its database and logs.
_SHARE_OF_FILES = 0.9
# A flood says so this often, in seconds.
_SAY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may take. A stranger is one that has shown no token, or none that is known: ``per_address`` and
    ``strangers`` of them at a time, each for ``stranger_seconds`` at most. Those whose token is being looked at are
    counted by themselves, ``strangers`` at most: thousands of agents may call at once from one address.
    ``storm_seconds``: so long more than ``per_address`` may be there: after an outage agents call back all at once.
    ``head_seconds``: until the head of the request is there. ``message_bytes``: of all that follows the head, as it is
    sent. ``connections``: of all; None: as many as files allow."""

    head_bytes: int = 32 * 1024
    head_seconds: float = 15.0
    stranger_seconds: float = 60.0
    storm_seconds: float = 5.0
    message_bytes: int = 16 * LARGEST_BODY
    per_address: int = 1024
    strangers: int = 4096
    connections: int | None = None


DEFAULTS = Limits()


@dataclass(slots=True)
class Crowd:
    """The connections of one server. Belongs to its event loop."""

    limits: Limits
    # By address, since when; the oldest first.
    _strangers: dict[str, dict[Connection, float]] = field(default_factory=dict)
    _checking: set[Connection] = field(default_factory=set)
    _count: int = 0
    _open: int = 0
    _most: int = 0
    _said_at: float | None = None

    def enter(self, connection: Connection) -> bool:
        """Whether one more may be there. Where there are too many strangers the one that came first goes: whoever
        only holds a place has held it for longer than one who is about to show a token."""
        if not self._most:
            files = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _SHARE_OF_FILES)
            self._most = self.limits.connections or files
        self._make_room(connection.address)
        if self._open >= self._most:
            return False
        self._add(connection)
        self._open += 1
        return True

    def check(self, connection: Connection) -> bool:
        """It showed a token, which is about to be looked at. False: too many are."""
        self._remove(connection)
        if len(self._checking) >= self.limits.strangers:
            return False
        self._checking.add(connection)
        return True

    def refuse(self, connection: Connection) -> None:
        """Its token was not right."""
        if connection in self._checking:
            self._checking.discard(connection)
            self._make_room(connection.address)
            self._add(connection)

    def admit(self, connection: Connection) -> None:
        """Its token was right: it is no stranger."""
        self._checking.discard(connection)
        self._remove(connection)

    def _make_room(self, address: str) -> None:
        same = self._strangers.get(address, {})
        oldest = next(iter(same), None)
        now = 0.0 if oldest is None else oldest.loop.time()
        if (
            oldest is not None
            and len(same) >= self.limits.per_address
            and now - same[oldest] >= self.limits.storm_seconds
        ):
            self._drop(oldest, "of one address")
        elif self._count >= self.limits.strangers or (self._open >= self._most and self._count):
            # Of the address with the most: others are not to go for what one does.
            largest = max(self._strangers.values(), key=len)
            self._drop(next(iter(largest)), "in all")

    def _add(self, connection: Connection) -> None:
        self._strangers.setdefault(connection.address, {})[connection] = connection.loop.time()
        self._count += 1

    def _remove(self, connection: Connection) -> None:
        same = self._strangers.get(connection.address, {})
        if connection in same:
            del same[connection]
            self._count -= 1
            if not same:
                del self._strangers[connection.address]

    def leave(self, connection: Connection) -> None:
        """It has ended."""
        self.admit(connection)
        self._open -= 1

    def is_stranger(self, connection: Connection) -> bool:
        """Whether it has not shown a token."""
        return connection in self._checking or connection in self._strangers.get(connection.address, {})

    def _drop(self, connection: Connection, which: str) -> None:
        now = connection.loop.time()
        if self._said_at is None or now - self._said_at >= _SAY_SECONDS:
            self._said_at = now
            _log.warning("too many connections %s without a token: the oldest are closed", which)
        connection.drop()


class Connection(HttpToolsProtocol):
    """One request. Its head is parsed only as far as it may be long, and its body is not read before somebody asks."""

    # None until the head of a request came, though uvicorn does not declare it so.
    cycle: Any

    def __init__(self, crowd: Crowd, **given: Any) -> None:
        super().__init__(**given)
        self._crowd, self._limits = crowd, crowd.limits
        self.address = ""
        self._head_left = self._limits.head_bytes
        self._rest_left = self._limits.message_bytes
        self._has_head = self._is_whole = self._entered = False
        self._timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Of asyncio."""
        super().connection_made(transport)
        self.address = str(self.client[0]) if self.client else ""
        if not self._crowd.enter(self):
            transport.abort()
            return
        self._entered = True
        self._timers = [
            self.loop.call_later(self._limits.head_seconds, self._be_quick),
            self.loop.call_later(self._limits.stranger_seconds, self._be_known),
        ]

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        for timer in self._timers:
            timer.cancel()
        if self._entered:
            self._entered = False
            self._crowd.leave(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Ends it at once; it counts no more."""
        if self._entered:
            self._entered = False
            self._crowd.leave(self)
        self.transport.abort()

    def admit(self) -> None:
        """Whoever sent the head showed a token that is known."""
        self._crowd.admit(self)

    def refuse(self) -> None:
        """Whoever sent the head showed another."""
        if self._entered:
            self._crowd.refuse(self)

    def data_received(self, data: bytes) -> None:
        """Of asyncio. Never more of a head is parsed, and thereby kept, than it may have."""
        if self.transport.is_closing() or self._is_whole:
            return  # one request is all that is answered
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
        if data and not self._is_whole:
            self._rest_left -= len(data)
            if self._rest_left < 0:
                self.transport.abort()
                return
            super().data_received(data)

    def on_message_begin(self) -> None:
        """Of the parser."""
        if not self._is_whole:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Of the parser."""
        if not self._is_whole:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the parser; headers after the body are nobody's."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Of the parser."""
        if self._has_head:
            return
        self._has_head = True
        self.scope["extensions"] = {ADMIT: self.admit, REFUSE: self.refuse}  # type: ignore[dict-item]
        shows = self.url.startswith(_WITH_TOKEN) and any(name == b"authorization" for name, _ in self.headers)
        if shows and self._entered and not self._crowd.check(self):
            self._is_whole = True
            self.drop()
            return
        super().on_headers_complete()
        # Until the application asks for the body.
        self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        """Of the parser."""
        if not self._is_whole:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Of the parser."""
        if not self._is_whole:
            super().on_message_complete()
            self._is_whole = True

    def _be_quick(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def _be_known(self) -> None:
        if self._entered and self._crowd.is_stranger(self):
            self.transport.abort()
