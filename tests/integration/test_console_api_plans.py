"""Plans and offers over HTTP: asked for as documents, made by a task, read within what may be seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from router.app.queries.context import QueryContext
from router.app.queries.tasks import submit_task
from router.cli.main import app
from router.console import task_kinds
from router.planning.document.plan_json import plan_content, plan_to_json
from tests.support.console import NIGHT, console_client, identity_with, query_context, run_tasks, ticking
from tests.support.scenes import NORTH, a_job, plan_of

ROOT = Path(__file__).parents[2]
JOB = (ROOT / "examples/nightly/faq-7b-lora.yaml").read_text(encoding="utf-8")
FIELDS: dict[str, Any] = yaml.safe_load(JOB)
URL = "/api/v1/plans"


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path, clock=ticking(timedelta(milliseconds=1))) as opened:
        yield opened


@pytest.fixture
def client(context: QueryContext) -> TestClient:
    return console_client(context)


@pytest.mark.slow
def test_a_plan_is_asked_for_made_and_read(context: QueryContext, client: TestClient) -> None:
    asked = client.post(
        URL, json={"jobs": JOB, "name": "night", "book": "embedded", "limits": {"clouds": ["aws", "gcp"]}}
    )
    assert asked.status_code == 202
    task = asked.json()
    assert (task["state"], task["kind"], task["team"]) == ("queued", task_kinds.PLAN, FIELDS["team"])
    run_tasks(context)
    done = client.get(asked.headers["Location"]).json()
    assert (done["state"], done["message"]) == ("done", "")
    assert done["result"]["unplaced"] == []
    plan = client.get(done["links"]["result"]).json()
    assert plan["digest"] == done["result"]["digest"]
    assert plan["cost_usd"] == done["result"]["cost_usd"]
    assert {line["cloud"] for line in plan["lines"]} <= {"aws", "gcp"}
    listed = client.get(URL).json()
    assert [row["digest"] for row in listed["plans"]] == [plan["digest"]]
    assert listed["plans"][0]["cost_usd"] == plan["cost_usd"]
    assert context.store.plans.job(plan["jobs"][0]["job_digest"]) is not None
    assert client.get(f"{URL}/latest").json() == plan
    # The same jobs as JSON give the same plan, whichever moment they are asked for at.
    again = client.post(URL, json={"jobs": [FIELDS], "book": "embedded", "limits": "clouds: [aws, gcp]"})
    run_tasks(context)
    result = client.get(again.headers["Location"]).json()["result"]
    assert result["cost_usd"] == plan["cost_usd"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"run": {"command": "x", "env": {"KEY": "secret:env:HOME"}}}, "run.env.KEY"),
        ({"run": {"command": "x", "env": {"KEY": "secret:file:/etc/passwd"}}}, "run.env.KEY"),
        ({"run": {"command": "x", "code": {"git": "/srv/code", "ref": "main"}}}, "run.code.git"),
        ({"run": {"command": "x", "code": {"git": "file:///srv/code", "ref": "main"}}}, "run.code.git"),
        ({"run": {"command": "x", "code": {"archive": "file:///etc/a.tar", "sha256": "0" * 64}}}, "run.code.archive"),
    ],
)
def test_a_job_that_names_a_file_or_secret_of_the_server_is_refused(
    idle: TestClient, change: dict[str, Any], field: str
) -> None:
    answer = idle.post(URL, json={"jobs": [FIELDS | change]})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]
    assert "jobs.yaml:" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../../state.db", "quotas.json"])
def test_limits_that_name_a_file_are_refused(idle: TestClient, name: str) -> None:
    answer = idle.post(URL, json={"jobs": JOB, "limits": {"quotas": name}})
    assert answer.status_code == 400
    assert "names a file of this server" in answer.json()["error"]["message"]
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "jobs"),
        ({"jobs": "x: 1", "more": 1}, 422, "more"),
        ({"jobs": ""}, 400, "jobs.yaml: holds no job"),
        ({"jobs": "a: [1"}, 400, "jobs.yaml:"),
        ({"jobs": "\0"}, 400, "YAML does not allow"),
        ({"jobs": JOB, "book": "/etc/passwd"}, 422, "book"),
        ({"jobs": JOB, "horizon": "900d"}, 400, "horizon"),
        ({"jobs": JOB, "slot": "-1h"}, 400, "slot"),
        ({"jobs": JOB, "time_limit": "1h"}, 400, "time_limit"),
        ({"jobs": JOB, "gap": 7}, 422, "gap"),
        ({"jobs": JOB, "name": "quote"}, 400, "accepted quotes"),
        ({"jobs": JOB, "limits": "a: 1"}, 400, "limits.yaml:1"),
        ({"jobs": f"{JOB}\n---\n{JOB}"}, 400, "name of another job"),
    ],
)
def test_wrong_questions_are_refused_with_their_place(
    idle: TestClient, body: dict[str, Any], status: int, words: str
) -> None:
    answer = idle.post(URL, json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert "/tmp" not in answer.text


def test_text_that_cannot_be_written_is_refused(idle: TestClient) -> None:
    body = b'{"jobs": "name: \\ud800"}'
    assert idle.post(URL, content=body, headers={"Content-Type": "application/json"}).status_code in (400, 422)


def test_only_who_plans_for_all_teams_makes_the_plan_of_the_night(context: QueryContext) -> None:
    for grants in (("viewer",), ("planner:research",), ("job_owner",)):
        client = console_client(context, lambda grants=grants: identity_with(*grants))  # type: ignore[misc]
        assert client.post(URL, json={"jobs": JOB}).status_code == 403
    assert context.store.tasks.count_unfinished("somebody") == 0


def put_plans(context: QueryContext) -> tuple[str, str]:
    """Two nights of plans of two teams; their digests."""
    digests = []
    for day in range(2):
        jobs = [a_job("secret-blue", team="blue"), a_job("own-red", team="red", steps=300 + 100 * day)]
        plan = plan_of(jobs, [NORTH], now=NIGHT + timedelta(days=day))
        digest = plan_content(plan)["digest"]
        context.store.made_plans.put(digest, plan_to_json(plan), plan.as_of, plan.as_of, "ana", "night")
        digests.append(digest)
    return digests[0], digests[1]


def test_a_team_reads_its_part_of_plans_alone(context: QueryContext, client: TestClient) -> None:
    first, second = put_plans(context)
    red = console_client(context, lambda: identity_with("viewer:red"))
    for path in ("", f"/{second}", f"/{second}/diff", f"/{second}/diff?against={first}", f"/{second}/approvals"):
        whole, part = client.get(URL + path), red.get(URL + path)
        assert whole.status_code == 200
        assert "secret-blue" not in part.text
        assert "blue" not in part.text
    assert red.get(f"{URL}/{second}/approvals").status_code == 404
    rows = red.get(URL).json()["plans"]
    assert [row["jobs"] for row in rows] == [1, 1]
    assert float(rows[0]["cost_usd"]) < float(client.get(URL).json()["plans"][0]["cost_usd"])
    assert red.get(f"{URL}/{second}").json()["restricted_to"] == ["red"]
    green = console_client(context, lambda: identity_with("viewer:green"))
    assert green.get(URL).json()["plans"] == []


def test_plans_are_listed_in_parts(context: QueryContext, client: TestClient) -> None:
    first, second = put_plans(context)
    part = client.get(URL, params={"limit": 1}).json()
    assert [row["digest"] for row in part["plans"]] == [second]
    rest = client.get(URL, params={"limit": 1, "before": part["next"]}).json()
    assert ([row["digest"] for row in rest["plans"]], rest["next"]) == ([first], None)
    assert client.get(URL, params={"before": "yesterday"}).status_code == 400
    assert client.get(f"{URL}/0000").status_code == 404
    assert client.get(f"{URL}/{first}/diff").status_code == 404


def test_approving_needs_rules_and_the_permission(context: QueryContext, client: TestClient) -> None:
    _, digest = put_plans(context)
    answer = client.post(f"{URL}/{digest}/approvals", json={"note": "fine"})
    assert answer.status_code == 409
    assert "approval_rules" in answer.json()["error"]["remedy"]
    assert client.delete(f"{URL}/{digest}/approvals").status_code == 409
    viewer = console_client(context, lambda: identity_with("viewer"))
    assert viewer.post(f"{URL}/{digest}/approvals").status_code == 403
    assert viewer.get(f"{URL}/{digest}/approvals").json()["needed"] is None
    assert client.post(f"{URL}/0000/approvals").status_code == 404


def test_a_repeated_request_makes_nothing_twice(context: QueryContext, client: TestClient) -> None:
    headers, body = {"Idempotency-Key": "night-21"}, {"jobs": JOB}
    first = client.post(URL, json=body, headers=headers)
    again = client.post(URL, json=body, headers=headers)
    assert (again.status_code, again.json(), again.headers["Location"]) == (
        first.status_code,
        first.json(),
        first.headers["Location"],
    )
    assert again.headers["Idempotency-Replayed"] == "true"
    assert context.store.tasks.count_unfinished("operator") == 1
    other = client.post(URL, json={"jobs": JOB + "\n"}, headers=headers)
    assert other.status_code == 422
    for key in ("", "a b", "x" * 129, "ü".encode().decode("latin-1")):
        assert client.post(URL, json=body, headers=[("Idempotency-Key", key.encode("latin-1"))]).status_code == 400  # type: ignore[arg-type]
    # A refused request leaves its key free; keys of others are theirs.
    wrong = {"Idempotency-Key": "wrong"}
    assert client.post(URL, json={"jobs": ""}, headers=wrong).status_code == 400
    assert client.post(URL, json=body, headers=wrong).status_code == 202
    somebody = console_client(context, lambda: identity_with("admin"))
    assert "Idempotency-Replayed" not in somebody.post(URL, json=body, headers=headers).headers


def test_the_same_request_at_the_same_moment_is_told_to_wait(
    context: QueryContext, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, goes_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        inside.set()
        assert goes_on.wait(10)
        return submit_task(*arguments)

    monkeypatch.setattr("router.console.task_kinds.submit_task", slow)
    answers: list[int] = []
    headers, body = {"Idempotency-Key": "k"}, {"jobs": JOB}

    def ask() -> None:
        answers.append(console_client(context).post(URL, json=body, headers=headers).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    assert inside.wait(10)
    assert client.post(URL, json=body, headers=headers).status_code == 409
    goes_on.set()
    thread.join()
    assert answers == [202]
    assert client.post(URL, json=body, headers=headers).headers["Idempotency-Replayed"] == "true"


def test_offers_are_those_of_the_command(idle: TestClient) -> None:
    asked = ["--cloud", "gcp", "--cloud", "aws", "--accelerator", "h100", "--market", "spot", "--limit", "7"]
    command = CliRunner().invoke(
        app, ["offers", *asked, "-o", "json", "--now", NIGHT.isoformat(), "--book", "embedded"]
    )
    query = "cloud=gcp&cloud=aws&accelerator=h100&market=spot&limit=7&book=embedded"
    answer = idle.get(f"/api/v1/offers?{query}")
    assert answer.json()["offers"] == json.loads(command.stdout)["offers"]
    assert len(answer.json()["offers"]) == 7
    assert idle.get(f"/api/v1/offers?{query}&format=csv").text.count("\n") == 8
    wrong = idle.get("/api/v1/offers?cloud=gcq&region=nowhere&book=embedded")
    assert wrong.status_code == 400
    assert "gcq" in wrong.json()["error"]["message"]
    for query in ("book=/etc/passwd", "max_age=soon", "max_age=99999999999d", f"max_age={'9' * 20}d"):
        assert idle.get(f"/api/v1/offers?{query}").status_code in (400, 422)
