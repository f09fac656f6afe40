"""Store notices that clouds publish outside of machines as if the machine's agent had reported them.

They arrive this way even when the agent is dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial

from providers.errors import ProviderError
from providers.notices import CloudNotice, NoticeQueue
from providers.protocol import NoticeKind
from router.controller.context import Reporter
from router.coordinator.saves import order_after_notice
from router.state.errors import StateError
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore

# Reports of an agent and of its cloud within this time are the same notice.
DUPLICATE_WINDOW = timedelta(minutes=5)
# An unknown machine may be one that is being provisioned: its notices stay in the queue this long.
_UNKNOWN_FOR = timedelta(minutes=2)
WAIT_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_JOIN_S = 1.0

OpenQueue = Callable[[], NoticeQueue]


class CloudQueueListener:
    """Reads one queue and stores the notices about machines of attempts that are not over. For one thread.

    ``clock`` dates what is stored; ``wall_clock`` says how much of a machine's time is left. A queue belongs to one
    state: notices about unknown machines are removed from it as well.
    """

    def __init__(
        self,
        store: StateStore,
        queue: NoticeQueue,
        clock: Callable[[], datetime],
        wall_clock: Callable[[], datetime],
        tell: Reporter,
    ) -> None:
        self._store, self._queue = store, queue
        self._clock, self._wall_clock, self._tell = clock, wall_clock, tell

    def poll(self, wait_s: float) -> int:
        """Read the queue once, waiting at most ``wait_s`` seconds; return how many messages cannot be read.

        Those stay in the queue, as notices do that were not stored: ProviderError, StateError.
        """
        batch = self._queue.receive(wait_s)
        if not any(letter.notices for letter in batch.letters):
            self._queue.done(batch.letters)
            return batch.unreadable
        machines = _by_machine(*self._store.overview.alive())
        done = []
        for letter in batch.letters:
            matches = [(said, machines.get((said.cloud, said.machine_id))) for said in letter.notices]
            for said, match in matches:
                if match is not None:
                    self._store_notice(said, *match)
            if not any(match is None and self._wall_clock() - said.at < _UNKNOWN_FOR for said, match in matches):
                done.append(letter)
        self._queue.done(done)
        return batch.unreadable

    def _store_notice(self, said: CloudNotice, attempt: Attempt, node: NodeRecord) -> None:
        now = self._clock()
        before = self._store.notices.find(attempt.id, now - DUPLICATE_WINDOW)
        if any(one.rank == node.rank and one.kind == said.kind.value for one in before):
            return
        notice = NoticeRecord(
            attempt=attempt.id,
            rank=node.rank,
            id=said.id,
            kind=said.kind.value,
            source=said.cloud,
            seconds=self._seconds_left(said),
            what=said.what,
            heard_at=now,
        )
        if said.kind is NoticeKind.INTERRUPTION and not said.is_going:
            self._store.joint.add_notice(notice, order_after_notice(notice, self._wall_clock()))
        else:
            self._store.notices.add(notice)
        self._tell(attempt.job, f"{attempt.id}: {said.cloud} says of rank {node.rank}: {said.what}")

    def _seconds_left(self, notice: CloudNotice) -> float | None:
        """Return the seconds left, between zero and the time announced, even if the clocks differ."""
        if notice.seconds is None:
            return None
        return min(notice.seconds, max(0.0, notice.seconds - (self._wall_clock() - notice.at).total_seconds()))


def _by_machine(
    attempts: Iterable[Attempt], nodes: Iterable[NodeRecord]
) -> dict[tuple[str, str], tuple[Attempt, NodeRecord]]:
    """Return attempt and node by cloud and the cloud's id of the machine, without those that we release."""
    by_id = {attempt.id: attempt for attempt in attempts if attempt.phase is not Phase.RELEASING}
    return {
        (by_id[node.attempt].cloud, node.machine_id): (by_id[node.attempt], node)
        for node in nodes
        if node.machine_id and node.attempt in by_id
    }


@contextmanager
def listen_for_notices(
    store: StateStore,
    queues: Mapping[str, OpenQueue],
    clock: Callable[[], datetime],
    wall_clock: Callable[[], datetime],
    tell: Reporter,
) -> Iterator[None]:
    """Read these queues while the block runs, each in a thread of its own.

    ``queues`` opens them, by display name. A queue that cannot be read is reported once, and tried again later.
    """
    stop = threading.Event()

    def open_listener(queue: OpenQueue) -> CloudQueueListener:
        return CloudQueueListener(store, queue(), clock, wall_clock, tell)

    threads = [
        threading.Thread(
            target=_listen, args=(name, partial(open_listener, queue), tell, stop), name=f"queue {name}", daemon=True
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


def _listen(name: str, open_listener: Callable[[], CloudQueueListener], tell: Reporter, stop: threading.Event) -> None:
    listener: CloudQueueListener | None = None
    pause, is_failing = _FIRST_PAUSE_S, False
    while not stop.is_set():
        try:
            # The queue is opened anew after an error, because a failed cloud client stays unusable.
            listener = listener or open_listener()
            unreadable = listener.poll(WAIT_S)
        except Exception as error:
            if not is_failing and not stop.is_set():
                known = isinstance(error, ProviderError | StateError)
                tell(name, f"its queue cannot be read: {error if known else type(error).__name__}")
            listener, is_failing = None, True
            stop.wait(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)
            continue
        if is_failing:
            tell(name, "its queue can be read again")
        if unreadable:
            tell(name, f"{unreadable} messages of its queue cannot be read as notices; they stay there")
        pause, is_failing = _FIRST_PAUSE_S, False
