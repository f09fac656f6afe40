"""Quotes in the console: asked for, shown, accepted, each by who may; the same figures as on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pricing.places import Market
from pricing.problems import InvalidInputError
from router.app.queries.context import QueryContext
from router.app.queries.quote_acceptance import AcceptanceInputs, QuoteAcceptedError, QuoteLaterError, accept_quote
from router.app.queries.quote_questions import QuoteAsked, check_question
from router.app.queries.quotes import find_quote
from router.app.stored_quotes import put_quote
from router.config.plan_files import store_quotes
from router.console.task_kinds import FUNCTIONS, submit_question
from router.console.work import Outcome, Report, TaskRunner, WorkFunction, WorkResult
from router.jobs.job_json import job_json
from router.jobs.quantities import Moment
from router.jobs.spec import Job
from router.planning.document.plan_json import plan_from_json
from router.quotes.quote import Quote
from router.state.tasks import SILENT
from tests.support.asked_quotes import a_quote
from tests.support.command import plan, run, write_job
from tests.support.console import (
    NIGHT,
    PAGE,
    ThreadWorker,
    client_as,
    query_context,
    work,
)
from tests.support.page_reader import read_page, without_times
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job

OFFERS = [NORTH, NORTH_SPOT, SOUTH]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def context(home: Path) -> Iterator[QueryContext]:
    with query_context(home) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryContext]:
    """A state for tests that are refused everything."""
    with query_context(tmp_path_factory.mktemp("shared")) as opened:
        yield opened


@pytest.fixture(scope="module")
def jobs() -> dict[str, Job]:
    return {team: a_job(f"{team}-job", steps=900, team=team) for team in ("speech", "vision")}


@pytest.fixture(scope="module")
def quotes(jobs: dict[str, Job]) -> dict[str, Quote]:
    return {team: a_quote(job, 24, OFFERS) for team, job in jobs.items()}


def put(context: QueryContext, quote: Quote, job: Job) -> str:
    return put_quote(context.store, quote, job_json(job), "ana@desk")


def document(tmp_path: Path, name: str = "letters", *, steps: int = 1000) -> str:
    return write_job(tmp_path / "jobs", name, steps=steps).read_text(encoding="utf-8")


def followed(client: TestClient, url: str) -> str:
    """The page to which the progress of work that has ended leads."""
    answer = client.get(url, headers=PAGE, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"]


@pytest.mark.slow
def test_a_quote_that_is_asked_for_is_the_command_s_to_the_cent(context: QueryContext, tmp_path: Path) -> None:
    client = client_as(context)
    written = document(tmp_path)
    asked = client.post(
        "/quotes",
        data={"source": "document", "document": written, "at": "2026-11-23T12:00"},
        follow_redirects=False,
        headers=PAGE,
    )
    assert asked.status_code == 303
    progress = client.get(asked.headers["Location"], headers=PAGE)
    assert '<meta http-equiv="refresh"' in progress.text
    assert "hx-get" in progress.text
    work(context)
    url = followed(client, asked.headers["Location"])
    told = json.loads(run("quotes", "show", url.rpartition("/")[2], "-o", "json").stdout)
    assert client.get(f"/api/v1{url}").json() == told
    page = client.get(url, headers=PAGE).text
    for amount in (told["usd"]["p50"], told["usd"]["p90"]):
        assert f'<data value="{amount}">' in page
    ceiling = find_quote(context, told["quote_id"]).quote.ceiling_usd
    assert f'name="ceiling" inputmode="decimal" size="12" required value="{ceiling}"' in page
    # The command makes the same quote of the same job, but for the files in which it is.
    same = run("quote", tmp_path / "jobs", "--by", "2026-11-23T12:00Z", "--now", "2026-11-21T18:00Z", "-o", "json")
    (other,) = json.loads(same.stdout)["quotes"]
    assert other["usd"] == told["usd"]
    assert other["curve"] == told["curve"]


def test_the_own_deadline_of_a_job_of_tonight_is_that_of_the_plan(context: QueryContext, tmp_path: Path) -> None:
    """Once `+18h` counted from the question, hours after the plan that gave the job its deadline."""
    job = write_job(tmp_path / "jobs", "letters", deadline="+18h")
    made = plan(job, "--name", "night", "--out", tmp_path / "plan.json")
    assert made.exit_code == 0, made.stderr
    later = replace(context, clock=lambda: NIGHT + timedelta(hours=4))
    for question in (QuoteAsked(job="letters"), QuoteAsked(document=job.read_text(encoding="utf-8"))):
        assert check_question(later, question).by == Moment(absolute=NIGHT + timedelta(hours=18))
    task = submit_question(later, QuoteAsked(job="letters"))
    assert json.loads(task.request)["by"] == "2026-11-22T12:00:00Z"
    # Another job, and a time that is asked for, count from the question.
    other = job.read_text(encoding="utf-8").replace("letters", "others")
    assert check_question(later, QuoteAsked(document=other)).by is None
    assert check_question(later, QuoteAsked(job="letters", by="+6h")).by == Moment.parse("+6h")
    over = replace(context, clock=lambda: NIGHT + timedelta(hours=19))
    with pytest.raises(InvalidInputError, match="2026-11-22 12:00Z, has passed"):
        check_question(over, QuoteAsked(job="letters"))


@pytest.mark.slow
def test_what_tomorrow_noon_costs_is_on_the_page_of_a_quote(
    context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job]
) -> None:
    quote = quotes["speech"]
    name = put(context, quote, jobs["speech"])
    client = client_as(context)
    page = without_times(client.get(f"/quotes/{name}", headers=PAGE).text)
    assert "Done by Sun 22 Nov 12:00 UTC instead: ~$" in page
    assert 'name="by" required value="2026-11-22T12:00"' in page
    assert page.index('id="other"') < page.index("What another deadline costs")
    own = without_times(client.get(f"/quotes/{name}?by={quote.deadline:%Y-%m-%dT%H:%M}", headers=PAGE).text)
    assert quote.usd.mean is not None
    assert "instead" not in own[own.index('id="other"') : own.index("What another deadline costs")]
    assert f", as asked: ${quote.usd.mean.dollars():,.2f} expected" in own
    for point in quote.curve[1:3]:
        assert f"again={name}&amp;by={point.deadline:%Y-%m-%dT%H:%M:%S}Z" in page
    for odd in ("yesterday", "2026-99-99T00:00", "%00", "9" * 500, "0001-01-01T00:00", "9999-12-31T23:59"):
        assert client.get(f"/quotes/{name}?by={odd}", headers=PAGE).status_code == 200


def test_quotes_of_other_teams_are_neither_listed_nor_found(
    context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job], home: Path
) -> None:
    own = put(context, quotes["speech"], jobs["speech"])
    (other,) = store_quotes(home / "quotes", [quotes["vision"]])
    for grants in (("job_owner:speech",), ("viewer:speech", "approver:speech")):
        client = client_as(context, *grants)
        for path in ("/quotes", "/quotes.csv", "/api/v1/quotes"):
            text = client.get(path, headers=PAGE).text
            assert "speech-job" in text
            assert "vision" not in text
        for path in (
            f"/quotes/{other}",
            f"/quotes/{other[:12]}",
            f"/quotes/new?again={other}",
            f"/api/v1/quotes/{other}",
            f"/api/v1/quotes/{other}/acceptance",
        ):
            found = client.get(path, headers=PAGE)
            assert found.status_code in (403, 404), path
            assert "vision" not in found.text
    client = client_as(context, "job_owner:speech")
    assert client.get(f"/quotes/{other}", headers=PAGE).status_code == 404
    assert client.post(f"/quotes/{other}/acceptance", data={"ceiling": "9"}).status_code == 404
    assert client.post(f"/api/v1/quotes/{other}/acceptance").status_code == 404
    assert client.post("/api/v1/quotes", json={"again": other, "by": "+30h"}).status_code == 404
    assert client.post("/api/v1/quotes", json={"job": "vision-job", "by": "+30h"}).status_code == 400
    assert client.get(f"/quotes/{own}", headers=PAGE).status_code == 200
    assert len(client_as(context).get("/api/v1/quotes").json()["quotes"]) == 2


def test_only_who_may_asks_and_accepts(
    context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job], tmp_path: Path
) -> None:
    name = put(context, quotes["speech"], jobs["speech"])
    viewer = client_as(context, "viewer:speech")
    assert viewer.post(f"/quotes/{name}/acceptance", data={"ceiling": "9"}).status_code == 403
    assert viewer.post(f"/api/v1/quotes/{name}/acceptance").status_code == 403
    assert viewer.get("/quotes/new").status_code == 403
    page = viewer.get(f"/quotes/{name}", headers=PAGE).text
    assert "You may not accept" in page
    assert "/quotes/new" not in page
    owner = client_as(context, "job_owner:vision")
    written = document(tmp_path)
    assert owner.post("/api/v1/quotes", json={"document": written}).status_code == 403
    assert context.store.tasks.take("w", ["quote", "quote_acceptance"], NIGHT) is None


def test_a_quote_is_accepted_once_and_its_plan_is_kept(context: QueryContext, tmp_path: Path) -> None:
    client = client_as(context, "job_owner:research")
    written = document(tmp_path)
    asked = client.post("/api/v1/quotes", json={"document": written, "by": "+48h"})
    assert asked.status_code == 202, asked.text
    work(context)
    (row,) = client.get("/api/v1/quotes").json()["quotes"]
    name = row["quote_id"]
    assert client.get(f"/api/v1/quotes/{name}").headers["Link"].endswith(f'<{row["links"]["accept"]}>; rel="accept"')
    # A plan on one place may expect more than nine in ten runs of the quoted policy cost.
    ceiling = str(find_quote(context, name).quote.ceiling_usd)
    assert f'value="{ceiling}"' in client.get(f"/quotes/{name}", headers=PAGE).text
    first = client.post(row["links"]["accept"], json={"ceiling_usd": ceiling})
    second = client.post(f"/quotes/{name}/acceptance", data={"ceiling": ceiling}, follow_redirects=False)
    assert (first.status_code, second.status_code) == (202, 303)
    work(context)
    work(context)
    made = client.get(f"/api/v1/quotes/{name}/acceptance").json()
    assert made["who"] == "somebody"
    assert made["ceiling_usd"] == ceiling
    # Either may be taken first, since both were asked for at one moment.
    urls = (f"/quotes/tasks/{first.json()['id']}", second.headers["Location"])
    answers = [client.get(url, headers=PAGE, follow_redirects=False) for url in urls]
    ended = {answer.status_code: answer for answer in answers}
    assert ended[303].headers["Location"] == f"/plans/{made['plan']}?done=quote"
    assert "was accepted 2026-11-21T18:00:00Z by somebody" in ended[200].text
    assert client.post(f"/api/v1/quotes/{name}/acceptance").status_code == 409
    assert context.store.made_plans.text(made["plan"]) is not None
    assert context.store.plans.job(made["job_digest"]) is not None
    assert client.get("/tonight", headers=PAGE).status_code == 404, "the plan of a quote is not the night's"
    assert "Nothing is ordered before" in client.get(f"/plans/{made['plan']}?done=quote", headers=PAGE).text
    shown = client.get(f"/quotes/{name}", headers=PAGE).text
    assert f"/plans/plan-{made['plan'][:12]}" in shown
    assert 'action="/quotes/' + name + '/acceptance"' not in shown
    assert f"accepted {made['at']} by somebody" in run("quotes", "show", name).stdout
    assert ("note" in made, "Its cost" in shown) == (False, False)
    acceptance = find_quote(context, name).acceptance
    assert acceptance is not None
    noted = replace(acceptance, note="the quote says $1.00 for a plan, and this one expects $2.00")
    assert context.store.quotes.accept(name, json.dumps(noted.content), replaces=True)
    assert f"Its cost: {noted.note}." in client.get(f"/quotes/{name}", headers=PAGE).text
    assert client.get(f"/api/v1/quotes/{name}/acceptance").json()["note"] == noted.note


class StoppedWorker(ThreadWorker):
    """Does everything, and is stopped before it can say so."""

    def run(
        self, function: WorkFunction, request: dict[str, Any], report: Report, goes_on: Callable[[], bool]
    ) -> WorkResult:
        ThreadWorker.run(self, function, request, report, goes_on)
        return WorkResult(Outcome.LEFT)


@pytest.mark.slow
def test_an_acceptance_whose_server_ended_before_it_could_say_so_is_done_all_the_same(
    context: QueryContext, tmp_path: Path
) -> None:
    client = client_as(context, "job_owner:research")
    client.post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+48h"})
    work(context)
    (row,) = client.get("/api/v1/quotes").json()["quotes"]
    asked = client.post(row["links"]["accept"]).json()
    assert TaskRunner(context.store, StoppedWorker(context.settings), lambda: NIGHT, FUNCTIONS).run_next()
    assert client.get(asked["links"]["self"]).json()["state"] == "running"
    made = client.get(f"/api/v1/quotes/{row['quote_id']}/acceptance").json()
    work(context, NIGHT + SILENT + timedelta(seconds=1))
    done = client.get(asked["links"]["self"]).json()
    assert (done["state"], done["message"]) == ("done", "")
    assert done["result"]["plan"] == made["plan"]
    assert [row.name for row in context.store.made_plans.newest()] == ["quote"]


@pytest.mark.slow
def test_of_two_servers_that_accept_at_once_one_wins(
    context: QueryContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = document(tmp_path)
    assert client_as(context).post("/api/v1/quotes", json={"document": written, "by": "+48h"}).status_code == 202
    work(context)
    (row,) = context.store.quotes.find()
    accepted: list[str] = []

    def meanwhile(text: str) -> None:
        if not accepted:
            accepted.append(text)
            accept_quote(context, row.id, None, AcceptanceInputs(NIGHT), lambda _: None)

    with pytest.raises(QuoteAcceptedError, match="was accepted"):
        accept_quote(context, row.id, None, AcceptanceInputs(NIGHT + timedelta(minutes=1)), meanwhile)
    kept = context.store.quotes.get(row.id)
    assert kept is not None
    assert '"at": "2026-11-21T18:00:00Z"' in (kept.acceptance or "")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("plenty", "is no amount of dollars; write e.g. 1250.00"),
        ("12 or so", "is no amount of dollars; write e.g. 1250.00"),
        ("1e99", "is no amount of dollars; write e.g. 1250.00"),
        ("-5", "is not above $0; write e.g. 1250.00"),
        ("0", "is not above $0; write e.g. 1250.00"),
        ("<b>7", "is no amount of dollars; write e.g. 1250.00"),
    ],
)
def test_a_ceiling_that_cannot_be_comes_back_beside_its_field(
    context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job], written: str, words: str
) -> None:
    client, name = client_as(context), put(context, quotes["speech"], jobs["speech"])
    by = "2026-11-23T06:30:00Z"
    answer = client.post(f"/quotes/{name}/acceptance", data={"ceiling": written, "by": by}, headers=PAGE)
    assert answer.status_code == 400
    page = read_page(answer.text)
    (field,) = page.every(lambda each: each.attributes.get("name") == "ceiling")
    assert (field.attributes["value"], field.attributes["aria-invalid"]) == (written, "true")
    (wrong,) = page.every(lambda each: each.attributes.get("id") == field.attributes["aria-describedby"])
    assert wrong.words == words
    # The page is the quote's, with the deadline that was being looked at; a second look finds nothing wrong.
    assert "Done by Mon 23 Nov 06:30 UTC instead" in without_times(answer.text)
    (form,) = page.every(lambda each: each.attributes.get("id") == "accept")
    (kept,) = form.every(lambda each: each.attributes.get("name") == "by")
    assert kept.attributes["value"] == by
    assert "aria-invalid" not in client.get(f"/quotes/{name}", headers=PAGE).text
    assert client.get("/api/v1/tasks").json()["tasks"] == []


def test_who_may_not_accept_hears_that_and_not_of_the_ceiling(
    context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job]
) -> None:
    name = put(context, quotes["speech"], jobs["speech"])
    assert client_as(context, "viewer").post(f"/quotes/{name}/acceptance", data={"ceiling": "-5"}).status_code == 403


@pytest.mark.slow
def test_a_ceiling_below_what_the_job_costs_leads_back_to_the_quote(context: QueryContext, tmp_path: Path) -> None:
    client = client_as(context)
    client.post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+48h"})
    work(context)
    (row,) = context.store.quotes.find()
    asked = client.post(f"/quotes/{row.id}/acceptance", data={"ceiling": "0.05"}, headers=PAGE, follow_redirects=False)
    work(context)
    page = read_page(client.get(followed(client, asked.headers["Location"]), headers=PAGE).text)
    (field,) = page.every(lambda each: each.attributes.get("name") == "ceiling")
    assert (field.attributes["value"], field.attributes["aria-invalid"]) == ("0.05", "true")
    (wrong,) = page.every(lambda each: each.attributes.get("id") == field.attributes["aria-describedby"])
    assert "cannot be planned within $0.05" in wrong.words
    # Work on another quote says nothing about this one.
    other = client.get(f"/quotes/{row.id}?refused=t{'0' * 24}", headers=PAGE)
    assert other.status_code == 200
    assert "aria-invalid" not in other.text


@pytest.mark.slow
def test_a_quote_on_a_reservation_that_tonight_s_plan_fills_is_not_accepted_for_nothing(
    context: QueryContext, tmp_path: Path
) -> None:
    """Its plan would have cost $0.00 on machines that are another job's tonight."""
    held = {"name": "ours", "cloud": "aws", "region": "us-east-1", "instance_type": "p5.48xlarge", "machines": 1}
    limits = {"reservations": [{**held, "usd_per_hour": 5}]}
    client = client_as(context)
    client.post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+20h", "limits": limits})
    work(context)
    (row,) = context.store.quotes.find()
    places = find_quote(context, row.id).quote.places
    assert [(place.where, place.market) for place in places] == [("aws/us-east-1/p5.48xlarge", "reserved")]
    file, other = tmp_path / "limits.yaml", write_job(tmp_path / "jobs", "other", steps=24_000, deadline="+30h")
    file.write_text(json.dumps(limits), encoding="utf-8")
    night = plan(other, "--name", "night", "--book", "embedded", "--limits", file, "--out", tmp_path / "night.json")
    assert night.exit_code == 0, night.stderr
    lines = plan_from_json((tmp_path / "night.json").read_text(encoding="utf-8")).lines
    assert {line.market for line in lines} == {Market.RESERVED}
    asked = client.post(f"/quotes/{row.id}/acceptance", data={"ceiling": ""}, headers=PAGE, follow_redirects=False)
    work(context)
    page = read_page(client.get(followed(client, asked.headers["Location"]), headers=PAGE).text)
    (box,) = page.every(lambda each: each.attributes.get("aria-invalid") == "true")
    assert box.attributes["name"] == "ceiling"
    (wrong,) = page.every(lambda each: each.attributes.get("id") == box.attributes["aria-describedby"])
    assert "cannot be planned within $6.86 beside what other jobs hold or are planned to" in wrong.words
    assert [made.name for made in context.store.made_plans.newest()] == ["night"]


