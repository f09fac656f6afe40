"""Answers that many readers share: each is made once, by one thread, while the others wait for it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

_LEAST_COMPRESSED = 1024


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A body, the same compressed, its type and its tag."""

    body: bytes
    compressed: bytes | None
    media_type: str
    tag: str
    status: int = 200

    @classmethod
    def of(cls, text: str | bytes, media_type: str, status: int = 200) -> CachedAnswer:
        """Return the answer with this text."""
        body = text.encode() if isinstance(text, str) else text
        packed = gzip.compress(body, 5, mtime=0) if len(body) >= _LEAST_COMPRESSED else None
        return cls(body, packed, media_type, f'"{hashlib.sha256(body).hexdigest()[:24]}"', status)

    def response(self, request: Request) -> Response:
        """Return the response for a request: 304 where the reader has it, compressed where it can be read so."""
        headers = {"ETag": self.tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Cookie"}
        if self.status == 200 and self.tag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        if self.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(self.compressed, self.status, headers, self.media_type)
        return Response(self.body, self.status, headers, self.media_type)


@dataclass(slots=True)
class AnswerCache:
    """The answers last used, by key. A key has everything that an answer depends on: who may see what, and versions."""

    most: int = 256
    _found: OrderedDict[Hashable, CachedAnswer] = field(default_factory=OrderedDict)
    _making: dict[Hashable, asyncio.Future[CachedAnswer]] = field(default_factory=dict)

    async def get(self, key: Hashable, make: Callable[[], CachedAnswer]) -> CachedAnswer:
        """Return the answer of that key; ``make`` runs in a thread where there is none yet, and may raise."""
        if (found := self._found.get(key)) is not None:
            self._found.move_to_end(key)
            return found
        if (making := self._making.get(key)) is not None:
            return await asyncio.shield(making)
        task = asyncio.ensure_future(run_sync(make))
        self._making[key] = task
        try:
            answer = await asyncio.shield(task)
        finally:
            task.add_done_callback(lambda _: self._making.pop(key, None))
        if answer.status == 200:
            self._found[key] = answer
            while len(self._found) > self.most:
                self._found.popitem(last=False)
        return answer
