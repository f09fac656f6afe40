"""``stepfare quotes calibration``: accepted quotes beside what the state knows of their jobs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd
from router.app.outcomes import quote_ending
from router.config.plan_files import QuoteAcceptance, store_acceptance, store_quotes
from router.quotes.outcomes import JobEnding, assess_quotes
from router.quotes.quote import Quote
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.asked_quotes import a_quote
from tests.support.command import run
from tests.support.new_state import open_state
from tests.support.scenes import NORTH, NORTH_SPOT, a_job
from tests.support.state_values import NOW, attempt, entry

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def quoted() -> Quote:
    return a_quote(a_job(), 24, [NORTH, NORTH_SPOT])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def accepted(plan: str = "p" * 64) -> QuoteAcceptance:
    return QuoteAcceptance("quote-1", "2026-11-21T19:00:00Z", "who@where", plan, "j" * 64, "50")


def of(quote: Quote, name: str = "a1", **more: Any) -> Any:
    return attempt(name, job=quote.job, **more)


def store_in(tmp_path: Path) -> StateStore:
    return open_state(tmp_path / "state.db", NOW)


def test_an_ending_is_all_machines_of_the_plan_and_when_it_was_done(tmp_path: Path, quoted: Quote) -> None:
    done = NOW + 3 * HOUR
    with store_in(tmp_path) as store:
        assert quote_ending(quoted, accepted(), store) is None
        lost = {"phase": Phase.FAILED, "reason": "interrupted"}
        store.attempts.add(of(quoted, "a1", **lost), [])
        assert quote_ending(quoted, accepted(), store) is None  # it goes on
        store.attempts.add(of(quoted, "a2", number=2, created_at=NOW + HOUR, phase=Phase.RUNNING), [])
        assert quote_ending(quoted, accepted(), store) is None
        store.attempts.update("a2", lambda a: replace(a, phase=Phase.FINISHED, result="finished", result_at=done))
        store.ledger.add(
            [
                entry("k1", job=quoted.job, attempt="a1"),
                entry("k2", job=quoted.job, attempt="a2"),
                entry("k3", job=quoted.job, plan="q" * 64),
            ]
        )
        one = entry("k1").usd
        assert quote_ending(quoted, accepted(), store) == JobEnding(one + one, done)
        assert quote_ending(quoted, accepted("q" * 64), store) is None


def test_who_was_stopped_is_not_counted_and_who_was_given_up_is(tmp_path: Path, quoted: Quote) -> None:
    with store_in(tmp_path) as store:
        store.attempts.add(of(quoted, "a1", phase=Phase.FAILED, reason="stopped"), [])
        store.attempts.add(of(quoted, "b1", plan="q" * 64, phase=Phase.FAILED, reason="given_up"), [])
        assert quote_ending(quoted, accepted(), store) is None
        assert quote_ending(quoted, accepted("q" * 64), store) == JobEnding(Usd(0), None)


def test_quotes_and_endings_make_rows(quoted: Quote) -> None:
    middle, late = quoted.finish_levels[19], quoted.deadline + HOUR
    assert middle is not None
    cost = quoted.usd_levels[19]
    assert cost is not None
    found = assess_quotes(
        [(quoted, JobEnding(cost, middle)), (quoted, JobEnding(cost, late)), (quoted, JobEnding(cost, None))]
    )
    assert (found.count, found.on_time, found.given_up) == (3, 1, 1)
    assert found.promised == pytest.approx(quoted.on_time)
    assert [(row.what, row.count) for row in found.rows] == [("cost", 2), ("finish", 2)]
    assert assess_quotes([]).rows == ()
    endless = replace(quoted, usd_levels=(*quoted.usd_levels[:-1], None))
    assert [row.what for row in assess_quotes([(endless, JobEnding(cost, middle))]).rows] == ["finish"]


def test_the_command(tmp_path: Path, home: Path, quoted: Quote) -> None:
    assert "no quote was accepted yet" in run("quotes", "calibration").stdout
    (identity,) = store_quotes(home / "quotes", [quoted])
    store_acceptance(home / "quotes", replace(accepted(), quote_id=identity))
    assert "accepted quotes: 1; none of their jobs is over" in run("quotes", "calibration").stdout
    with store_in(home) as store:
        over: dict[str, Any] = {"phase": Phase.FINISHED, "result": "finished", "result_at": quoted.start + HOUR}
        store.attempts.add(of(quoted, **over), [])
        store.ledger.add([entry("k1", job=quoted.job)])
    page = tmp_path / "calibration.html"
    result = run("quotes", "calibration", "--html", page)
    assert result.exit_code == 0, result.stderr
    assert "1 of 1 accepted quotes are over: 1 on time (100%, promised" in result.stdout
    assert "may be luck" in result.stdout
    assert "<svg" in page.read_text(encoding="utf-8")
    content = json.loads(run("quotes", "calibration", "-o", "json").stdout)
    assert (content["schema_version"], content["accepted"], content["on_time"]) == (1, 1, 1)
    rows = list(csv.DictReader(io.StringIO(run("quotes", "calibration", "-o", "csv").stdout)))
    assert [(row["of"], row["level"]) for row in rows[:2]] == [("cost", "0.5"), ("cost", "0.8")]


def test_help_has_examples() -> None:
    text = run("quotes", "calibration", "--help").stdout
    assert "stepfare quotes calibration --html" in text