@pytest.mark.slow
def test_a_plan_that_starts_later_is_asked_about_beside_a_box(context: QueryContext, tmp_path: Path) -> None:
    """The worker's answer is made up here; tests/integration/test_cli_quote.py makes such a plan."""
    client = client_as(context)
    client.post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+48h"})
    work(context)
    (row,) = context.store.quotes.find()
    url = f"/quotes/{row.id}"
    asked = client.post(f"{url}/acceptance", data={"ceiling": "900"}, headers=PAGE, follow_redirects=False)
    assert 'name="later"' not in client.get(url, headers=PAGE).text
    task = context.store.tasks.take("w", ["quote_acceptance"], NIGHT)
    assert task is not None
    assert json.loads(task.request)["later"] is False
    why = "letters would start later than quoted: at 2026-11-23 12:00Z; others"
    assert context.store.tasks.fail(task.id, "w", why, NIGHT, {"field": QuoteLaterError.field})
    page = read_page(client.get(followed(client, asked.headers["Location"]), headers=PAGE).text)
    (box,) = page.every(lambda each: each.attributes.get("name") == "later")
    assert (box.attributes["type"], box.attributes["aria-invalid"]) == ("checkbox", "true")
    (wrong,) = page.every(lambda each: each.attributes.get("id") == box.attributes["aria-describedby"])
    assert "would start later than quoted: at 2026-11-23 12:00Z" in wrong.words
    (ceiling,) = page.every(lambda each: each.attributes.get("name") == "ceiling")
    assert ceiling.attributes["value"] == "900.00"
    client.post(f"{url}/acceptance", data={"ceiling": "900", "later": "1"}, headers=PAGE, follow_redirects=False)
    meant = context.store.tasks.take("w", ["quote_acceptance"], NIGHT)
    assert meant is not None
    assert json.loads(meant.request)["later"] is True


