"""The thread for what cannot wait for a heartbeat, or behind output: that a checkpoint was saved."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable
from typing import Any

from router.agent.calls import Away, Backoff, Coordinator, Refused

FIRST_WAIT, LAST_WAIT = 0.25, 4.0
Message = tuple[str, dict[str, Any]]
# What to do once a message was taken.
Then = Callable[[], None]


class Urgent(threading.Thread):
    """Sends each message at once, in their order, again until the coordinator takes or refuses it."""

    def __init__(self, coordinator: Coordinator, note: Callable[[str], None]) -> None:
        super().__init__(name="urgent", daemon=True)
        self._coordinator, self._note = coordinator, note
        self._waiting: queue.SimpleQueue[tuple[Message, Then | None] | None] = queue.SimpleQueue()
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT, random.Random())
        self._ending = threading.Event()
        self._left: list[Message] = []

    def put(self, what: str, body: dict[str, Any], then: Then | None = None) -> None:
        """From any thread; returns at once. ``then`` is called, by a thread of its own, if the coordinator takes it."""
        self._waiting.put(((what, body), then))

    def run(self) -> None:
        """Until :meth:`finish`."""
        while (found := self._waiting.get()) is not None:
            message, then = found
            taken = self._sent(message)
            if taken is None:
                self._left.append(message)
            elif taken and then is not None:
                # It may take its time; what comes next may not.
                threading.Thread(target=then, name="then", daemon=True).start()

    def finish(self) -> list[Message]:
        """Tries each message that waits once more, and ends; those that nobody took, the oldest first."""
        self._ending.set()
        self._waiting.put(None)
        self.join()
        return self._left

    def _sent(self, message: Message) -> bool | None:
        """Whether it was taken, not refused; None: nobody answered until the end."""
        self._backoff.reset()
        while not self._left:
            try:
                self._coordinator.post(*message)
                return True
            except Refused as refused:
                self._note(f"{message[0]}: {refused}")
                return False
            except Away as away:
                if self._ending.wait(away.wait or self._backoff.next()):
                    return None
        return None
