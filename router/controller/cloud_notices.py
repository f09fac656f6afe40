"""What clouds announce outside of machines, kept as if the machine's agent had told it: it comes by this way also when
the agent is dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from providers.errors import ProviderError
from providers.notices import Announcements, CloudNotice
from providers.protocol import NoticeKind
from router.controller.context import Tell
from router.coordinator.ordering import after_notice
from router.state.errors import StateError
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase
from router.state.store import Store

# Agent and cloud say the same thing within so long.
WINDOW = timedelta(minutes=5)
# A machine that nobody knows may be one that is being made: so long its announcements stay in the queue.
_UNKNOWN_FOR = timedelta(minutes=2)
WAIT_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_JOIN_S = 1.0

Open = Callable[[], Announcements]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a look at a queue came to: ``kept`` notices are in the state; ``known`` ones were there before; ``others``
    are about machines that are not ours, or not any more; ``unreadable`` ones stay in the queue."""

    kept: int = 0
    known: int = 0
    others: int = 0
    unreadable: int = 0


class Hearing:
    """Hears one queue and keeps what is about machines of attempts that are not over. For one thread.

    ``clock`` dates what is kept, ``wall_clock`` says how much of a machine's time is left. A queue belongs to one
    state: what is about machines of nobody here is taken out as well.
    """

    def __init__(
        self,
        store: Store,
        queue: Announcements,
        clock: Callable[[], datetime],
        wall_clock: Callable[[], datetime],
        tell: Tell,
    ) -> None:
        self._store, self._queue = store, queue
        self._clock, self._wall_clock, self._tell = clock, wall_clock, tell

    def poll(self, wait_s: float) -> Taken:
        """One look, that waits so long at most. ProviderError, StateError: what was not kept stays in the queue."""
        batch = self._queue.receive(wait_s)
        if not any(letter.notice for letter in batch.letters):
            self._queue.done(batch.letters)
            return Taken(others=len(batch.letters), unreadable=batch.unreadable)
        attempts, nodes = self._store.overview.alive()
        ours = _by_machine(attempts, nodes)
        done, kept, known, others = [], 0, 0, 0
        for letter in batch.letters:
            notice = letter.notice
            found = ours.get((notice.cloud, notice.machine_id)) if notice else None
            if notice is not None and found is not None:
                is_new = self._keep(notice, *found)
                kept, known = kept + is_new, known + (not is_new)
            elif notice is not None and self._wall_clock() - notice.at < _UNKNOWN_FOR:
                continue
            else:
                others += 1
            done.append(letter)
        self._queue.done(done)
        return Taken(kept, known, others, batch.unreadable)

    def _keep(self, said: CloudNotice, attempt: Attempt, node: NodeRecord) -> bool:
        """Whether it was news."""
        now = self._clock()
        before = self._store.notices(attempt.id, now - WINDOW)
        if any(one.rank == node.rank and one.kind == said.kind.value for one in before):
            return False
        notice = NoticeRecord(
            attempt=attempt.id,
            rank=node.rank,
            id=said.id,
            kind=said.kind.value,
            source=said.cloud,
            seconds=self._left(said),
            what=said.what,
            heard_at=now,
        )
        if said.kind is NoticeKind.INTERRUPTION and not said.is_going:
            self._store.add_notice_with(notice, after_notice(notice, self._wall_clock()))
        else:
            self._store.add_notice(notice)
        self._tell(attempt.job, f"{attempt.id}: {said.cloud} says of rank {node.rank}: {said.what}")
        return True

    def _left(self, said: CloudNotice) -> float | None:
        """At least nothing and at most all, however the clocks differ."""
        if said.seconds is None:
            return None
        return min(said.seconds, max(0.0, said.seconds - (self._wall_clock() - said.at).total_seconds()))


def _by_machine(
    attempts: Iterable[Attempt], nodes: Iterable[NodeRecord]
) -> dict[tuple[str, str], tuple[Attempt, NodeRecord]]:
    """By cloud and the cloud's name for the machine. What is being released ends because we say so."""
    by_id = {attempt.id: attempt for attempt in attempts if attempt.phase is not Phase.RELEASING}
    return {
        (by_id[node.attempt].cloud, node.machine_id): (by_id[node.attempt], node)
        for node in nodes
        if node.machine_id and node.attempt in by_id
    }


@contextmanager
def announced(
    store: Store,
    queues: Mapping[str, Open],
    clock: Callable[[], datetime],
    wall_clock: Callable[[], datetime],
    tell: Tell,
) -> Iterator[None]:
    """Hears these queues while the block runs, each in a thread of its own. ``queues`` opens them, by what people call
    them; one that cannot be read is said to be so once, and tried again later."""
    stop = threading.Event()
    threads = [
        threading.Thread(
            target=_hear, args=(store, name, queue, clock, wall_clock, tell, stop), name=f"queue {name}", daemon=True
        )
        for name, queue in queues.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(_JOIN_S)


def _hear(
    store: Store,
    name: str,
    queue: Open,
    clock: Callable[[], datetime],
    wall_clock: Callable[[], datetime],
    tell: Tell,
    stop: threading.Event,
) -> None:
    hearing: Hearing | None = None
    pause, is_mute = _FIRST_PAUSE_S, False
    while not stop.is_set():
        try:
            # Opened anew after trouble: what calls the cloud gives up on it once and for all.
            hearing = hearing or Hearing(store, queue(), clock, wall_clock, tell)
            taken = hearing.poll(WAIT_S)
        except Exception as error:
            if not is_mute and not stop.is_set():
                known = isinstance(error, ProviderError | StateError)
                tell(name, f"its queue cannot be read: {error if known else type(error).__name__}")
            hearing, is_mute = None, True
            stop.wait(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)
            continue
        if is_mute:
            tell(name, "its queue can be read again")
        if taken.unreadable:
            tell(name, f"{taken.unreadable} messages of its queue are no announcements; they stay there")
        pause, is_mute = _FIRST_PAUSE_S, False