def test_another_deadline_that_cannot_be_read_is_named_beside_its_field(
    context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job]
) -> None:
    name = put(context, quotes["speech"], jobs["speech"])
    page = read_page(client_as(context).get(f"/quotes/{name}?by=yesterday", headers=PAGE).text)
    (field,) = page.every(lambda each: each.attributes.get("id") == "f-by")
    assert field.attributes["aria-invalid"] == "true"
    (wrong,) = page.every(lambda each: each.attributes.get("id") == field.attributes["aria-describedby"])
    assert "yesterday" in wrong.words


@pytest.mark.slow
def test_a_stale_quote_is_refused_and_one_that_cannot_be_placed_says_why(context: QueryContext, tmp_path: Path) -> None:
    client = client_as(context)
    client.post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+48h"})
    work(context)
    (row,) = context.store.quotes.find()
    poor = client.post(f"/quotes/{row.id}/acceptance", data={"ceiling": "0.05"}, follow_redirects=False)
    work(context)
    assert "cannot be planned within $0.05" in client.get(poor.headers["Location"], headers=PAGE).text
    later = replace(context, clock=lambda: NIGHT + timedelta(days=2))
    refused = client_as(later).post(f"/quotes/{row.id}/acceptance", data={}, headers=PAGE)
    assert refused.status_code == 409
    assert "was valid until 2026-11-22" in refused.text
    assert "Ask again" in client_as(later).get(f"/quotes/{row.id}", headers=PAGE).text


