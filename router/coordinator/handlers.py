"""The coordinator's answers, as docs/design/011-node-agent.md has them. What they promise is in the database first."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from router.agent import states
from router.coordinator import messages
from router.coordinator.bounds import Known, Stores, no_stores
from router.coordinator.gang_session import Member, Roll, Rolls
from router.coordinator.log_files import append, log_path
from router.coordinator.ordering import after_notice, order_of
from router.coordinator.saves import NOT_SAVED, SAVED
from router.coordinator.succession import in_the_way
from router.coordinator.verdict import verdict
from router.state.errors import StateError
from router.state.records import Attempt, NoticeRecord, Phase
from router.state.store import Store

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

Answer = tuple[int, dict[str, Any]]

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BEARER = "Bearer "
# Ranks of one gang come back so many a second, taken together.
HELLOS_PER_SECOND = 100.0
LONGEST_RETRY = 15.0


class _No(Exception):  # noqa: N818  (an answer)
    def __init__(self, status: int, word: str) -> None:
        super().__init__(word)
        self.status, self.word = status, word


class Attendance:
    """Answers the agents of all attempts in a store; may be shared by threads. One at a time per attempt: it keeps in
    memory what agents said.

    ``logs``: folder for their output. Changes of an attempt by others are seen within ``fresh_seconds``. A heartbeat
    that says nothing new reaches the database within ``write_seconds`` and the next heartbeat of anybody, all that
    wait in one go; so ``heard_at`` there may lag by that much. ``retry_seconds``: the least time between two hellos.
    ``clock`` only dates what is written: it may be set, or run fast. Durations are those of ``ticks``, in seconds.
    ``wall_clock`` is the real time of day, by which orders have their time; ``clock`` if none is given. ``changed`` may
    be set by one who wants to hear, from any thread, the id of each attempt that got another order. ``stores`` says
    where the checkpoints of a job are kept, of whatever region.
    """

    def __init__(
        self,
        store: Store,
        logs: Path,
        clock: Callable[[], datetime],
        *,
        fresh_seconds: float = 1.0,
        write_seconds: float = 5.0,
        retry_seconds: float = 1.0,
        ticks: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] | None = None,
        stores: Stores = no_stores,
    ) -> None:
        self.changed: Callable[[str], None] = lambda _: None
        self._wall_clock = wall_clock or clock
        self._store, self._logs, self._clock, self._ticks = store, logs, clock, ticks
        self._fresh, self._every, self._retry = fresh_seconds, write_seconds, retry_seconds
        self._rolls = Rolls(store)
        self._known = Known(store, stores)
        self._flush_lock = threading.Lock()
        self._flushed_at = ticks()
        self._handlers = {
            "hello": self._hello,
            "heartbeat": self._heartbeat,
            "logs": self._take_logs,
            "ended": self._ended,
            "notice": self._notice,
            "saved": self._saved,
            "orders": self._orders,
        }

    def answer(self, attempt: str, rank: int, message: str, authorization: str, body: dict[str, Any]) -> Answer:
        """(status, JSON). 4xx with `error` is final. 503: the database, 507: the log's disk does not take it now, and
        the agent is to try again. Raises nothing that a node can bring about."""
        try:
            roll, token = self._admit(attempt, authorization)
            handler = self._handlers.get(message)
            if handler is None:
                raise _No(404, "message")
            member = roll.members.get(rank)
            if member is None or rank >= roll.attempt.machines:
                raise _No(409, "shape")
            return handler(roll, member, body, token)
        except _No as no:
            return no.status, {"error": no.word}
        except messages.BadBody:
            return 400, {"error": "body"}
        except StateError as error:
            _log.warning("%s: %s", message, error)
            return 503, {}

    def knows(self, attempt: str, authorization: str) -> bool:
        """Whether the token is that of an attempt in memory. Asks nobody, so that an event loop may ask it."""
        roll = self._rolls.of(attempt)
        return roll is not None and _is_token_of(roll.attempt, _token(authorization))

    def refusal(self, attempt: str, authorization: str) -> Answer | None:
        """What is answered to one who has not the token of the attempt, whatever is asked; None: it has. Raises
        nothing that a node can bring about."""
        if not _token(authorization):
            return 401, {"error": "token"}
        try:
            self._admit(attempt, authorization)
        except _No as no:
            return no.status, {"error": no.word}
        except StateError as error:
            _log.warning("%s", error)
            return 503, {}
        return None

    def flush(self) -> None:
        """Writes what heartbeats left in memory. To be called when serving ends; raises :class:`StateError`."""
        with self._flush_lock:
            self._rolls.write_heard(self._ticks())

    def known(self) -> set[str]:
        """Ids of the attempts that are in memory."""
        return {roll.attempt.id for roll in self._rolls.known()}

    def look_again(self) -> list[str]:
        """Reads which of the attempts in memory were changed by others; their ids. What heartbeats left in memory is
        written when it is time. A database that does not answer is asked another time."""
        try:
            now = self._ticks()
            versions = self._store.versions()
            # What comes after these versions is found the next time; so nobody has to read an attempt for a heartbeat.
            found = [roll for roll in self._rolls.known() if not roll.is_at(versions.get(roll.attempt.id), now)]
            for roll in found:
                roll.refresh(now, 0.0)
                if roll.attempt.phase.is_over:
                    self._rolls.forget(roll.attempt.id)
            if any(roll.attempt.phase is Phase.RELEASING for roll in found):
                # Its steps are about to be counted.
                self.flush()
            self._flush_when_due(now)
        except StateError as error:
            _log.warning("looking for changes: %s", error)
            return []
        return [roll.attempt.id for roll in found]

    def _admit(self, attempt: str, authorization: str) -> tuple[Roll, str]:
        roll = self._rolls.get(attempt, self._ticks()) if _ATTEMPT.fullmatch(attempt) else None
        if roll is None:
            raise _No(404, "attempt_unknown")
        token = _token(authorization)
        if not _is_token_of(roll.attempt, token):
            raise _No(401, "token")
        roll.refresh(self._ticks(), self._fresh)
        self._still_on(roll)
        return roll, token

    def _still_on(self, roll: Roll) -> None:
        if roll.attempt.phase.is_over:
            self._rolls.forget(roll.attempt.id)
            raise _No(410, "attempt_over")

    def _hello(self, roll: Roll, member: Member, body: dict[str, Any], _: str) -> Answer:
        said = messages.hello(body)
        if said.nodes != roll.attempt.machines:
            raise _No(409, "shape")
        with roll.lock:
            _claim(member, said.incarnation)
            where = {"agent_address": said.address, "master_port": said.master_port}
            if not member.said_hello:
                self._note(roll, "hello", member, host=said.host, engine=said.engine, address=said.address)
            known = {name: getattr(member.record, name) for name in where}
            # Once they met, everybody was told where rank 0 is.
            if not member.said_hello or (known != where and roll.attempt.met_at is None):
                state = {"agent": states.WAITING} if member.advances(states.WAITING) else {}
                heard = {"incarnation": said.incarnation, "heard_at": self._clock()}
                roll.set(member, **where, **state, **heard)
            self._meet(roll)
            return 200, self._go(roll)

    def _meet(self, roll: Roll) -> None:
        if roll.attempt.met_at is not None or not roll.whole:
            return
        now = self._clock()

        def met(attempt: Attempt) -> Attempt | None:
            no = attempt.met_at is not None or attempt.result or attempt.phase is Phase.RELEASING
            return None if no or attempt.phase.is_over else replace(attempt, met_at=now)

        roll.know(self._store.update(roll.attempt.id, met), self._ticks())
        if roll.attempt.met_at == now:
            self._store.note(roll.attempt.id, "met", now, ranks=roll.attempt.machines)

    def _go(self, roll: Roll) -> dict[str, Any]:
        no = roll.attempt.met_at is None or roll.stopping or roll.attempt.phase.is_over
        if not no and not roll.clear:
            roll.clear = not in_the_way(self._store, roll.attempt)
        if no or not roll.clear:
            seconds = min(LONGEST_RETRY, max(self._retry, roll.attempt.machines / HELLOS_PER_SECOND))
            return {"go": False, "retry_seconds": seconds}
        leader = roll.members[0].record
        addresses = [roll.members[rank].record.agent_address for rank in sorted(roll.members)]
        where = {"master_address": leader.agent_address, "master_port": leader.master_port, "addresses": addresses}
        # What was saved may be newer than what the machine was told when it was made.
        saved = {"resume_step": roll.attempt.first_step, "resume_manifest": roll.attempt.first_manifest}
        return {"go": True, **where, **(saved if roll.attempt.first_manifest else {})}

    def _heartbeat(self, roll: Roll, member: Member, body: dict[str, Any], token: str) -> Answer:
        said = messages.heartbeat(body)
        now = self._clock()
        with roll.lock:
            _claim(member, said.incarnation)
            news = _news(member, self._known.believed(roll, member, said, now), now, token)
            if member.advances(said.state):
                roll.set(member, incarnation=said.incarnation, agent=said.state, heard_at=now, **news)
            else:
                member.unwritten = now
                member.news = {**member.news, **news}
            order = self._order(roll, member.answered)
        self._flush_when_due(self._ticks())
        return 200, order

    def _orders(self, roll: Roll, member: Member, body: dict[str, Any], _: str) -> Answer:
        said = messages.orders(body)
        with roll.lock:
            _claim(member, said.incarnation)
            return 200, self._order(roll, {*member.answered, said.seen})

    def peek(self, attempt: str, rank: str, seen: str) -> Answer | None:
        """The answer to one whose question for orders was taken before, by what is in memory, at once; None where more
        has to be looked at, or somebody else is looking."""
        roll = self._rolls.of(attempt)
        if roll is None or not roll.lock.acquire(blocking=False):
            return None
        try:
            answered = roll.members[int(rank)].answered
            return None if roll.attempt.phase.is_over else (200, self._order(roll, {*answered, seen}))
        finally:
            roll.lock.release()

    def _order(self, roll: Roll, answered: set[str]) -> dict[str, Any]:
        return order_of(roll.attempt, stopping=roll.stopping, answered=answered, now=self._wall_clock())

    def _take_logs(self, roll: Roll, member: Member, body: dict[str, Any], token: str) -> Answer:
        piece = messages.logs(body)
        with member.lock:
            if piece.end <= member.offset:
                return 200, {}
            text = _masked(piece.after(member.offset - piece.offset), token).encode()
            path = log_path(self._logs, roll.attempt.id, member.record.rank)
            try:
                size = append(path, text, size=member.size, missing=max(0, piece.offset - member.offset))
            except OSError as error:
                if not member.no_room:
                    _log.warning("%s: %s", path, error.strerror)
                member.no_room = True
                return 507, {}
            member.no_room = False
            self._store.set_node(roll.attempt.id, member.record.rank, log_offset=piece.end, log_size=size)
            member.offset, member.size = piece.end, size
        return 200, {}

    def _saved(self, roll: Roll, member: Member, body: dict[str, Any], token: str) -> Answer:
        said = messages.saved(body)
        now = self._clock()
        with roll.lock:
            _claim(member, said.incarnation)
            told = replace(said, id=_masked(said.id, token), failed=_masked(said.failed, token))
            if member.told == told:
                return 200, {}
            heard = told
            why = "" if said.failed else self._known.why_not(roll, member, said.step or 0, said.manifest or "", now)
            if why:
                # For whoever waits for it; the training goes on, and what was confirmed before counts.
                told = replace(told, failed=why)
            if told.failed:
                self._note(roll, NOT_SAVED, member, id=told.id, failed=told.failed)
            else:
                where = {"saved_step": said.step, "saved_manifest": _masked(said.manifest or "", token)}
                again = {name: getattr(member.record, name) for name in where} == where
                changes = {**where, "saved_at": now, "heard_at": now}
                if told.id or not again:
                    # Whoever sees the one sees the other.
                    roll.note_and_set(member, SAVED, now, {"id": told.id, "seconds": said.seconds, **where}, changes)
                else:
                    roll.set(member, **changes)
            member.told = heard
            member.answered |= {told.id} - {""}
        return 200, {}

    def _notice(self, roll: Roll, member: Member, body: dict[str, Any], token: str) -> Answer:
        said = messages.notice(body)
        now = self._clock()
        with roll.lock:
            _claim(member, said.incarnation)
            member.unwritten = now
        notice = NoticeRecord(
            attempt=roll.attempt.id,
            rank=member.record.rank,
            id=_masked(said.id, token),
            kind=said.kind,
            source=said.source,
            seconds=said.seconds,
            what=_masked(said.what, token),
            heard_at=now,
        )
        if notice.kind != states.INTERRUPTION:
            self._store.add_notice(notice)
            return 200, {}
        # Between announcement and order nothing may come: no crash, and no second look.
        attempt = self._store.add_notice_with(notice, after_notice(notice, self._wall_clock()))
        roll.know(attempt, self._ticks())
        self.changed(attempt.id)
        return 200, {}

    def _ended(self, roll: Roll, member: Member, body: dict[str, Any], token: str) -> Answer:
        said = messages.ended(body)
        now = self._clock()
        with roll.lock:
            _claim(member, said.incarnation)
            # Whether it was told to stop has to be known as of now.
            roll.refresh(self._ticks(), 0.0)
            self._still_on(roll)
            if not member.record.ended_reason:
                message = _masked(said.message, token)
                how: dict[str, Any] = {
                    "ended_reason": said.reason,
                    "exit_code": said.exit_code,
                    "ended_message": message,
                }
                after = [replace(r, **how) if r.rank == member.record.rank else r for r in roll.records]
                result = roll.attempt.result or verdict(roll.attempt.engine, after, ordered=roll.stopping)
                self._note(
                    roll,
                    "ended",
                    member,
                    reason=said.reason,
                    exit_code=said.exit_code,
                    signal=said.signal,
                    message=message,
                    log_bytes_lost=said.log_bytes_lost,
                    ordered=roll.stopping,
                    result=result,
                )
                roll.set(member, incarnation=said.incarnation, agent=said.state, heard_at=now, **how)
            self._conclude(roll, now)
        return 200, {}

    def _conclude(self, roll: Roll, now: datetime) -> None:
        def concluded(attempt: Attempt) -> Attempt | None:
            ordered = attempt.phase is Phase.RELEASING
            result = "" if attempt.result else verdict(attempt.engine, roll.records, ordered=ordered)
            return replace(attempt, result=result, result_at=now) if result else None

        if not roll.attempt.result and concluded(roll.attempt) is not None:
            roll.know(self._store.update(roll.attempt.id, concluded), self._ticks())
            self.changed(roll.attempt.id)

    def _note(self, roll: Roll, what: str, member: Member, **details: object) -> None:
        self._store.note(roll.attempt.id, what, self._clock(), rank=member.record.rank, **details)

    def _flush_when_due(self, now: float) -> None:
        if now - self._flushed_at < self._every:
            return
        if self._flush_lock.acquire(blocking=False):
            try:
                self._flushed_at = now
                self._rolls.write_heard(now)
            finally:
                self._flush_lock.release()


def _token(authorization: str) -> str:
    return authorization.removeprefix(_BEARER) if authorization.startswith(_BEARER) else ""


def _is_token_of(attempt: Attempt, token: str) -> bool:
    shown = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
    return hmac.compare_digest(shown.encode(), attempt.token_hash.encode())


def _claim(member: Member, incarnation: str) -> None:
    """The first life that speaks for a rank has it."""
    if member.record.incarnation not in ("", incarnation):
        raise _No(409, "rank_taken")


def _news(member: Member, said: messages.Heartbeat, now: datetime, token: str) -> dict[str, Any]:
    """What a heartbeat says of the training, as fields of the node. A checkpoint counts only where it is a later one:
    heartbeats and `saved` come by different ways."""
    news: dict[str, Any] = {"step": said.step, "step_seconds": said.step_seconds}
    before = member.news.get("saved_step", member.record.saved_step)
    if said.saved_step is not None and said.saved_manifest and (before is None or said.saved_step > before):
        manifest = _masked(said.saved_manifest, token)
        news |= {"saved_step": said.saved_step, "saved_manifest": manifest, "saved_at": now}
    known = {name: member.news.get(name, getattr(member.record, name)) for name in news}
    return {name: value for name, value in news.items() if value is not None and known[name] != value}


def _masked(text: str, token: str) -> str:
    return text.replace(token, "***")
