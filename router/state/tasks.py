"""Long work that was asked for at a server. Each task is run by one worker at a time, whatever dies.

A worker that takes a task has a token for it. What it writes later counts only while the task is still its own, so a
worker that was believed dead changes nothing any more. What a task came to is stored in the transaction that ends it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, Connection, Index, delete, func, insert, or_, select, update

from router.state.columns import ConvertedColumn, canonical_json, storable_text
from router.state.plans import MadePlanEntry, put_plan_in_transaction
from router.state.rows import StatePart, read_records, record_values
from router.state.tables import record_table

# The lease of a task: a worker that is silent for so long has died or was stopped, and another one takes its task.
SILENT = timedelta(seconds=60)
# A task whose workers died so often is itself the reason.
MAX_TRIES = 3
KEPT = timedelta(days=30)
EVENTS_KEPT = 200
_MAX_MESSAGE = 2000


class TaskState(StrEnum):
    """The state of a task, as stored."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Return whether nothing follows."""
        return self not in (TaskState.QUEUED, TaskState.RUNNING)


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened to a task: ``what`` is "state" or "progress". Numbers rise by one from 1."""

    number: int
    at: datetime
    what: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task. ``request`` and ``result`` are JSON text; ``message`` says why it failed.

    ``team`` is "" where it concerns no single team. ``alive_at`` is when its worker was heard last.
    """

    id: str
    kind: str
    subject: str
    team: str
    request: str
    state: TaskState
    events: tuple[TaskEvent, ...]
    result: str | None = None
    message: str = ""
    asked_at: datetime
    ended_at: datetime | None = None
    worker: str = ""
    alive_at: datetime | None = None
    tries: int = 0


def _events_text(events: Iterable[TaskEvent]) -> str:
    return canonical_json([[each.number, each.at.isoformat(), each.what, each.text] for each in events])


def _parse_events(text: str) -> tuple[TaskEvent, ...]:
    return tuple(
        TaskEvent(number, datetime.fromisoformat(at), what, said) for number, at, what, said in json.loads(text)
    )


TASKS = record_table(
    "tasks",
    TaskRow,
    Column("events", ConvertedColumn(_events_text, _parse_events), nullable=False),
    Index("tasks_by_state", "state", "asked_at"),
    Index("tasks_by_subject", "subject", "asked_at"),
    key=("id",),
)


