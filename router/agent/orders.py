"""The thread that waits for orders: the coordinator holds its request until there is one.

Heartbeats bring the same orders, later, where the coordinator does not know this request or cannot hold it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from router.agent import protocol
from router.agent.calls import Backoff, CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError

# The longest time in seconds for which a request is held: proxies on the way end silent connections.
HOLD_SECONDS = 25.0
FIRST_WAIT, LAST_WAIT = 1.0, 30.0
# The shortest pause between two requests, even if the answer comes at once, and the longest.
PAUSE, LONGEST_PAUSE = 0.2, 60.0
# Words of a refusal: the attempt is over, or the coordinator does not know this request.
OVER, UNKNOWN = "attempt_over", "message"


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
        held: float = HOLD_SECONDS,
    ) -> None:
        super().__init__(name="orders", daemon=True)
        self._coordinator, self._who, self._order, self._held = coordinator, who, order, held
        self._ending = threading.Event()
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT, random.Random())
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
        body = {**self._who, "seen": self._seen, "wait": self._held}
        try:
            answer = self._coordinator.post("orders", body, wait=self._held)
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