@pytest.mark.slow
def test_the_command_accepts_what_was_asked_for_in_the_console(context: QueryContext, tmp_path: Path) -> None:
    client_as(context).post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+48h"})
    work(context)
    (row,) = context.store.quotes.find()
    listed = json.loads(run("quotes", "list", "-o", "json").stdout)["quotes"]
    assert [each["quote_id"] for each in listed] == [row.id]
    out = tmp_path / "plan.json"
    result = run("quote", "--accept", row.id, "--out", out, "--now", "2026-11-21T19:00Z")
    assert result.exit_code == 0, result.stderr
    assert out.exists()
    (kept,) = client_as(context).get("/api/v1/quotes").json()["quotes"]
    assert kept["accepted"]["at"] == "2026-11-21T19:00:00Z"


@pytest.mark.slow
def test_quotes_of_the_command_are_shown_once_and_accepted(context: QueryContext, tmp_path: Path, home: Path) -> None:
    path = write_job(tmp_path, "letters")
    result = run("quote", path, "--by", "+48h", "--now", "2026-11-21T18:00Z", "-o", "json")
    assert result.exit_code == 0, result.stderr
    name = json.loads(result.stdout)["quotes"][0]["quote_id"]
    assert (home / "quotes" / f"{name}.json").exists()
    client = client_as(context)
    assert [each["quote_id"] for each in client.get("/api/v1/quotes").json()["quotes"]] == [name]
    assert client.post(f"/api/v1/quotes/{name}/acceptance").status_code == 202
    path.unlink()  # the state has the job
    work(context)
    assert client.get(f"/api/v1/quotes/{name}/acceptance").json()["quote_id"] == name
    assert "accepted 2026-11-21T18:00:00Z by operator" in run("quotes", "show", name).stdout


