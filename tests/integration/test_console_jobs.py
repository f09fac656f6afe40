"""The pages and the API of jobs: where each runs and until when, for whom, with the figures of the command line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from pricing.money import Usd
from router.app.queries.context import QueryContext
from router.app.queries.jobs import find_attempt, find_job, report_jobs, report_status
from router.render.status_text import status_document
from tests.support import command
from tests.support.console import PAGE, console_client, identity_with, query_context
from tests.support.live_gangs import NOW, ODD, ODD_TEAM, play_night
from tests.support.page_reader import read_page, without_times
from tests.support.state_values import attempt, node

Night = tuple[QueryContext, dict[str, str], Path]
WHISPER, TTS, SWEEP = "whisper-nightly", "tts-voices", "lr-sweep"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """A night under way; tests read it alone."""
    folder = tmp_path_factory.mktemp("night")
    ids = play_night(folder)
    with query_context(folder, clock=lambda: NOW) as context:
        yield context, ids, folder


@pytest.fixture(scope="module")
def client(night: Night) -> TestClient:
    return console_client(night[0])


def as_team(context: QueryContext, *grants: str) -> TestClient:
    return console_client(context, lambda: identity_with(*grants))


def test_the_first_screen_says_where_a_job_is_and_until_when(client: TestClient) -> None:
    shown = without_times(client.get("/jobs", headers=PAGE).text)
    sentence = re.sub(r"<[^>]+>", "", shown.split("<h1>")[1].split("</h1>")[0])
    assert sentence == (
        "2 gangs run in 2 places for $100.00 an hour; $209.18 spent by them so far; 1 job waits for machines; "
        "none under notice, 1 silent."
    )
    rows = {
        name: row for row in shown.split('<tr role="row" data-attempt=')[1:] for name in (WHISPER, TTS) if name in row
    }
    # 1,400 of 4,500 steps are left at 3.6 s each.
    assert "~25 Nov 23:54" in rows[WHISPER]
    assert "aws/us-west-2" in rows[WHISPER]
    assert "26 Nov 02:00" in rows[WHISPER]  # its deadline, +9h after its plan
    assert "waits for machines" in rows[TTS]
    assert ">late<" in rows[TTS]
    assert "Over: 1 job</summary>" in shown


def test_a_job_has_its_attempts_as_a_picture_and_a_table(client: TestClient, night: Night) -> None:
    shown = without_times(client.get(f"/jobs/{WHISPER}", headers=PAGE).text)
    assert f"{WHISPER} is in aws/us-west-2, until about 25 Nov 23:54" in shown
    wide = shown.split('<div class="w">')[1].split("</div>")[0]
    bars = re.findall(r'data-attempt="(\d+)" data-start="([^"]+)" data-end="([^"]+)"', wide)
    assert bars == [
        ("1", "2026-11-25T18:00:00+00:00", "2026-11-25T20:03:00+00:00"),
        ("2", "2026-11-25T20:10:00+00:00", NOW.isoformat()),
    ]
    assert wide.count('class="full inv"') == 1  # the notice
    assert wide.count('class="mkl"') == 3  # checkpoints saved
    assert wide.count('class="hz"') == 2  # waiting, then down to the next place
    assert ">now<" in wide
    assert ">deadline<" in wide
    table = shown.split('aria-labelledby="att"')[1].split("</table>")[0]
    assert table.count("data-attempt=") == 2
    assert f'href="/attempts/{night[1][WHISPER]}"' in table


@pytest.mark.parametrize(
    ("job", "deadline", "step"),
    [
        # 3,100 of 4,500 steps; its plan did not say how likely it is on time.
        (WHISPER, "26 Nov 02:00chance not said", "3,100, 68 %saved: 3,000"),
        (SWEEP, "26 Nov 17:00met, 20.0 h before", "6,000, 100 %saved: 6,000"),
    ],
)
def test_a_job_says_how_much_is_done_and_whether_its_deadline_was_met(
    client: TestClient, job: str, deadline: str, step: str
) -> None:
    (tiles,) = read_page(client.get(f"/jobs/{job}", headers=PAGE).text).of_class("kpis")
    words = [tile.words for tile in tiles.children]
    assert words[1] == f"Deadline{deadline}"
    assert words[2].startswith(f"Step{step}")


def test_an_attempt_tells_its_journal_in_words_and_its_costs_by_item(client: TestClient) -> None:
    first = client.get(f"/api/v1/jobs/{WHISPER}").json()["attempts"][0]
    shown = client.get(f"/attempts/{first['attempt']}", headers=PAGE).text
    assert "Terraform begins to make the gang" in shown
    assert "the cloud takes the machine, 120 s left" in shown
    assert "work that was lost" in shown
    costs = shown.split('id="c"')[1].split("</section>")[0]
    assert "disks unknown" in costs  # no price is known: never $0.00
    assert "$0.00" not in costs


def test_figures_are_those_of_the_command_line(
    client: TestClient, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _, folder = night
    monkeypatch.setenv("STEPFARE_HOME", str(folder))
    told = {gang["attempt"]: gang for gang in json.loads(command.run("status", "--all", "-o", "json").stdout)["gangs"]}
    jobs = client.get("/api/v1/jobs").json()
    for gang in jobs["gangs"]:
        if gang["state"] in ("finished", "failed"):
            assert gang["spent_usd"] == told[gang["attempt"]]["spent_usd"]
        # Until when depends on the clock.
        by_clock = {"spent_usd", "waits", "late", "order_spent_usd", "over_agreed"}
        same = told[gang["attempt"]].keys() - by_clock
        assert {name: gang[name] for name in same} == {name: told[gang["attempt"]][name] for name in same}
    status = status_document(report_status(context))
    assert jobs["spent_usd"] == status["spent_usd"]
    assert Usd.parse(jobs["spent_usd"]) == Usd.total(Usd.parse(gang["spent_usd"]) for gang in jobs["gangs"])
    listed = json.loads(
        command.run("ledger", "list", "--job", WHISPER, "--kind", "metered", "--limit", 0, "-o", "json").stdout
    )["entries"]
    first = client.get(f"/api/v1/jobs/{WHISPER}").json()["attempts"][0]
    total = Usd.total(Usd.parse(entry["usd"]) for entry in listed if entry["attempt"] == first["attempt"])
    assert total > Usd(0)
    assert Usd.parse(first["metered_usd"]) == total
    assert Usd.total(Usd.parse(cost["usd"]) for cost in first["costs"]) == total
    page = client.get(f"/attempts/{first['attempt']}").text
    assert f'<data value="{total}">' in page


def test_a_team_sees_no_row_name_or_sum_of_another(night: Night) -> None:
    context, ids, _ = night
    speech = as_team(context, "viewer:speech")
    shown = speech.get("/jobs").text
    assert WHISPER in shown
    assert SWEEP not in shown
    assert "odd-1" not in shown
    assert '1 gang runs in 1 place for <data value="27.50">$27.50</data>' in shown
    listed = speech.get("/api/v1/jobs").json()
    assert {gang["team"] for gang in listed["gangs"]} == {"speech"}
    assert Usd.parse(listed["spent_usd"]) == Usd.total(Usd.parse(gang["spent_usd"]) for gang in listed["gangs"])
    for url in (f"/jobs/{SWEEP}", f"/attempts/{ids[SWEEP]}", f"/jobs/{quote(ODD, safe='')}", "/attempts/odd-1"):
        assert speech.get(url, headers=PAGE).status_code == 404
        assert speech.get(f"/api/v1{url}").status_code == 404
        assert speech.get(f"/api/v1{url}?format=csv").status_code == 404
    assert SWEEP not in speech.get("/api/v1/jobs?format=csv").text
    nobody = as_team(context)
    for url in ("/jobs", f"/jobs/{WHISPER}", "/api/v1/jobs", f"/api/v1/attempts/{ids[WHISPER]}"):
        assert nobody.get(url).status_code == 403


def test_a_name_that_two_teams_use_shows_each_its_own(tmp_path: Path) -> None:
    with query_context(tmp_path, clock=lambda: NOW) as context:
        for number, team in enumerate(("red", "blue")):
            one = attempt(f"x-{team}", job="same", team=team, created_at=NOW + timedelta(seconds=number))
            context.store.attempts.add(one, [node(one.id, made_at=NOW - timedelta(hours=1 + number))])
        red = as_team(context, "viewer:red").get("/api/v1/jobs/same").json()
        assert [each["attempt"] for each in red["attempts"]] == ["x-red"]
        both = Usd.parse(as_team(context, "viewer").get("/api/v1/jobs/same").json()["spent_usd"])
        assert Usd.parse(red["spent_usd"]) < both


def test_markup_in_names_is_text(client: TestClient) -> None:
    url = quote(ODD, safe="")
    for page in ("/jobs", "/jobs?part=live", f"/jobs/{url}", "/attempts/odd-1"):
        shown = client.get(page, headers=PAGE)
        assert shown.status_code == 200
        for markup in ("<script>alert", "<b>team", "<i>slow", "<img src", "<u>"):
            assert markup not in shown.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown.text
    assert f'href="/jobs/{url}"' in client.get("/jobs").text
    assert client.get(f"/api/v1/jobs/{url}").json()["attempts"][0]["team"] == ODD_TEAM
    rows = list(csv.DictReader(io.StringIO(client.get("/api/v1/jobs?format=csv").text)))
    assert ODD in {row["job"] for row in rows}


def test_it_refreshes_itself_and_can_be_stopped(client: TestClient) -> None:
    shown = client.get("/jobs").text
    assert 'hx-get="/jobs?part=live" hx-trigger="every 5s"' in shown
    part = client.get("/jobs?part=live")
    assert part.text.startswith('<div id="live" hx-get=')
    assert "<html" not in part.text
    assert (
        shown.split('<div id="live"')[1].split("</section>")[0]
        == part.text.split('<div id="live"')[1].split("</section>")[0]
    )
    stopped = client.get("/jobs?refresh=off").text
    assert "hx-get" not in stopped
    assert 'href="/jobs">Refresh every 5 s' in stopped


def test_gangs_come_in_parts(client: TestClient) -> None:
    whole = [gang["attempt"] for gang in client.get("/api/v1/jobs").json()["gangs"]]
    found: list[str] = []
    before = ""
    while True:
        part = client.get(f"/api/v1/jobs?limit=2{f'&before={before}' if before else ''}").json()
        found = [gang["attempt"] for gang in part["gangs"]] + found
        before = part["before"]
        if before is None:
            break
    assert found == whole
    assert client.get("/api/v1/jobs?before=nothing").status_code == 404


@pytest.mark.parametrize(
    "name", ["%00", "a%00b", "%0a", "x" * 5000, "%F0%9F%98%80", "..%2f..", "'; DROP TABLE attempts", "%FF"]
)
def test_no_name_breaks_it(client: TestClient, name: str) -> None:
    for url in (f"/jobs/{name}", f"/attempts/{name}", f"/api/v1/jobs/{name}", f"/api/v1/attempts/{name}"):
        assert client.get(url).status_code == 404
    assert client.get(f"/api/v1/jobs?before={name}").status_code in (404, 422)
    assert client.get("/api/v1/jobs?limit=99999999999999999999").status_code == 422


def test_without_gangs_it_says_so(tmp_path: Path) -> None:
    with query_context(tmp_path) as context:
        shown = console_client(context).get("/jobs").text
    assert "<h1>No gang runs; nothing waits.</h1>" in shown
    assert "stepfare apply" in shown


def test_an_end_is_said_only_where_something_says_it(night: Night) -> None:
    context, ids, _ = night
    outlooks = {each.gang.attempt.job: each for each in report_jobs(context).outlooks}
    assert outlooks[ODD].until is None
    assert outlooks[ODD].is_silent
    assert outlooks[SWEEP].until is None  # it is over
    assert outlooks[WHISPER].promise.finish is not None
    later = QueryContext(context.settings, context.store, lambda: NOW + timedelta(hours=3), context.identity)
    waiting = {each.gang.attempt.job: each for each in report_jobs(later).outlooks}[TTS]
    assert waiting.until is None  # the time that its plan said has passed
    found = find_attempt(context, ids[WHISPER])
    assert found is not None
    assert found.costs == ()  # nothing is metered while it runs
    job = find_job(context, WHISPER)
    assert job is not None
    assert job.spent_usd == Usd.total(each.spent_usd for each in job.attempts)
