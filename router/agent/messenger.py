"""Threads that talk to the coordinator: one for heartbeats and the outbox, one for urgent messages, one for orders.

They never end the training because the coordinator is away.
"""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.agent import protocol
from router.agent.calls import Backoff, CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError
from router.agent.output import OutputTail, write_atomic


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


FIRST_WAIT, LAST_WAIT = 0.25, 4.0
Message = tuple[str, dict[str, Any]]
# Called once a message was accepted.
AcceptedCallback = Callable[[], object]
CHUNK = 65536
# The only refusal of a heartbeat that ends the training; any other may come from a mistake on the way.
OVER = "attempt_over"


class UrgentSender(threading.Thread):
    """A thread that sends each message at once and in order, repeatedly until the coordinator accepts or refuses it."""

    def __init__(self, coordinator: CoordinatorClient, note: Callable[[str], None]) -> None:
        super().__init__(name="urgent", daemon=True)
        self._coordinator, self._note = coordinator, note
        self._waiting: queue.SimpleQueue[tuple[Message, AcceptedCallback | None] | None] = queue.SimpleQueue()
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT, random.Random())
        self._ending = threading.Event()
        self._undelivered: list[Message] = []

    def put(self, what: str, body: dict[str, Any], then: AcceptedCallback | None = None) -> None:
        """Queue a message from any thread; return at once.

        ``then`` is called, by a thread of its own, if the coordinator accepts the message.
        """
        self._waiting.put(((what, body), then))

    def run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            message, then = entry
            accepted = self._send(message)
            if accepted is None:
                self._undelivered.append(message)
            elif accepted and then is not None:
                # The call may take long, and the next message must not wait for it.
                threading.Thread(target=then, name="then", daemon=True).start()

    def finish(self) -> list[Message]:
        """Try each waiting message once more and end; return those that were not delivered, the oldest first."""
        self._ending.set()
        self._waiting.put(None)
        self.join()
        return self._undelivered

    def _send(self, message: Message) -> bool | None:
        """Send a message and return whether it was accepted, not refused; None: no answer until the end."""
        self._backoff.reset()
        while not self._undelivered:
            try:
                self._coordinator.post(*message)
                return True
            except CoordinatorRefusalError as refused:
                self._note(f"{message[0]}: {refused}")
                return False
            except CoordinatorAwayError as away:
                if self._ending.wait(away.wait or self._backoff.next()):
                    return None
        return None


