"""The HTTP API: errors of one form, long work followed by events, repeated requests answered as the first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from router.app.queries.context import QueryContext
from router.console.app import openapi_text
from tests.support import work_kinds
from tests.support.console import NIGHT, console_client, identity_with, query_context, run_tasks, ticking

ROOT = Path(__file__).parents[2]
KIND = work_kinds.SUM


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path, clock=ticking(timedelta(seconds=1))) as opened:
        yield opened


@pytest.fixture
def client(context: QueryContext) -> TestClient:
    return console_client(context)


def events_of(text: str) -> list[tuple[str, str]]:
    """Names and numbers of the events in a stream."""
    blocks = [block for block in text.split("\n\n") if "event: " in block]
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [(each["event"], each.get("id", "")) for each in fields]


def test_the_published_description_is_that_of_the_server(client: TestClient) -> None:
    """When this fails: `stepfare schema openapi --out docs/schema/openapi.json`."""
    assert (ROOT / "docs/schema/openapi.json").read_text(encoding="utf-8") == openapi_text()
    assert client.get("/api/v1/openapi.json").json() == json.loads(openapi_text())


def test_every_operation_declares_errors_of_one_form() -> None:
    for path, operations in json.loads(openapi_text())["paths"].items():
        for method, operation in operations.items():
            for status in ("400", "401", "403", "404", "422", "429", "503"):
                schema = operation["responses"][status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}, (path, method, status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("PUT", "/api/v1/tasks", 405),
        ("GET", "/api/v1/tasks?limit=0", 422),
        ("GET", "/api/v1/tasks?limit=99999999999999999999999", 422),
        ("GET", "/api/v1/tasks?before=yesterday", 400),
        ("GET", "/api/v1/tasks?before=2026-99-99T00:00:00Z~t0", 400),
        ("GET", "/api/v1/tasks?before=2026-11-21T18:00:00~t0", 400),
        ("GET", "/api/v1/tasks?before=9999-12-31T23:59:59-14:00~t0", 400),
        ("GET", "/api/v1/plans?before=0001-01-01T00:00:00%2B14:00", 400),
        ("GET", "/api/v1/plans?before=9999-12-31T23:59:59-14:00", 400),
        ("GET", "/api/v1/offers?max_age=%D9%A1d&book=embedded", 400),
        ("GET", "/api/v1/tasks/%00", 404),
        ("GET", f"/api/v1/tasks/{'t' * 65}", 422),
        ("GET", "/api/v1/tasks/t0/events", 404),
        ("DELETE", "/api/v1/tasks/t0", 404),
    ],
)
def test_errors_have_one_form(idle: TestClient, method: str, path: str, status: int) -> None:
    answer = idle.request(method, path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["status"] == status
    assert error["message"]
    assert set(error) == {"status", "message", "remedy"}


def test_who_asks_is_told_what_they_may_do(context: QueryContext) -> None:
    client = console_client(context, lambda: identity_with("viewer:red", "job_owner:red", name="ana"))
    answer = client.get("/api/v1/me").json()
    assert (answer["name"], answer["grants"], answer["scopes"]) == ("ana", ["job_owner:red", "viewer:red"], None)
    permissions = {each["permission"]: each["teams"] for each in answer["permissions"]}
    assert permissions["quotes:make"] == ["red"]
    assert "access:manage" not in permissions
    assert console_client(context).get("/api/v1/me").json()["permissions"][0]["teams"] is None


def test_tasks_are_listed_in_parts_and_one_is_read(context: QueryContext, client: TestClient) -> None:
    for number in range(5):
        context.store.tasks.put(KIND, "operator", "red", {"numbers": [number]}, NIGHT + timedelta(seconds=number // 2))
    context.store.tasks.put("plan", "somebody", "", {}, NIGHT)
    seen, before = [], ""
    while True:
        page = client.get("/api/v1/tasks", params={"limit": 2, **({"before": before} if before else {})}).json()
        seen += [task["id"] for task in page["tasks"]]
        if page["next"] is None:
            break
        before = page["next"]
    assert len(seen) == len(set(seen)) == 6
    run_tasks(context, work_kinds.FUNCTIONS)
    answer = client.get(f"/api/v1/tasks/{seen[0]}").json()
    assert (answer["state"], answer["team"], answer["result"]["sum"]) == ("done", "red", 4)


def test_a_task_of_another_team_is_not_there(context: QueryContext) -> None:
    task = context.store.tasks.put("quote", "ana", "red", {}, NIGHT)
    stranger = console_client(context, lambda: identity_with("viewer:blue", "job_owner:blue", name="eve"))
    for path in (f"/api/v1/tasks/{task.id}", f"/api/v1/tasks/{task.id}/events"):
        assert stranger.get(path).status_code == 404
    assert stranger.delete(f"/api/v1/tasks/{task.id}").status_code == 404
    assert stranger.get("/api/v1/tasks").json() == {"tasks": [], "next": None}


def test_events_are_followed_to_the_end_and_from_where_they_were_left(
    context: QueryContext, client: TestClient
) -> None:
    task = context.store.tasks.put(KIND, "operator", "", {"numbers": [1, 2]}, NIGHT)
    run_tasks(context, work_kinds.FUNCTIONS)
    url = f"/api/v1/tasks/{task.id}/events"
    whole = client.get(url)
    assert whole.headers["Content-Type"].startswith("text/event-stream")
    numbered = [("state", "1"), ("state", "2"), ("progress", "3"), ("progress", "4"), ("state", "5")]
    assert events_of(whole.text) == [*numbered, ("end", "")]
    assert '"sum":3' in whole.text
    assert events_of(client.get(url, headers={"Last-Event-ID": "4"}).text) == [("state", "5"), ("end", "")]
    assert events_of(client.get(url, headers={"Last-Event-ID": "no"}).text)[0] == ("state", "1")
    assert client.get(url, headers={"Last-Event-ID": "5"}).status_code == 204


def test_events_arrive_while_the_task_runs(
    context: QueryContext, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = itertools.count()

    async def wait(_: float) -> None:
        if next(waits):
            run_tasks(context, work_kinds.FUNCTIONS)

    monkeypatch.setattr("router.console.api.tasks.sleep", wait)
    monkeypatch.setattr("router.console.api.tasks.COMMENT_SECONDS", 0.0)
    task = context.store.tasks.put(KIND, "operator", "", {"numbers": [7]}, NIGHT)
    shown = client.get(f"/api/v1/tasks/{task.id}/events").text
    assert events_of(shown) == [("state", "1"), ("state", "2"), ("progress", "3"), ("state", "4"), ("end", "")]
    assert shown.index("queued") < shown.index(": still at it") < shown.index("running")


def test_a_queued_task_is_cancelled_and_a_running_one_is_not(context: QueryContext, client: TestClient) -> None:
    task = context.store.tasks.put(KIND, "operator", "", {"numbers": []}, NIGHT)
    cancelled = client.delete(f"/api/v1/tasks/{task.id}")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert client.delete(f"/api/v1/tasks/{task.id}").status_code == 200
    running = context.store.tasks.put(KIND, "operator", "", {"numbers": []}, NIGHT)
    context.store.tasks.take("w", [KIND], NIGHT)
    assert client.delete(f"/api/v1/tasks/{running.id}").status_code == 409
