"""Sessions hold in memory what the ranks of each gang reported, and rules decide how a gang ends and when it begins.

The database holds the same, except for heartbeats of the last seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from router.agent import protocol
from router.coordinator.messages import SavedMessage
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore

# The states that a heartbeat may report, in the order in which they can become true.
_STATE_ORDER = ("", protocol.STARTING, protocol.WAITING, protocol.RUNNING)
# Seconds between checks whether an attempt without messages is over.
IDLE_SECONDS = 60.0
# With these engines the job's command runs once, on rank 0, and the other ranks only serve it.
LEADER_ENGINES = ("ray", "slurm")


@dataclass
class RankSession:
    """The session of one rank.

    ``lock`` guards its output: ``offset``, ``size`` and the file. Everything else is guarded by the gang session's
    lock. ``unwritten``: when the rank was last heard, while the database does not know; ``news``: the fields of its
    training that it reported then and that are not in the database either. ``told``: its last report of a checkpoint;
    ``answered``: the orders to save that it answered. ``disbelieved``: the subjects of its reports that cannot be true.
    ``measures``: whether it still has to measure the gang, by its last hello; ``measured``: the result is noted.
    """

    record: NodeRecord
    unwritten: datetime | None = None
    news: dict[str, Any] = field(default_factory=dict)
    offset: int = 0
    size: int = 0
    no_room: bool = False
    told: SavedMessage | None = None
    answered: set[str] = field(default_factory=set)
    disbelieved: set[str] = field(default_factory=set)
    measures: bool | None = None
    measured: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def said_hello(self) -> bool:
        """Return whether the rank said hello, and so told where others reach it."""
        return bool(self.record.agent_address)

    @property
    def reports_steps(self) -> bool:
        return self.record.step is not None or "step" in self.news

    def advances(self, state: str) -> bool:
        """Return whether a heartbeat with that state is new; only `ended` reports that a rank ended."""
        return (
            state in _STATE_ORDER
            and not self.record.ended_reason
            and _STATE_ORDER.index(state) > _STATE_ORDER.index(self.record.agent)
        )


class GangSession:
    """The session of one attempt and its ranks.

    ``attempt`` was read from the database at ``read_at``, in seconds of one clock. ``clear``: it is known that no
    attempt before it can still train.
    """

    def __init__(self, store: StateStore, attempt: Attempt, nodes: Sequence[NodeRecord], now: float) -> None:
        self._store = store
        self.attempt = attempt
        self.read_at = now
        self.clear = not attempt.resumes
        # The bounds on its reports, once they were requested.
        self.bounds: Any = None
        self.lock = threading.RLock()
        # The rank sessions by rank, in the order of the records.
        self.members = {n.rank: RankSession(n, offset=n.log_offset, size=n.log_size) for n in nodes}

    @property
    def stopping(self) -> bool:
        """Return whether all ranks that still run are to stop."""
        return bool(self.attempt.result) or self.attempt.phase is Phase.RELEASING

    @property
    def whole(self) -> bool:
        """Return whether all ranks said hello."""
        return len(self.members) == self.attempt.machines and all(m.said_hello for m in self.members.values())

    @property
    def measures(self) -> bool:
        """Return whether a rank still has to measure the gang; after a restart each has to say so again."""
        said = {member.measures for member in self.members.values()}
        return said > {None} or True in said

    @property
    def records(self) -> list[NodeRecord]:
        return [member.record for member in self.members.values()]

    def refresh(self, now: float, seconds: float) -> None:
        """Read the attempt again if that was at least ``seconds`` ago."""
        with self.lock:
            if now - self.read_at < seconds:
                return
            attempt = self._store.attempts.get(self.attempt.id)
            if attempt is not None:
                self.know(attempt, now)

    def know(self, attempt: Attempt, now: float) -> None:
        """Take over an attempt that was just read or written, unless a newer one is known."""
        with self.lock:
            if attempt.version >= self.attempt.version:
                self.attempt, self.read_at = attempt, now

    def is_at(self, version: int | None, now: float) -> bool:
        """Return whether the known attempt is of that version or newer; a matching one counts as read at ``now``."""
        with self.lock:
            if version == self.attempt.version:
                self.read_at = max(self.read_at, now)
                return True
            return version is not None and version < self.attempt.version

    def set(self, member: RankSession, **changes: Any) -> None:
        """Write changes of a rank to the database, together with what was not written yet.

        The changes are durable when this returns, and memory changes only if the database did.
        """
        changes = {**member.news, **changes}
        self._store.attempts.set_node(self.attempt.id, member.record.rank, **changes)
        self._take_over(member, changes)

    def note_and_set(
        self, member: RankSession, what: str, at: datetime, details: dict[str, object], changes: dict[str, Any]
    ) -> None:
        """Write changes as :meth:`set` does, with a journal entry in the same transaction."""
        rank, changes = member.record.rank, {**member.news, **changes}
        self._store.joint.note(self.attempt.id, rank, changes, what, at, {"rank": rank, **details})
        self._take_over(member, changes)

    def _take_over(self, member: RankSession, changes: dict[str, Any]) -> None:
        member.record = replace(member.record, **changes)
        member.news = {}
        if "heard_at" in changes:
            member.unwritten = None


class GangSessions:
    """The sessions of all attempts that sent messages. May be shared by threads."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._sessions: dict[str, GangSession] = {}
        self._lock = threading.Lock()

    def get(self, attempt_id: str, now: float) -> GangSession | None:
        """Return the session of an attempt, reading the database if needed; None where there is no such attempt."""
        loaded = self.of(attempt_id)
        if loaded is not None:
            return loaded
        attempt = self._store.attempts.get(attempt_id)
        if attempt is None:
            return None
        session = GangSession(self._store, attempt, self._store.attempts.nodes(attempt_id), now)
        with self._lock:
            return self._sessions.setdefault(attempt_id, session)

    def of(self, attempt_id: str) -> GangSession | None:
        """Return the session of an attempt, if it is in memory."""
        with self._lock:
            return self._sessions.get(attempt_id)

    def forget(self, attempt_id: str) -> None:
        """Forget an attempt that is over; it is answered from the database alone."""
        with self._lock:
            self._sessions.pop(attempt_id, None)

    def known(self) -> list[GangSession]:
        with self._lock:
            return list(self._sessions.values())

    def write_heard(self, now: float) -> None:
        """Write all unwritten heartbeats to the database in one transaction, and forget attempts that are over."""
        unwritten = [
            (session, member, member.unwritten)
            for session in self.known()
            for member in session.members.values()
            if member.unwritten
        ]
        waiting = [(session, member, {"heard_at": at, **member.news}) for session, member, at in unwritten]
        self._store.attempts.set_nodes(
            {(session.attempt.id, member.record.rank): changes for session, member, changes in waiting}
        )
        for session, member, changes in waiting:
            with session.lock:
                member.record = replace(member.record, **changes)
                member.news = {k: v for k, v in member.news.items() if changes.get(k) != v}
                if member.unwritten == changes["heard_at"]:
                    member.unwritten = None
        for session in self.known():
            session.refresh(now, IDLE_SECONDS)
            if session.attempt.phase.is_over:
                self.forget(session.attempt.id)


