"""Who of a gang said what, in memory. The database holds the same, but for heartbeats of the last seconds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from router.agent import states
from router.coordinator.messages import Saved
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import Store

# What a heartbeat may say, in the order in which it can become true.
_LIVES = ("", states.STARTING, states.WAITING, states.RUNNING)
# So often it is looked whether an attempt that nobody speaks for is over.
IDLE_SECONDS = 60.0


@dataclass
class Member:
    """One rank. ``lock`` is for its output: ``offset``, ``size`` and the file. The rest is under the roll's lock.

    ``unwritten``: when it was last heard, while the database does not know; ``news``: what it said then of its training
    that is not in the database either. ``told``: its last word about a checkpoint; ``answered``: the orders to save
    that it said something to. ``disbelieved``: about what it said what cannot be true."""

    record: NodeRecord
    unwritten: datetime | None = None
    news: dict[str, Any] = field(default_factory=dict)
    offset: int = 0
    size: int = 0
    no_room: bool = False
    told: Saved | None = None
    answered: set[str] = field(default_factory=set)
    disbelieved: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def said_hello(self) -> bool:
        """Whether it knows that it is waited for, and where others reach it."""
        return bool(self.record.agent_address)

    def advances(self, state: str) -> bool:
        """Whether a heartbeat with that state says something new; that a rank ended is said by `ended` alone."""
        return (
            state in _LIVES and not self.record.ended_reason and _LIVES.index(state) > _LIVES.index(self.record.agent)
        )


class Roll:
    """One attempt and its ranks. ``attempt`` was read from the database at ``read_at``, in seconds of one clock.
    ``clear``: whether it is known that no attempt before it can still train."""

    def __init__(self, store: Store, attempt: Attempt, nodes: Sequence[NodeRecord], now: float) -> None:
        self._store = store
        self.attempt = attempt
        self.read_at = now
        self.clear = not attempt.resumes
        # What may be believed of it, once somebody asked.
        self.bounds: Any = None
        self.lock = threading.RLock()
        # By rank, as they come.
        self.members = {n.rank: Member(n, offset=n.log_offset, size=n.log_size) for n in nodes}

    @property
    def stopping(self) -> bool:
        """Whether everybody who still runs is to stop."""
        return bool(self.attempt.result) or self.attempt.phase is Phase.RELEASING

    @property
    def whole(self) -> bool:
        """Whether all ranks said hello."""
        return len(self.members) == self.attempt.machines and all(m.said_hello for m in self.members.values())

    @property
    def records(self) -> list[NodeRecord]:
        """By rank."""
        return [member.record for member in self.members.values()]

    def refresh(self, now: float, seconds: float) -> None:
        """Reads the attempt again if that was so long ago."""
        with self.lock:
            if now - self.read_at < seconds:
                return
            found = self._store.attempt(self.attempt.id)
            if found is not None:
                self.know(found, now)

    def know(self, attempt: Attempt, now: float) -> None:
        """Takes over what was just read or written, unless something newer is known."""
        with self.lock:
            if attempt.version >= self.attempt.version:
                self.attempt, self.read_at = attempt, now

    def is_at(self, version: int | None, now: float) -> bool:
        """Whether what is known is that version; if so it counts as read then."""
        with self.lock:
            if version == self.attempt.version:
                self.read_at = max(self.read_at, now)
                return True
            return version is not None and version < self.attempt.version

    def set(self, member: Member, **changes: Any) -> None:
        """Durable when it returns, and with it what was not written yet; the roll changes only if the database did."""
        changes = {**member.news, **changes}
        self._store.set_node(self.attempt.id, member.record.rank, **changes)
        self._know_of(member, changes)

    def note_and_set(
        self, member: Member, what: str, at: datetime, details: dict[str, object], changes: dict[str, Any]
    ) -> None:
        """As :meth:`set`, with an entry of the journal in the same transaction."""
        rank, changes = member.record.rank, {**member.news, **changes}
        self._store.note_with_node(self.attempt.id, rank, changes, what, at, {"rank": rank, **details})
        self._know_of(member, changes)

    def _know_of(self, member: Member, changes: dict[str, Any]) -> None:
        member.record = replace(member.record, **changes)
        member.news = {}
        if "heard_at" in changes:
            member.unwritten = None


class Rolls:
    """The rolls of all attempts that somebody spoke for. May be shared by threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rolls: dict[str, Roll] = {}
        self._lock = threading.Lock()

    def get(self, attempt_id: str, now: float) -> Roll | None:
        """That of an attempt, from the database if need be; None where there is no such attempt."""
        known = self.of(attempt_id)
        if known is not None:
            return known
        attempt = self._store.attempt(attempt_id)
        if attempt is None:
            return None
        roll = Roll(self._store, attempt, self._store.nodes(attempt_id), now)
        with self._lock:
            return self._rolls.setdefault(attempt_id, roll)

    def of(self, attempt_id: str) -> Roll | None:
        """That of an attempt, if it is in memory."""
        with self._lock:
            return self._rolls.get(attempt_id)

    def forget(self, attempt_id: str) -> None:
        """What is over is answered from the database alone."""
        with self._lock:
            self._rolls.pop(attempt_id, None)

    def known(self) -> list[Roll]:
        """Those in memory."""
        with self._lock:
            return list(self._rolls.values())

    def write_heard(self, now: float) -> None:
        """Brings ``heard_at`` in the database up to date, in one transaction, and forgets what is over."""
        heard = [(roll, m, m.unwritten) for roll in self.known() for m in roll.members.values() if m.unwritten]
        waiting = [(roll, m, {"heard_at": at, **m.news}) for roll, m, at in heard]
        self._store.set_nodes({(roll.attempt.id, m.record.rank): changes for roll, m, changes in waiting})
        for roll, member, changes in waiting:
            with roll.lock:
                member.record = replace(member.record, **changes)
                member.news = {k: v for k, v in member.news.items() if changes.get(k) != v}
                if member.unwritten == changes["heard_at"]:
                    member.unwritten = None
        for roll in self.known():
            roll.refresh(now, IDLE_SECONDS)
            if roll.attempt.phase.is_over:
                self.forget(roll.attempt.id)
