"""Messages that have to reach the coordinator, stored on disk until they do: oldest first, bounded in size."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.agent.atomic_file import write_atomic


@dataclass(frozen=True)
class OutboxMessage:
    """A message. If the disk took it, ``path`` holds the body; otherwise ``body`` does."""

    kind: str
    size: int
    path: Path | None
    body: bytes | None


class Outbox:
    """A queue of messages in a folder, used by one thread at a time.

    ``folder`` is created, readable by its owner alone; messages that an earlier agent left there are taken over.
    Messages of the kind ``logs`` are dropped, oldest first, when there are more than ``limit`` bytes: their offsets
    show the gap. Others always stay.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._number = 0
        self._items: deque[OutboxMessage] = deque()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(folder.glob("[0-9]*-*.json")):
            number, _, kind = path.stem.partition("-")
            self._number = max(self._number, int(number))
            self._items.append(OutboxMessage(kind, path.stat().st_size, path, None))

    def __len__(self) -> int:
        return len(self._items)

    def put(self, kind: str, body: dict[str, Any]) -> None:
        """Store a message until :meth:`done`, in memory if the disk does not take it."""
        data = json.dumps(body).encode()
        self._number += 1
        path = self._folder / f"{self._number:010d}-{kind}.json"
        try:
            write_atomic(path, data)
            self._items.append(OutboxMessage(kind, len(data), path, None))
        except OSError:
            self._items.append(OutboxMessage(kind, len(data), None, data))
        self._make_room()

    def first(self) -> tuple[str, dict[str, Any]] | None:
        """Return the oldest message (kind, body). One that can no longer be read is dropped."""
        while self._items:
            item = self._items[0]
            try:
                data = item.path.read_bytes() if item.path is not None else item.body
                body = json.loads(data or b"")
            except (OSError, ValueError):
                self.done()
                continue
            return item.kind, body
        return None

    def done(self) -> None:
        """Remove the oldest message, because it arrived."""
        self._delete(self._items.popleft())

    def _make_room(self) -> None:
        size = sum(item.size for item in self._items)
        remaining: deque[OutboxMessage] = deque()
        for item in self._items:
            if size > self._limit and item.kind == "logs":
                size -= item.size
                self._delete(item)
            else:
                remaining.append(item)
        self._items = remaining

    def _delete(self, item: OutboxMessage) -> None:
        if item.path is not None:
            try:
                item.path.unlink()
            # The next agent with this folder sends the message again; the receiver recognises it by its offset.
            except OSError:
                return
