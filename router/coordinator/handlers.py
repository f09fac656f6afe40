"""Answers of the coordinator to agents, as docs/design/agent-and-coordinator.md specifies them.

Whatever an answer promises is in the database first.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pricing.atomic_file import make_private_folder
from router.agent import protocol
from router.coordinator import messages
from router.coordinator.bounds import BoundsCache, StoresOfJob, no_stores
from router.coordinator.gang_session import GangSession, GangSessions, RankSession, blocking_attempt, gang_result
from router.coordinator.saves import NOT_SAVED, SAVED, order_after_notice, order_for_rank
from router.state.errors import StateError
from router.state.records import Attempt, NoticeRecord, Phase
from router.state.store import StateStore

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

AgentReply = tuple[int, dict[str, Any]]

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BEARER = "Bearer "
# The output of a rank is readable by the owner alone.
_LOG_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
# The ranks of one gang together say hello this many times a second.
HELLOS_PER_SECOND = 100.0
LONGEST_RETRY = 15.0


class _RejectedError(Exception):
    def __init__(self, status: int, word: str) -> None:
        super().__init__(word)
        self.status, self.word = status, word


class AgentMessageHandler:
    """Answers the agents of all attempts in a store. May be shared by threads, which take turns per attempt.

    It stores in memory what agents reported. ``logs``: folder for their output. Changes of an attempt by others are
    seen within ``fresh_seconds``. A heartbeat without news reaches the database within ``write_seconds`` and the next
    heartbeat of any rank, all waiting ones together; so ``heard_at`` there may lag by that much. ``retry_seconds``: the
    least time between two hellos.

    ``clock`` only dates what is written: it may be set, or run fast. Durations are measured by ``ticks``, in seconds.
    ``wall_clock`` is the real time of day, which orders' time limits follow; ``clock`` if none is given. ``changed``
    may be set to a callback that receives, from any thread, the id of each attempt that got another order. ``stores``
    returns the checkpoint stores of a job, of all regions.
    """

    def __init__(
        self,
        store: StateStore,
        logs: Path,
        clock: Callable[[], datetime],
        *,
        fresh_seconds: float = 1.0,
        write_seconds: float = 5.0,
        retry_seconds: float = 1.0,
        ticks: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] | None = None,
        stores: StoresOfJob = no_stores,
    ) -> None:
        self.changed: Callable[[str], None] = lambda _: None
        self._wall_clock = wall_clock or clock
        self._store, self._logs, self._clock, self._ticks = store, logs, clock, ticks
        self._fresh, self._every, self._retry = fresh_seconds, write_seconds, retry_seconds
        self._sessions = GangSessions(store)
        self._bounds_cache = BoundsCache(store, stores)
        self._flush_lock = threading.Lock()
        self._flushed_at = ticks()
        self._handlers: dict[str, tuple[type[messages.AgentMessage], Callable[..., AgentReply]]] = {
            "hello": (messages.HelloMessage, self._hello),
            "heartbeat": (messages.HeartbeatMessage, self._heartbeat),
            "logs": (messages.LogPiece, self._store_output),
            protocol.MEASURED: (messages.MeasuredMessage, self._measured),
            "ended": (messages.EndedMessage, self._ended),
            "notice": (messages.NoticeMessage, self._notice),
            "saved": (messages.SavedMessage, self._saved),
            "orders": (messages.OrdersRequest, self._orders),
        }

    def answer(self, attempt: str, rank: int, message: str, authorization: str, body: dict[str, Any]) -> AgentReply:
        """Return (status, JSON) for a message.

        4xx with `error` is final. With 503 the database, with 507 the log's disk, does not accept it now, and the agent
        is to try again. Raises nothing that a node can cause.
        """
        try:
            session, token = self._admit(attempt, authorization)
            if message not in self._handlers:
                raise _RejectedError(404, "message")
            kind, handler = self._handlers[message]
            rank_session = session.members.get(rank)
            if rank_session is None or rank >= session.attempt.machines:
                raise _RejectedError(409, "shape")
            return handler(session, rank_session, messages.parse_body(kind, body), token)
        except _RejectedError as rejection:
            return rejection.status, {"error": rejection.word}
        except messages.InvalidBodyError:
            return 400, {"error": "body"}
        except StateError as error:
            _log.warning("%s: %s", message, error)
            return 503, {}

    def knows(self, attempt: str, authorization: str) -> bool:
        """Return whether the token belongs to an attempt in memory.

        Asks neither database nor network, so that an event loop may call it.
        """
        session = self._sessions.of(attempt)
        return session is not None and _is_token_of(session.attempt, _token(authorization))

    def refusal(self, attempt: str, authorization: str) -> AgentReply | None:
        """Return the answer to a client without the token of the attempt; None if it has the token.

        Raises nothing that a node can cause.
        """
        if not _token(authorization):
            return 401, {"error": "token"}
        try:
            self._admit(attempt, authorization)
        except _RejectedError as rejection:
            return rejection.status, {"error": rejection.word}
        except StateError as error:
            _log.warning("%s", error)
            return 503, {}
        return None

    def flush(self) -> None:
        """Write what heartbeats left in memory. To be called when serving ends; raises :class:`StateError`."""
        with self._flush_lock:
            self._sessions.write_heard(self._ticks())

    def look_again(self) -> list[str]:
        """Read the attempts in memory that other processes changed, and return their ids.

        What heartbeats left in memory is written when it is time. A database that does not answer is queried another
        time.
        """
        try:
            now = self._ticks()
            versions = self._store.attempts.versions()
            # Later changes are found the next time, so that no heartbeat has to read an attempt.
            changed = [
                session
                for session in self._sessions.known()
                if not session.is_at(versions.get(session.attempt.id), now)
            ]
            for session in changed:
                session.refresh(now, 0.0)
                if session.attempt.phase.is_over:
                    self._sessions.forget(session.attempt.id)
            if any(session.attempt.phase is Phase.RELEASING for session in changed):
                # The attempt's steps are about to be counted.
                self.flush()
            self._flush_when_due(now)
        except StateError as error:
            _log.warning("looking for changes: %s", error)
            return []
        return [session.attempt.id for session in changed]

    def _admit(self, attempt: str, authorization: str) -> tuple[GangSession, str]:
        session = self._sessions.get(attempt, self._ticks()) if _ATTEMPT.fullmatch(attempt) else None
        if session is None:
            raise _RejectedError(404, "attempt_unknown")
        token = _token(authorization)
        if not _is_token_of(session.attempt, token):
            raise _RejectedError(401, "token")
        session.refresh(self._ticks(), self._fresh)
        self._check_alive(session)
        return session, token

    def _check_alive(self, session: GangSession) -> None:
        if session.attempt.phase.is_over:
            self._sessions.forget(session.attempt.id)
            raise _RejectedError(410, "attempt_over")

    def _hello(
        self, session: GangSession, rank_session: RankSession, said: messages.HelloMessage, _: str
    ) -> AgentReply:
        if said.nodes != session.attempt.machines:
            raise _RejectedError(409, "shape")
        with session.lock:
            _claim(rank_session, said.incarnation)
            rank_session.measures = said.measures
            where = {"agent_address": said.address, "master_port": said.master_port}
            if not rank_session.said_hello:
                self._note(session, "hello", rank_session, host=said.host, engine=said.engine, address=said.address)
                if said.preflight:
                    checks = [check.model_dump() for check in said.preflight]
                    self._note(session, protocol.PREFLIGHT, rank_session, checks=checks)
            known = {name: getattr(rank_session.record, name) for name in where}
            # Once all ranks met, everybody was told where rank 0 is.
            if not rank_session.said_hello or (known != where and session.attempt.met_at is None):
                state = {"agent": protocol.WAITING} if rank_session.advances(protocol.WAITING) else {}
                heard = {"incarnation": said.incarnation, "heard_at": self._clock()}
                session.set(rank_session, **where, **state, **heard)
            self._record_meeting(session)
            return 200, self._hello_answer(session, rank_session)

    def _measured(
        self, session: GangSession, rank_session: RankSession, said: messages.MeasuredMessage, token: str
    ) -> AgentReply:
        problem = _masked(said.problem, token)
        check = {"problem": problem, "found": problem or _masked(said.what, token)}
        with session.lock:
            _claim(rank_session, said.incarnation)
            if not rank_session.measured:
                figures = {"gb_per_s": said.gb_per_s, "assumed_gb_per_s": said.assumed_gb_per_s}
                pools = {(record.zone, record.instance_type) for record in session.records}
                zone, kind = pools.pop() if len(pools) == 1 else (None, None)
                attempt = session.attempt
                place = {"cloud": attempt.cloud, "region": attempt.region, "zone": zone, "instance_type": kind}
                self._note(
                    session, protocol.MEASURED, rank_session, **check, **figures, **place, machines=attempt.machines
                )
                rank_session.measured = True
        return 200, {}

    def _record_meeting(self, session: GangSession) -> None:
        if session.attempt.met_at is not None or not session.whole or session.measures:
            return
        now = self._clock()

        def with_meeting(attempt: Attempt) -> Attempt | None:
            is_final = attempt.met_at is not None or attempt.result or attempt.phase is Phase.RELEASING
            return None if is_final or attempt.phase.is_over else replace(attempt, met_at=now)

        session.know(self._store.attempts.update(session.attempt.id, with_meeting), self._ticks())
        if session.attempt.met_at == now:
            self._store.journal.note(session.attempt.id, "met", now, ranks=session.attempt.machines)

    def _hello_answer(self, session: GangSession, rank_session: RankSession) -> dict[str, Any]:
        leader = session.members[0].record
        addresses = [session.members[rank].record.agent_address for rank in sorted(session.members)]
        where = {"master_address": leader.agent_address, "master_port": leader.master_port, "addresses": addresses}
        waits = session.attempt.met_at is None or session.stopping or session.attempt.phase.is_over
        if not waits and not session.clear:
            session.clear = not blocking_attempt(self._store, session.attempt)
        if waits or not session.clear:
            seconds = min(LONGEST_RETRY, max(self._retry, session.attempt.machines / HELLOS_PER_SECOND))
            measures = session.whole and rank_session.measures and not session.stopping
            return {"go": False, "retry_seconds": seconds, **({protocol.MEASURE: where} if measures else {})}
        # The saved checkpoint may be newer than what the machine was told when it was created.
        saved = {"resume_step": session.attempt.first_step, "resume_manifest": session.attempt.first_manifest}
        return {"go": True, **where, **(saved if session.attempt.first_manifest else {})}

    def _heartbeat(
        self, session: GangSession, rank_session: RankSession, said: messages.HeartbeatMessage, token: str
    ) -> AgentReply:
        now = self._clock()
        with session.lock:
            _claim(rank_session, said.incarnation)
            news = _training_news(
                rank_session, self._bounds_cache.believed(session, rank_session, said, now), now, token
            )
            if rank_session.advances(said.state):
                session.set(rank_session, incarnation=said.incarnation, agent=said.state, heard_at=now, **news)
            else:
                rank_session.unwritten = now
                rank_session.news = {**rank_session.news, **news}
            order = self._order(session, rank_session.answered)
            seconds = session.attempt.checkpoint_seconds
        self._flush_when_due(self._ticks())
        return 200, order if seconds is None else {**order, protocol.CHECKPOINT_SECONDS: seconds}

    def _orders(
        self, session: GangSession, rank_session: RankSession, said: messages.OrdersRequest, _: str
    ) -> AgentReply:
        with session.lock:
            _claim(rank_session, said.incarnation)
            return 200, self._order(session, {*rank_session.answered, said.seen})

    def peek(self, attempt: str, rank: str, seen: str) -> AgentReply | None:
        """Return at once, from memory, the answer to a rank whose request for orders was accepted before.

        None where the database has to be read, or another thread is using the session.
        """
        session = self._sessions.of(attempt)
        if session is None or not session.lock.acquire(blocking=False):
            return None
        try:
            answered = session.members[int(rank)].answered
            return None if session.attempt.phase.is_over else (200, self._order(session, {*answered, seen}))
        finally:
            session.lock.release()

    def _order(self, session: GangSession, answered: set[str]) -> dict[str, Any]:
        return order_for_rank(session.attempt, stopping=session.stopping, answered=answered, now=self._wall_clock())

    def _store_output(
        self, session: GangSession, rank_session: RankSession, piece: messages.LogPiece, token: str
    ) -> AgentReply:
        with rank_session.lock:
            if piece.end <= rank_session.offset:
                return 200, {}
            text = _masked(piece.after(rank_session.offset - piece.offset), token).encode()
            path = log_path(self._logs, session.attempt.id, rank_session.record.rank)
            try:
                size = write_log(path, text, size=rank_session.size, missing=max(0, piece.offset - rank_session.offset))
            except OSError as error:
                if not rank_session.no_room:
                    _log.warning("%s: %s", path, error.strerror)
                rank_session.no_room = True
                return 507, {}
            rank_session.no_room = False
            # Where a training reports no steps, what it prints is its only sign of life.
            printed = {} if rank_session.reports_steps else {"progress_at": self._clock()}
            self._store.attempts.set_node(
                session.attempt.id, rank_session.record.rank, log_offset=piece.end, log_size=size, **printed
            )
            rank_session.offset, rank_session.size = piece.end, size
        return 200, {}

    def _saved(
        self, session: GangSession, rank_session: RankSession, said: messages.SavedMessage, token: str
    ) -> AgentReply:
        now = self._clock()
        with session.lock:
            _claim(rank_session, said.incarnation)
            report = said.model_copy(update={"id": _masked(said.id, token), "failed": _masked(said.failed, token)})
            if rank_session.told == report:
                return 200, {}
            original, why = report, ""
            if not said.failed:
                why = self._bounds_cache.why_not(session, rank_session, said.step or 0, said.manifest or "", now)
            if why:
                # The refusal is for whoever waits for the checkpoint; the training continues, and what was confirmed
                # before counts.
                report = report.model_copy(update={"failed": why})
            if report.failed:
                self._note(session, NOT_SAVED, rank_session, id=report.id, failed=report.failed)
            else:
                checkpoint = {"saved_step": said.step, "saved_manifest": _masked(said.manifest or "", token)}
                is_known = {name: getattr(rank_session.record, name) for name in checkpoint} == checkpoint
                changes = {**checkpoint, "saved_at": now, "heard_at": now}
                if report.id or not is_known:
                    # The journal entry and the rank's record become visible together.
                    session.note_and_set(
                        rank_session, SAVED, now, {"id": report.id, "seconds": said.seconds, **checkpoint}, changes
                    )
                else:
                    session.set(rank_session, **changes)
            rank_session.told = original
            rank_session.answered |= {report.id} - {""}
        return 200, {}

    def _notice(
        self, session: GangSession, rank_session: RankSession, said: messages.NoticeMessage, token: str
    ) -> AgentReply:
        now = self._clock()
        with session.lock:
            _claim(rank_session, said.incarnation)
            rank_session.unwritten = now
        notice = NoticeRecord(
            attempt=session.attempt.id,
            rank=rank_session.record.rank,
            id=_masked(said.id, token),
            kind=said.kind,
            source=said.source,
            seconds=said.seconds,
            what=_masked(said.what, token),
            heard_at=now,
        )
        if notice.kind != protocol.INTERRUPTION:
            self._store.notices.add(notice)
            return 200, {}
        # Notice and order are written together, so that neither a crash nor another pass comes between them.
        attempt = self._store.joint.add_notice(notice, order_after_notice(notice, self._wall_clock()))
        session.know(attempt, self._ticks())
        self.changed(attempt.id)
        return 200, {}

    def _ended(
        self, session: GangSession, rank_session: RankSession, said: messages.EndedMessage, token: str
    ) -> AgentReply:
        now = self._clock()
        with session.lock:
            _claim(rank_session, said.incarnation)
            # It must be known as of now whether the gang was told to stop.
            session.refresh(self._ticks(), 0.0)
            self._check_alive(session)
            if not rank_session.record.ended_reason:
                message = _masked(said.message, token)
                end_fields: dict[str, Any] = {
                    "ended_reason": said.reason,
                    "exit_code": said.exit_code,
                    "ended_message": "\n".join(filter(None, (message, _masked(said.last_lines, token)))),
                }
                records = [
                    replace(r, **end_fields) if r.rank == rank_session.record.rank else r for r in session.records
                ]
                result = session.attempt.result or gang_result(
                    session.attempt.engine, records, ordered=session.stopping
                )
                self._note(
                    session,
                    "ended",
                    rank_session,
                    reason=said.reason,
                    exit_code=said.exit_code,
                    signal=said.signal,
                    message=message,
                    log_bytes_lost=said.log_bytes_lost,
                    ordered=session.stopping,
                    result=result,
                )
                session.set(rank_session, incarnation=said.incarnation, agent=said.state, heard_at=now, **end_fields)
            self._record_result(session, now)
        return 200, {}

    def _record_result(self, session: GangSession, now: datetime) -> None:
        def with_result(attempt: Attempt) -> Attempt | None:
            ordered = attempt.phase is Phase.RELEASING
            result = "" if attempt.result else gang_result(attempt.engine, session.records, ordered=ordered)
            return replace(attempt, result=result, result_at=now) if result else None

        if not session.attempt.result and with_result(session.attempt) is not None:
            session.know(self._store.attempts.update(session.attempt.id, with_result), self._ticks())
            self.changed(session.attempt.id)

    def _note(self, session: GangSession, what: str, rank_session: RankSession, **details: object) -> None:
        self._store.journal.note(session.attempt.id, what, self._clock(), rank=rank_session.record.rank, **details)

    def _flush_when_due(self, now: float) -> None:
        if now - self._flushed_at < self._every:
            return
        if self._flush_lock.acquire(blocking=False):
            try:
                self._flushed_at = now
                self._sessions.write_heard(now)
            finally:
                self._flush_lock.release()


def _token(authorization: str) -> str:
    return authorization.removeprefix(_BEARER) if authorization.startswith(_BEARER) else ""


def _is_token_of(attempt: Attempt, token: str) -> bool:
    shown = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
    return hmac.compare_digest(shown.encode(), attempt.token_hash.encode())


def _claim(rank_session: RankSession, incarnation: str) -> None:
    """Reject the rank if another incarnation spoke for it first."""
    if rank_session.record.incarnation not in ("", incarnation):
        raise _RejectedError(409, "rank_taken")


def _training_news(
    rank_session: RankSession, said: messages.HeartbeatMessage, now: datetime, token: str
) -> dict[str, Any]:
    """Return what a heartbeat reports of the training, as fields of the node.

    A checkpoint counts only if it is later than the known one, because heartbeats and `saved` arrive in different ways.
    """
    news: dict[str, Any] = {"step": said.step, "step_seconds": said.step_seconds}
    before = rank_session.news.get("saved_step", rank_session.record.saved_step)
    if said.saved_step is not None and said.saved_manifest and (before is None or said.saved_step > before):
        manifest = _masked(said.saved_manifest, token)
        news |= {"saved_step": said.saved_step, "saved_manifest": manifest, "saved_at": now}
    known = {name: rank_session.news.get(name, getattr(rank_session.record, name)) for name in news}
    news = {name: value for name, value in news.items() if value is not None and known[name] != value}
    return {**news, "progress_at": now} if "step" in news else news


def _masked(text: str, token: str) -> str:
    return text.replace(token, "***")


def log_path(logs: Path, attempt: str, rank: int) -> Path:
    """Return the path of a rank's output, whether or not the file exists."""
    return logs / attempt / f"rank-{rank}.log"


def write_log(path: Path, text: bytes, *, size: int, missing: int = 0) -> int:
    """Write ``text`` at byte ``size``, replacing what follows, and return the new length of the file.

    ``missing`` bytes of output never arrived: one line says so. Another one says so if the file was shorter than
    ``size``. Raises ``OSError``, and the file is then as long as before, if the disk allows that much.
    """
    make_private_folder(path.parent)
    file = os.open(path, _LOG_FLAGS, 0o600)
    try:
        length = os.fstat(file).st_size
        start = min(length, size)
        notes = [f"{size - length} bytes of this file were lost"] if length < size else []
        notes += [f"{missing} bytes of output did not arrive"] if missing else []
        marks = "".join(f"[stepfare: {note}]\n" for note in notes)
        if marks and start and os.pread(file, 1, start - 1) != b"\n":
            marks = f"\n{marks}"
        os.ftruncate(file, start)
        data, done = marks.encode() + text, 0
        try:
            while done < len(data):
                done += os.pwrite(file, data[done:], start + done)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, start)
            raise
        return start + done
    finally:
        os.close(file)
