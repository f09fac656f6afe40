"""The console's pages of a month's costs say what the command line says, and to each reader only what is theirs."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from router.access.identity import Identity
from router.app.queries.context import QueryContext
from router.app.queries.spend import SpendQuestion, month_answer
from router.app.showback import MonthAnswer
from router.console.answers import AnswerCache
from router.console.site import ConsoleSite
from router.console.spend_questions import kept_month
from router.ledger.month import Month
from router.render.showback_page import SpendLinks, name_of_segment, path_segment
from router.showback.report.export import report_schema, report_to_csv, report_to_json, report_to_workbook
from router.showback.report.lines import SpendLine, find_level
from tests.support.command import run
from tests.support.console import OPERATOR, PAGE, console_client, identity_with
from tests.support.page_reader import without_times
from tests.support.spent_month import MADE_AT, MONTH, TEAMS, WHEN, spent_month

TOTAL = Decimal("26750.96")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryContext]:
    with spent_month(tmp_path_factory.mktemp("november")) as opened:
        yield opened


class Readers:
    """One console, asked as whoever is set."""

    def __init__(self, context: QueryContext) -> None:
        self.who: Identity | None = OPERATOR
        self._client = console_client(context, lambda: self.who)

    def asked_by(self, *grants: str) -> TestClient:
        self.who = identity_with(*grants) if grants else OPERATOR
        return self._client


@pytest.fixture(scope="module")
def readers(context: QueryContext) -> Readers:
    return Readers(context)


class Answers:
    """The answers for each team alone, for rows without one (""), and for all ("*"), each made once."""

    def __init__(self, context: QueryContext) -> None:
        self._context, self._made = context, dict[str, MonthAnswer]()

    def __getitem__(self, team: str) -> MonthAnswer:
        if team not in self._made:
            teams = None if team == "*" else frozenset({team})
            self._made[team] = month_answer(self._context, SpendQuestion(month=Month.parse(MONTH), teams=teams))
        return self._made[team]


@pytest.fixture(scope="module")
def answers(context: QueryContext) -> Answers:
    return Answers(context)


def printed(*words: str) -> str:
    done = run("showback", "--month", MONTH, "--now", WHEN, *words)
    assert done.exit_code == 0, done.output
    return done.stdout.removesuffix("\n")


def without_as_of(text: str) -> list[str]:
    """Lines but for the values of as_of, which only ``--now`` sets, and of the hash with that in it."""
    lines = text.removesuffix("\n").split("\n")
    head = [number for number, line in enumerate(lines) if re.search(r"\b(as_of|input_hash)\b", line)]
    values = {number + 1 for number in head} if text.startswith("{") else set(head)
    return [line for number, line in enumerate(lines) if number not in values]


def amounts(text: str) -> list[Decimal]:
    return [Decimal(found) for found in re.findall(r'<data value="([^"]+)">', text)]


def test_the_first_screen_answers_what_was_spent_why_and_who_is_over(readers: Readers) -> None:
    shown = readers.asked_by().get("/spend", headers=PAGE).text
    top = shown[shown.index("<h1>") : shown.index("<dl")]
    assert "$26,750.96</data> spent" in top
    assert re.search(r"speech is over its budget|research, speech are over|nobody is over", top)
    lead = top[top.index('<p class="lead">') :]
    assert "more than October" in lead
    change, *reasons = amounts(lead)
    # The last amount is of a team; each is rounded by itself.
    assert abs(change - sum(reasons[:-1])) <= Decimal("0.02")
    assert "As of 3 Dec 2026, 09:00 UTC" in without_times(shown)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", ()),
        pytest.param(
            "by=team,project&basis=billed", ("--by", "team,project", "--basis", "billed"), marks=pytest.mark.slow
        ),
        pytest.param("by=job&share_idle=weighted", ("--by", "job", "--share-idle", "weighted"), marks=pytest.mark.slow),
        ("by=label:phase,team", ("--by", "label:phase,team")),
    ],
)
def test_files_and_the_api_are_the_bytes_of_the_command(readers: Readers, query: str, words: tuple[str, ...]) -> None:
    client = readers.asked_by()
    as_json = client.get(f"/spend/{MONTH}.json?{query}").text
    assert without_as_of(as_json) == without_as_of(printed(*words, "-o", "json"))
    assert client.get(f"/api/v1/showback?month={MONTH}&{query}").text == as_json
    as_csv = client.get(f"/spend/{MONTH}.csv?{query}").text
    assert without_as_of(as_csv) == without_as_of(printed(*words, "-o", "csv"))
    totals = json.loads(as_json)["sections"]["totals"]["rows"]
    assert round(sum(Decimal(row["effective"]) for row in totals if row["currency"] == "USD"), 2) == TOTAL


def test_files_are_written_as_the_command_writes_a_report(readers: Readers, answers: Answers) -> None:
    client, report = readers.asked_by(), answers["*"].report
    assert client.get(f"/spend/{MONTH}.json").text == report_to_json(report)
    assert client.get(f"/spend/{MONTH}.csv").text == report_to_csv(report)
    workbook = client.get(f"/spend/{MONTH}.xlsx")
    assert workbook.content == report_to_workbook(report, MADE_AT)
    assert f"showback-{MONTH}.xlsx" in workbook.headers["Content-Disposition"]


@pytest.mark.slow
def test_every_link_of_the_month_leads_down_and_each_level_adds_up(readers: Readers, answers: Answers) -> None:
    client, lines = readers.asked_by(), answers["*"].lines
    waiting, seen = [f"/spend/{MONTH}?by=team,project,job", f"/spend/{MONTH}?by=label:phase"], set[str]()
    attempts = 0
    while waiting:
        url = waiting.pop()
        shown = client.get(url, headers=PAGE)
        assert shown.status_code == 200, url
        for link in re.findall(rf'href="(/spend/{MONTH}/[^"]+)"', shown.text):
            if link not in seen and "format=" not in link:
                seen.add(link)
                waiting.append(link)
        attempts += shown.text.count('href="/attempts/')
    assert attempts > 30
    for link in seen:
        words = [name_of_segment(name_of_segment(word)) for word in link.removeprefix(f"/spend/{MONTH}/").split("/")]
        path = tuple(zip(words[::2], words[1::2], strict=True))
        level = find_level(lines, path)
        assert level is not None, link
        for table in level.tables:
            assert sum(row.sums.cost for row in table.rows if row.sums.cost is not None) == (table.sums.cost or 0), link
            assert table.sums.cost == dict(level.totals)[table.currency], link


def test_levels_add_up_to_the_report(answers: Answers) -> None:
    report, lines = answers["*"].report, answers["*"].lines
    for row in report.section("totals").records():
        own = [line.sums.cost for line in lines if line.currency == row["currency"] and line.sums.cost is not None]
        assert sum(own) == row["effective"]
    for row in report.section("teams").records():
        level = find_level(lines, (("team", str(row["team"])),))
        spent = None if level is None else dict(level.totals).get(str(row["currency"]))
        assert (spent or 0) == (row["cost"] or 0), row["team"]


def test_a_label_leads_down_to_its_jobs_and_adds_up(readers: Readers, answers: Answers) -> None:
    client, lines = readers.asked_by(), answers["*"].lines
    whole = client.get(f"/spend/{MONTH}.json?by=label:phase").json()
    assert not list(Draft202012Validator(report_schema()).iter_errors(whole))
    by_phase = whole["sections"]["groups"]
    cost = {row["label:phase"]: Decimal(row["effective"]) for row in by_phase["rows"] if row["currency"] == "USD"}
    assert cost.keys() == {"training", "fine-tuning", "pretraining", "sweep", "__unallocated__"}
    assert round(sum(cost.values()), 2) == TOTAL
    shown = client.get(f"/spend/{MONTH}?by=label:phase", headers=PAGE).text
    url = f"/spend/{MONTH}/label%253Aphase/pretraining"
    assert f'href="{url}"' in shown
    assert '<option value="label:phase" selected>' in shown
    told = client.get(f"{url}?format=json").json()
    assert Decimal(told["totals"]["USD"]) == cost["pretraining"]
    assert {row["job"] for row in told["rows"]} == {
        line.job for line in lines if dict(line.labels).get("phase") == "pretraining"
    }
    job = client.get(f"{url}/team/research/project/code/job/code-34b-pretrain", headers=PAGE).text
    assert '<a href="/attempts/' in job
    assert "Label phase: pretraining" in client.get(url, headers=PAGE).text
    assert client.get(f"/spend/{MONTH}/label%253Aphase/sweep", headers=PAGE).status_code == 200
    other = readers.asked_by("viewer:speech")
    assert other.get(f"/spend/{MONTH}/label%253Aphase/sweep", headers=PAGE).status_code == 404
    own = other.get(f"/spend/{MONTH}.json?by=label:phase").json()["sections"]["groups"]["rows"]
    assert {row["label:phase"] for row in own} == {"training", "__unallocated__"}


def test_the_months_charges_have_labels_among_their_tags(context: QueryContext, tmp_path: Path) -> None:
    file = tmp_path / "november.csv"
    done = run("showback", "--month", MONTH, "--now", WHEN, "-o", "focus", "--out", file)
    assert done.exit_code == 0, done.output
    with file.open(encoding="utf-8", newline="") as rows:
        charges = [
            (row["x_JobId"], json.loads(row["Tags"] or "{}"), row["x_RecordState"]) for row in csv.DictReader(rows)
        ]
    phases = {(job, tags.get("phase")) for job, tags, _ in charges if job}
    assert {("code-34b-pretrain", "pretraining"), ("lr-sweep", "sweep"), ("smoke-cluster", None)} <= phases
    assert len(phases) == len({job for job, _ in phases})
    invoiced = [tags for job, tags, state in charges if (job, state) == ("code-34b-pretrain", "Invoiced")]
    assert invoiced
    assert all((tags["phase"], tags["team"]) == ("pretraining", "research") for tags in invoiced)


def test_a_jobs_page_lists_its_attempts_with_all_digits_and_as_files(readers: Readers) -> None:
    client = readers.asked_by()
    url = f"/spend/{MONTH}/team/research/project/code/job/code-34b-pretrain"
    shown = client.get(url, headers=PAGE).text
    assert '<a href="/attempts/' in shown
    assert shown.index(f'href="/spend/{MONTH}"') < shown.index('aria-current="page">code-34b-pretrain')
    told = client.get(f"{url}?format=json").json()
    assert {row["attempt"] for row in told["rows"]} <= set(re.findall(r"[\w-]+", shown)) | {"__unallocated__"}
    rows = list(csv.DictReader(io.StringIO(client.get(f"{url}?format=csv").text)))
    assert [row["cost"] for row in rows] == [row["cost"] for row in told["rows"]]


def test_every_chart_table_tile_and_file_adds_up_to_one_figure(readers: Readers, answers: Answers) -> None:
    """By hand: 26,750.96325 dollars. Pages have its cents; sections, files and levels all its digits."""
    client, report = readers.asked_by(), answers["*"].report
    exact = Decimal("26750.96325")
    rows: dict[str, list[dict[str, Any]]] = {
        each.name: [row for row in each.records() if row.get("currency") == "USD"] for each in report.sections
    }
    coverage = {row["what"]: row for row in rows["coverage"]}
    (bridge,) = [row["sum"] for row in rows["bridge"] if row["step"] == "spent"]
    found = {
        "totals": rows["totals"][0]["effective"],
        "bridge": bridge,
        "last day": rows["days"][-1]["sum"],
        "months": rows["months"][-1]["cost"],
        "owned or not": coverage["project"]["allocated"] + coverage["project"]["unallocated"],
        "jobs": sum(row["effective"] or 0 for row in rows["jobs"]) + coverage["job"]["unallocated"],
        "budget of all": next(row["spent"] for row in rows["budgets"] if row["scope"] == "all"),
        **{name: sum(row["effective"] or 0 for row in rows[name]) for name in ("days", "groups")},
        "teams": sum(row["cost"] or 0 for row in rows["teams"]),
        "change": sum(row["amount"] for row in rows["change"]) + rows["totals"][0]["last_month"],
    }
    for name in ("days", "groups"):
        for ending, read in (("csv", _csv_rows), ("json", _json_rows)):
            own = [row for row in read(client.get(f"/spend/{MONTH}.{ending}").text, name) if row["currency"] == "USD"]
            found[f"{name}.{ending}"] = sum(Decimal(row["effective"] or 0) for row in own)
    for row in rows["teams"]:
        url = f"/spend/{MONTH}/team/{row['team']}?format=csv"
        level = list(csv.DictReader(io.StringIO(client.get(url).text))) if row["cost"] else []
        assert sum(Decimal(each["cost"] or 0) for each in level if each["currency"] == "USD") == (row["cost"] or 0), url
    assert {name: amount for name, amount in found.items() if amount != exact} == {}
    shown = client.get("/spend", headers=PAGE).text
    assert Decimal(round(exact, 2)) in amounts(shown[shown.index("<dt>Spent") : shown.index("<dt>Budget used")])
    assert amounts(shown[shown.index("<tfoot") :])[0] == round(exact, 2)
    charts = shown[shown.index('aria-label="Spent so far by day in USD') : shown.index("Raw fields")]
    assert re.findall(r">(\$[\d,.]+)</text>", charts[: charts.index("</svg>")]).count("$26,750.96") == 1


def _csv_rows(text: str, section: str) -> list[dict[str, str]]:
    return [row for row in csv.DictReader(io.StringIO(text)) if row["section"] == section]


def _json_rows(text: str, section: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(text)["sections"][section]["rows"]
    return rows


@pytest.mark.parametrize(
    "path", ["team/research", "label%253Aphase/pretraining", "team/research/project/code/job/code-34b-pretrain"]
)
def test_the_file_of_a_level_has_each_amount_once(readers: Readers, path: str) -> None:
    client = readers.asked_by()
    url = f"/spend/{MONTH}/{path}"
    told = client.get(f"{url}?format=json").json()
    rows = list(csv.DictReader(io.StringIO(client.get(f"{url}?format=csv").text)))
    for currency, total in told["totals"].items():
        assert sum(Decimal(row["cost"] or 0) for row in rows if row["currency"] == currency) == Decimal(total)
    assert [row["cost"] or None for row in rows] == [row["cost"] for row in told["rows"]]


@pytest.mark.slow
def test_restricted_reports_add_up_to_the_whole(answers: Answers) -> None:
    parts = [answers[team].report for team in (*TEAMS, "")]
    whole = answers["*"].report
    for section, keys, fields in (
        ("totals", ("currency",), ("billed", "effective", "list", "facts", "last_month")),
        ("groups", ("currency", "team"), ("billed", "effective", "planned", "waste")),
        ("teams", ("currency", "team"), ("cost", "waste", "last_month")),
        ("waste", ("currency", "use"), ("billed", "effective", "hours")),
        ("savings", ("currency", "market"), ("cost", "on_demand", "saved")),
        ("movement", ("currency", "what", "cloud", "region", "route"), ("billed", "quantity")),
        ("days", ("currency", "day"), ("billed", "effective", "hours")),
        ("months", ("currency", "month"), ("cost",)),
        ("bridge", ("currency", "side", "step"), ("amount",)),
        ("corrections", ("origin", "row"), ("billed",)),
    ):

        def add(to: dict[tuple[object, ...], Decimal], report: Any, what: Any = (section, keys, fields)) -> None:
            for row in report.section(what[0]).records():
                if row.get("side") == "bill":  # a team that has nothing but bills has no bridge
                    continue
                for field in what[2]:
                    key = (*(row[name] for name in what[1]), field)
                    to[key] = to.get(key, Decimal(0)) + Decimal(row[field] or 0)

        got: dict[tuple[object, ...], Decimal] = {}
        for report in parts:
            add(got, report)
        wanted: dict[tuple[object, ...], Decimal] = {}
        add(wanted, whole)
        differing = {key for key in got.keys() | wanted.keys() if got.get(key, 0) != wanted.get(key, 0)}
        assert differing == set(), section
        assert wanted, section


def owned(lines: tuple[SpendLine, ...], team: str) -> set[str]:
    """Names that the lines of a team have."""
    own = [line for line in lines if line.team == team]
    return {team} | {word for line in own for word in (line.project, line.job, line.attempt) if word}


@pytest.mark.parametrize(
    "team", ["speech", *(pytest.param(team, marks=pytest.mark.slow) for team in TEAMS if team != "speech")]
)
def test_a_reader_of_one_team_sees_no_name_or_sum_of_another(readers: Readers, answers: Answers, team: str) -> None:
    client, whole = readers.asked_by(f"viewer:{team}"), answers["*"]
    others = set().union(*(owned(whole.lines, other) for other in TEAMS if other != team)) - owned(whole.lines, team)
    costs = [row["cost"] for row in whole.report.section("teams").records() if row["team"] != team]
    sums = {f"{cost:,.2f}" for cost in costs if cost} | {f"{TOTAL:,}"}
    assert len(sums) > len(TEAMS) - 1
    sums -= {"400.00"}  # a transfer from research to search, which is on both sides
    bodies = [
        client.get(url, headers=PAGE).text
        for url in (
            "/spend",
            f"/spend/{MONTH}?by=team,project,job,attempt&share_idle=weighted",
            "/waste",
            "/budgets?month=2026-11",
            f"/spend/{MONTH}/team/{team}",
            f"/spend/{MONTH}.csv?by=team,project,job,attempt&share_idle=weighted",
            f"/spend/{MONTH}.json",
            "/waste.csv",
            "/budgets.csv",
            f"/api/v1/showback?month={MONTH}",
            f"/api/v1/budgets?month={MONTH}",
        )
    ]
    for body in bodies:
        # Words of sentences and of columns, such as "search" in a menu, are no names: names stand alone.
        told = set(re.findall(r"[\w.:/@-]+", re.sub(r"</?code>", "", body)))
        assert told & others == set()
        figures = set(re.findall(r"[\d.,]*\d", body))
        assert figures & (sums | {amount.replace(",", "") for amount in sums}) == set()


def test_another_teams_urls_are_as_if_they_were_not(readers: Readers) -> None:
    client = readers.asked_by("viewer:speech")
    for path in ("team/research", "job/code-34b-pretrain", "project/code", "team/__unallocated__", "team/nobody"):
        told = client.get(f"/spend/{MONTH}/{path}", headers=PAGE)
        assert told.status_code == 404
        assert "nothing of it has costs" in told.text
    assert readers.asked_by("viewer:nowhere").get("/spend", headers=PAGE).status_code == 200
    assert "26,7" not in readers.asked_by("viewer:nowhere").get("/spend", headers=PAGE).text


def test_a_reader_without_the_permission_is_refused(readers: Readers) -> None:
    client = readers.asked_by()
    readers.who = identity_with()
    for url in (
        "/spend",
        "/waste",
        "/budgets",
        f"/spend/{MONTH}/team/speech",
        "/api/v1/showback",
        f"/spend/{MONTH}.csv",
    ):
        assert client.get(url).status_code == 403


def test_waste_and_savings_are_those_of_the_report(readers: Readers, answers: Answers) -> None:
    shown = readers.asked_by().get("/waste", headers=PAGE).text
    report = answers["*"].report
    told = {f"{amount:.2f}" for amount in amounts(shown)}
    for row in report.section("waste").records():
        if row["currency"] == "USD":
            assert f"{row['effective']:.2f}" in told
    for row in report.section("savings").records():
        if row["currency"] == "USD":
            assert {f"{row[name]:.2f}" for name in ("saved", "saved_net") if row[name] is not None} <= told


@pytest.mark.parametrize(
    "url",
    [
        "/spend/2026-13", "/spend/0001-01", "/spend/9999-12", "/spend?by=nothing", "/spend?by=team,team",
        "/spend?basis=cash", "/spend?share_idle=fixed", "/spend?month=%00", "/waste?month=x",
        "/api/v1/showback?month=1",
        "/budgets?month=99999999999-1", f"/spend?by={'x' * 5000}", "/spend/2026-11.exe", "/spend/2026-11/team",
        "/spend/2026-11/job/x/team/y", "/spend?by=label:", "/spend/2026-11/label:a/x/label:b/y",
        "/spend/2026-11/team/x/label:a/y", "/spend/2026-11/team/%00", "/spend/2026-11/attempt/a", "/spend/2026-11//",
        "/spend/2026-11/team/research?format=exe", f"/spend/2026-11/team/{'%25' * 900}",
    ],
)  # fmt: skip
def test_odd_questions_are_refused_in_words(readers: Readers, url: str) -> None:
    told = readers.asked_by().get(url, headers=PAGE)
    assert told.status_code in (400, 404)
    assert "Traceback" not in told.text


def test_a_month_without_costs_says_so(readers: Readers) -> None:
    text = readers.asked_by().get("/spend/2026-01", headers=PAGE).text
    assert "Nothing is in the books of 2026-01." in text
    as_of = text[text.index("As of ") : text.index("</time>", text.index("As of "))]
    assert re.search(r">\d+ [A-Z][a-z]{2} \d{4}, \d\d:\d\d UTC$", as_of), as_of


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a b", "100%", "<b>", "é", "x?y#z", "%2F", "'\"&"])
def test_any_name_is_one_segment_of_a_url(name: str) -> None:
    segment = path_segment(name)
    assert not set(segment) & set('/?#<>" ')
    assert segment not in (".", "..")
    assert name_of_segment(name_of_segment(segment)) == name
    assert SpendLinks(MONTH).level(team=name).count("/") == 4


def test_a_report_is_made_once_for_all_who_may_see_the_same(context: QueryContext) -> None:
    readers = Readers(context)
    first = readers.asked_by().get("/spend")
    assert readers.asked_by("finance").get(f"/spend/{MONTH}").status_code == 200
    again = readers.asked_by().get("/spend", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304
    assert context.clock() == MADE_AT


def test_a_report_is_made_again_once_what_it_depends_on_has_changed(context: QueryContext) -> None:
    now = [MADE_AT]
    site = ConsoleSite(replace(context, clock=lambda: now[0]), lambda _: OPERATOR, AnswerCache())
    question = SpendQuestion(month=Month.parse(MONTH))

    async def ask() -> None:
        first = await kept_month(site, question)
        assert await kept_month(site, question) is first
        now[0] += timedelta(hours=1)  # what still runs costs more
        second = await kept_month(site, question)
        assert second is not first
        assert second.value.lines == first.value.lines
        assert await kept_month(site, question) is second

    asyncio.run(ask())


def test_exports_of_a_restricted_report_name_what_it_is_of(answers: Answers) -> None:
    head = {row["name"]: row["value"] for row in answers["speech"].report.section("head").records()}
    assert head["made_from"] == "rows of speech"
    for text in (report_to_csv(answers["speech"].report), report_to_json(answers["speech"].report)):
        assert "research" not in text
