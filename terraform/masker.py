"""Masking of secrets in a program's output."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

HIDDEN: Final = "(hidden)"
# Shorter secrets are not masked: they would hide ordinary words.
_SHORTEST_LINE = 12
_SHORTEST_VALUE = 8
_SECRET_NAME = re.compile(r"SECRET|PASSW|TOKEN|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE|AUTH|CONN_STR|SAS", re.IGNORECASE)


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of an environment whose names say that they are secret."""
    return tuple(value for name, value in environment.items() if _SECRET_NAME.search(name))


class Masker:
    """Replace secrets by ``(hidden)``: whole, in base64, as JSON escapes them, and each of their longer lines."""

    __slots__ = ("_parts",)

    def __init__(self, secrets: Iterable[str]) -> None:
        parts: set[str] = set()
        for secret in secrets:
            if len(secret) < _SHORTEST_VALUE:
                continue
            parts |= {secret, secret.strip(), json.dumps(secret)[1:-1], base64.b64encode(secret.encode()).decode()}
            parts |= {line for part in secret.splitlines() if len(line := part.strip()) >= _SHORTEST_LINE}
        # The longest part comes first, or a line would be cut out of the text that contains it.
        self._parts = tuple(sorted(parts, key=lambda part: (-len(part), part)))

    def __call__(self, text: str) -> str:
        for part in self._parts:
            text = text.replace(part, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Masker({len(self._parts)} secrets)"