class Tasks(StatePart):
    """The tasks of a database."""

    def put(self, kind: str, subject: str, team: str, request: Mapping[str, object], at: datetime) -> TaskRow:
        """Queue a task and return it. TypeError for a request that is not JSON data."""
        task = TaskRow(
            id=f"t{secrets.token_hex(12)}",
            kind=kind,
            subject=subject,
            team=team,
            request=canonical_json(dict(request)),
            state=TaskState.QUEUED,
            events=_with_event((), at, "state", TaskState.QUEUED),
            asked_at=at,
        )
        with self._database.write() as connection:
            connection.execute(insert(TASKS), record_values(task))
            return read_records(connection, TASKS, select(TASKS).where(TASKS.c.id == task.id), TaskRow)[0]

    def take(self, worker: str, kinds: Iterable[str], at: datetime) -> TaskRow | None:
        """Give the oldest queued task of these kinds to a worker; None where there is none.

        ``worker`` names nobody else, and this worker once. Tasks of silent workers are queued again first.
        """
        # Workers ask often, and a transaction that writes waits for the disk.
        if not self._has_work(at):
            return None
        with self._database.write() as connection:
            _requeue(connection, at)
            query = select(TASKS).where(TASKS.c.state == TaskState.QUEUED, TASKS.c.kind.in_(sorted(kinds)))
            first = query.order_by(TASKS.c.asked_at, TASKS.c.id).limit(1).with_for_update(skip_locked=True)
            for task in read_records(connection, TASKS, first, TaskRow):
                changes = {"worker": worker, "alive_at": at, "tries": task.tries + 1}
                return _enter(connection, task, TaskState.RUNNING, at, changes)
            return None

    def heartbeat(self, task_id: str, worker: str, at: datetime) -> bool:
        """Note that the worker lives. False where the task is no longer its own: then stop."""
        return self._write(update(TASKS).where(*_own(task_id, worker)).values(alive_at=at)) == 1

    def progress(self, task_id: str, worker: str, text: str, at: datetime) -> bool:
        """Append a message of the worker, which also notes that it lives. False as :meth:`heartbeat`."""
        with self._database.write() as connection:
            task = _locked(connection, *_own(task_id, worker))
            if task is None:
                return False
            events = _with_event(task.events, at, "progress", text)
            connection.execute(update(TASKS).where(TASKS.c.id == task_id).values(events=events, alive_at=at))
            return True

    def finish(
        self, task_id: str, worker: str, result: Mapping[str, object], at: datetime, plan: MadePlanEntry | None = None
    ) -> bool:
        """Store the result, and the plan that it came to. False, and nothing stored, where it is not the worker's task.

        The plan is made when the task ends: whoever looks for new ones would miss one that was asked for long before.
        """
        return self._end(task_id, worker, TaskState.DONE, at, plan, result=canonical_json(dict(result)))

    def fail(
        self, task_id: str, worker: str, message: str, at: datetime, result: Mapping[str, object] | None = None
    ) -> bool:
        """Store why it failed for good, for people and, where there is a ``result``, for programs.

        False as :meth:`finish`.
        """
        told: dict[str, Any] = {"result": canonical_json(dict(result))} if result else {}
        return self._end(task_id, worker, TaskState.FAILED, at, message=storable_text(message)[:_MAX_MESSAGE], **told)

    def cancel(self, task_id: str, at: datetime) -> bool:
        """Cancel a task that nobody runs yet. False where it is no longer queued, or does not exist."""
        with self._database.write() as connection:
            task = _locked(connection, TASKS.c.id == task_id, TASKS.c.state == TaskState.QUEUED)
            if task is None:
                return False
            _enter(connection, task, TaskState.CANCELLED, at, {"ended_at": at})
            return True

    def find(self, task_id: str) -> TaskRow | None:
        """Return a task; None where it does not exist, or is pruned."""
        return self._first_record(TASKS, select(TASKS).where(TASKS.c.id == task_id), TaskRow)

    def newest(
        self,
        count: int,
        subject: str,
        *,
        own_kinds: Iterable[str] | None,
        teams: Mapping[str, frozenset[str] | None],
        before: tuple[datetime, str] | None = None,
    ) -> tuple[TaskRow, ...]:
        """Return tasks of a subject and of teams, the newest first.

        ``own_kinds``: the kinds of the subject's own tasks, None for all; ``teams``: by kind the teams whose tasks are
        wanted, None for all. ``before`` is the moment and id of the last one that is known already.
        """
        own = TASKS.c.subject == subject
        if own_kinds is not None:
            own = own & TASKS.c.kind.in_(sorted(own_kinds))
        wanted = [own]
        for kind, names in teams.items():
            of_kind = TASKS.c.kind == kind
            wanted.append(of_kind if names is None else of_kind & TASKS.c.team.in_(sorted(names)))
        query = select(TASKS).where(or_(*wanted))
        if before is not None:
            at, task_id = before
            query = query.where(or_(TASKS.c.asked_at < at, (TASKS.c.asked_at == at) & (TASKS.c.id < task_id)))
        return self._records(TASKS, query.order_by(TASKS.c.asked_at.desc(), TASKS.c.id.desc()).limit(count), TaskRow)

    def count_unfinished(self, subject: str) -> int:
        """Return how many tasks of a subject are queued or run."""
        of_subject = select(func.count()).where(TASKS.c.subject == subject)
        (count,) = self._first_column(of_subject.where(TASKS.c.state.in_((TaskState.QUEUED, TaskState.RUNNING))))
        return int(count)

    def prune(self, now: datetime) -> int:
        """Delete tasks that ended more than :data:`KEPT` ago, and return how many."""
        return self._write(delete(TASKS).where(TASKS.c.ended_at < now - KEPT))

    def _has_work(self, at: datetime) -> bool:
        silent = (TASKS.c.state == TaskState.RUNNING) & (TASKS.c.alive_at < at - SILENT)
        return bool(self._rows(select(TASKS.c.id).where(or_(TASKS.c.state == TaskState.QUEUED, silent)).limit(1)))

    def _end(
        self,
        task_id: str,
        worker: str,
        state: TaskState,
        at: datetime,
        plan: MadePlanEntry | None = None,
        **changes: object,
    ) -> bool:
        with self._database.write() as connection:
            task = _locked(connection, *_own(task_id, worker))
            if task is None:
                return False
            _enter(connection, task, state, at, {"ended_at": at, **changes})
            if plan is not None:
                put_plan_in_transaction(connection, replace(plan, made_at=at))
            return True


def _own(task_id: str, worker: str) -> tuple[Any, ...]:
    return TASKS.c.id == task_id, TASKS.c.worker == worker, TASKS.c.state == TaskState.RUNNING


def _locked(connection: Connection, *which: Any) -> TaskRow | None:
    tasks = read_records(connection, TASKS, select(TASKS).where(*which).with_for_update(), TaskRow)
    return tasks[0] if tasks else None


def _enter(
    connection: Connection, task: TaskRow, state: TaskState, at: datetime, changes: Mapping[str, object]
) -> TaskRow:
    values = {**changes, "state": state, "events": _with_event(task.events, at, "state", state)}
    this = TASKS.c.id == task.id
    connection.execute(update(TASKS).where(this).values(**values))
    return read_records(connection, TASKS, select(TASKS).where(this), TaskRow)[0]


def _requeue(connection: Connection, at: datetime) -> None:
    silent = select(TASKS).where(TASKS.c.state == TaskState.RUNNING, TASKS.c.alive_at < at - SILENT)
    for task in read_records(connection, TASKS, silent.with_for_update(skip_locked=True), TaskRow):
        if task.tries >= MAX_TRIES:
            message = f"the process that ran it ended {task.tries} times"
            _enter(connection, task, TaskState.FAILED, at, {"ended_at": at, "message": message})
        else:
            _enter(connection, task, TaskState.QUEUED, at, {"worker": "", "alive_at": None})


def _with_event(events: tuple[TaskEvent, ...], at: datetime, what: str, text: str) -> tuple[TaskEvent, ...]:
    number = events[-1].number + 1 if events else 1
    return (*events, TaskEvent(number, at, what, storable_text(text)[:_MAX_MESSAGE]))[-EVENTS_KEPT:]
