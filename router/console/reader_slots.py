"""Leave room in a page for who reads it, so that one page, compressed once, serves all who see the same rows.

A page is drawn with marks that nobody can guess in place of the reader's name and the token of their session. A
response puts the reader's own there; the compressed text between the marks is used as it is.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import escape

if TYPE_CHECKING:
    from starlette.requests import Request

# Of this process: no name or text of anybody can have them.
WHO_MARK = f"who{secrets.token_hex(12)}"
CSRF_MARK = f"csrf{secrets.token_hex(12)}"
_MARKS = re.compile(f"({WHO_MARK}|{CSRF_MARK})".encode())
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"
_LEVEL = 5
_TAG_DIGITS = 24
_MOST_CHECKS = 1000


@dataclass(frozen=True, slots=True)
class SlottedText:
    """The pieces of a text between its marks, each also compressed, and the marks between them."""

    pieces: tuple[bytes, ...]
    marks: tuple[bytes, ...]
    packed: tuple[bytes, ...]
    digest: bytes
    _checks: dict[tuple[bytes, bytes], int] = field(default_factory=dict, compare=False)

    @classmethod
    def split(cls, text: bytes) -> SlottedText | None:
        """Return the text in pieces; None for one without a mark."""
        found = _MARKS.split(text)
        if len(found) == 1:
            return None
        pieces, marks = tuple(found[::2]), tuple(found[1::2])
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(hashlib.sha256(piece).digest())
        return cls(pieces, marks, tuple(map(_deflate, pieces)), digest.digest())

    def size(self) -> int:
        """Return how many bytes it holds."""
        return sum(map(len, self.pieces)) + sum(map(len, self.packed))

    def tag(self, request: Request) -> str:
        """Return the tag of the text that this reader gets."""
        who, token = _values(request)
        own = hashlib.sha256(self.digest + hashlib.sha256(who).digest() + token)
        return f'"{own.hexdigest()[:_TAG_DIGITS]}"'

    def body(self, request: Request) -> bytes:
        """Return the text that this reader gets."""
        return b"".join(self._filled(self.pieces, *_values(request)))

    def compressed(self, request: Request) -> bytes:
        """Return it as gzip, of the pieces that are compressed already: each is a block of its own."""
        who, token = _values(request)
        parts = self._filled(self.pieces, who, token)
        check = self._checks.get((who, token))
        if check is None:
            check = 0
            for part in parts:
                check = zlib.crc32(part, check)
            if len(self._checks) >= _MOST_CHECKS:
                self._checks.clear()
            self._checks[who, token] = check
        size = sum(map(len, parts)) & 0xFFFFFFFF
        blocks = self._filled(self.packed, _stored(who), _stored(token))
        return b"".join((_GZIP_HEAD, *blocks, _LAST_BLOCK, struct.pack("<II", check, size)))

    def _filled(self, pieces: tuple[bytes, ...], who: bytes, token: bytes) -> list[bytes]:
        values = {WHO_MARK.encode(): who, CSRF_MARK.encode(): token}
        filled = [pieces[0]]
        for mark, piece in zip(self.marks, pieces[1:], strict=True):
            filled += (values[mark], piece)
        return filled


def fill_slots(text: str, request: Request) -> str:
    """Return a text that is not shared with the reader's own name and token in it."""
    slotted = SlottedText.split(text.encode())
    return text if slotted is None else slotted.body(request).decode()


def _values(request: Request) -> tuple[bytes, bytes]:
    """Return the reader's name, escaped for a page, and the token of their session."""
    identity = getattr(request.state, "identity", None)
    name = "" if identity is None else identity.name
    return str(escape(name)).encode(), str(escape(getattr(request.state, "csrf_token", ""))).encode()


def _stored(data: bytes) -> bytes:
    """Return the data, shorter than 64 KiB, as a block that is not compressed: it begins and ends at a whole byte."""
    length = len(data)
    return struct.pack("<BHH", 0, length, length ^ 0xFFFF) + data


def _deflate(data: bytes) -> bytes:
    """Return the data as blocks that end at a whole byte and refer to nothing before them."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
