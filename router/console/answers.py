"""Answers that many readers share: each is made once, by one thread, while the others wait for it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync
from starlette.responses import RedirectResponse, Response

from router.console.reader_slots import SlottedText

if TYPE_CHECKING:
    from starlette.requests import Request

_LEAST_COMPRESSED = 1024


def lead_on(request: Request, url: str) -> Response:
    """Return the answer to a form that was done: it leads to the page with what came of it."""
    if request.headers.get("HX-Request"):
        return Response(status_code=204, headers={"HX-Redirect": url})
    return RedirectResponse(url, 303)


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A body, the same compressed, its type and its tag.

    ``slotted`` is a page with room for who reads it; its compressed form and its tag are made of the reader's.
    """

    body: bytes
    compressed: bytes | None
    media_type: str
    tag: str
    status: int = 200
    slotted: SlottedText | None = None

    @classmethod
    def of(cls, text: str | bytes, media_type: str, status: int = 200) -> CachedAnswer:
        """Return the answer with this text."""
        body = text.encode() if isinstance(text, str) else text
        if (slotted := SlottedText.split(body)) is not None:
            return cls(b"", None, media_type, "", status, slotted)
        packed = gzip.compress(body, 5, mtime=0) if len(body) >= _LEAST_COMPRESSED else None
        return cls(body, packed, media_type, f'"{hashlib.sha256(body).hexdigest()[:24]}"', status)

    @classmethod
    def of_json(cls, document: object) -> CachedAnswer:
        """Return the answer with a document as JSON."""
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return cls.of(text, "application/json")

    def response(self, request: Request) -> Response:
        """Return the response for a request: 304 where the reader has it, compressed where it can be read so."""
        tag = self.tag if self.slotted is None else self.slotted.tag(request)
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Cookie"}
        if self.status == 200 and tag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        if self.slotted is not None:
            body = self.slotted.compressed(request) if takes_gzip else self.slotted.body(request)
            is_packed = takes_gzip
        else:
            is_packed = takes_gzip and self.compressed is not None
            body = self.compressed if is_packed and self.compressed is not None else self.body
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return Response(body, self.status, headers, self.media_type)

    def size(self) -> int:
        """Return how many bytes it holds."""
        return len(self.body) + len(self.compressed or b"") + (0 if self.slotted is None else self.slotted.size())


@dataclass(slots=True)
class AnswerCache:
    """The answers last used, by key. A key has everything that an answer depends on: who may see what, and versions.

    It keeps ``most`` answers of ``most_bytes`` together at most.
    """

    most: int = 256
    most_bytes: int = 128 << 20
    _bytes: int = 0
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
            self._keep(key, answer)
        return answer

    def _keep(self, key: Hashable, answer: CachedAnswer) -> None:
        before = self._found.pop(key, None)
        self._bytes += answer.size() - (0 if before is None else before.size())
        self._found[key] = answer
        while len(self._found) > self.most or (self._bytes > self.most_bytes and len(self._found) > 1):
            self._bytes -= self._found.popitem(last=False)[1].size()
