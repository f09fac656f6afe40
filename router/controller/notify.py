"""Tells people what happens to gangs, once each. No channel that fails stops or delays anything else."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from router.config.notify_entry import Happening
from router.controller.context import Site
from router.controller.events import Event, happenings, message
from router.controller.lifecycle import GAVE_UP
from router.controller.notify_channels import Channel, channels
from router.state.errors import StateError
from router.state.records import NodeRecord
from router.state.store import Store

LOOK_SECONDS = 2.0
# What ended longer ago is no news to anybody.
LATELY = timedelta(hours=1)
# A channel is tried so often with what waits for it, with these pauses between.
TRIES = 5
PAUSES = (1.0, 5.0, 15.0, 60.0)
# So many events wait for a channel at most, and so many are named in one message.
MOST_WAITING, MOST_NAMED = 500, 20
CLOSE_SECONDS = 10.0
TOLD = "told"
# At most two lines for a person about each channel in trouble: when it begins, and when events are dropped.
Note = Callable[[str], None]


@dataclass(slots=True)
class _Queue:
    """What one channel was not told yet, oldest first."""

    channel: Channel
    waiting: deque[Event] = field(default_factory=deque)
    tries: int = 0
    due_at: float = 0.0


class Notifier:
    """For one thread, but for :meth:`tell`. ``wanted``: what goes to the channels; ``heard`` gets every event once,
    whether it is wanted or not. What was told is in the journal, so that a restart tells nothing twice."""

    def __init__(
        self,
        store: Store,
        to: Sequence[Channel],
        wanted: Collection[Happening],
        clock: Callable[[], datetime],
        note: Note,
        heard: Callable[[Event], None] = lambda _: None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._wanted, self._clock = store, frozenset(wanted), clock
        self._note, self._heard, self._ticks = note, heard, ticks
        self._queues = [_Queue(channel) for channel in to]
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] | None = None
        self._open: dict[tuple[str, str], int] = {}
        self._seq = 0

    def look(self) -> None:
        """Finds what is new in the state, and tells it. StateError leaves it to the next look."""
        now = self._clock()
        since = now - LATELY
        overview = self._store.overview
        attempts, nodes = overview.alive()
        notes = overview.notes((GAVE_UP,), self._seq)
        ended = [*overview.over_since(since), *overview.attempts(note.attempt for note in notes).values()]
        by_attempt: dict[str, list[NodeRecord]] = {}
        for node in nodes:
            by_attempt.setdefault(node.attempt, []).append(node)
        lately = [note for note in notes if note.at >= since]
        # Of jobs that were given up long ago nothing is said now.
        old = {note.attempt for note in notes} - {note.attempt for note in lately}
        known = [attempt for attempt in (*ended, *attempts) if attempt.id not in old]
        self.tell(happenings(known, by_attempt, self._store.notices(since=since), lately, now))
        self._seq = max([self._seq, *(note.seq for note in notes)])

    def tell(self, events: Iterable[Event]) -> None:
        """Puts into the queues what was not told before; blocks for nothing but the state. StateError."""
        with self._lock:
            if self._told is None:
                self._told = {
                    (note.attempt, str(note.details.get("event"))) for note in self._store.overview.notes((TOLD,))
                }
            for event in events:
                if event.key in self._told:
                    continue
                self._told.add(event.key)
                self._heard(event)
                if event.what in self._wanted and self._queues:
                    self._open[event.key] = len(self._queues)
                    for queue in self._queues:
                        self._put(queue, event)

    def send(self, *, at_once: bool = False) -> None:
        """One try for each channel for which something waits and whose pause is over (``at_once``: or is not). All that
        waits goes into one message. Takes as long as the channels do."""
        for queue in self._queues:
            with self._lock:
                events = tuple(queue.waiting)
            if not events or not (at_once or self._ticks() >= queue.due_at):
                continue
            if queue.channel.send(*message(events, MOST_NAMED)):
                if queue.tries:
                    self._note(f"{queue.channel.name} takes messages again")
                queue.tries, queue.due_at = 0, 0.0
                self._settle(queue, events)
                continue
            if not queue.tries:
                self._note(f"{queue.channel.name} does not take a message; trying again")
            queue.tries += 1
            queue.due_at = self._ticks() + PAUSES[min(queue.tries, len(PAUSES)) - 1]
            if queue.tries % TRIES == 0:
                self._note(f"{queue.channel.name} was not told of {len(events)} events")
                self._settle(queue, events)

    def _put(self, queue: _Queue, event: Event) -> None:
        queue.waiting.append(event)
        while len(queue.waiting) > MOST_WAITING:
            self._done(queue.waiting.popleft())

    def _settle(self, queue: _Queue, events: Iterable[Event]) -> None:
        """Told, or given up: either way it is not tried again."""
        with self._lock:
            for event in events:
                if queue.waiting and queue.waiting[0] is event:
                    queue.waiting.popleft()
                    self._done(event)

    def _done(self, event: Event) -> None:
        left = self._open.get(event.key, 0) - 1
        self._open[event.key] = left
        if left <= 0:
            self._open.pop(event.key, None)
            try:
                self._store.note(event.attempt, TOLD, self._clock(), event=event.what.value)
            except StateError:
                # It may be told again after a restart, which is better than never.
                return


@contextmanager
def notifying(site: Site, heard: Callable[[Event], None] = lambda _: None) -> Iterator[Notifier]:
    """Looks and tells in a thread of its own while the block runs; what waits at the end has a few seconds. ``heard``
    gets every event. InvalidInputError for an address that is not there or that nothing can be sent to."""
    notify = site.deploy.notify
    to = channels(notify.addresses(site.environment))
    notifier = Notifier(site.store, to, notify.events, site.clock, lambda text: site.tell("notify", text), heard)
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(notifier, site, stop), name="notify", daemon=True)
    thread.start()
    try:
        yield notifier
    finally:
        stop.set()
        thread.join(CLOSE_SECONDS)


def _work(notifier: Notifier, site: Site, stop: threading.Event) -> None:
    trouble, ending = "", False
    while not ending:
        ending = stop.wait(LOOK_SECONDS)
        try:
            notifier.look()
            trouble = ""
        except Exception as error:
            if type(error).__name__ != trouble:
                trouble = type(error).__name__
                site.tell("notify", f"cannot look for news: {error if isinstance(error, StateError) else trouble}")
        notifier.send(at_once=ending)
