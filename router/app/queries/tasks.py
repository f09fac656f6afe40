"""Long work that was asked for at a server: who may see it, ask for it, and cancel it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from router.access.identity import AccessDeniedError, Identity, Permission
from router.app.queries.context import QueryContext
from router.state.tasks import TaskRow, TaskState

# What one subject may have queued and running, so that nobody else waits for all of it.
MAX_UNFINISHED = 20
MAX_TASKS = 200

# Who sees the tasks of others: those with this permission for the task's team.
KIND_PERMISSIONS: Mapping[str, Permission] = {
    "plan": Permission.READ_PLANS,
    "quote": Permission.READ_QUOTES,
    "quote_acceptance": Permission.READ_QUOTES,
}


class TooManyTasksError(Exception):
    """A subject has too much queued already; the message says how much."""


class NotCancellableError(Exception):
    """A task has begun or ended, and cannot be cancelled any more."""


def submit_task(context: QueryContext, kind: str, team: str | None, request: Mapping[str, object]) -> TaskRow:
    """Queue a task for who asks and return it; the caller checked that it is permitted. TooManyTasksError."""
    subject = context.identity.name
    unfinished = context.store.tasks.count_unfinished(subject)
    if unfinished >= MAX_UNFINISHED:
        raise TooManyTasksError(f"{unfinished} tasks of {subject} are queued or running")
    return context.store.tasks.put(kind, subject, team or "", request, context.clock())


def list_tasks(
    context: QueryContext, count: int = 50, before: tuple[datetime, str] | None = None
) -> tuple[TaskRow, ...]:
    """Return the tasks of who asks, and those of the teams that may be seen; the newest first."""
    identity = context.identity
    own = None if identity.scopes is None else [k for k, p in KIND_PERMISSIONS.items() if p in identity.scopes]
    teams = {kind: identity.teams(permission).teams for kind, permission in KIND_PERMISSIONS.items()}
    return context.store.tasks.newest(min(count, MAX_TASKS), identity.name, own_kinds=own, teams=teams, before=before)


def find_task(context: QueryContext, task_id: str) -> TaskRow | None:
    """Return a task; None where there is none that may be seen."""
    task = context.store.tasks.find(task_id)
    return task if task is not None and may_see(context.identity, task) else None


def cancel_task(context: QueryContext, task_id: str) -> TaskRow | None:
    """Cancel a queued task and return it; None where there is none that may be seen.

    AccessDeniedError for one of somebody else, unless who asks manages access; NotCancellableError for one that has
    begun.
    """
    task = find_task(context, task_id)
    if task is None:
        return None
    if task.subject != context.identity.name and not context.identity.may(Permission.MANAGE_ACCESS):
        raise AccessDeniedError(f"the task was asked for by {task.subject}")
    if not context.store.tasks.cancel(task_id, context.clock()):
        task = context.store.tasks.find(task_id) or task
        if task.state is not TaskState.CANCELLED:
            raise NotCancellableError(f"the task is {task.state.value}, and only a queued one can be cancelled")
    return context.store.tasks.find(task_id)


def may_see(identity: Identity, task: TaskRow) -> bool:
    """Return whether an identity sees a task: its own, or one of a team whose kind of work it may read."""
    permission = KIND_PERMISSIONS.get(task.kind)
    if task.subject == identity.name:
        return identity.scopes is None or permission in identity.scopes
    return permission is not None and identity.teams(permission).admits(task.team or None)