def gang_result(engine: str, nodes: Sequence[NodeRecord], *, ordered: bool) -> str:
    """Return ``finished``, a reason of :mod:`router.agent.protocol`, or "" while the result is open.

    ``nodes``: the whole gang by rank. ``ordered``: all ranks were told to stop; ranks that stopped then did as they
    were told, and the gang is ``stopped`` once all ended. Without an order a rank that stopped, or failed, decides for
    all. With an engine that has a leader, the leader's end is the gang's, and others only count if they fail before it.
    """
    has_leader = engine in LEADER_ENGINES
    if has_leader and nodes[0].ended_reason:
        return nodes[0].ended_reason
    reasons = [node.ended_reason for node in nodes]
    expected_reasons = {"", protocol.FINISHED, *([protocol.STOPPED] if ordered else [])}
    # A stop is more likely a consequence of another failure than its cause.
    failures = sorted(
        (reason for reason in reasons if reason not in expected_reasons), key=lambda r: r == protocol.STOPPED
    )
    if failures:
        return failures[0]
    if has_leader or not all(reasons):
        return ""
    return protocol.STOPPED if protocol.STOPPED in reasons else protocol.FINISHED


def blocking_attempt(store: StateStore, attempt: Attempt) -> str:
    """Return the id of an earlier attempt that blocks this one, "" where none does; then none ever will.

    The attempt resumes from the blocking one, directly or by way of others. An earlier attempt blocks while it may
    still train: it is not over, and not every rank of it reported its end. It also blocks if it saved more than this
    attempt was told to resume from, because whoever hands over is about to say so.
    """
    visited = {attempt.id}
    name = attempt.resumes
    while name and name not in visited:
        visited.add(name)
        earlier = store.attempts.get(name)
        if earlier is None:
            return ""
        saved_step = earlier.kept_step
        if not earlier.phase.is_over:
            nodes = store.attempts.nodes(name)
            if not all(node.ended_reason for node in nodes):
                return name
            saved_step = max((node.saved_step for node in nodes if node.saved_step is not None), default=None)
        if saved_step is not None and saved_step > attempt.first_step:
            return name
        name = earlier.resumes
    return ""
