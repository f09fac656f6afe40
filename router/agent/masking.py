"""Masking of secrets in the training's output as ``***``, even if a secret is split over two reads."""

from __future__ import annotations

from collections.abc import Iterable

# Shorter values would mask ordinary words.
SHORTEST = 8
MASK = b"***"


class SecretMask:
    """Masks a stream of bytes. A secret of several lines is also masked line by line, as programs print it that way."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        # The longest come first, so that a secret that contains another one is masked completely.
        self._secrets = sorted((p.encode() for p in parts if len(p) >= SHORTEST), key=len, reverse=True)
        self._pending = b""

    def feed(self, data: bytes) -> bytes:
        """Return the output that may be shown now.

        An end that may be the beginning of a secret is kept until more is known.
        """
        data = self._pending + data
        for secret in self._secrets:
            data = data.replace(secret, MASK)
        pending = max((_overlap(data, secret) for secret in self._secrets), default=0)
        self._pending = data[len(data) - pending :]
        return data[: len(data) - pending]

    def flush(self) -> bytes:
        """Return the output that is still pending, at the end of the stream."""
        pending, self._pending = self._pending, b""
        return pending


def _overlap(data: bytes, secret: bytes) -> int:
    """Return the length of the longest end of ``data`` that is a proper beginning of ``secret``."""
    longest = min(len(data), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
