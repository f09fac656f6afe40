"""Notify people of events of gangs and plans, once each. A failing channel never stops or delays anything else."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.controller.history.events import EventLevel, GangEvent, find_events, render_message
from router.controller.history.heartbeats import STANDSTILL, group_by_attempt
from router.controller.history.lifecycle import GAVE_UP
from router.deploy.notify_settings import EventKind
from router.ledger.budget import BudgetStatus
from router.ledger.month import Month
from router.state.errors import StateError
from router.state.store import StateStore

if TYPE_CHECKING:
    from router.controller.context import ControllerContext

_SEPARATOR = "://"
# The most events that wait for one channel, and the most that one message names.
MOST_WAITING, MOST_NAMED = 500, 20


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to reach people.

    ``name`` can be shown; ``send`` (title, text, level) returns whether the message was taken, and raises nothing.
    """

    name: str
    send: Callable[[str, str, EventLevel], bool] = field(repr=False)


def open_channels(addresses: Sequence[str]) -> tuple[Channel, ...]:
    """Return one channel per address. An address may hold a secret and is never shown.

    InvalidInputError for an address that apprise does not know, and where apprise is missing.
    """
    if not addresses:
        return ()
    try:
        import apprise
    except ModuleNotFoundError:
        raise InvalidInputError.single(
            "messages need the library apprise", field="notify.urls", remedy="pip install 'stepfare[notify]'"
        ) from None
    # The library writes addresses into its log.
    logging.getLogger("apprise").disabled = True
    asset = apprise.AppriseAsset(
        app_id="stepfare", app_desc="stepfare", app_url="", async_mode=False, storage_mode="memory", secure_logging=True
    )
    result = []
    for number, address in enumerate(addresses):
        scheme, separator, _ = address.partition(_SEPARATOR)
        name = f"notify.urls[{number}]"
        target = apprise.Apprise(asset=asset)
        with warnings.catch_warnings():
            # The first address makes the library load a deprecated module of Python.
            warnings.simplefilter("ignore", DeprecationWarning)
            is_known = bool(separator) and target.add(address)
        if not is_known:
            raise InvalidInputError.single(
                "is no address that apprise knows",
                field=name,
                remedy="write it as https://github.com/caronc/apprise/wiki has it",
            )
        result.append(Channel(f"{name} ({scheme})", _make_sender(target)))
    return tuple(result)


def _make_sender(target: Any) -> Callable[[str, str, EventLevel], bool]:
    kinds = {EventLevel.INFO: "info", EventLevel.WARNING: "warning", EventLevel.ERROR: "failure"}

    def send(title: str, text: str, level: EventLevel) -> bool:
        try:
            return bool(target.notify(title=title, body=text, notify_type=kinds[level], body_format="text"))
        except Exception:
            # Any failure means that the message was not taken; the error's text may quote the address.
            return False

    return send


_FORECAST = "forecast"


def report_budget_marks(
    store: StateStore,
    to: Sequence[Channel],
    kinds: Collection[EventKind],
    month: Month,
    standings: Iterable[BudgetStatus],
) -> tuple[str, ...]:
    """Send each channel one message about all new budget marks, and return the names of channels that failed.

    A mark counts as reported when one channel took the message; where none did, the next call tries again. Two
    concurrent calls may report it twice.
    """
    if EventKind.BUDGET not in kinds or not to:
        return ()
    marked = [([key for key in _keys(month, each) if store.values.get(key) is None], each) for each in standings]
    unreported = [(keys, _event(month, standing)) for keys, standing in marked if keys]
    if not unreported:
        return ()
    text = render_message([event for _, event in unreported], MOST_NAMED)
    failed = tuple(channel.name for channel in to if not channel.send(*text))
    if len(failed) < len(to):
        for keys, _ in unreported:
            for key in keys:
                store.values.set(key, "told")
    return failed


def _keys(month: Month, standing: BudgetStatus) -> Iterator[str]:
    marks = [*map(str, standing.passed), *([_FORECAST] if standing.will_be_over else [])]
    # The key holds the amount, so a changed budget reports its marks anew.
    return (f"told budget {month} {standing.budget.title} {standing.usd} {mark}" for mark in marks)


def _event(month: Month, standing: BudgetStatus) -> GangEvent:
    budget, spent = standing.budget, f"${standing.used.dollars():,.2f} of ${standing.usd.dollars():,.2f}"
    used = "" if standing.percent is None else f" ({standing.percent} %)"
    kind = "hard budget" if budget.hard else "budget"
    text = f"{budget.title}: {spent}{used} of the {kind} of {month} is spent"
    if standing.is_over and budget.hard:
        text += "; plans and orders that go over it are refused"
    if standing.will_be_over and standing.forecast is not None:
        text += f"; at this pace the month comes to ${standing.forecast.dollars():,.2f}"
    level = EventLevel.ERROR if standing.is_over and budget.hard else EventLevel.WARNING
    return GangEvent(f"budget {month}", budget.title, EventKind.BUDGET, level, text)


LOOK_SECONDS = 2.0
# Attempts that ended longer ago are no news.
NEWS_WINDOW = timedelta(hours=1)
# The number of attempts to deliver what waits for a channel, and the pauses between them in seconds.
TRIES = 5
PAUSES = (1.0, 5.0, 15.0, 60.0)
CLOSE_SECONDS = 10.0
TOLD = "told"
# Reports to a person, at most twice per failing channel: when it begins to fail, and when events are dropped.
ReportTrouble = Callable[[str], None]
FindEvents = Callable[[datetime], Iterable[GangEvent]]


@dataclass(slots=True)
class _Queue:
    channel: Channel
    waiting: deque[GangEvent] = field(default_factory=deque)
    tries: int = 0
    due_at: float = 0.0


