"""Long work: run in a child process, its progress in the state, and taken again whatever is killed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from router.access.identity import AccessDeniedError, Permission
from router.app.queries.context import QueryContext
from router.app.queries.tasks import (
    MAX_UNFINISHED,
    NotCancellableError,
    TooManyTasksError,
    cancel_task,
    find_task,
    list_tasks,
    submit_task,
)
from router.console.work import NICENESS, ProcessWorker, TaskRunner
from router.state.tasks import MAX_TRIES, SILENT, TaskRow, TaskState
from tests.support.busy import eventually
from tests.support.console import NIGHT, identity_with, query_context, task_runner
from tests.support.work_kinds import FUNCTIONS


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    seconds = itertools.count()
    # Each moment is another one, so that tasks have an order.
    with query_context(tmp_path, clock=lambda: NIGHT + timedelta(seconds=next(seconds) / 1000)) as opened:
        yield opened


def here(context: QueryContext) -> TaskRunner:
    return task_runner(context, FUNCTIONS)


def found(context: QueryContext, task: TaskRow) -> TaskRow:
    row = find_task(context, task.id)
    assert row is not None
    return row


def test_a_task_is_done_and_says_how_far_it_is(context: QueryContext) -> None:
    task = submit_task(context, "test-sum", None, {"numbers": [1, 2]})
    runner = here(context)
    assert runner.run_next()
    assert not runner.run_next()
    row = found(context, task)
    assert row.state is TaskState.DONE
    assert row.result is not None
    assert '"sum":3' in row.result
    assert [event.text for event in row.events if event.what == "progress"] == ["adding 1", "adding 2"]


def test_a_server_leaves_kinds_of_tasks_that_it_does_not_know(context: QueryContext) -> None:
    task = submit_task(context, "of a later version", None, {})
    assert not here(context).run_next()
    assert found(context, task).state is TaskState.QUEUED


@pytest.mark.parametrize(
    ("how", "message"),
    [("input", "job: no such job"), ("work", "there is no book"), ("bug", "failed unexpectedly (KeyError)")],
)
def test_a_task_that_fails_says_why_and_gives_nothing_away(context: QueryContext, how: str, message: str) -> None:
    task = submit_task(context, "test-wrong", None, {"how": how})
    here(context).run_next()
    row = found(context, task)
    assert row.state is TaskState.FAILED
    assert message in row.message
    assert "secret" not in row.message


@pytest.mark.slow
def test_a_child_process_does_the_work_and_what_it_leaves_is_taken_up_after_its_lease(context: QueryContext) -> None:
    worker, now = ProcessWorker(context.settings), [NIGHT + timedelta(hours=1)]
    try:
        runner = TaskRunner(context.store, worker, lambda: now[0], FUNCTIONS)
        task = submit_task(context, "test-sum", None, {"numbers": [1, 2]})
        killer = submit_task(context, "test-wrong", None, {"how": "die"})
        assert runner.run_next()
        first = found(context, task)
        assert first.result is not None
        assert f'"nice":{NICENESS}' in first.result
        assert str(context.settings.folder) in first.result
        for number in range(MAX_TRIES):
            assert runner.run_next()
            assert (found(context, killer).state, found(context, killer).tries) == (TaskState.RUNNING, number + 1)
            assert not runner.run_next()
            now[0] += SILENT + timedelta(seconds=1)
        forever = submit_task(context, "test-forever", None, {})
        runner.start()
        child = _reported_process(context, forever)
        assert found(context, killer).state is TaskState.FAILED
        # Terminals and systemd send this to all processes of a server; the server alone answers it.
        child.terminate()
        runner.drain()
        assert child.is_running()
        runner.stop()
        assert not child.is_running()
        assert found(context, forever).state is TaskState.RUNNING
        again = context.store.tasks.take("another", FUNCTIONS, now[0] + SILENT + timedelta(seconds=1))
        assert again is not None
        assert (again.id, again.tries) == (forever.id, 2)
    finally:
        worker.close()


def _reported_process(context: QueryContext, task: TaskRow) -> psutil.Process:
    def progress() -> list[str]:
        return [event.text for event in found(context, task).events if event.what == "progress"]

    eventually(lambda: bool(progress()))
    return psutil.Process(int(progress()[0].removeprefix("process ")))


def test_tasks_are_seen_by_who_asked_and_by_their_team(context: QueryContext) -> None:
    ana = context.asked_by(identity_with("job_owner:red", name="ana"))
    red = context.asked_by(identity_with("viewer:red", name="bob"))
    blue = context.asked_by(identity_with("viewer:blue", name="eve"))
    quote = context.store.tasks.put("quote", "ana", "red", {}, NIGHT)
    plan = context.store.tasks.put("plan", "ana", "", {}, NIGHT + timedelta(seconds=1))
    other = context.store.tasks.put("test-sum", "ana", "red", {}, NIGHT + timedelta(seconds=2))
    assert [t.id for t in list_tasks(ana)] == [other.id, plan.id, quote.id]
    assert [t.id for t in list_tasks(red)] == [quote.id]
    assert list_tasks(blue) == ()
    assert find_task(blue, quote.id) is None
    assert find_task(red, plan.id) is None
    assert cancel_task(blue, quote.id) is None
    with pytest.raises(AccessDeniedError, match="ana"):
        cancel_task(red, quote.id)
    cancelled = cancel_task(ana, quote.id)
    assert cancelled is not None
    assert cancelled.state is TaskState.CANCELLED
    assert cancel_task(ana, quote.id) == cancelled
    context.store.tasks.take("w", ["plan"], NIGHT)
    with pytest.raises(NotCancellableError, match="running"):
        cancel_task(ana, plan.id)


def test_a_token_for_prices_sees_no_task_of_its_owner(context: QueryContext) -> None:
    context.store.tasks.put("quote", "ana", "red", {}, NIGHT)
    confined = identity_with("job_owner:red", name="ana")
    asked = context.asked_by(type(confined)(confined.name, confined.grants, frozenset({Permission.READ_PRICES})))
    assert list_tasks(asked) == ()


def test_nobody_fills_the_queue_alone(context: QueryContext) -> None:
    for _ in range(MAX_UNFINISHED):
        submit_task(context, "test-sum", None, {"numbers": []})
    with pytest.raises(TooManyTasksError, match=str(MAX_UNFINISHED)):
        submit_task(context, "test-sum", None, {"numbers": []})
    submit_task(context.asked_by(identity_with("admin", name="other")), "test-sum", None, {"numbers": []})
