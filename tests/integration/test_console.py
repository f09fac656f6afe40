"""The console: what it answers of plans, to whom, and with which headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from router.app.queries.context import QueryContext
from router.planning.document.plan_json import plan_content, plan_to_json
from router.render.tonight_page import tonight_page
from tests.support.console import NIGHT, PAGE, console_client, identity_with, query_context
from tests.support.scenes import NORTH, a_job, plan_of

PLAN = plan_of([a_job()], [NORTH])


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path) as opened:
        yield opened


@pytest.fixture
def client(context: QueryContext) -> TestClient:
    return console_client(context)


def put_plan(context: QueryContext) -> str:
    digest: str = plan_content(PLAN)["digest"]
    context.store.made_plans.put(digest, plan_to_json(PLAN), PLAN.as_of, NIGHT, "ana@host", "night")
    return digest


def test_the_latest_plan_is_shown_with_the_answer_of_the_static_page(context: QueryContext, client: TestClient) -> None:
    digest = put_plan(context)
    shown = client.get("/", headers=PAGE)
    assert shown.url.path == "/tonight"
    sentence = tonight_page(PLAN).split("<h1>")[1].split("</h1>")[0]
    assert sentence in shown.text
    assert client.get(f"/plans/plan-{digest[:12]}").text == shown.text
    assert 'aria-current="page">Tonight<' in shown.text


def test_a_page_confines_itself_and_is_not_sent_again(context: QueryContext, client: TestClient) -> None:
    put_plan(context)
    shown = client.get("/tonight")
    assert "script-src 'self'" in shown.headers["Content-Security-Policy"]
    assert "<style" not in shown.text
    assert " onclick=" not in shown.text
    assert client.get("/tonight", headers={"If-None-Match": shown.headers["ETag"]}).status_code == 304


def test_a_long_answer_is_compressed_for_whoever_can_read_it(context: QueryContext, client: TestClient) -> None:
    put_plan(context)
    plain, packed = (client.get("/tonight", headers={"Accept-Encoding": takes}) for takes in ("identity", "gzip"))
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 2
    assert (packed.text, packed.headers["ETag"]) == (plain.text, plain.headers["ETag"])
    assert "Accept-Encoding" in plain.headers["Vary"]
    head = client.head("/tonight", headers={"Accept-Encoding": "gzip"})
    assert (head.headers, head.content) == (packed.headers, b"")
    assert "Content-Encoding" not in client.get("/health", headers={"Accept-Encoding": "gzip"}).headers


def test_without_a_plan_it_says_how_to_make_one(client: TestClient) -> None:
    missing = client.get("/tonight", headers=PAGE)
    assert missing.status_code == 404
    assert "stepfare plan" in missing.text
    assert client.get("/plans/plan-0000").status_code == 404


def test_nobody_unknown_sees_anything(context: QueryContext) -> None:
    put_plan(context)
    stranger = console_client(context, lambda: None)
    for path in ("/tonight", "/", "/api/v1/plans"):
        assert stranger.get(path).status_code == 401
    assert stranger.get("/health").status_code == 200


def test_roles_that_read_no_plans_are_refused(context: QueryContext) -> None:
    put_plan(context)
    nobody = console_client(context, lambda: identity_with())
    assert nobody.get("/tonight").status_code == 403
