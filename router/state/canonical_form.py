"""The one form of text and of JSON data in which every database brings them back as they were. Pure."""

from __future__ import annotations

import json


def kept(text: str) -> str:
    """Text as every database keeps it: NUL and halves of surrogate pairs, as a crashing program may print, become
    U+FFFD. TypeError for anything but text."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    if "\0" not in text and text.isascii():
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def canonical(data: object) -> str:
    """JSON in one form only: keys sorted, no spaces, ASCII. TypeError for what is not JSON data, ValueError for NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