BAD = {
    "is not YAML": "name: [",
    "one job": "name: a\nteam: t\n",
    "refers to a secret": "run: {command: python x.py, env: {KEY: 'secret:env:HOME'}}",
    "run.env.KEY: refers": "run: {command: python x.py, env: {KEY: 'secret:file:/etc/passwd'}}",
    "run.code.archive: is a file": f"run: {{command: x, code: {{archive: 'file:///etc/passwd', sha256: {'a' * 64}}}}}",
    "run.code.git: is a file": "run: {command: x, code: {git: /srv/code.git, ref: main}}",
    "data.uri: is a file": "data: {uri: 'file:///etc', at: aws/us-east-1, gib: 1}",
}


@pytest.mark.parametrize("words", BAD)
def test_a_job_is_refused_with_its_line_and_the_text_stays(shared: QueryContext, tmp_path: Path, words: str) -> None:
    bad = BAD[words]
    whole = document(tmp_path)
    written = bad if bad.startswith("name: [") else f"{whole}\n---\n{whole}" if bad.startswith("name") else whole + bad
    client = client_as(shared)
    expected = {"one job": "is the name of another job"}.get(words, words)
    refused = client.post("/api/v1/quotes", json={"document": written, "by": "+48h"})
    assert refused.status_code == 400
    assert expected in refused.json()["error"]["message"]
    page = client.post("/quotes", data={"source": "document", "document": written, "within": "+48h"}, headers=PAGE)
    assert page.status_code == 400
    assert re.search(r'id="document-wrong">Line \d+: ', page.text)
    assert "job.yaml" not in page.text
    assert written.split("\n")[0] in page.text
    assert 'value="+48h"' in page.text
    assert shared.store.tasks.take("w", ["quote"], NIGHT) is None


