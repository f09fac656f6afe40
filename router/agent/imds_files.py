"""The sandbox's stand-in for a metadata service: a file ``notice.json`` that appears in a folder, written whole and
renamed: ``{"kind": "interruption", "seconds": 30, "what": "...", "id": "..."}``, all but the kind optional."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

from router.agent.imds import LARGEST_ANSWER, Trouble
from router.agent.notice import Notice, Watch
from router.agent.states import NOTICES

EVERY = 0.2
FILE = "notice.json"
SOURCE = "sandbox"


def watches(_: str, url: str | None, every: float | None, folder: Path) -> list[Watch]:
    """``url`` is the folder's path; without one it is ``folder``."""
    return [Folder(Path(url) if url else folder, every or EVERY)]


class Folder:
    """Each new file of that name is a notice."""

    def __init__(self, folder: Path, every: float) -> None:
        self.name = f"the folder {folder}"
        self._path, self._every = folder / FILE, every
        self._seen: tuple[int, int] | None = None

    def look(self, tell: Callable[[Notice], None]) -> float:
        """A folder without the file announces nothing."""
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                stat = os.fstat(file.fileno())
                mark = (stat.st_ino, stat.st_mtime_ns)
                text = "" if mark == self._seen else file.read(LARGEST_ANSWER)
        except FileNotFoundError:
            return self._every
        if mark != self._seen:
            tell(self._notice(text, stat.st_mtime_ns))
            self._seen = mark
        return self._every

    def _notice(self, text: str, stamp: int) -> Notice:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict) or said.get("kind") not in NOTICES:
            raise Trouble(f"{FILE}: not an object with a kind of notice")
        seconds = said.get("seconds")
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not math.isfinite(seconds):
            seconds = None
        left = None if seconds is None else max(0.0, float(seconds))
        what = str(said.get("what") or said["kind"])
        return Notice(str(said.get("id") or f"file-{stamp}"), said["kind"], SOURCE, left, what)
