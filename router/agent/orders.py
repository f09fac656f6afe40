"""The thread that waits for orders: its question is held by the coordinator until there is one. Heartbeats bring the
same orders, later, where the coordinator knows no such question or cannot hold it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from router.agent import states
from router.agent.calls import Away, Backoff, Coordinator, Refused

# So long a question is held at most, in seconds: silent connections are ended by what lies on the way.
HELD = 25.0
FIRST_WAIT, LAST_WAIT = 1.0, 30.0
# Between two questions at least, also where the answer comes at once.
PAUSE, LONGEST_PAUSE = 0.2, 60.0
# Words of a refusal: the attempt is over, and a coordinator that knows no such question.
OVER, UNKNOWN = "attempt_over", "message"


class Orders(threading.Thread):
    """``who`` goes into every question. ``order`` is called with each order and its answer, once for each; ``stop`` is
    the last."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        who: Mapping[str, Any],
        order: Callable[[str, dict[str, Any]], None],
        held: float = HELD,
    ) -> None:
        super().__init__(name="orders", daemon=True)
        self._coordinator, self._who, self._order, self._held = coordinator, who, order, held
        self._ending = threading.Event()
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT, random.Random())
        self._seen = ""

    def run(self) -> None:
        """Until :meth:`finish`, or an order to stop."""
        wait: float | None = 0.0
        while wait is not None and not self._ending.wait(wait):
            wait = self._ask()

    def finish(self) -> None:
        """Asks no more; a question that is held may still be, but nobody hears the answer."""
        self._ending.set()

    def _ask(self) -> float | None:
        """Seconds until the next question; None: there will be none."""
        body = {**self._who, "seen": self._seen, "wait": self._held}
        try:
            answer = self._coordinator.post("orders", body, wait=self._held)
        except Refused as refused:
            if refused.word == UNKNOWN:
                return None
            if refused.word == OVER:
                self._end({})
                return None
            return self._backoff.next()
        except Away as away:
            # That it is away is noted by whoever sends heartbeats.
            return away.wait or self._backoff.next()
        self._backoff.reset()
        if answer.get("order") == states.STOP:
            self._end(answer)
            return None
        name = str(answer.get("id"))
        if answer.get("order") == states.CHECKPOINT and name != self._seen and not self._ending.is_set():
            self._seen = name
            self._order(states.CHECKPOINT, answer)
            return 0.0
        asked = answer.get("retry_seconds")
        return min(LONGEST_PAUSE, max(PAUSE, asked)) if isinstance(asked, (int, float)) else PAUSE

    def _end(self, answer: dict[str, Any]) -> None:
        if not self._ending.is_set():
            self._order(states.STOP, answer)
