"""From the plan to a job and why it is there, and from a run to whether it met its deadline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import escape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pricing.money import Usd
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.queries.jobs import report_jobs
from router.controller.report.report import GangOutlook, PlanPromise
from router.planning.document.plan_json import plan_content, plan_to_json
from router.render.figures import money
from router.render.jobs_page import gang_row
from tests.support.console import NIGHT, console_client, identity_with, query_context
from tests.support.live_gangs import NOW, played_night
from tests.support.page_reader import Element, read_page
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job, plan_of

ODD = "ride"
PLAN = plan_of(
    [
        a_job("walk", team="red"),
        a_job(ODD, team="blue <i>c</i>"),
        a_job("rush", team="red", steps=10**6, deadline="+5h"),
    ],
    [NORTH, NORTH_SPOT, SOUTH],
)
DIGEST: str = plan_content(PLAN)["digest"]


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path) as opened:
        opened.store.made_plans.put(DIGEST, plan_to_json(PLAN), PLAN.as_of, NIGHT, "made <by> host", "night")
        yield opened


def test_each_job_of_the_night_leads_to_a_page_with_its_figures(context: QueryContext) -> None:
    client = console_client(context)
    tonight = client.get("/tonight").text
    for job in PLAN.jobs:
        found = [link.attributes["href"] for link in read_page(tonight).tags("a") if link.words == job.job]
        assert len(set(found)) == 1
        page = client.get(found[0])
        assert page.status_code == 200
        assert "<i>c" not in page.text
        if job.finish is None:
            assert f"{job.job} is left out: " in page.text
        else:
            assert money(job.cost_usd) in page.text
            for other in job.alternatives:
                assert money(other.cost_usd) in page.text
        assert "It has not run yet" in page.text


def test_each_gang_in_the_picture_of_the_night_leads_to_its_job(context: QueryContext) -> None:
    def is_gang(tag: Element) -> bool:
        return "data-job" in tag.attributes

    client = console_client(context)
    pictures = [svg for svg in read_page(client.get("/tonight").text).tags("svg") if svg.every(is_gang)]
    assert len(pictures) == 3
    for picture in pictures:
        gangs = picture.every(is_gang)
        assert {gang.attributes["data-job"] for gang in gangs} == {line.job for line in PLAN.lines}
        linked = [(link, gang) for link in picture.tags("a") for gang in link.every(is_gang)]
        assert len(linked) == len(gangs)
        for link, gang in linked:
            # A keyboard goes by the table of jobs, where each job is once.
            assert link.attributes["tabindex"] == "-1"
            assert f"{gang.attributes['data-job']} is planned in" in client.get(link.attributes["href"]).text


def test_a_job_that_never_ran_is_shown_as_it_is_planned(context: QueryContext) -> None:
    client = console_client(context)
    client.follow_redirects = False
    answer = client.get("/jobs/walk")
    assert (answer.status_code, answer.headers["location"]) == (303, "/plans/latest/jobs/walk")
    assert client.get("/jobs/nobody").status_code == 404
    assert client.get(f"/plans/{DIGEST}/jobs/nobody").status_code == 404


def test_a_team_sees_its_own_jobs_alone(context: QueryContext) -> None:
    client = console_client(context, lambda: identity_with("viewer:red", name="rita"))
    assert client.get(f"/plans/{DIGEST}/jobs/walk").status_code == 200
    assert client.get(f"/plans/{DIGEST}/jobs/{ODD}").status_code == 404


def test_a_token_that_reads_plans_alone_is_told_of_no_runs(context: QueryContext) -> None:
    reader = replace(identity_with("viewer"), scopes=frozenset({Permission.READ_PLANS}))
    client = console_client(context, lambda: reader)
    assert "It has not run yet" not in client.get(f"/plans/{DIGEST}/jobs/walk").text
    assert client.get("/jobs/walk").status_code == 403


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryContext]:
    with played_night(tmp_path_factory.mktemp("night")) as opened:
        yield opened


def test_words_choose_gangs_and_their_sums(night: QueryContext) -> None:
    client = console_client(night)
    report = report_jobs(night)
    one = report.live[0].gang
    page = client.get("/jobs", params={"q": f"{one.attempt.region} {one.attempt.job[:4].upper()}"}).text
    assert "1 gang runs in 1 place" in page
    assert money(one.spent_usd) in page
    assert "part=live&amp;q=" in page
    nothing = client.get("/jobs", params={"q": "<b>nobody"}).text
    assert "<b>nobody" not in nothing
    assert "no gang runs" in nothing


def test_the_own_team_comes_first_and_any_order_can_be_asked_for(night: QueryContext) -> None:
    report = report_jobs(night)
    gangs = [each.gang.attempt for each in (*report.waiting, *report.live)]
    teams = sorted({each.team for each in gangs})
    assert len(teams) > 1

    def shown(client: TestClient, **asked: str) -> list[str]:
        page = read_page(client.get("/jobs", params=asked).text)
        return [row.attributes["data-attempt"] for row in page.every(lambda tag: "data-attempt" in tag.attributes)]

    by_id = {each.id: each for each in gangs}
    for team in teams:
        owner = identity_with("viewer", f"job_owner:{team}")
        client = console_client(night, lambda owner=owner: owner)  # type: ignore[misc]
        order = [by_id[name].team for name in shown(client)]
        own = order.count(team)
        assert order[:own] == [team] * own
        assert f"Team {escape(team)} first; " in client.get("/jobs").text
    everybody = console_client(night)
    assert "What waits first, then dearest first" in everybody.get("/jobs").text
    by_job = [by_id[name].job for name in shown(everybody, sort="job")]
    assert by_job == sorted(by_job)
    spent = {each.gang.attempt.id: each.gang.spent_usd.nanos for each in (*report.waiting, *report.live)}
    dearest = [spent[name] for name in shown(everybody, sort="spent")]
    assert dearest == sorted(dearest, reverse=True)
    # The part that refreshes itself keeps the order, and an order that there is not is none.
    assert "part=live&amp;sort=job" in everybody.get("/jobs", params={"sort": "job"}).text
    assert shown(everybody, sort="<b>") == shown(everybody)


@pytest.mark.parametrize(
    ("hours", "result", "said"),
    [(2, "finished", "met, 2.0 h before"), (-3, "finished", "missed by 3.0 h"), (2, "failed", "not finished")],
)
def test_a_job_that_is_over_says_whether_it_met_its_deadline(
    night: QueryContext, hours: int, result: str, said: str
) -> None:
    over = report_jobs(night).over[0]
    attempt = replace(over.gang.attempt, result=result, result_at=NOW)
    deadline = NOW + timedelta(hours=hours)
    outlook = GangOutlook(
        replace(over.gang, attempt=attempt), deadline, PlanPromise(chance=0.9), None, NOW, 2 * (over.gang.step or 0)
    )
    assert gang_row(outlook)["chance"] == said
    assert outlook.done == (1.0 if result == "finished" else 0.5)
    assert gang_row(outlook)["spent"] == money(over.gang.spent_usd) != money(Usd(0))
