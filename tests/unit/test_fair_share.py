"""Shares of teams: bands, recent use from a ledger, and whose jobs are left out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.money import Usd
from router.app.budgets import recent_use
from router.controller.plans import fill_recent_use
from router.jobs.limits import Limits
from router.ledger.entry import LedgerEntryKind
from router.planning.document.fair_share import team_standings
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.render.explain_text import job_text
from router.render.plan_text import table
from router.state.store import StateStore
from tests.support.checker import check_plan
from tests.support.made_up_book import book
from tests.support.scenes import HOUR, NORTH, NOW, a_job, a_request, plan_of
from tests.support.state_values import entry

QUOTA = {"name": "quota", "cloud": "aws", "amount": 8, "unit": "accelerators"}


def limits(**fair: Any) -> Limits:
    return Limits.model_validate({"limits": [QUOTA], "fair_share": fair})


@pytest.mark.parametrize("compact_jobs", [30, 0])
@pytest.mark.parametrize(("used", "placed"), [({"red": 900, "blue": 100}, "blue"), ({"red": 100, "blue": 900}, "red")])
def test_of_two_jobs_that_of_the_team_below_its_share_is_placed(
    used: dict[str, int], placed: str, compact_jobs: int
) -> None:
    """The red job is the shorter and cheaper one: without shares it is placed whatever was used."""
    jobs = [
        a_job("red-job", steps=250, team="red", deadline="+4h"),
        a_job("blue-job", steps=290, team="blue", deadline="+4h"),
    ]
    plain = plan_of(jobs, [NORTH], {"limits": [QUOTA]}, compact_jobs=compact_jobs)
    assert [item.job for item in plain.unplaced] == ["blue-job"]
    assert "fair_share" not in plan_to_json(plain)
    stated = limits(shares={"red": 1, "blue": 1}, recent_usd=used)
    plan = plan_from_json(plan_to_json(plan_of(jobs, [NORTH], stated, compact_jobs=compact_jobs)))
    assert check_plan(plan, jobs, book([NORTH]), stated, slot=HOUR) == []
    assert {line.job for line in plan.lines} == {f"{placed}-job"}
    words = f"{placed}: band 1, factor 0.87; used $100.00 lately, share 1"
    assert words in table(plan)
    assert f"fair share of {words}" in job_text(plan, f"{placed}-job")


def test_bands_end_at_half_the_share_the_share_and_twice_the_share() -> None:
    """A share of 800 dollars in four equal parts is 200."""
    for used, band, factor in ((0, 1, 1.0), (100, 1, 0.707107), (200, 2, 0.5), (400, 3, 0.25), (401, 4, 0.249135)):
        shown = {"a": used, "b": 800 - used, "c": 0, "d": 0}
        (standing,) = (s for s in team_standings(limits(recent_usd=shown), ()) if s.team == "a")
        assert standing.band == band
        assert standing.factor == pytest.approx(factor, abs=1e-5)


def test_without_any_use_all_are_in_band_one_and_unknown_teams_have_a_share() -> None:
    found = team_standings(limits(shares={"red": 3}), ("blue",))
    assert [(s.team, s.share, s.band, s.factor) for s in found] == [("blue", 1.0, 1, 1.0), ("red", 3.0, 1, 1.0)]


def test_use_counts_half_after_each_half_life_and_what_the_file_states_goes_first() -> None:
    week = timedelta(days=7)
    used = [
        ("red", NOW, Usd.parse("8")),
        ("red", NOW - week, Usd.parse("8")),
        ("red", NOW - 3 * week, Usd.parse("8")),
        ("blue", NOW, Usd.parse("70")),
        ("", NOW, Usd.parse("5")),
    ]
    filled = fill_recent_use(limits(recent_usd={"blue": 1}), used, NOW).fair_share
    assert filled is not None
    assert filled.recent_usd == {"red": Usd.parse("13"), "blue": Usd.parse("1")}


def test_recent_use_is_what_the_ledger_metered(tmp_path: Path) -> None:
    """Plans and entries that ended long ago do not count, and nothing is read where no shares are stated."""
    day = timedelta(days=1)
    url = f"sqlite:///{tmp_path}/state.db"
    entries = [
        entry("new", team="red", start=NOW - HOUR, end=NOW, usd=Usd.parse("6")),
        entry("old", team="red", start=NOW - 7 * day - HOUR, end=NOW - 7 * day, usd=Usd.parse("6")),
        entry("older", team="red", start=NOW - 90 * day, end=NOW - 89 * day, usd=Usd.parse("600")),
        entry("planned", kind=LedgerEntryKind.PLANNED, team="red", start=NOW - HOUR, end=NOW, usd=Usd.parse("60")),
    ]
    with StateStore.open(url, now=NOW) as store:
        store.ledger.add(entries)
        found = recent_use(store, limits(shares={"red": 1}), NOW).fair_share
        assert found is not None
        assert found.recent_usd == {"red": Usd.parse("9")}
        assert recent_use(store, Limits.none(), NOW) == Limits.none()


@pytest.mark.parametrize(
    "bad", [{"shares": {"red": 0}}, {"half_life": "0h"}, {"recent_usd": {"red": -1}}, {"share": {}}]
)
def test_bad_input_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        limits(**bad)


def test_a_request_without_shares_has_no_bands() -> None:
    assert team_standings(a_request([a_job()], [NORTH]).limits, ("a",)) == ()
