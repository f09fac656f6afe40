"""The sandbox's stand-in for a metadata service: a file ``notice.json`` that appears in a folder.

It is written completely and then renamed: ``{"kind": "interruption", "seconds": 30, "what": "...", "id": "..."}``,
where all but the kind is optional.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

from router.agent.imds import LARGEST_ANSWER, MachineNotice, NoticeSourceError, NoticeWatch
from router.agent.protocol import NOTICES

EVERY = 0.2
FILE = "notice.json"
SOURCE = "sandbox"


def watches(_: str, url: str | None, every: float | None, folder: Path) -> list[NoticeWatch]:
    """Return a watch of the folder at the path ``url``, or of ``folder`` if there is none."""
    return [NoticeFolder(Path(url) if url else folder, every or EVERY)]


class NoticeFolder:
    """A folder in which each new file of that name is a notice."""

    def __init__(self, folder: Path, every: float) -> None:
        self.name = f"the folder {folder}"
        self._path, self._every = folder / FILE, every
        self._last_version: tuple[int, int] | None = None

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Report the file's notice if it is new. A folder without the file has none."""
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                stat = os.fstat(file.fileno())
                version = (stat.st_ino, stat.st_mtime_ns)
                text = "" if version == self._last_version else file.read(LARGEST_ANSWER)
        except FileNotFoundError:
            return self._every
        if version != self._last_version:
            tell(self._notice(text, stat.st_mtime_ns))
            self._last_version = version
        return self._every

    def _notice(self, text: str, stamp: int) -> MachineNotice:
        try:
            content = json.loads(text)
        except ValueError:
            content = None
        if not isinstance(content, dict) or content.get("kind") not in NOTICES:
            raise NoticeSourceError(f"{FILE}: not an object with a kind of notice")
        seconds = content.get("seconds")
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not math.isfinite(seconds):
            seconds = None
        left = None if seconds is None else max(0.0, float(seconds))
        what = str(content.get("what") or content["kind"])
        return MachineNotice(str(content.get("id") or f"file-{stamp}"), content["kind"], SOURCE, left, what)
