"""The thread for messages that cannot wait for a heartbeat or for output: that a checkpoint was saved."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable
from typing import Any

from router.agent.calls import Backoff, CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError

FIRST_WAIT, LAST_WAIT = 0.25, 4.0
Message = tuple[str, dict[str, Any]]
# Called once a message was accepted.
AcceptedCallback = Callable[[], None]


class UrgentSender(threading.Thread):
    """Sends each message at once and in order, repeatedly until the coordinator accepts or refuses it."""

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
        """Send messages until :meth:`finish`."""
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
