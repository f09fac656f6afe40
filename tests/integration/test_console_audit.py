"""The audit log in the console: the entries of the command, filtered, with its chain verified."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text

from pricing.money import Usd
from router.app.queries.budgets import remove_budget, set_budget
from router.app.queries.context import QueryContext
from router.ledger.budget import Budget, Scope
from router.ledger.month import Month
from tests.support.command import run
from tests.support.console import NIGHT, console_client, identity_with, query_context
from tests.support.page_reader import check_landmarks, read_page

FINANCE = identity_with("finance", name="fay")


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path) as opened:
        add = opened.store.audit.add
        add("ana@host", "approve", "a" * 64, Usd.parse("12.34"), NIGHT, by="ana", note="<script>alert(1)</script>")
        add("=bo@host", "apply", "b" * 64, Usd.parse("5"), NIGHT + timedelta(hours=1))
        add("cid@host", "state restore", "", Usd.parse("0"), NIGHT + timedelta(hours=2))
        yield opened


@pytest.fixture
def client(context: QueryContext) -> TestClient:
    return console_client(context, lambda: FINANCE)


def numbers(client: TestClient, **query: object) -> list[str]:
    answer = client.get("/audit", params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200
    return [e.attributes["data-seq"] for e in read_page(answer.text).every(lambda e: "data-seq" in e.attributes)]


def test_the_newest_entry_comes_first_and_text_is_escaped(client: TestClient) -> None:
    page = client.get("/audit").text
    assert numbers(client) == ["3", "2", "1"]
    assert "3 entries, the chain is whole." in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    check_landmarks(read_page(page))


def test_entries_are_found_by_who_what_and_plan(client: TestClient) -> None:
    assert numbers(client, who="ANA") == ["1"]
    assert numbers(client, what="apply") == ["2"]
    assert numbers(client, plan="plan-bbbb") == ["2"]
    assert numbers(client, who="ana", plan="bbbb") == []
    assert numbers(client, before=3) == ["2", "1"]
    assert numbers(client, before=-(10**30)) == []
    assert "1 of 1 that fit, of 3 in all" in client.get("/audit?who=ana").text


def test_json_has_what_the_command_prints_newest_first_and_csv_holds_no_formula(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    printed = json.loads(run("audit", "-o", "json").stdout)
    assert json.loads(client.get("/audit.json").text) == {**printed, "entries": printed["entries"][::-1]}
    assert [e["seq"] for e in json.loads(client.get("/audit.json?who=cid").text)["entries"]] == [3]
    rows = client.get("/audit.csv").text.splitlines()
    assert rows[2].startswith("2,2026-11-21T19:00:00+00:00,'=bo@host,apply,")


def test_a_budget_is_named_and_no_risk(
    context: QueryContext, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    budget = Budget(scope=Scope.TEAM, name="red", since=Month(2026, 11), usd=Usd.parse("850"), hard=True, at=NIGHT)
    asked = replace(context, identity=FINANCE)
    set_budget(asked, budget)
    remove_budget(asked, replace(budget, usd=None, at=NIGHT + timedelta(hours=1)))
    told = ("team red: $850.00 a month, hard, from 2026-11 on", "team red: from 2026-11 on")
    page = client.get("/audit").text
    rows = read_page(page).every(lambda e: e.attributes.get("data-seq") in ("4", "5"))
    assert [(words in row.words, row.words.count("$")) for row, words in zip(rows, told[::-1], strict=True)] == [
        (True, 0),
        (True, 1),
    ]
    csv_rows = list(csv.DictReader(io.StringIO(client.get("/audit.csv").text)))
    assert [(row["at_risk_usd"], row["budget"]) for row in csv_rows[:2]] == [("none", words) for words in told[::-1]]
    printed = run("audit").stdout
    assert told[1] in printed
    assert "5.00" in printed


def test_a_changed_entry_is_told_first(context: QueryContext, client: TestClient, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/state.db")
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER audit_log_keeps_rows"))
        connection.execute(text("UPDATE audit_log SET who = 'eve@host' WHERE seq = 2"))
    engine.dispose()
    page = client.get("/audit?who=ana").text
    assert "Entry 2 is not what was written" in page
    assert "the chain is whole" not in page


def test_it_is_read_by_those_who_may_read_it_for_all_teams(context: QueryContext) -> None:
    for grants in (("viewer",), ("finance:red",), ("approver:red", "viewer"), ("planner",)):
        reader = console_client(context, lambda grants=grants: identity_with(*grants))  # type: ignore[misc]
        for path in ("/audit", "/audit.csv", "/audit.json"):
            assert reader.get(path).status_code == 403, (grants, path)


def test_a_long_log_is_shown_in_pages(context: QueryContext, client: TestClient) -> None:
    for number in range(120):
        context.store.audit.add("dee@host", "apply", "d" * 64, Usd(number), NIGHT)
    assert numbers(client)[0] == "123"
    assert len(numbers(client)) == 100
    page = client.get("/audit?who=dee").text
    assert "/audit?who=dee&amp;before=24" in page
    assert numbers(client, who="dee", before=24) == [str(n) for n in range(23, 3, -1)]


def test_an_empty_log_has_words(tmp_path: Path) -> None:
    with query_context(tmp_path / "new") as opened:
        page = console_client(replace(opened, identity=FINANCE)).get("/audit").text
    assert "Nothing was done yet." in page
