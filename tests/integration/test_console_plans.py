"""Plans in the console: the same figures as the command line, within what who asks may see; approving and revoking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from pricing.money import Usd
from router.access.identity import Identity
from router.app.queries.context import QueryContext
from router.app.queries.plans import find_plan, previous_plan
from router.app.queries.quote_questions import find_limits_plan
from router.controller.accept.approval import at_risk_by_team
from router.deploy.console_settings import ConsoleEntry
from router.deploy.deploy_settings import Deploy
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.planning.document.restricted_plan import restrict_plan
from router.quotes.quote import LimitsPlan
from router.render.figures import money
from router.render.tonight_page import tonight_page
from tests.support.command import run
from tests.support.console import NIGHT, console_client, identity_with, query_context
from tests.support.nights import NO_INPUTS, NO_USAGE
from tests.support.page_reader import read_page, without_times
from tests.support.scenes import NORTH, SOUTH, a_job, plan_of

DAY = timedelta(days=1)
AWKWARD = "blue <script>x</script>"
LIMITS = {"teams": [{"team": "red", "budget": "$7001"}, {"team": AWKWARD, "budget": "$9002"}]}
YESTERDAY = plan_of([a_job("walk", team="red"), a_job("swim", team=AWKWARD)], [NORTH], LIMITS, now=NIGHT - DAY)
TODAY = plan_of([a_job("walk", team="red", steps=500), a_job("ride", team=AWKWARD)], [NORTH, SOUTH], LIMITS)
ANA = identity_with("approver", "viewer", name="ana")
RED = identity_with("viewer:red", name="rita")


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path) as opened:
        for plan in (YESTERDAY, TODAY):
            opened.store.made_plans.put(
                digest_of(plan), plan_to_json(plan), plan.as_of, NIGHT, "made <by> host", "night"
            )
        yield opened


def digest_of(plan: Plan) -> str:
    digest: str = plan_content(plan)["digest"]
    return digest


def client_of(context: QueryContext, identity: Identity) -> TestClient:
    client = console_client(context, lambda: identity)
    client.follow_redirects = False
    return client


def with_rules(context: QueryContext, rules: str) -> QueryContext:
    path = context.settings.folder / "rules.yaml"
    path.write_text(rules, encoding="utf-8")
    deploy = Deploy(approval_rules=str(path))
    return replace(context, settings=replace(context.settings, deploy=deploy))


def test_the_page_says_what_the_static_one_says_and_compares_with_the_night_before(context: QueryContext) -> None:
    page = client_of(context, context.identity).get("/tonight").text
    assert tonight_page(TODAY).split("<h1>")[1].split("</h1>")[0] in page
    changed = read_page(page).every(lambda e: "data-change" in e.attributes)
    assert {row.attributes["data-change"] for row in changed} == {"swim", "ride", "walk"}
    assert "<script>x" not in page


def test_plans_of_other_names_leave_the_night_alone(context: QueryContext) -> None:
    client = client_of(context, context.identity)
    night = client.get("/tonight").text
    later = replace(TODAY, as_of=TODAY.as_of + DAY, solver="later")
    for plan, name in ((later, "trial"), (TODAY, "rerun"), (replace(later, solver="q"), "quote")):
        context.store.made_plans.put(digest_of(plan), plan_to_json(plan), plan.as_of, NIGHT + DAY, "ana", name)
    client = client_of(context, context.identity)
    assert client.get("/tonight").text == night
    assert find_limits_plan(context) == LimitsPlan(digest_of(TODAY), TODAY.as_of)
    assert client.get("/api/v1/plans/latest/diff").status_code == 200
    assert client.get(f"/plans/{digest_of(later)}/diff").status_code == 404, "no trial was made before"
    listed = client.get("/api/v1/plans", params={"name": "trial"}).json()["plans"]
    assert [(row["name"], row["digest"]) for row in listed] == [("trial", digest_of(later))]
    links = read_page(client.get("/plans").text).every(
        lambda e: e.tag == "a" and e.words in ("night", "trial", "rerun")
    )
    assert {link.words: link.attributes["href"] for link in links} == {
        "night": f"/plans/{digest_of(TODAY)}",
        "trial": f"/plans/{digest_of(later)}",
        "rerun": f"/plans/{digest_of(TODAY)}",
    }
    entry = ConsoleEntry(night="rerun")
    other = replace(context, settings=replace(context.settings, deploy=Deploy(console=entry)))
    page = client_of(other, other.identity).get("/tonight").text
    assert "Plan “rerun”" in page
    assert "data-change" not in page, "no plan of that name is of the night before"


def test_the_comparison_is_that_of_the_command(context: QueryContext, tmp_path: Path) -> None:
    for name, plan in (("a", YESTERDAY), ("b", TODAY)):
        (tmp_path / f"{name}.json").write_text(plan_to_json(plan), encoding="utf-8")
    told = run("plan", "diff", tmp_path / "a.json", tmp_path / "b.json", "-o", "json").stdout
    client = client_of(context, context.identity)
    at = f"/plans/{digest_of(TODAY)}/diff"
    assert json.loads(client.get(f"{at}.json").text) == json.loads(told)
    assert client.get(f"{at}.json?against=plan-{digest_of(YESTERDAY)[:12]}").text == client.get(f"{at}.json").text
    assert read_page(client.get(at).text).every(lambda e: e.attributes.get("data-kind") == "new")
    assert "ride,new," in client.get(f"{at}.csv").text
    first = client.get(f"/plans/{digest_of(YESTERDAY)}/diff")
    assert (first.status_code, "earlier night" in first.text) == (404, True)


def test_the_list_has_the_figures_of_the_plans(context: QueryContext) -> None:
    client = client_of(context, context.identity)
    page = client.get("/plans").text
    rows = {
        row.attributes["data-plan"]: row.words for row in read_page(page).every(lambda e: "data-plan" in e.attributes)
    }
    assert list(rows) == [digest_of(TODAY), digest_of(YESTERDAY)]
    assert money(TODAY.cost_usd) in rows[digest_of(TODAY)]
    assert "2 of 2" in rows[digest_of(TODAY)]
    assert str(TODAY.cost_usd) in client.get("/plans.csv").text
    assert digest_of(TODAY) not in client.get("/plans", params={"before": "2026-11-21T00:00:00Z"}).text
    for odd in ("yesterday", "2026-11-21", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "\x00"):
        assert client.get("/plans", params={"before": odd}).status_code == 400


def test_a_viewer_of_one_team_sees_no_row_name_or_sum_of_another(context: QueryContext) -> None:
    client = client_of(context, RED)
    whole = {money(plan.cost_usd) for plan in (TODAY, YESTERDAY)} | {str(p.cost_usd) for p in (TODAY, YESTERDAY)}
    at = f"/plans/{digest_of(TODAY)}"
    paths = ("/tonight", "/tonight?rows=all", at, f"{at}/jobs.csv", f"{at}/diff", f"{at}/diff.csv", f"{at}/diff.json")
    for path in (*paths, "/plans", "/plans.csv"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        for text in ("ride", "swim", "blue", "9,002", "9002", *whole):
            assert text not in answer.text, (path, text)
        assert "walk" in answer.text or path.startswith("/plans.") or path == "/plans"
    own = restrict_plan(TODAY, {"red"})
    assert money(own.cost_usd) in client.get("/plans").text
    assert money(own.at_risk_usd) in client.get("/tonight").text
    assert "Approval" not in client.get("/tonight").text
    assert money(TODAY.cost_usd) in client_of(context, context.identity).get("/tonight").text


def test_plans_without_own_jobs_are_not_listed(context: QueryContext) -> None:
    client = client_of(context, identity_with("viewer:green"))
    assert digest_of(TODAY) not in client.get("/plans").text
    assert "No jobs to place" in client.get(f"/plans/{digest_of(TODAY)}").text


def test_a_long_list_is_shown_in_pages_and_none_is_lost(context: QueryContext) -> None:
    # Pairs of plans of one moment: pages do not tear them apart.
    for number in range(60):
        moment = NIGHT - DAY * (10 + number // 2)
        plan = replace(TODAY, as_of=moment, solver=f"made {number}")
        context.store.made_plans.put(digest_of(plan), plan_to_json(plan), moment, NIGHT, "ana", "night")
    for identity in (context.identity, RED):
        client, url, seen = client_of(context, identity), "/plans", list[str]()
        while url:
            page = read_page(client.get(url).text)
            seen += [row.attributes["data-plan"] for row in page.every(lambda e: "data-plan" in e.attributes)]
            links = (e.attributes.get("href", "") for e in page.tags("a") if e.words == "Earlier plans")
            url = next(links, "")
        assert len(seen) == len(set(seen)) == 62


def test_the_previous_plan_is_of_another_night(context: QueryContext) -> None:
    again = replace(TODAY, as_of=TODAY.as_of + timedelta(hours=1))
    context.store.made_plans.put(digest_of(again), plan_to_json(again), again.as_of, NIGHT, "ana", "night")
    latest = find_plan(context)
    assert latest is not None
    assert latest.digest == digest_of(again)
    before = previous_plan(context, latest, "latest")
    assert before is not None
    assert before.digest == digest_of(YESTERDAY)
    assert previous_plan(context, before, before.digest) is None


def test_unknown_and_odd_names_are_not_found(context: QueryContext) -> None:
    client = client_of(context, context.identity)
    for name in ("plan-0000", "x", "%00", "9" * 500, "..%2f..", "%25", "____"):
        for path in (f"/plans/{name}", f"/plans/{name}/jobs.csv", f"/plans/{name}/diff"):
            assert client.get(path).status_code == 404, path
        assert client.post(f"/plans/{name}/approve").status_code == 404
    assert client.get(f"/plans/{digest_of(TODAY)}/diff?against=%00").status_code == 404


def test_without_rules_it_says_so_with_the_remedy(context: QueryContext) -> None:
    client = client_of(context, ANA)
    page = client.get("/tonight").text
    assert "No rules of approvals are set" in page
    assert "approval_rules" in page
    assert "/approve" not in page
    refused = client.post(f"/plans/{digest_of(TODAY)}/approve")
    assert refused.status_code == 409
    assert "approval_rules" in refused.text
    assert not context.store.audit.entries()


def test_an_approval_is_recorded_listed_and_revoked_as_by_the_command(
    context: QueryContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_rules(context, "approvers: [{name: ana}, {name: bo}]\ntwo_approvers_above: $1\n")
    client, at = client_of(context, ANA), f"/plans/{digest_of(TODAY)}"
    assert f'action="{at}/approve"' in client.get(at).text
    given = client.post(f"{at}/approve", data={"note": "as <b>agreed</b>\x00"})
    assert (given.status_code, given.headers["Location"]) == (303, f"{at}?done=approved")
    page = client.get(given.headers["Location"]).text
    assert "Your approval is recorded." in page
    assert "only ana did" in page
    assert "as &lt;b&gt;agreed&lt;/b&gt;" in page
    assert f'action="{at}/approve"' not in page
    (entry,) = context.store.audit.entries()
    at_risk = Usd.total(at_risk_by_team(TODAY, {}).values())
    assert (entry.who, entry.what, entry.digest, entry.usd) == ("ana", "approve", digest_of(TODAY), at_risk)
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    listed = run("plan", "approve", "--list", "-o", "json")
    assert json.loads(listed.stdout)["approvals"][0]["name"] == "ana"
    bo = client_of(context, identity_with("approver", name="bo"))
    assert bo.post(f"{at}/approve").status_code == 303
    assert "Approved by ana and bo until 22 Nov 18:00" in without_times(client.get(at).text)
    assert "ana, bo" in client.get("/plans").text
    assert client.post(f"{at}/revoke", data={"note": "wrong"}).headers["Location"] == f"{at}?done=revoked"
    assert "only bo did" in client.get(at).text
    assert client.post(f"{at}/revoke").status_code == 409
    assert [entry.what for entry in context.store.audit.entries()] == ["approve", "approve", "revoke approval"]


def test_permission_and_rules_must_both_allow_it(context: QueryContext) -> None:
    context = with_rules(context, "approvers: [{name: ana, up_to: $0.01}, {name: carl, login: carl@here}]\n")
    at = f"/plans/{digest_of(TODAY)}"
    little = client_of(context, ANA)
    assert "ana may approve up to $0.01" in little.get(at).text
    assert little.post(f"{at}/approve").status_code == 409
    for refused in (identity_with("viewer", name="ana"), identity_with("approver:red", "viewer", name="ana")):
        client = client_of(context, refused)
        assert client.post(f"{at}/approve").status_code == 403
        assert client.post(f"{at}/revoke").status_code == 403
        assert "/approve" not in client.get(at).text
    stranger = client_of(context, identity_with("approver", name="dan"))
    assert "dan is not among the approvers" in stranger.post(f"{at}/approve").text
    assert not context.store.audit.entries()
    # Rules that name a login in full are met by who is signed in as that, under the approver's name.
    assert client_of(context, identity_with("approver", name="carl@here")).post(f"{at}/approve").status_code == 303
    assert context.store.audit.entries()[0].details["by"] == "carl"


def test_an_old_plan_cannot_be_approved(context: QueryContext) -> None:
    context = with_rules(context, "approvers: [{name: ana}]\n")
    late = replace(context, clock=lambda: TODAY.expires_at + timedelta(seconds=1))
    client, at = client_of(late, ANA), f"/plans/{digest_of(TODAY)}"
    assert "the plan was good until 2026-11-22 00:00Z" in client.get(at).text
    refused = client.post(f"{at}/approve")
    assert (refused.status_code, "good until 2026-11-22 00:00Z" in refused.text) == (409, True)
    assert not context.store.audit.entries()


def test_a_plan_with_many_jobs_shows_some_and_links_to_all(context: QueryContext) -> None:
    jobs = [replace(TODAY.jobs[0], job=f"job-{i:03}") for i in range(150)]
    lines = [replace(line, job=job.job, gang=f"{job.job}/1") for job in jobs for line in TODAY.lines[:1]]
    plan = replace(
        TODAY, jobs=tuple(jobs), lines=tuple(lines), as_of=TODAY.as_of + DAY, usage=NO_USAGE, inputs=NO_INPUTS
    )
    context.store.made_plans.put(digest_of(plan), plan_to_json(plan), plan.as_of, NIGHT, "ana", "night")
    client = client_of(context, context.identity)
    page = client.get("/tonight").text
    assert ">job-099<" in page
    assert 'jobs/job-100">job-100<' not in page
    assert f"/plans/{digest_of(plan)}?rows=all" in page
    assert 'jobs/job-149">job-149<' in client.get("/tonight?rows=all").text
    assert client.get(f"/plans/{digest_of(plan)}/jobs.csv").text.count("\n") == 151
