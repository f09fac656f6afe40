"""What a gang that leaves has cost until now counts against the budget of its job, and of its team."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import Usd, UsdPerHour
from router.controller.accepted_limits import keep_limits
from router.controller.attempt_history import chain_of
from router.controller.replanner import Answer, Go, Later, Never, Replanner, Wanting
from router.controller.workspaces import job_of, spec_json
from router.state.store import Store
from tests.bench.storm import book, fill, site_of
from tests.support.state_values import NOW

NAME = "gang-000"
PRICE = UsdPerHour.parse("1000")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/state.db", now=NOW) as made:
        yield made


def answer(store: Store, folder: Path, *, hours: float, budget: str | None = None, team: str | None = None) -> Answer:
    """For a gang one of whose machines has been there for so long."""
    limits = fill(store, 12, 2)
    site = site_of(store, folder)
    one = store.attempt(NAME)
    assert one is not None
    if budget is not None:
        job = job_of(store.job(one.job_digest) or "").model_copy(update={"budget": Usd.parse(budget)})
        store.put_jobs({one.job_digest: spec_json(job)}, NOW)
    if team is not None:
        content = limits.model_dump(mode="json") | {"teams": [{"team": one.team, "budget": team, "spent": "0"}]}
        keep_limits(store, one.plan, type(limits).model_validate(content))
    store.set_node(NAME, 0, usd_per_hour=PRICE, made_at=site.clock() - timedelta(hours=hours))
    (found,) = Replanner(site, book).replan([Wanting(chain_of(store, one), one)])
    return found


@pytest.mark.parametrize(("hours", "kind"), [(1.0, Go), (10_000.0, Never)])
def test_a_gang_that_is_not_metered_yet_spent_its_jobs_budget(
    store: Store, tmp_path: Path, hours: float, kind: type[Answer]
) -> None:
    found = answer(store, tmp_path, hours=hours, budget="1000000")
    assert isinstance(found, kind)
    assert not isinstance(found, Never) or found.why == "its budget is spent"


@pytest.mark.parametrize(("hours", "kind"), [(1.0, Go), (10_000.0, Later)])
def test_and_its_teams(store: Store, tmp_path: Path, hours: float, kind: type[Answer]) -> None:
    assert isinstance(answer(store, tmp_path, hours=hours, team="1000000"), kind)
