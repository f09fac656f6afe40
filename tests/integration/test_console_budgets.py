"""The console's page of budgets: the figures of `budget check`, who may set one, and names that are no markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from router.access.identity import Identity
from router.app.queries.context import QueryContext
from tests.support.command import run
from tests.support.console import OPERATOR, PAGE, console_client, identity_with
from tests.support.page_reader import check_landmarks, read_page
from tests.support.spent_month import MONTH, WHEN, spent_month

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryContext]:
    with spent_month(tmp_path_factory.mktemp("november")) as opened:
        yield opened


class Readers:
    """One console, asked as whoever is set."""

    def __init__(self, context: QueryContext) -> None:
        self.who: Identity | None = OPERATOR
        self._client = console_client(context, lambda: self.who)

    def asked_by(self, *grants: str, name: str = "ana") -> TestClient:
        self.who = identity_with(*grants, name=name) if grants else OPERATOR
        return self._client


@pytest.fixture(scope="module")
def readers(context: QueryContext) -> Readers:
    return Readers(context)


def post(client: TestClient, path: str = "/budgets", **fields: str) -> tuple[int, str]:
    done = client.post(path, data=fields, headers=PAGE, follow_redirects=False)
    return done.status_code, done.headers.get("location", done.text)


@pytest.mark.slow
def test_the_figures_are_those_of_the_command(readers: Readers) -> None:
    client = readers.asked_by()
    asked = ("budget", "check", "--month", MONTH, "--no-notify", "--now", WHEN)
    printed = run(*asked, "-o", "json").stdout
    assert client.get(f"/api/v1/budgets?month={MONTH}").json() == json.loads(printed)
    assert client.get(f"/budgets.csv?month={MONTH}").text.rstrip("\n") == run(*asked, "-o", "csv").stdout.rstrip("\n")
    shown = client.get(f"/budgets?month={MONTH}", headers=PAGE).text
    for row in json.loads(printed)["budgets"]:
        assert f'<data value="{float(row["spent_usd"]):.2f}">' in shown
        assert f'<data value="{float(row["usd"]):.2f}">' in shown
    assert "speech is over its budget" in shown[shown.index("<h1>") : shown.index("</h1>")]


def test_a_budget_is_set_seen_and_removed_with_who_did_it(readers: Readers, context: QueryContext) -> None:
    client = readers.asked_by("finance", name="fred")
    done = post(client, scope="team", name="vision", usd="9,000.50", since="2026-12", warn="80, 100 %", hard="yes")
    assert done == (303, "/budgets?month=2026-12&done=set")
    shown = client.get(done[1], headers=PAGE).text
    assert "The budget is set." in shown
    assert "Team vision" in shown
    assert '<data value="9000.50">' in shown
    assert "fred" in shown
    entry = context.store.audit.entries()[-1]
    assert (entry.who, entry.what, entry.details["budget"], entry.details["hard"]) == (
        "fred",
        "budget set",
        "team vision",
        True,
    )
    assert context.store.budgets.all()[-1].warn == (80, 100)
    done = post(client, "/budgets/remove", scope="team", name="vision", since="2026-12")
    assert done == (303, "/budgets?month=2026-12&done=removed")
    assert "Team vision" not in rows_of(client, "2026-12")
    assert post(client, "/budgets/remove", scope="team", name="vision", since="2026-12")[0] == 404


@pytest.mark.slow
def test_the_costs_of_the_month_have_a_budget_as_soon_as_it_is_set(readers: Readers, context: QueryContext) -> None:
    client = readers.asked_by("finance", name="fred")

    def heading() -> str:
        shown = client.get(f"/spend/{MONTH}", headers=PAGE).text
        return shown[shown.index("<h1>") : shown.index("</h1>")].rsplit(";", 1)[1]  # who is over

    assert "vision" not in heading()
    assert post(client, scope="team", name="vision", usd="1", since=MONTH)[0] == 303
    assert "vision" in heading()
    assert post(client, "/budgets/remove", scope="team", name="vision", since=MONTH)[0] == 303
    assert "vision" not in heading()


def rows_of(client: TestClient, month: str) -> str:
    page = client.get(f"/budgets?month={month}", headers=PAGE).text
    return page[page.index('id="bud"') : page.index("</section>")]


def test_what_is_wrong_with_a_budget_stands_beside_its_field_all_at_once(readers: Readers) -> None:
    client = readers.asked_by("finance")
    status, text = post(client, scope="team", name=" ", usd="lots", since="soon", warn="100,50", hard="yes")
    assert status == 400
    page = read_page(text)
    check_landmarks(page)
    wrong = page.every(lambda each: each.attributes.get("aria-invalid") == "true")
    assert [each.attributes["name"] for each in wrong] == ["name", "usd", "since", "warn"]
    words = {each.attributes["id"]: each.words for each in page.of_class("bad") if "id" in each.attributes}
    assert [each.attributes["aria-describedby"].split()[0] in words for each in wrong] == [True] * 4
    assert "not an amount of dollars" in words["usd-wrong"]
    assert wrong[1].attributes["value"] == "lots"
    assert page.every(lambda each: each.attributes.get("name") == "hard")[0].attributes["checked"] == ""
    status, text = post(client, scope="all", name="foo", usd="5", warn="x")
    assert (status, 'id="name-wrong"' in text, "one of all has none" in text) == (400, True, True)
    assert ("x&#39; is no list of percents" in text, "int()" in text) == (True, False)
    status, text = post(client, scope="team", name="vision", usd="5", since="2026-10")
    assert (status, "the books of 2026-10 are closed" in text, 'id="since-wrong"' in text) == (409, True, True)


def test_closed_months_get_none(readers: Readers) -> None:
    status, told = post(readers.asked_by(), scope="team", name="vision", usd="5", since="2026-10")
    assert status == 409
    assert "the books of 2026-10 are closed" in told


@pytest.mark.parametrize(
    ("grants", "fields", "status"),
    [
        (("viewer",), {"scope": "team", "name": "speech"}, 403),
        (("finance:speech",), {"scope": "team", "name": "research"}, 403),
        (("finance:speech",), {"scope": "project", "name": "asr"}, 403),
        (("finance:speech",), {"scope": "all"}, 403),
        (("finance:speech", "viewer"), {"scope": "all"}, 403),
        (("finance",), {"scope": "job", "name": "x"}, 400),
        (("finance",), {"scope": "team", "name": "  "}, 400),
        (("finance",), {"scope": "all", "name": "foo"}, 400),
        (("finance",), {"scope": "team", "name": "x" * 300}, 400),
        (("finance",), {"scope": "team", "name": "x\0"}, 400),
        (("finance",), {"scope": "team", "name": "x", "usd": "-1"}, 400),
        (("finance",), {"scope": "team", "name": "x", "usd": "lots"}, 400),
        (("finance",), {"scope": "team", "name": "x", "usd": "1" + "0" * 25}, 400),
        (("finance",), {"scope": "team", "name": "x", "warn": "100,50"}, 400),
        (("finance",), {"scope": "team", "name": "x", "since": "soon"}, 400),
        (("finance",), {"scope": "team", "name": "x", "more": "y" * 9000}, 400),
    ],
)
def test_what_may_not_be_set_is_not(
    readers: Readers, context: QueryContext, grants: tuple[str, ...], fields: dict[str, str], status: int
) -> None:
    before = context.store.budgets.all()
    assert post(readers.asked_by(*grants), **{"usd": "10", "since": "2026-12", **fields})[0] == status
    assert context.store.budgets.all() == before


def test_each_sees_their_own_budgets_and_forms(readers: Readers) -> None:
    of_speech = readers.asked_by("finance:speech").get(f"/budgets?month={MONTH}", headers=PAGE).text
    assert "Team speech" in of_speech
    assert "research" not in of_speech
    assert ">All<" not in of_speech
    assert re.findall("<option>([a-z]+)</option>", of_speech) == ["team"]
    viewer = readers.asked_by("viewer").get(f"/budgets?month={MONTH}", headers=PAGE).text
    assert "Team research" in viewer
    assert "<form" not in viewer
    hidden = readers.asked_by("finance").get(f"/budgets?month={MONTH}", headers=PAGE).text
    assert hidden.count('name="csrf_token"') == hidden.count('method="post"') == 4


def test_project_budgets_are_seen_by_those_who_own_all_of_the_project(readers: Readers) -> None:
    for project in ("asr", "assistants"):
        assert post(readers.asked_by(), scope="project", name=project, usd="900", since=MONTH)[0] == 303
    told = readers.asked_by("viewer:speech").get(f"/api/v1/budgets?month={MONTH}").json()["budgets"]
    assert {(row["scope"], row["name"]) for row in told} == {("team", "speech"), ("project", "asr")}


def test_names_are_no_markup_and_no_formulas(readers: Readers) -> None:
    client = readers.asked_by()
    assert post(client, scope="team", name=NASTY, usd="1", since="2027-01")[0] == 303
    assert post(client, scope="project", name="=1+1", usd="1", since="2027-01")[0] == 303
    shown = client.get("/budgets?month=2027-01", headers=PAGE).text
    assert NASTY not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert ",'=1+1," in client.get("/budgets.csv?month=2027-01").text


def test_a_removal_asks_and_can_be_undone(readers: Readers, context: QueryContext) -> None:
    client = readers.asked_by("finance", name="fred")
    before = [each for each in context.store.budgets.all() if each.name == "speech"][-1]
    page = read_page(client.get("/budgets?month=2026-12", headers=PAGE).text)
    check_landmarks(page)
    (form,) = [each for each in page.tags("form") if "Team speech" in each.words]
    (asked,) = [each for each in page.tags("details") if form in each.children]
    assert asked.tags("summary")[0].words == "Remove"
    assert "would have no budget" in asked.words
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.tags("input")}
    _, url = post(client, "/budgets/remove", **fields)
    page = read_page(client.get(url, headers=PAGE).text)
    (told,) = page.every(lambda each: each.attributes.get("role") == "status")
    assert (told.words, told.attributes["class"]) == ("The budget is removed. It can be put back below.", "done")
    assert "Team speech" not in rows_of(client, "2026-12")
    (restore,) = page.every(lambda each: each.attributes.get("action") == "/budgets/restore")
    owed = {each.attributes["name"]: each.attributes["value"] for each in restore.tags("input")}
    assert post(readers.asked_by("finance:research"), "/budgets/restore", **owed)[0] == 403
    assert "Put back" not in readers.asked_by("finance:research").get(url, headers=PAGE).text
    client = readers.asked_by("finance", name="mia")
    assert post(client, "/budgets/restore", **owed) == (303, "/budgets?month=2026-12&done=restored")
    assert "Team speech" in rows_of(client, "2026-12")
    last = [each for each in context.store.budgets.all() if each.name == "speech"][-1]
    assert (last.usd, last.warn, last.hard, str(last.since), last.who) == (
        before.usd,
        before.warn,
        before.hard,
        "2026-12",
        "mia",
    )
    assert [entry.what for entry in context.store.audit.entries()[-2:]] == ["budget remove", "budget set"]
    assert post(client, "/budgets/restore", **owed)[0] == 404


def test_a_budget_of_a_name_that_is_known_is_just_set(readers: Readers) -> None:
    client = readers.asked_by("finance")
    assert post(client, scope="team", name="speech", usd="9000", since="2027-01")[1].endswith("done=set")
    done = post(client, scope="project", name="speech", usd="9000", since="2027-01")
    told = "The budget is set; nobody has spent or planned under that name so far."
    shown = client.get(done[1], headers=PAGE).text
    assert told in shown
    assert re.search(r"<h1>January has not begun: \d+ budgets hold from then on\.</h1>", shown)
    assert post(client, scope="all", name="", usd="9000", since="2027-01")[1].endswith("done=set")