class Messenger(threading.Thread):
    """Sends heartbeats and the messages in the outbox.

    ``status`` returns the body of a heartbeat; ``order`` is called with what the coordinator orders and its answer, at
    most once per heartbeat. ``urgent`` sends what must not wait for this thread; it is started and finished here.
    ``checkpoint_seconds`` is how often the training is to save by the last answer, None where it did not say.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        outbox: Outbox,
        tail: OutputTail,
        *,
        every: float,
        status: Callable[[], dict[str, Any]],
        order: Callable[[str, dict[str, Any]], None],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(name="messenger", daemon=True)
        self._coordinator, self._outbox, self._tail = coordinator, outbox, tail
        self._every, self._status, self._order, self._note = every, status, order, note
        self._rng = random.Random()
        self._backoff = Backoff(every, 4 * every, self._rng)
        self._wake = threading.Event()
        self._last: dict[str, Any] | None = None
        self._away = False
        self.urgent = UrgentSender(coordinator, note)
        self.checkpoint_seconds: float | None = None

    def run(self) -> None:
        self.urgent.start()
        while not self._wake.wait(self._run_action(self._send_heartbeat)):
            continue

    def finish(self, ended: dict[str, Any], seconds: float) -> bool:
        """Stop the heartbeats, send what remains and then ``ended``; return whether all arrived within the time.

        What did not arrive stays in the spool folder.
        """
        self._wake.set()
        self.join()
        for message in self.urgent.finish():
            self._outbox.put(*message)
        self._collect()
        self._outbox.put("ended", ended)
        self._backoff = Backoff(min(1.0, self._every), 30.0, self._rng)
        limit = time.monotonic() + seconds
        while len(self._outbox):
            wait = self._run_action(self._deliver)
            remaining = limit - time.monotonic()
            if len(self._outbox) and remaining <= 0:
                return False
            if len(self._outbox):
                time.sleep(min(wait, remaining))
        return True

    def _run_action(self, action: Callable[[], None]) -> float:
        """Run the action and return after how many seconds to run the next."""
        try:
            action()
        except CoordinatorAwayError as away:
            if not self._away:
                self._note(f"coordinator away: {away}")
            self._away = True
            return away.wait or self._backoff.next()
        if self._away:
            self._note("coordinator back")
        self._away = False
        self._backoff.reset()
        return self._every * self._rng.uniform(0.9, 1.0)

    def _send_heartbeat(self) -> None:
        self._collect()
        try:
            answer = self._coordinator.post("heartbeat", self._status())
        except CoordinatorRefusalError as refused:
            if refused.word == OVER:
                self._order(protocol.STOP, {})
                return
            raise CoordinatorAwayError(str(refused)) from None
        seconds = answer.get(protocol.CHECKPOINT_SECONDS)
        if isinstance(seconds, (int, float)) and 0 < seconds < protocol.LONGEST_CHECKPOINT_SECONDS:
            self.checkpoint_seconds = float(seconds)
        if answer.get("order") in (protocol.STOP, protocol.CHECKPOINT):
            self._order(answer["order"], answer)
        self._deliver()

    def _collect(self) -> None:
        """Put the output since the last call into the outbox, in pieces of a size that a coordinator accepts."""
        offset, data = self._tail.take()
        for start in range(0, len(data), CHUNK):
            piece = data[start : start + CHUNK]
            body = {"offset": offset + start, "bytes": len(piece), "text": piece.decode("utf-8", "replace")}
            self._outbox.put("logs", body)

    def _deliver(self) -> None:
        while (first := self._outbox.first()) is not None:
            try:
                self._coordinator.post(*first)
            except CoordinatorRefusalError as refused:
                # The coordinator understood the message and does not want it, so sending it again would change nothing.
                self._note(f"{first[0]}: {refused}")
            self._outbox.done()


# The longest time in seconds for which a request is held: proxies on the way end silent connections.
HOLD_SECONDS = 25.0
FIRST_POLL_WAIT, LAST_POLL_WAIT = 1.0, 30.0
# The shortest pause between two requests, even if the answer comes at once, and the longest.
PAUSE, LONGEST_PAUSE = 0.2, 60.0
# The refusal of a coordinator that does not know this request.
UNKNOWN = "message"


class OrderPoller(threading.Thread):
    """Polls the coordinator for orders.

    ``who`` goes into every request. ``order`` is called once for each order, with its answer; ``stop`` is the last.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        *,
        who: Mapping[str, Any],
        order: Callable[[str, dict[str, Any]], None],
    ) -> None:
        super().__init__(name="orders", daemon=True)
        self._coordinator, self._who, self._order = coordinator, who, order
        self._ending = threading.Event()
        self._backoff = Backoff(FIRST_POLL_WAIT, LAST_POLL_WAIT, random.Random())
        self._seen = ""

    def run(self) -> None:
        """Poll until :meth:`finish`, or an order to stop."""
        wait: float | None = 0.0
        while wait is not None and not self._ending.wait(wait):
            wait = self._poll()

    def finish(self) -> None:
        """Stop polling. A request that is held may remain open, but its answer is ignored."""
        self._ending.set()

    def _poll(self) -> float | None:
        """Send one request and return the seconds until the next; None: there is none."""
        body = {**self._who, "seen": self._seen, "wait": HOLD_SECONDS}
        try:
            answer = self._coordinator.post("orders", body, wait=HOLD_SECONDS)
        except CoordinatorRefusalError as refused:
            if refused.word == UNKNOWN:
                return None
            if refused.word == OVER:
                self._end_polling({})
                return None
            return self._backoff.next()
        except CoordinatorAwayError as away:
            # The thread that sends heartbeats notes that the coordinator is away.
            return away.wait or self._backoff.next()
        self._backoff.reset()
        if answer.get("order") == protocol.STOP:
            self._end_polling(answer)
            return None
        name = str(answer.get("id"))
        if answer.get("order") == protocol.CHECKPOINT and name != self._seen and not self._ending.is_set():
            self._seen = name
            self._order(protocol.CHECKPOINT, answer)
            return 0.0
        retry_seconds = answer.get("retry_seconds")
        return min(LONGEST_PAUSE, max(PAUSE, retry_seconds)) if isinstance(retry_seconds, (int, float)) else PAUSE

    def _end_polling(self, answer: dict[str, Any]) -> None:
        if not self._ending.is_set():
            self._order(protocol.STOP, answer)
