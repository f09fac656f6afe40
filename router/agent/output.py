"""The training's output, masked and in stores of bounded size, and small files that are replaced as a whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

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
    longest = min(len(data), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)


class RotatingLog:
    """A log file that rotates at ``size`` bytes.

    A full ``path`` becomes ``path.1``, that ``path.2``, and so on, and the oldest is dropped: at most ``files`` files
    and ``size`` × ``files`` bytes. If the disk takes no more, output is lost, never the training process; ``lost``
    counts the bytes.
    """

    def __init__(self, path: Path, size: int, files: int) -> None:
        self._path, self._size, self._files = path, size, files
        self._lock = threading.Lock()
        self._file = -1
        self._written = 0
        self.lost = 0

    def write(self, data: bytes) -> None:
        """Append data; never raises for what the disk does."""
        with self._lock:
            while data:
                try:
                    data = data[self._append(data) :]
                except OSError:
                    self.lost += len(data)
                    return

    def _append(self, data: bytes) -> int:
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self._written = os.fstat(self._file).st_size
        if self._written >= self._size:
            self._rotate()
            return 0
        written = os.write(self._file, data[: self._size - self._written])
        self._written += written
        return written

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._files))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(names), list(reversed(names))[1:]):  # noqa: B905  (strict is 3.10)
            if newer.exists():
                newer.replace(older)

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


class OutputTail:
    """The newest output that was not taken yet, at most ``size`` bytes, with its offset in the whole output."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._data = bytearray()
        self._end = 0

    def write(self, data: bytes) -> None:
        """Append data; the oldest bytes are dropped when there are too many."""
        with self._lock:
            self._data += data
            self._end += len(data)
            if len(self._data) > self._size:
                del self._data[: len(self._data) - self._size]

    def take(self) -> tuple[int, bytes]:
        """Return the offset of the first byte since the start of the output, and the bytes; remove them from here."""
        with self._lock:
            data = bytes(self._data)
            self._data.clear()
            return self._end - len(data), data


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the content of a file that its owner alone may read. OSError.

    Nothing is flushed to the disk, so that a power cut may lose it.
    """
    partial = path.with_name(f".{path.name}.part")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        file.write(data)
    partial.replace(path)
