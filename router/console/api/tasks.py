"""The API of long work: list tasks, follow one while it runs, cancel one that has not begun."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from anyio import sleep
from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from pricing.problems import InvalidInputError
from router.access.identity import AccessDeniedError
from router.app.queries.context import QueryContext
from router.app.queries.tasks import MAX_TASKS, cancel_task, find_task, list_tasks
from router.console.answers import JSON
from router.console.error_answers import NothingThereError
from router.console.site import ConsoleSite, Readiness
from router.state.tasks import TaskEvent, TaskRow, TaskState

POLL_SECONDS = 0.5
COMMENT_SECONDS = 15.0
# A stream ends after this long, so that a reader proves again who they are.
STREAM_SECONDS = 600.0
EVENTS_TYPE = "text/event-stream"
_CURSOR = re.compile(r"([0-9TZ:.+-]{10,40})~(t[0-9a-f]{1,40})")
TaskId = Annotated[str, Path(max_length=64, description="Id of a task.")]


class TaskAnswer(BaseModel):
    """Long work: what was asked for, how far it is, and how it ended."""

    id: str
    kind: str
    team: str | None = Field(description="The team that it concerns; null where that is none or several.")
    subject: str = Field(description="Who asked for it.")
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: str = Field(description="The last message; empty before the first.")
    message: str = Field(description="Why it failed; else empty.")
    result: dict[str, Any] | None = Field(description="The result, by the kind; null before it is done.")
    asked_at: datetime
    ended_at: datetime | None
    links: dict[str, str] = Field(description="URLs of this task, of its events, and of what it made.")


class TaskList(BaseModel):
    """Tasks, the newest first. ``next`` is the ``before`` of the next part; null after the last."""

    tasks: list[TaskAnswer]
    next: str | None


def make_router(site: ConsoleSite) -> APIRouter:
    """Return the routes below ``/api/v1/tasks``."""
    router = APIRouter(prefix="/api/v1/tasks", tags=["tasks"])

    @router.get("", summary="List the tasks of who asks and of teams that may be seen, the newest first")
    def tasks(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MAX_TASKS)] = 50,
        before: Annotated[str | None, Query(max_length=100, description="`next` of the part before.")] = None,
    ) -> TaskList:
        found = list_tasks(site.asked_by(request), limit + 1, _parse_cursor(before))
        shown = found[:limit]
        last = f"{shown[-1].asked_at.isoformat()}~{shown[-1].id}" if len(found) > limit else None
        return TaskList(tasks=[task_answer(task) for task in shown], next=last)

    @router.get("/{task_id}", summary="Return a task with its result")
    def task(request: Request, task_id: TaskId) -> TaskAnswer:
        return task_answer(_require(find_task(site.asked_by(request), task_id)))

    @router.get(
        "/{task_id}/events",
        summary="Follow a task: events `state` and `progress`, and `end` as the last one",
        response_class=StreamingResponse,
        responses={
            200: {"content": {EVENTS_TYPE: {"schema": {"type": "string"}}}, "description": "Server-sent events."},
            204: {"description": "The task has ended, and the last event is known."},
        },
    )
    def events(
        request: Request,
        task_id: TaskId,
        last_event_id: Annotated[str, Header(max_length=40, description="The number of the last event seen.")] = "",
    ) -> Response:
        context, known = site.asked_by(request), _parse_number(last_event_id)
        found = _require(find_task(context, task_id))
        if found.state.is_final and known >= found.events[-1].number:
            # Browsers ask again when a stream ends; this answer tells them not to.
            return Response(status_code=204)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        events = _stream(context, site.readiness, found, known)
        return StreamingResponse(events, media_type=EVENTS_TYPE, headers=headers)

    @router.delete("/{task_id}", summary="Cancel a task that has not begun")
    def cancel(request: Request, task_id: TaskId) -> TaskAnswer:
        return task_answer(_require(cancel_task(site.asked_by(request), task_id)))

    return router


def task_answer(task: TaskRow) -> TaskAnswer:
    """Return a task as the API shows it."""
    own = f"/api/v1/tasks/{task.id}"
    # The result of a task that failed is for the console's own forms.
    result = None if task.result is None or task.state is TaskState.FAILED else json.loads(task.result)
    links = {"self": own, "events": f"{own}/events"}
    if isinstance(result, dict) and isinstance(result.get("url"), str):
        links["result"] = result["url"]
    return TaskAnswer(
        id=task.id,
        kind=task.kind,
        team=task.team or None,
        subject=task.subject,
        state=task.state.value,
        progress=next((event.text for event in reversed(task.events) if event.what == "progress"), ""),
        message=task.message,
        result=result,
        asked_at=task.asked_at,
        ended_at=task.ended_at,
        links=links,
    )


def accepted_task(task: TaskRow) -> Response:
    """Return the answer to a request that began a task."""
    answer = task_answer(task)
    return Response(answer.model_dump_json(), 202, media_type=JSON, headers={"Location": answer.links["self"]})


async def _stream(
    context: QueryContext, readiness: Readiness, task: TaskRow | None, last_event_id: int
) -> AsyncIterator[str]:
    """Yield the events after ``last_event_id``, and comments while nothing happens."""
    began = spoke = time.monotonic()
    yield f"retry: {int(POLL_SECONDS * 1000)}\n\n"
    while task is not None:
        for event in task.events:
            if event.number > last_event_id:
                last_event_id, spoke = event.number, time.monotonic()
                yield _event_text(event)
        if task.state.is_final:
            yield f"event: end\ndata: {task_answer(task).model_dump_json()}\n\n"
            return
        now = time.monotonic()
        if now - began >= STREAM_SECONDS:
            return
        if now - spoke >= COMMENT_SECONDS:
            spoke = now
            yield ": still at it\n\n"
        await sleep(POLL_SECONDS)
        if readiness.is_draining:
            return  # whoever listens asks again, and another server answers
        try:
            task = await run_sync(find_task, context, task.id)
        except AccessDeniedError:
            return


def _event_text(event: TaskEvent) -> str:
    data = json.dumps({"number": event.number, "at": event.at.isoformat(), event.what: event.text})
    return f"id: {event.number}\nevent: {event.what}\ndata: {data}\n\n"


def _require(task: TaskRow | None) -> TaskRow:
    if task is None:
        raise NothingThereError("there is no such task", "GET /api/v1/tasks lists them")
    return task


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _parse_cursor(text: str | None) -> tuple[datetime, str] | None:
    if text is None:
        return None
    wrong = InvalidInputError.single(
        "is no place in this list", field="before", remedy="give the `next` of the part before"
    )
    # A plus of a time zone arrives as a space where a client does not escape it.
    match = _CURSOR.fullmatch(text.replace(" ", "+"))
    try:
        at = None if match is None else datetime.fromisoformat(match[1])
        if match is None or at is None or at.utcoffset() is None:
            raise wrong
        return at.astimezone(UTC), match[2]
    except (ValueError, OverflowError):
        raise wrong from None
