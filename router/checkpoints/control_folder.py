"""The control folder as an uploader sees it (docs/checkpoints.md): what the training wrote, and what is said of it."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1
_LARGEST_FILE = 65536


@dataclass(frozen=True)
class Written:
    """The training saved a checkpoint in its folder, or failed to. ``after``: the last request answered before."""

    id: str
    after: str
    step: int
    seconds: float
    failed: str | None = None


class Answers:
    """The control folder of one training. What lies there was written by the job: nothing in it stops anybody."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int, int] | None = None

    def written(self) -> Written | None:
        """What is new since the last look."""
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
                return Written(name, after, -1, 0.0, str(said["failed"]))
            return Written(name, after, int(said["step"]), float(said.get("seconds", 0.0)))
        return None

    def until(self) -> tuple[str, float] | None:
        """The last request: its id, and until which moment of ``time.monotonic`` it wants an answer."""
        said = self._read("request.json")
        with suppress(TypeError, ValueError, KeyError):
            return str(said["id"]), float(said["until"])
        return None

    def say(self, body: dict[str, Any]) -> None:
        """To the agent. A disk that does not take it costs the answer."""
        part = self._folder / f".saved.json.{os.getpid()}.part"
        with suppress(OSError):
            part.write_text(json.dumps({"version": VERSION, **body}), encoding="utf-8")
            part.replace(self._folder / "saved.json")

    def _read(self, name: str) -> dict[str, Any]:
        """The object in a file; a pipe under its name would hold us up."""
        with suppress(OSError, ValueError, RecursionError):
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123
                plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
                content = json.loads(file.read(_LARGEST_FILE)) if plain else None
                return content if isinstance(content, dict) else {}
        return {}
