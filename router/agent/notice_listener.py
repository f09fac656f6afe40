"""Listen for notices to this machine and report them at once.

They go to the agent's main thread, and to the coordinator by a thread of their own, so that nothing delays them.
"""

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
from router.agent.calls import Backoff, CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError
from router.agent.config import AgentConfig, metadata_module
from router.agent.imds import MachineNotice, NoticeWatch
from router.agent.messenger import Outbox
from router.agent.supervise import AgentEvent

# The first and the longest pause, in seconds, after a failure to reach a source or the coordinator.
WATCH_WAITS = (1.0, 30.0)
SEND_WAITS = (0.25, 5.0)
# The folder, inside the spool folder, of the notices that the coordinator has not taken yet, and its limit.
FOLDER, SPOOL_BYTES = "notices", 2**20


class NoticeListener:
    """Listens to all sources of notices.

    ``who`` goes into every message; ``environment`` is the machine's. Nothing that a service, a disk or a coordinator
    does stops it.
    """

    def __init__(
        self,
        config: AgentConfig,
        coordinator: CoordinatorClient,
        *,
        who: Mapping[str, Any],
        events: queue.SimpleQueue[AgentEvent],
        note: Callable[[str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._coordinator, self._who, self._events, self._note = coordinator, who, events, note
        self._watches = [*watches_of(config), *gpu_health.watches(environment)]
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._notices: dict[str, MachineNotice] = {}
        self._outbox = Outbox(Path(config.spool_folder) / FOLDER, SPOOL_BYTES) if self._watches else None

    def start(self) -> None:
        """Begin to listen. Without a source, no thread runs."""
        for watch in self._watches:
            threading.Thread(target=self._listen, args=(watch,), name=watch.name, daemon=True).start()
        if self._outbox is not None:
            threading.Thread(target=self._send, args=(self._outbox,), name="notices", daemon=True).start()

    @property
    def heard(self) -> tuple[MachineNotice, ...]:
        """All notices so far, each once, in the order in which they came."""
        with self._lock:
            return tuple(self._notices.values())

    def tell(self, notice: MachineNotice) -> None:
        """Put an event ``notice`` for the main thread, then a message. A notice with a known id is ignored."""
        with self._lock:
            if notice.id in self._notices:
                return
            self._notices[notice.id] = notice
            self._events.put(AgentEvent("notice", notice))
            if self._outbox is not None:
                named = {"id": notice.id, "kind": notice.kind, "source": notice.source}
                self._outbox.put("notice", {**self._who, **named, "seconds": notice.seconds, "what": notice.what})
        self._wake.set()
        left = "" if notice.seconds is None else f", {notice.seconds:g} s left"
        self._note(f"notice {notice.id} ({notice.kind}, {notice.source}{left}): {notice.what}")

    def acknowledge(self, id_: str) -> bool:
        """Tell the cloud that the event may begin now, and return whether it accepted that.

        Only some clouds ask; the event then begins for every machine that the notice names.
        """
        acknowledge_event = next(filter(None, (getattr(w, "acknowledge", None) for w in self._watches)), None)
        if acknowledge_event is None:
            return False
        try:
            acknowledge_event(id_)
        except Exception as error:
            self._note(f"notice {id_} not acknowledged: {error}")
            return False
        self._note(f"notice {id_}: told the cloud that it may begin")
        return True

    def once_saved(self, id_: str) -> Callable[[], object] | None:
        """Return what to do once the coordinator knows the outcome of the checkpoint for a notice.

        The result tells the cloud that the event may begin. None where the cloud does not wait for that, or there is no
        such notice.
        """
        waits = any(notice.waits and notice.id == id_ for notice in self.heard)
        return partial(self.acknowledge, id_) if waits else None

    def finish(self, seconds: float) -> bool:
        """Stop listening and wait up to ``seconds`` until the coordinator took all notices; return whether it did."""
        self._stopped.set()
        self._wake.set()
        limit = time.monotonic() + seconds
        while self._has_unsent() and time.monotonic() < limit:
            time.sleep(0.02)
        return not self._has_unsent()

    def _has_unsent(self) -> bool:
        with self._lock:
            return bool(self._outbox)

    def _listen(self, watch: NoticeWatch) -> None:
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
            except CoordinatorRefusalError as refused:
                # The coordinator understood the notice and does not want it, so sending it again would change nothing.
                self._note(f"notice {body.get('id')}: {refused}")
            except CoordinatorAwayError as away:
                # A new notice ends this wait, and is sent when its turn comes.
                self._wake.wait(away.wait or backoff.next())
                continue
            backoff.reset()
            with self._lock:
                outbox.done()

    def _left(self, body: Mapping[str, Any]) -> float | None:
        """Return the seconds left now; None for a notice that an earlier agent heard."""
        with self._lock:
            notice = self._notices.get(str(body.get("id")))
        left = None if notice is None else notice.left()
        return None if left is None else round(left, 3)


def watches_of(config: AgentConfig) -> list[NoticeWatch]:
    """Return the sources of notices of the machine's cloud; none where the configuration says `none`."""
    name = metadata_module(config.metadata)
    if name is None:
        return []
    # Only the module of this cloud is loaded.
    module = importlib.import_module(name)
    folder = Path(config.spool_folder).parent
    sources: list[NoticeWatch] = module.watches(
        config.metadata, config.metadata_url, config.notice_poll_seconds, folder
    )
    return sources