def test_names_are_text_on_every_page(context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job]) -> None:
    evil = "<img src=x onerror=alert(1)>"
    quote = replace(quotes["speech"], team=evil, policy=evil, conditions=(evil,))
    name = put_quote(context.store, quote, job_json(jobs["speech"]), evil)
    client = client_as(context)
    form = client.post("/quotes", data={"source": "document", "document": f"a: {evil}</textarea>{evil}"}, headers=PAGE)
    for text in (client.get("/quotes", headers=PAGE).text, client.get(f"/quotes/{name}", headers=PAGE).text, form.text):
        assert "<img" not in text
        assert "&lt;img" in text
    assert client.get("/quotes.csv").text.count("\n") == 2


@pytest.mark.slow
def test_the_small_form_makes_a_job_and_lines_cannot_be_added(context: QueryContext) -> None:
    client = client_as(context)
    fields = {"name": "tiny", "team": "speech", "model": "Llama 3 8B", "steps": "50", "tokens": "1,048,576"}
    asked = {"source": "fields", "accelerators": "H100:8", "within": "+48h", **fields}
    sent = client.post("/quotes", data=asked, follow_redirects=False)
    assert sent.status_code == 303, sent.text
    work(context)
    (row,) = context.store.quotes.find()
    assert (row.job, row.team) == ("tiny", "speech")
    added = client.post("/quotes", data={**asked, "steps": "50\nbudget: 1"})
    assert added.status_code == 400


