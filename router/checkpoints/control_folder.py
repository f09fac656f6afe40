"""The control folder as an uploader uses it (docs/checkpoints.md).

The uploader reads the training's messages there and answers the agent.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pricing.atomic_file import write_atomic

VERSION = 1
_LARGEST_FILE = 65536


@dataclass(frozen=True)
class SaveMessage:
    """A message that the training saved a checkpoint in its folder, or failed to.

    ``after``: the last request answered before.
    """

    id: str
    after: str
    step: int
    seconds: float
    failed: str | None = None


class UploaderControlFolder:
    """The control folder of one training.

    The job writes some of its files, so none of their content stops the uploader.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int, int] | None = None

    def written(self) -> SaveMessage | None:
        """Return the training's message, if it is new since the last call."""
        try:
            found = (self._folder / "written.json").stat()
        except OSError:
            return None
        now = (found.st_ino, found.st_mtime_ns, found.st_size)
        if now == self._seen:
            return None
        self._seen = now
        said = self._read("written.json")
        with suppress(TypeError, ValueError, KeyError):
            name, after = str(said.get("id", "")), str(said.get("after", ""))
            if "failed" in said:
                return SaveMessage(name, after, -1, 0.0, str(said["failed"]))
            return SaveMessage(name, after, int(said["step"]), float(said.get("seconds", 0.0)))
        return None

    def until(self) -> tuple[str, float] | None:
        """Return the last request: its id, and the moment of ``time.monotonic`` until which it wants an answer."""
        said = self._read("request.json")
        with suppress(TypeError, ValueError, KeyError):
            return str(said["id"]), float(said["until"])
        return None

    def say(self, body: dict[str, Any]) -> None:
        """Write an answer to the agent. If the disk does not take it, the answer is lost."""
        with suppress(OSError):
            write_atomic(self._folder / "saved.json", json.dumps({"version": VERSION, **body}), durable=False)

    def _read(self, name: str) -> dict[str, Any]:
        """Return the object in a file. A pipe of that name is not read: it would block the uploader."""
        with suppress(OSError, ValueError, RecursionError):
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123
                plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
                content = json.loads(file.read(_LARGEST_FILE)) if plain else None
                return content if isinstance(content, dict) else {}
        return {}
