"""The canonical form of text and JSON data, which every database stores and returns unchanged. Pure."""

from __future__ import annotations

import json


def storable_text(text: str) -> str:
    """Return text as every database stores it. TypeError for anything but text.

    NUL and halves of surrogate pairs, as a crashing program may print, become U+FFFD.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    if "\0" not in text and text.isascii():
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def canonical_json(data: object) -> str:
    """Return JSON in canonical form: keys sorted, no spaces, ASCII.

    TypeError for what is not JSON data, ValueError for NaN.
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
