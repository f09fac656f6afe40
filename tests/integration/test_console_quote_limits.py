"""Limits of quotes in the console: of the last plan, none or own ones; the command's figures; kept at acceptance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pricing.problems import InvalidInputError
from router.app.plan import store_plan_inputs
from router.app.queries.context import QueryContext
from router.app.queries.quote_acceptance import check_acceptable
from router.app.queries.quote_questions import QuoteAsked, check_question
from router.controller.plans import made_limits, store_limits
from router.jobs.limits import Limits
from router.planning.document.restricted_limits import limits_digest, restrict_limits
from tests.support.command import plan, run, write_job
from tests.support.console import (
    NIGHT,
    PAGE,
    client_as,
    query_context,
    work,
)
from tests.support.made_up_jobs import make_limits
from tests.support.page_reader import without_times

BY = "2026-11-23T12:00"
LIMITS = """\
clouds: [aws, azure]
limits:
  - {name: crimson reserve, cloud: aws, accelerator: H100, amount: 0, unit: accelerators}
teams:
  - {team: research, budget: 4321}
  - {team: crimson, budget: 98765}
fair_share: {shares: {crimson: 3}}
"""
SECRETS = ("crimson", "98765", "98,765")
FIGURES = ("usd", "usd_levels", "curve", "drivers", "earliest_usd", "places", "plan_usd", "on_time")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def context(folder: Path) -> Iterator[QueryContext]:
    with pytest.MonkeyPatch.context() as patch, query_context(folder / "home") as opened:
        patch.setenv("STEPFARE_HOME", str(folder / "home"))
        yield opened


@pytest.fixture(scope="module")
def client(context: QueryContext) -> TestClient:
    return client_as(context)


@pytest.fixture(scope="module")
def job(folder: Path) -> Path:
    return write_job(folder / "jobs", "letters", steps=1000)


@pytest.fixture(scope="module")
def limits(folder: Path) -> Path:
    file = folder / "limits.yaml"
    file.write_text(LIMITS, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def digest(context: QueryContext, limits: Path, job: Path, folder: Path) -> str:
    """The digest of the plan of a night that was made with the limits."""
    assert context.store.made_plans.newest(1) == ()
    return planned(folder, job, "--limits", limits)


@pytest.fixture(scope="module")
def last(context: QueryContext, digest: str, job: Path) -> dict[str, Any]:
    """A quote under the limits of the plan of that digest."""
    return asked(context, job) | {"of": digest}


@pytest.fixture(scope="module")
def free(context: QueryContext, digest: str, job: Path) -> dict[str, Any]:
    """A quote under no limits."""
    return asked(context, job, limits_of="none") | {"of": digest}


def planned(folder: Path, *words: object) -> str:
    made = plan(*words, "--name", "night", "--out", folder / "plan.json")
    assert made.exit_code == 0, made.stderr
    found: str = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["digest"]
    return found


def asked(context: QueryContext, job: Path, **question: Any) -> dict[str, Any]:
    """Ask for a quote, make it and return the result of its task."""
    client = client_as(context, "job_owner:research")
    body = {"document": job.read_text(encoding="utf-8"), "by": f"{BY}Z", **question}
    answer = client.post("/api/v1/quotes", json=body)
    assert answer.status_code == 202, answer.text
    work(context)
    task = client.get(f"/api/v1/tasks/{answer.json()['id']}").json()
    assert task["state"] == "done", task
    result: dict[str, Any] = task["result"]
    return result


def quoted(job: Path, *options: object) -> dict[str, Any]:
    answer = run("quote", job, "--by", f"{BY}Z", "-o", "json", "--now", "2026-11-21T18:00Z", *options)
    assert answer.exit_code == 0, answer.stderr
    (found,) = json.loads(answer.stdout)["quotes"]
    return dict(found)


def clouds_of(quote: dict[str, Any]) -> set[str]:
    return {place["where"].partition("/")[0] for place in quote["places"]}


def test_before_a_plan_was_made_there_are_no_limits(job: Path, tmp_path: Path) -> None:
    with query_context(tmp_path) as empty:
        checked = check_question(empty, QuoteAsked(document=job.read_text(encoding="utf-8"), by="+36h"))
        assert (checked.limits.limits, checked.limits.plan) == (Limits.none(), None)
        assert "none was made yet, so no limits" in client_as(empty).get("/quotes/new", headers=PAGE).text


@pytest.mark.slow
def test_limits_of_the_last_plan_change_a_quote_as_on_the_command_line(
    context: QueryContext, last: dict[str, Any], free: dict[str, Any], limits: Path, job: Path
) -> None:
    (within,), (without,) = last["answers"]["quotes"], free["answers"]["quotes"]
    with_file, with_none = quoted(job, "--limits", limits), quoted(job, "--no-keep")
    assert [within[name] for name in FIGURES] == [with_file[name] for name in FIGURES]
    assert [without[name] for name in FIGURES] == [with_none[name] for name in FIGURES]
    assert within["usd"] != without["usd"]
    assert clouds_of(within) == {"azure"}
    assert within["limits"]["plan"] == {"digest": last["of"], "as_of": "2026-11-21T18:00:00Z"}
    assert with_file["limits"] == {"digest": within["limits"]["digest"], "empty": False}
    assert without["limits"]["empty"]
    assert "limits" not in with_none
    # The command stores its limits where there is a state, so that the console accepts its quotes under them.
    check_acceptable(context, with_file["quote_id"], None, NIGHT)
    shown = run("quotes", "show", last["quote"]).stdout
    assert f"made under limits of plan-{last['of'][:12]} as of 21 Nov 18:00 UTC" in shown


def test_nothing_of_the_limits_of_other_teams_is_told(context: QueryContext, last: dict[str, Any], job: Path) -> None:
    name = last["quote"]
    viewer = client_as(context, "viewer:research")
    pages = [viewer.get(f"/quotes/{name}", headers=PAGE).text, viewer.get(f"/api/v1/quotes/{name}").text]
    pages.append(client_as(context, "job_owner:research").get("/quotes/new", headers=PAGE).text)
    # Where limits leave no place, the reasons name them.
    refused = asked(context, job, limits=LIMITS.replace("[aws, azure]", "[aws]"))
    (answer,) = refused["answers"]["refused"]
    assert any("another team reserve allows 0 accelerators" in reason for reason in answer["reasons"])
    stored = context.store.values.get(f"limits of digest {last['answers']['quotes'][0]['limits']['digest']}")
    assert stored is not None
    kept = Limits.model_validate_json(stored).teams
    assert [(team.team, "spent" in team.model_fields_set) for team in kept] == [("research", False)]
    for text in (*pages, json.dumps(last), json.dumps(refused), stored):
        assert not any(secret in text for secret in SECRETS), text[:300]
    for page in (pages[0], pages[2]):
        assert f"plan-{last['of'][:12]} as of 21 Nov 18:00 UTC" in without_times(page)


def test_limits_that_are_applied_do_not_change_those_that_a_plan_was_made_with(context: QueryContext) -> None:
    store, clouds = context.store, make_limits({"clouds": ["aws"]})
    store_plan_inputs(store, (), "p" * 64, None, NIGHT)
    store_limits(store, "p" * 64, clouds)
    assert made_limits(store, "p" * 64) == Limits.none()
    store_limits(store, "of another state", clouds)
    assert made_limits(store, "of another state") == clouds


def test_names_that_are_hidden_stay_unique_and_the_part_of_a_part_is_the_same() -> None:
    entry = {"cloud": "aws", "amount": 1, "unit": "machines"}
    names = ("red one", "blue one", "another team one", "own")
    whole = make_limits(
        {
            "limits": [{"name": name, **entry} for name in names],
            "teams": [{"team": team, "budget": 1} for team in ("red", "blue", "green")],
        }
    )
    part = restrict_limits(whole, "green")
    assert [limit.name for limit in part.limits] == [
        "another team one (2)",
        "another team one (3)",
        "another team one",
        "own",
    ]
    assert restrict_limits(part, "green") == part
    assert Limits.model_validate_json(part.to_json()).digest == part.digest
    spent = make_limits({"teams": [{"team": "green", "budget": 1, "spent": 0}]})
    stated = whole.model_copy(update={"teams": spent.teams})
    assert limits_digest(restrict_limits(stated, "green")) != limits_digest(part), "0 is stated, not unknown"


BAD = {
    "is a mapping of fields": "- a\n- b\n",
    "limits.yaml:1:11": "clouds: 7a: b\n",
    "limits.yaml:2:": "limits:\n  - {name: x, cloud: aws, amount: many, unit: machines}\n",
    "names a file of this server": "quotas: /etc/passwd\n",
    "a second one begins": "clouds: [aws]\n---\nclouds: [gcp]\n",
    "did you mean": "cloud: [aws]\n",
    "is empty": " \n",
    "at most 100,000": "#" * 100_001,
}


@pytest.mark.parametrize("words", BAD)
def test_own_limits_are_refused_with_their_line(
    context: QueryContext, client: TestClient, job: Path, words: str
) -> None:
    body = {"document": job.read_text(encoding="utf-8"), "by": f"{BY}Z", "limits": BAD[words]}
    answer = client.post("/api/v1/quotes", json=body)
    assert answer.status_code == (422 if len(BAD[words]) > 100_000 else 400), answer.text
    assert words in answer.text or answer.status_code == 422
    assert context.store.tasks.take("w", ["quote"], NIGHT) is None


def test_own_limits_with_an_error_stay_in_the_form(client: TestClient, job: Path) -> None:
    text = job.read_text(encoding="utf-8")
    for words, written in (("Line 2: ", BAD["limits.yaml:2:"]), ("is empty", BAD["is empty"])):
        fields = {"source": "document", "document": text, "at": BY, "limits_of": "own", "limits": written}
        page = client.post("/quotes", data=fields, headers=PAGE)
        assert page.status_code == 400
        assert words in page.text
        assert 'value="own" checked' in page.text
        assert written.rstrip() in page.text


ESCAPED = '{"limits": [{"name": "\\ud800", "cloud": "aws", "amount": 1, "unit": "machines"}]}'
ODD = ["\0", "\x1b[31m", "\ud800", ESCAPED, "&a [*a]", "teams: [{team: x, budget: 9" + "9" * 60 + "}]"]


@pytest.mark.parametrize("text", ODD, ids=lambda text: repr(text[:12]))
def test_no_limits_break_the_server(client: TestClient, job: Path, text: str) -> None:
    body = json.dumps({"document": job.read_text(encoding="utf-8"), "by": "+48h", "limits": text})
    answer = client.post("/api/v1/quotes", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text


def test_errors_of_job_and_limits_are_said_together(context: QueryContext) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_question(context, QuoteAsked(document="name: a\n", by="+36h", limits="cloud: [aws]\n"))
    assert {problem.where.partition(":")[0] for problem in caught.value.problems} == {"job.yaml", "limits.yaml"}


def test_the_form_asks_under_the_limits_that_are_chosen(
    context: QueryContext, client: TestClient, digest: str, job: Path
) -> None:
    assert 'value="last" checked' in client.get("/quotes/new", headers=PAGE).text
    fields = {"source": "document", "document": job.read_text(encoding="utf-8"), "at": BY}
    expected = {"last": ("aws", "azure"), "none": None, "own": ("gcp",)}
    for chosen, clouds in expected.items():
        written = "clouds: [gcp]\n" if chosen == "own" else ""
        sent = client.post("/quotes", data={**fields, "limits_of": chosen, "limits": written}, follow_redirects=False)
        assert sent.status_code == 303, sent.text
        task = context.store.tasks.take("w", ["quote"], NIGHT)
        assert task is not None
        request = json.loads(task.request)
        assert Limits.model_validate_json(request["limits"]).clouds == clouds
        assert request["limits_plan"] == ({"digest": digest, "as_of": NIGHT.isoformat()} if chosen == "last" else None)
    ignored = client.post("/quotes", data={**fields, "limits_of": "last", "limits": "clouds: [aws]"}, headers=PAGE)
    assert ignored.status_code == 400
    assert "others are chosen" in ignored.text
    both = {"document": fields["document"], "by": "+48h", "limits": "clouds: [aws]", "limits_of": "none"}
    assert client.post("/api/v1/quotes", json=both).status_code == 400
    assert client.post("/api/v1/quotes", json={**both, "limits_of": "mine"}).status_code == 422
    assert client.post("/quotes", data={**fields, "limits_of": "mine"}).status_code == 400
    as_json = QuoteAsked(document=fields["document"], by="+48h", limits=json.dumps({"clouds": ["gcp"]}))
    assert check_question(context, as_json).limits.limits.clouds == ("gcp",)


def test_another_deadline_of_a_quote_is_asked_under_its_limits(
    context: QueryContext, client: TestClient, last: dict[str, Any], free: dict[str, Any]
) -> None:
    for quote, clouds in ((last["quote"], ("aws", "azure")), (free["quote"], None)):
        shown = client.get(f"/quotes/{quote}", headers=PAGE).text
        assert '<input type="hidden" name="limits_of" value="quote">' in shown
        again = QuoteAsked(again=quote, by="+48h", limits_of="quote")
        checked = check_question(context, again).limits
        assert checked.limits.clouds == clouds
        assert (checked.plan is not None) is (quote == last["quote"])
    form = client.get(f"/quotes/new?again={free['quote']}", headers=PAGE).text
    assert "Those of the quote that is asked again" in form
    assert "Those of the quote" not in client.get("/quotes/new", headers=PAGE).text
    asked_new = {"document": "name: a", "by": "+48h", "limits_of": "quote"}
    assert "needs a quote" in client.post("/api/v1/quotes", json=asked_new).text


def test_acceptance_keeps_to_the_limits_of_the_quote(
    context: QueryContext, last: dict[str, Any], free: dict[str, Any], job: Path, folder: Path
) -> None:
    # The next plan has other limits; what was quoted before keeps to its own.
    other = folder / "other.yaml"
    other.write_text("clouds: [gcp]\n", encoding="utf-8")
    later = planned(folder, job, "--limits", other, "--horizon", "30h")
    assert made_limits(context.store, later).clouds == ("gcp",)
    client = client_as(context, "job_owner:research")
    used = []
    for quote in (last["quote"], free["quote"]):
        assert client.post(f"/api/v1/quotes/{quote}/acceptance", json={"ceiling_usd": "900"}).status_code == 202
        work(context)
        accepted = client.get(f"/api/v1/quotes/{quote}/acceptance").json()
        lines = json.loads(context.store.made_plans.text(accepted["plan"]) or "")["lines"]
        used.append({line["cloud"] for line in lines})
    assert used[0] == {"azure"}
    assert used[1] == {"aws"}


def test_a_quote_whose_limits_are_lost_is_not_accepted(context: QueryContext, limits: Path, job: Path) -> None:
    name = quoted(job, "--limits", limits, "--now", "2026-11-21T19:00Z")["quote_id"]
    with query_context(context.settings.folder.parent / "elsewhere", clock=lambda: NIGHT + timedelta(hours=1)) as other:
        row = context.store.quotes.get(name)
        assert row is not None
        other.store.quotes.put(row)
        refused = client_as(other).post(f"/api/v1/quotes/{name}/acceptance", json={"ceiling_usd": "900"})
    assert refused.status_code == 400
    assert "was made under are not in this state" in refused.text
