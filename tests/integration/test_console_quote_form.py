"""The form that asks for a quote: its order, its one button, and what is wrong beside the field that it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from router.app.queries.context import QueryContext
from tests.support.console import PAGE, console_client, query_context
from tests.support.page_reader import Element, check_landmarks, read_page

AT = {"when": "at", "at": "2026-11-23T12:00", "limits_of": "none"}
GOOD = {"name": "a", "team": "x", "steps": "10", "tokens": "1048576", "accelerators": "H100:8"}
DOCUMENT = "name: a\nteam: x\nsteps: 0\n"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryContext]:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    with query_context(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def client(context: QueryContext) -> TestClient:
    return console_client(context)


def refused(client: TestClient, **fields: str) -> tuple[Element, dict[str, str]]:
    """The page that refuses a form, and the words beside each field of it that is marked as wrong."""
    answer = client.post("/quotes", data={"source": "fields", **AT, **fields}, headers=PAGE)
    assert answer.status_code == 400, answer.text
    page = read_page(answer.text)
    check_landmarks(page)
    by_id = {each.attributes["id"]: each for each in page.every(lambda each: "id" in each.attributes)}
    beside = {}
    for field in page.every(lambda each: each.attributes.get("aria-invalid") == "true"):
        (about,) = [name for name in field.attributes["aria-describedby"].split() if name.endswith("-wrong")]
        beside[field.attributes["name"]] = by_id[about].words
    (summary,) = page.every(lambda each: each.attributes.get("role") == "alert")
    assert all(link.attributes["href"].removeprefix("#") in by_id for link in summary.tags("a"))
    return page, beside


def test_the_job_comes_first_then_deadline_and_limits_and_one_button(client: TestClient) -> None:
    page = read_page(client.get("/quotes/new", headers=PAGE).text)
    check_landmarks(page)
    (form,) = page.every(lambda each: each.attributes.get("action") == "/quotes")
    assert [each.words for each in form.tags("h2")] == ["The job", "By when", "Under which limits"]
    assert [each.words for each in form.tags("button")] == ["Ask for the quote"]
    chosen = form.every(lambda each: "checked" in each.attributes)
    assert [each.attributes["name"] for each in chosen] == ["source", "when", "limits_of"]


def test_everything_that_is_wrong_is_said_at_once_each_beside_its_field(client: TestClient) -> None:
    fields = {**GOOD, "name": "A b", "steps": "", "tokens": "8", "when": "within", "within": "soon"}
    page, beside = refused(client, **fields, limits_of="own", limits="cloud: [aws]\n")
    assert set(beside) == {"name", "steps", "tokens", "within", "limits"}
    assert beside["steps"] == "is empty"
    assert "8 tokens are less than one sequence" in beside["tokens"]
    assert beside["within"] == "'soon' is no time from now; write hours or days, e.g. 36h, 2d or 1d12h"
    assert beside["limits"].startswith("Line 1: cloud: is no field of a limits file")
    assert "job.yaml" not in page.words
    kept = page.every(lambda each: each.attributes.get("name") == "name")
    assert kept[0].attributes["value"] == "A b"
    assert "cloud: [aws]" in page.words


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({**GOOD, "steps": "-1"}, "steps", "must be more than 0"),
        (
            {**GOOD, "when": "within", "within": "2026-11-25T09:00Z"},
            "within",
            "is no time from now; write hours or days",
        ),
        ({**GOOD, "when": "within", "within": "12 parsecs"}, "within", "'12 parsecs' is no time from now"),
        ({**GOOD, "when": "within", "within": "9999d"}, "within", "is longer than ten years; write hours or days"),
        ({"source": "document", "document": DOCUMENT}, "document", "Line 3: steps: must be more than 0"),
        ({"source": "document", "document": ""}, "document", "is empty"),
        ({"source": "job", "job": ""}, "job", "is empty"),
        ({"source": "job", "job": "unheard-of"}, "job", "no job 'unheard-of' is known"),
        ({**GOOD, "at": ""}, "at", "is empty"),
        ({**GOOD, "at": "2020-01-01T00:00"}, "at", "has passed"),
        ({**GOOD, "limits_of": "own", "limits": " "}, "limits", "is empty"),
        ({**GOOD, "limits": "clouds: [aws]"}, "limits", "others are chosen"),
        ({**GOOD, "accelerators": "FOO:8"}, "accelerators", "FOO"),
    ],
)
def test_a_problem_stands_beside_its_field(client: TestClient, fields: dict[str, str], field: str, words: str) -> None:
    page, beside = refused(client, **fields)
    assert list(beside) == [field]
    assert words in beside[field]
    assert "job.yaml" not in page.words


def test_a_file_that_is_no_text_is_refused_beside_the_file(client: TestClient, context: QueryContext) -> None:
    fields = {"source": "document", **AT}
    answer = client.post("/quotes", data=fields, files={"file": ("job.yaml", b"\xff\xfe\x00")}, headers=PAGE)
    page = read_page(answer.text)
    assert answer.status_code == 400
    wrong = page.every(lambda each: each.attributes.get("aria-invalid") == "true")
    assert [each.attributes["name"] for each in wrong] == ["file"]
    assert context.store.tasks.take("w", ["quote"], context.clock()) is None


def test_the_choice_of_a_deadline_counts(client: TestClient, context: QueryContext) -> None:
    for fields, by in (
        ({"when": "within", "within": "+36h"}, "+1d12h"),
        ({"when": "within", "within": " 36 hours "}, "+1d12h"),
        ({"when": "within", "within": "2d"}, "+2d"),
        ({"when": "within", "within": "12"}, "+12h"),
        ({"when": "", "within": "12h", "at": ""}, "+12h"),
        ({"when": "at", "within": "+36h"}, "2026-11-23T12:00Z"),
    ):
        sent = client.post(
            "/quotes", data={"source": "fields", **GOOD, **AT, **fields}, headers=PAGE, follow_redirects=False
        )
        assert sent.status_code == 303, sent.text
        task = context.store.tasks.take("w", ["quote"], context.clock())
        assert task is not None
        assert f'"by": "{by}"' in task.request or f'"by":"{by}"' in task.request
    _, beside = refused(client, **{**GOOD, "when": "own"})
    assert list(beside) == ["when"]
    assert "has no deadline to quote for" in beside["when"]


ODD = [
    "\0",
    "\x1b[31m",
    "\ud800",
    "x" * 99_999,
    "&a [*a]",
    "name: 9" + "9" * 60,
    "a: &x [1]\nb: [" + "*x," * 5000 + "]",
]


@pytest.mark.parametrize("text", ODD, ids=lambda text: repr(text[:12]))
def test_no_text_breaks_the_server(client: TestClient, text: str) -> None:
    body = json.dumps({"document": text, "by": "+48h"})
    answer = client.post("/api/v1/quotes", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    for field in ("job", "again", "by", "budget"):
        body = json.dumps({"document": "name: a", field: text[:40]})
        answer = client.post("/api/v1/quotes", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 404, 422)
    if text != "\ud800":
        sent = client.post("/quotes", data={"source": "fields", "name": text, "steps": text, "within": "+2h"})
        assert sent.status_code == 400
        assert client.get("/quotes", params={"before": text[:50], "job": text[:50]}).status_code in (200, 400)
        assert client.post("/quotes/quote-12345678/acceptance", data={"ceiling": text[:50]}).status_code in (400, 404)


def test_a_text_that_is_too_long_is_refused_before_it_is_read(client: TestClient) -> None:
    assert client.post("/quotes", data={"document": "x" * 2_000_000}).status_code == 413
    assert "at most 100,000" in client.post("/quotes", data={"document": "x" * 100_001}, headers=PAGE).text
