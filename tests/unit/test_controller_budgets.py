"""The cost of a gang that moves counts against the budgets of its job and team."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import Usd, UsdPerHour
from router.controller.history.attempt_history import history_of
from router.controller.plans import store_limits
from router.controller.supervise.replanner import (
    PendingGang,
    PlacementAccepted,
    PlacementDeferred,
    PlacementRejected,
    ReplanAnswer,
    Replanner,
)
from router.jobs.job_json import job_json, parse_job
from router.state.store import StateStore
from tests.bench.storm import book, fill, site_of
from tests.support.new_state import open_state
from tests.support.state_values import NOW

NAME = "gang-000"
PRICE = UsdPerHour.parse("1000")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as made:
        yield made


def answer(
    store: StateStore, folder: Path, *, hours: float, budget: str | None = None, team: str | None = None
) -> ReplanAnswer:
    """For a gang one of whose machines has been there for so long."""
    limits = fill(store, 12, 2)
    site = site_of(store, folder)
    one = store.attempts.get(NAME)
    assert one is not None
    if budget is not None:
        job = parse_job(store.plans.job(one.job_digest) or "").model_copy(update={"budget": Usd.parse(budget)})
        store.plans.put_jobs({one.job_digest: job_json(job)}, NOW)
    if team is not None:
        content = limits.model_dump(mode="json") | {"teams": [{"team": one.team, "budget": team, "spent": "0"}]}
        store_limits(store, one.plan, type(limits).model_validate(content))
    store.attempts.set_node(NAME, 0, usd_per_hour=PRICE, made_at=site.clock() - timedelta(hours=hours))
    (found,) = Replanner(site, book).replan([PendingGang(history_of(store, one), one)])
    return found


@pytest.mark.parametrize(("hours", "kind"), [(1.0, PlacementAccepted), (10_000.0, PlacementRejected)])
def test_a_gang_that_is_not_metered_yet_spent_its_jobs_budget(
    store: StateStore, tmp_path: Path, hours: float, kind: type[ReplanAnswer]
) -> None:
    found = answer(store, tmp_path, hours=hours, budget="1000000")
    assert isinstance(found, kind)
    assert not isinstance(found, PlacementRejected) or found.why == "its budget is spent"


@pytest.mark.parametrize(("hours", "kind"), [(1.0, PlacementAccepted), (10_000.0, PlacementDeferred)])
def test_and_its_teams(store: StateStore, tmp_path: Path, hours: float, kind: type[ReplanAnswer]) -> None:
    assert isinstance(answer(store, tmp_path, hours=hours, team="1000000"), kind)
