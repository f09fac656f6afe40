"""Secrets in the output of the training process become ``***``, also where a secret is split over two reads."""

from __future__ import annotations

from collections.abc import Iterable

# Shorter values would blank ordinary words.
SHORTEST = 8
MASK = b"***"


class Mask:
    """Masks a stream of bytes. A secret of several lines is masked line by line, as programs print it that way."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        # Longest first, so that a secret that contains another one goes as a whole.
        self._secrets = sorted((p.encode() for p in parts if len(p) >= SHORTEST), key=len, reverse=True)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown now; an end that may be the beginning of a secret is held back until it is known."""
        data = self._held + data
        for secret in self._secrets:
            data = data.replace(secret, MASK)
        held = max((_overlap(data, secret) for secret in self._secrets), default=0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def flush(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _overlap(data: bytes, secret: bytes) -> int:
    """Length of the longest end of ``data`` that is a proper beginning of ``secret``."""
    longest = min(len(data), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
