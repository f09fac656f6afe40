"""Bodies of requests within a memory that is shared fairly: a token fills its owner's share, no other's."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

# Seconds to wait for room, for a body, and for one that nobody wants.
BODY_SECONDS = 20.0
DRAIN_SECONDS = 2.0
MOST_BYTES, MOST_BYTES_OF_ONE = 16 * 1024 * 1024, 4 * 1024 * 1024


@dataclass(slots=True)
class BodyMemory:
    """The memory for bodies from before they are read until they are answered. Belongs to one event loop.

    ``max_bytes`` in all, ``max_bytes_of_one`` of one owner: a gang, or an identity of the console. A request without
    room waits for it, in order, and reads nothing meanwhile.
    """

    max_bytes: int = MOST_BYTES
    max_bytes_of_one: int = MOST_BYTES_OF_ONE
    _used: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = field(default_factory=dict)

    @asynccontextmanager
    async def reserved(self, owner: str, size: int) -> AsyncIterator[None]:
        """Hold that many bytes while the block runs. TimeoutError where there was no room for too long."""
        if owner in self._waiting or not self._fits(owner, size):
            await self._wait(owner, size)
        else:
            self._used[owner] += size
        try:
            yield
        finally:
            self._release(owner, size)

    async def _wait(self, owner: str, size: int) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((size, granted))
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self._release(owner, size)
            raise

    def _fits(self, owner: str, size: int) -> bool:
        return self._used[owner] + size <= self.max_bytes_of_one and self._used.total() + size <= self.max_bytes

    def _release(self, owner: str, size: int) -> None:
        self._used[owner] -= size
        if not self._used[owner]:
            del self._used[owner]
        for name in list(self._waiting):
            queue = self._waiting[name]
            while queue and (queue[0][1].done() or self._fits(name, queue[0][0])):
                length, granted = queue.popleft()
                if not granted.done():
                    self._used[name] += length
                    granted.set_result(None)
            if not queue:
                del self._waiting[name]


def body_size(request: Request, max_bytes: int) -> int:
    """Return the stated length of a request's body, ``max_bytes`` if none is stated. ValueError if it is no number."""
    if "Transfer-Encoding" in request.headers:
        return max_bytes
    stated = request.headers.get("Content-Length", "0")
    # The servers' parser takes only digits; other servers may not.
    if not (stated.isascii() and stated.isdigit()):
        raise ValueError("Content-Length is no number")
    return int(stated)


async def read_body(request: Request, max_bytes: int) -> bytes | None:
    """Return the body, or None when it is longer than ``max_bytes``. TimeoutError where it takes too long to come."""
    data, more = bytearray(), True
    async with asyncio.timeout(BODY_SECONDS):
        while more and len(data) <= max_bytes:
            # If the client disconnects, the body stays incomplete, and nobody sees the answer to it.
            part = await request.receive()
            data += part.get("body", b"")
            more = part.get("more_body", False)
    return bytes(data) if len(data) <= max_bytes else None


async def drain(request: Request, max_bytes: int) -> None:
    """Read what comes of a body that nobody wants, ``max_bytes`` of it, and drop it.

    A client that is still sending when the connection ends would see no answer.
    """
    size, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and size <= max_bytes:
                part = await request.receive()
                size, more = size + len(part.get("body", b"")), part.get("more_body", False)