@pytest.mark.slow
def test_a_known_job_is_asked_for_again_by_name_or_quote(
    context: QueryContext, tmp_path: Path, quotes: dict[str, Quote], jobs: dict[str, Job]
) -> None:
    client = client_as(context, "job_owner:research")
    client.post("/api/v1/quotes", json={"document": document(tmp_path), "by": "+48h"})
    work(context)
    (row,) = context.store.quotes.find()
    assert f'value="{row.id}"' in client.get(f"/quotes/new?again={row.id}&by=2026-11-23T06:00Z", headers=PAGE).text
    for question in ({"again": row.id}, {"job": row.job}):
        assert client.post("/api/v1/quotes", json={**question, "by": "+60h"}).status_code == 202
        work(context)
    newest = context.store.quotes.find()[0]
    assert newest.document == row.document
    assert len(context.store.quotes.find()) == 2, "the same question has the same answer"


@pytest.mark.slow
def test_a_job_that_cannot_be_done_by_then_says_when(context: QueryContext, tmp_path: Path) -> None:
    client = client_as(context)
    asked = client.post(
        "/quotes",
        data={"source": "document", "document": document(tmp_path, steps=9000), "within": "+30m"},
        follow_redirects=False,
    )
    work(context)
    page = client.get(asked.headers["Location"], headers=PAGE).text
    assert "no quote is possible" in page
    assert "cannot be done by then" in page
    assert "At the earliest it is done by 2" in page


def test_the_list_goes_on_where_it_ended(context: QueryContext, quotes: dict[str, Quote], jobs: dict[str, Job]) -> None:
    for i in range(3):
        put(context, replace(quotes["speech"], asked_at=NIGHT - timedelta(hours=i)), jobs["speech"])
    client = client_as(context)
    first = client.get("/api/v1/quotes?limit=2").json()
    rest = client.get("/api/v1/quotes", params={"limit": 2, "before": first["next"]}).json()
    assert [len(first["quotes"]), len(rest["quotes"]), rest["next"]] == [2, 1, None]
    assert f'<data value="{quotes["speech"].usd.mean}">' in client.get("/quotes", headers=PAGE).text
