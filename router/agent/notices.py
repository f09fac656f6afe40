"""Hears what is announced to this machine and says it on at once: to the agent's main thread, and to the coordinator by
a thread of its own, behind nothing else."""

from __future__ import annotations

import importlib
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from router.agent import gpu_health
from router.agent.calls import Away, Backoff, Coordinator, Refused
from router.agent.config import Config, dialect
from router.agent.notice import Notice, Watch
from router.agent.outbox import Outbox
from router.agent.supervise import Event

# Behind these limits the waits of those who cannot reach the other side end, in seconds.
WATCH_WAITS = (1.0, 30.0)
SEND_WAITS = (0.25, 5.0)
# The folder of the notices that the coordinator did not take yet, in the spool folder, and how much it may hold.
FOLDER, SPOOL_BYTES = "notices", 2**20


class Notices:
    """``who`` goes into every message; ``environment`` is the machine's. Nothing that a service, a disk or a
    coordinator does ends anything here."""

    def __init__(
        self,
        config: Config,
        coordinator: Coordinator,
        *,
        who: Mapping[str, Any],
        events: queue.SimpleQueue[Event],
        note: Callable[[str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._coordinator, self._who, self._events, self._note = coordinator, who, events, note
        self._watches = [*watches_of(config), *gpu_health.watches(environment)]
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._heard: dict[str, Notice] = {}
        self._outbox = Outbox(Path(config.spool_folder) / FOLDER, SPOOL_BYTES) if self._watches else None

    def start(self) -> None:
        """Begins to listen; where there is nothing to listen to, nothing runs."""
        for watch in self._watches:
            threading.Thread(target=self._listen, args=(watch,), name=watch.name, daemon=True).start()
        if self._outbox is not None:
            threading.Thread(target=self._send, args=(self._outbox,), name="notices", daemon=True).start()

    @property
    def heard(self) -> tuple[Notice, ...]:
        """All so far, each once, in the order in which they came."""
        with self._lock:
            return tuple(self._heard.values())

    def tell(self, notice: Notice) -> None:
        """An event ``notice`` for the main thread, then a message; what has an id that was told before is nothing
        new."""
        with self._lock:
            if notice.id in self._heard:
                return
            self._heard[notice.id] = notice
            self._events.put(Event("notice", notice))
            if self._outbox is not None:
                self._outbox.put("notice", self._body(notice))
        self._wake.set()
        left = "" if notice.seconds is None else f", {notice.seconds:g} s left"
        self._note(f"notice {notice.id} ({notice.kind}, {notice.source}{left}): {notice.what}")

    def acknowledge(self, id_: str) -> bool:
        """Tells the cloud that what is announced may begin now, where it asks; it then does so for every machine that
        the announcement names. Whether the cloud took it."""
        for watch in self._watches:
            agree = getattr(watch, "acknowledge", None)
            if agree is not None:
                try:
                    agree(id_)
                except Exception as error:
                    self._note(f"notice {id_} not acknowledged: {error}")
                    return False
                return True
        return False

    def once_saved(self, id_: str) -> Callable[[], None] | None:
        """What is to be done when the coordinator knows that there is a checkpoint, or will be none, for the notice of
        that id: the cloud is told that it may begin. None where it does not wait for that, or there is no such
        notice."""
        waits = any(notice.waits and notice.id == id_ for notice in self.heard)
        return partial(self._agree, id_) if waits else None

    def _agree(self, id_: str) -> None:
        if self.acknowledge(id_):
            self._note(f"notice {id_}: told the cloud that it may begin")

    def finish(self, seconds: float) -> bool:
        """Listens no more, and waits until the coordinator took all, at most so long; whether it did."""
        self._stopped.set()
        self._wake.set()
        limit = time.monotonic() + seconds
        while self._waiting() and time.monotonic() < limit:
            time.sleep(0.02)
        return not self._waiting()

    def _waiting(self) -> bool:
        with self._lock:
            return bool(self._outbox)

    def _listen(self, watch: Watch) -> None:
        backoff = Backoff(*WATCH_WAITS, random.Random())
        silent = False
        wait = 0.0
        while not self._stopped.wait(max(0.0, wait)):
            try:
                wait = watch.look(self.tell)
            except Exception as error:
                if not silent:
                    self._note(f"{watch.name}: {type(error).__name__}: {error}")
                silent, wait = True, backoff.next()
                continue
            if silent:
                self._note(f"{watch.name} answers")
            silent = False
            backoff.reset()

    def _send(self, outbox: Outbox) -> None:
        backoff = Backoff(*SEND_WAITS, random.Random())
        while True:
            self._wake.clear()
            with self._lock:
                first = outbox.first()
            if first is None:
                self._wake.wait()
                continue
            kind, body = first
            try:
                self._coordinator.post(kind, {**body, "seconds": self._left(body)})
            except Refused as refused:
                # It was understood and is not wanted: to send it again would change nothing.
                self._note(f"notice {body.get('id')}: {refused}")
            except Away as away:
                # A new notice wakes it, and goes when its turn comes.
                self._wake.wait(away.wait or backoff.next())
                continue
            backoff.reset()
            with self._lock:
                outbox.done()

    def _body(self, notice: Notice) -> dict[str, Any]:
        named = {"id": notice.id, "kind": notice.kind, "source": notice.source}
        return {**self._who, **named, "seconds": notice.seconds, "what": notice.what}

    def _left(self, body: Mapping[str, Any]) -> float | None:
        """As of now; not known for what an earlier life of the agent heard."""
        with self._lock:
            notice = self._heard.get(str(body.get("id")))
        left = None if notice is None else notice.left()
        return None if left is None else round(left, 3)


def watches_of(config: Config) -> list[Watch]:
    """What the machine's cloud has to be looked at for; nothing where it is `none`."""
    name = dialect(config.metadata)
    if name is None:
        return []
    # Only the one that is spoken here is loaded.
    module = importlib.import_module(name)
    folder = Path(config.spool_folder).parent
    found: list[Watch] = module.watches(config.metadata, config.metadata_url, config.notice_poll_seconds, folder)
    return found
