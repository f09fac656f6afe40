"""The page of a job shows its quotes, to whoever may see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import Usd
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.app.stored_quotes import put_quote
from router.config.plan_files import QuoteAcceptance
from router.jobs.job_json import job_json
from router.planning.document.plan_json import plan_content, plan_to_json
from router.quotes.quote import Quote
from router.render.figures import day_clock, money
from tests.support.asked_quotes import a_quote
from tests.support.console import NIGHT, console_client, identity_with, query_context
from tests.support.live_gangs import played_night
from tests.support.page_reader import Element, check_landmarks, read_page
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job, plan_of

OFFERS = [NORTH, NORTH_SPOT, SOUTH]
JOB = a_job("walk", steps=900, team="red")
PLAN = plan_of([JOB], OFFERS)
DIGEST: str = plan_content(PLAN)["digest"]
PLANNED = f"/plans/{DIGEST}/jobs/{JOB.name}"
HEADING = "Its quotes"


@pytest.fixture(scope="module")
def quote() -> Quote:
    return a_quote(JOB, 24, OFFERS)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with query_context(tmp_path) as opened:
        opened.store.made_plans.put(DIGEST, plan_to_json(PLAN), PLAN.as_of, NIGHT, "made by host", "night")
        yield opened


def put(context: QueryContext, quote: Quote, earlier: int = 0, *, job: str = "walk", team: str = "red") -> str:
    """Store the quote as it would have been given so many hours earlier, and return its id."""
    asked, valid = (moment - timedelta(hours=earlier) for moment in (quote.asked_at, quote.valid_until))
    quote = replace(quote, asked_at=asked, valid_until=valid, job=job, team=team)
    return put_quote(context.store, quote, job_json(JOB), "ana@desk")


def accept(context: QueryContext, name: str, ceiling: str = "812.5") -> None:
    made = QuoteAcceptance(name, "2026-11-21T17:00:00Z", "mira@desk", DIGEST, JOB.digest, ceiling)
    assert context.store.quotes.accept(name, json.dumps(asdict(made)))


def rows_of(text: str) -> list[Element]:
    """Return the rows of the table of quotes, the first one below its head."""
    page = read_page(text)
    check_landmarks(page)
    (section,) = [each for each in page.tags("section") if each.tags("h2") and each.tags("h2")[0].words == HEADING]
    return section.tags("tr")[1:]


def links_of(row: Element) -> list[str]:
    return [link.attributes["href"] for link in row.tags("a")]


@pytest.mark.slow
def test_the_last_accepted_quote_comes_first_then_the_latest(context: QueryContext, quote: Quote) -> None:
    old, accepted, late, new = (put(context, quote, hours) for hours in (90, 60, 30, 0))
    accept(context, accepted)
    accept(context, old)
    rows = rows_of(console_client(context).get(PLANNED).text)
    assert [links_of(row)[0] for row in rows] == [f"/quotes/{name}" for name in (accepted, new, late, old)]
    assert links_of(rows[0])[1] == f"/plans/plan-{DIGEST[:12]}"
    assert "up to $812.50" in rows[0].words
    assert f"no; good until {day_clock(quote.valid_until)}" in rows[1].words
    assert "no; too old" in rows[2].words
    for row in rows:
        assert quote.usd.mean is not None
        assert quote.usd.p90 is not None
        assert [Usd.parse(data.attributes["value"]) for data in row.tags("data")] == [quote.usd.mean, quote.usd.p90]
        assert money(quote.usd.p90) in row.words
        assert day_clock(quote.deadline) in row.words


def test_a_job_without_a_quote_says_nothing_of_quotes(context: QueryContext, quote: Quote) -> None:
    put(context, quote, job="another")
    assert HEADING not in console_client(context).get(PLANNED).text


def test_more_quotes_than_are_shown_are_a_link_away(context: QueryContext, quote: Quote) -> None:
    for hours in range(6):
        put(context, quote, hours)
    text = console_client(context).get(PLANNED).text
    assert len(rows_of(text)) == 5
    assert 'href="/quotes?job=walk"' in text


def test_quotes_of_another_team_s_job_of_the_name_are_not_this_job_s(context: QueryContext, quote: Quote) -> None:
    own, other = put(context, quote), put(context, quote, team="blue")
    for client in (console_client(context), console_client(context, lambda: identity_with("viewer:red"))):
        text = client.get(PLANNED).text
        assert len(rows_of(text)) == 1
        assert own in text
        assert other not in text


def test_who_may_not_read_quotes_sees_none_of_what_others_just_saw(context: QueryContext, quote: Quote) -> None:
    put(context, quote)
    reader = identity_with("viewer")
    confined = replace(reader, scopes=frozenset({Permission.READ_PLANS, Permission.READ_JOBS}))
    asking = [reader]
    client = console_client(context, lambda: asking[0])
    assert HEADING in client.get(PLANNED).text
    asking[0] = confined
    assert HEADING not in client.get(PLANNED).text


def test_a_damaged_quote_leaves_the_page_of_the_job(context: QueryContext, quote: Quote) -> None:
    put(context, quote)
    folder = context.settings.folder / "quotes"
    folder.mkdir()
    (folder / "quote-0123456789ab.json").write_text("{", encoding="utf-8")
    page = console_client(context).get(PLANNED)
    assert page.status_code == 200
    assert "A stored quote cannot be read" in page.text
    assert "0123456789ab" not in page.text


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryContext]:
    with played_night(tmp_path_factory.mktemp("night")) as opened:
        yield opened


def test_a_job_that_runs_shows_its_quotes_to_who_may_see_them(night: QueryContext, quote: Quote) -> None:
    name = put(night, quote, job="whisper-nightly", team="speech")
    other = put(night, quote, job="whisper-nightly", team="research")
    reader = identity_with("viewer:speech")
    asking = [reader]
    client = console_client(night, lambda: asking[0])
    (row,) = rows_of(client.get("/jobs/whisper-nightly").text)
    assert links_of(row) == [f"/quotes/{name}"]
    asking[0] = replace(reader, scopes=frozenset({Permission.READ_JOBS, Permission.READ_PLANS}))
    assert HEADING not in client.get("/jobs/whisper-nightly").text
    everybody = console_client(night).get("/jobs/whisper-nightly").text
    assert name in everybody
    assert other not in everybody
    assert HEADING not in console_client(night).get("/jobs/tts-voices").text
