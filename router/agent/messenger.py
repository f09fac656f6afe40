"""The thread that talks: heartbeats, orders in their answers, and what lies in the outbox. It never ends the training
because the coordinator is away."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from router.agent import states
from router.agent.calls import Away, Backoff, Coordinator, Refused
from router.agent.outbox import Outbox
from router.agent.rotation import Tail
from router.agent.urgent import Urgent

CHUNK = 65536
# The one refusal of a heartbeat that ends the training. Any other may come from a mistake on the way.
OVER = "attempt_over"


class Messenger(threading.Thread):
    """``status`` gives the body of a heartbeat; ``order`` is called with what the coordinator orders and its answer, at
    most once per heartbeat. ``urgent`` is what goes past this thread; it is started and finished here."""

    def __init__(
        self,
        coordinator: Coordinator,
        outbox: Outbox,
        tail: Tail,
        *,
        every: float,
        status: Callable[[], dict[str, Any]],
        order: Callable[[str, dict[str, Any]], None],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(name="messenger", daemon=True)
        self._coordinator, self._outbox, self._tail = coordinator, outbox, tail
        self._every, self._status, self._order, self._note = every, status, order, note
        self._dice = random.Random()
        self._backoff = Backoff(every, 4 * every, self._dice)
        self._wake = threading.Event()
        self._last: dict[str, Any] | None = None
        self._away = False
        self.urgent = Urgent(coordinator, note)

    def run(self) -> None:
        """Until :meth:`finish`."""
        self.urgent.start()
        while not self._wake.wait(self._turn(self._beat)):
            continue

    def finish(self, ended: dict[str, Any], seconds: float) -> bool:
        """Stops the heartbeats and hands over what is left, then ``ended``; whether all arrived within the time. What
        did not stays in the spool folder."""
        self._wake.set()
        self.join()
        for message in self.urgent.finish():
            self._outbox.put(*message)
        self._collect()
        self._outbox.put("ended", ended)
        self._backoff = Backoff(min(1.0, self._every), 30.0, self._dice)
        limit = time.monotonic() + seconds
        while len(self._outbox):
            wait = self._turn(self._deliver)
            left = limit - time.monotonic()
            if len(self._outbox) and left <= 0:
                return False
            if len(self._outbox):
                time.sleep(min(wait, left))
        return True

    def _turn(self, action: Callable[[], None]) -> float:
        """Does it and says after how many seconds to do the next."""
        try:
            action()
        except Away as away:
            if not self._away:
                self._note(f"coordinator away: {away}")
            self._away = True
            return away.wait or self._backoff.next()
        if self._away:
            self._note("coordinator back")
        self._away = False
        self._backoff.reset()
        return self._every * self._dice.uniform(0.9, 1.0)

    def _beat(self) -> None:
        self._collect()
        try:
            answer = self._coordinator.post("heartbeat", self._status())
        except Refused as refused:
            if refused.word == OVER:
                self._order(states.STOP, {})
                return
            raise Away(str(refused)) from None
        if answer.get("order") in (states.STOP, states.CHECKPOINT):
            self._order(answer["order"], answer)
        self._deliver()

    def _collect(self) -> None:
        """The output since the last time, into the outbox, in pieces that a coordinator takes."""
        offset, data = self._tail.take()
        for start in range(0, len(data), CHUNK):
            piece = data[start : start + CHUNK]
            body = {"offset": offset + start, "bytes": len(piece), "text": piece.decode("utf-8", "replace")}
            self._outbox.put("logs", body)

    def _deliver(self) -> None:
        while (first := self._outbox.first()) is not None:
            try:
                self._coordinator.post(*first)
            except Refused as refused:
                # It was understood and is not wanted: to send it again would change nothing.
                self._note(f"{first[0]}: {refused}")
            self._outbox.done()