class Notifier:
    """Reports events to channels. For one thread, except :meth:`tell`.

    ``kinds`` are those that go to the channels. ``heard`` receives every event once, of any kind. ``find_more``
    finds events beside those of gangs; StateError. What was reported is in the journal, so that a restart reports
    nothing twice.
    """

    def __init__(
        self,
        store: StateStore,
        to: Sequence[Channel],
        kinds: Collection[EventKind],
        clock: Callable[[], datetime],
        note: ReportTrouble,
        heard: Callable[[GangEvent], None] = lambda _: None,
        ticks: Callable[[], float] = time.monotonic,
        find_more: FindEvents = lambda _: (),
    ) -> None:
        self._store, self._kinds, self._clock = store, frozenset(kinds), clock
        self._note, self._heard, self._ticks = note, heard, ticks
        self._find_more = find_more
        self._queues = [_Queue(channel) for channel in to]
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] | None = None
        self._open: dict[tuple[str, str], int] = {}
        self._seq = 0

    def look(self) -> None:
        """Find new events in the state and queue them. On a StateError the next look finds them."""
        now = self._clock()
        since = now - NEWS_WINDOW
        overview = self._store.overview
        attempts, nodes = overview.alive()
        notes = overview.notes((GAVE_UP, STANDSTILL), self._seq)
        ended = [*overview.over_since(since), *overview.attempts(note.attempt for note in notes).values()]
        lately = [note for note in notes if note.at >= since]
        # Jobs that were given up long ago are not reported now.
        gave_up = {note.attempt for note in notes if note.what == GAVE_UP}
        gave_up_long_ago = gave_up - {note.attempt for note in lately}
        attempts_known = [attempt for attempt in (*ended, *attempts) if attempt.id not in gave_up_long_ago]
        self.tell(
            find_events(attempts_known, group_by_attempt(nodes), self._store.notices.find(since=since), lately, now)
        )
        self._seq = max([self._seq, *(note.seq for note in notes)])
        self.tell(self._find_more(now))

    def tell(self, events: Iterable[GangEvent]) -> None:
        """Queue the events that were not reported before; waits for nothing but the state. StateError."""
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
                if event.what in self._kinds and self._queues:
                    self._open[event.key] = len(self._queues)
                    for queue in self._queues:
                        queue.waiting.append(event)
                        while len(queue.waiting) > MOST_WAITING:
                            self._mark_reported(queue.waiting.popleft())

    def send(self, *, at_once: bool = False) -> None:
        """Try once to deliver the waiting events of each channel whose pause is over; ``at_once`` ignores pauses.

        All events waiting for a channel go into one message. Takes as long as the channels do.
        """
        for queue in self._queues:
            with self._lock:
                events = tuple(queue.waiting)
            if not events or not (at_once or self._ticks() >= queue.due_at):
                continue
            if queue.channel.send(*render_message(events, MOST_NAMED)):
                if queue.tries:
                    self._note(f"{queue.channel.name} takes messages again")
                queue.tries, queue.due_at = 0, 0.0
                self._remove_queued(queue, events)
                continue
            if not queue.tries:
                self._note(f"{queue.channel.name} does not take a message; trying again")
            queue.tries += 1
            queue.due_at = self._ticks() + PAUSES[min(queue.tries, len(PAUSES)) - 1]
            if queue.tries % TRIES == 0:
                self._note(f"{queue.channel.name} was not told of {format_count(len(events), 'event')}")
                self._remove_queued(queue, events)

    def _remove_queued(self, queue: _Queue, events: Iterable[GangEvent]) -> None:
        with self._lock:
            for event in events:
                if queue.waiting and queue.waiting[0] is event:
                    queue.waiting.popleft()
                    self._mark_reported(event)

    def _mark_reported(self, event: GangEvent) -> None:
        channels_left = self._open.get(event.key, 0) - 1
        self._open[event.key] = channels_left
        if channels_left <= 0:
            self._open.pop(event.key, None)
            try:
                self._store.journal.note(event.attempt, TOLD, self._clock(), event=event.what.value)
            except StateError:
                # The event may be reported again after a restart, which is better than never.
                return


@contextmanager
def run_notifier(
    site: ControllerContext,
    heard: Callable[[GangEvent], None] = lambda _: None,
    find_more: FindEvents = lambda _: (),
) -> Iterator[Notifier]:
    """Find and report events in a thread of its own while the block runs.

    Events that wait at the end have a few seconds. ``heard`` receives every event, ``find_more`` finds some beside
    those of gangs. InvalidInputError for an address that is missing or that nothing can be sent to.
    """
    notify = site.deploy.notify
    to = open_channels(notify.addresses(site.environment))
    notifier = Notifier(
        site.store,
        to,
        notify.events,
        site.clock,
        lambda text: site.tell("notify", text),
        heard,
        find_more=find_more,
    )
    stop = threading.Event()
    thread = threading.Thread(target=_notify_until_stopped, args=(notifier, site, stop), name="notify", daemon=True)
    thread.start()
    try:
        yield notifier
    finally:
        stop.set()
        thread.join(CLOSE_SECONDS)


def _notify_until_stopped(notifier: Notifier, site: ControllerContext, stop: threading.Event) -> None:
    last_error, is_last = "", False
    while not is_last:
        is_last = stop.wait(LOOK_SECONDS)
        try:
            notifier.look()
            last_error = ""
        except Exception as error:
            if type(error).__name__ != last_error:
                last_error = type(error).__name__
                site.tell("notify", f"cannot look for news: {error if isinstance(error, StateError) else last_error}")
        notifier.send(at_once=is_last)
