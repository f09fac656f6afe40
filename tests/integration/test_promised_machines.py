"""Machines promised to other jobs: of good and applied plans alone, and of no gang that is over for good."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import Usd
from pricing.places import Market
from router.app.queries.context import QueryContext
from router.app.queries.quote_acceptance import find_promised_machines
from router.app.settings import AppSettings
from router.controller.accept.accept import APPLY
from router.deploy.deploy_settings import Deploy
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content, plan_to_json
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.console import OPERATOR
from tests.support.new_state import open_state
from tests.support.scenes import NORTH, a_job, plan_of
from tests.support.state_values import attempt, node

PLAN = plan_of([a_job("one"), a_job("two")], [NORTH])
NOW, HOUR = PLAN.as_of, timedelta(hours=1)
LATE = PLAN.expires_at + timedelta(seconds=1)
(ONE,) = (line for line in PLAN.lines if line.job == "one")


@pytest.fixture
def context(tmp_path: Path) -> Iterator[QueryContext]:
    with open_state(tmp_path / "state.db", NOW) as store:
        yield QueryContext(
            AppSettings(Deploy(), LoadedClouds(Clouds(), {}), tmp_path, {}), store, lambda: NOW, OPERATOR
        )


def put(store: StateStore, name: str, plan: Plan = PLAN) -> str:
    digest: str = plan_content(plan)["digest"]
    store.made_plans.put(digest, plan_to_json(plan), plan.as_of, NOW, "ana", name)
    return digest


def holders(context: QueryContext, job: str = "new", after: timedelta = timedelta(0)) -> list[str]:
    return sorted(each.job for each in find_promised_machines(context, job, NOW + after))


def test_the_last_night_counts_for_every_job_but_the_one_that_is_planned(context: QueryContext) -> None:
    put(context.store, "trial")
    assert holders(context) == []
    put(context.store, "night")
    assert (holders(context), holders(context, "one")) == (["one", "two"], ["two"])


def test_of_a_job_with_an_accepted_quote_that_plan_counts(context: QueryContext) -> None:
    put(context.store, "night")
    own = plan_of([a_job("one", steps=200)], [NORTH])
    put(context.store, "quote", own)
    found = {each.job: each for each in find_promised_machines(context, "new", NOW)}
    assert sorted(found) == ["one", "two"]
    assert found["one"].end == own.lines[0].end != ONE.end


def test_a_plan_that_nobody_applied_in_time_holds_nothing(context: QueryContext) -> None:
    digest = put(context.store, "night")
    assert holders(context, after=LATE - NOW) == []
    context.store.audit.add("ana", APPLY, digest, Usd(0), NOW)
    assert holders(context, after=LATE - NOW) == ["one", "two"]


@pytest.mark.parametrize(("reason", "left"), [("finished", ["two"]), ("stopped", ["two"]), ("lost", ["one", "two"])])
def test_a_gang_that_is_over_for_good_holds_nothing(context: QueryContext, reason: str, left: list[str]) -> None:
    digest = put(context.store, "night")
    context.store.audit.add("ana", APPLY, digest, Usd(0), NOW)
    made = attempt("a1", job="one", plan=digest, gang=ONE.gang, phase=Phase.FAILED, reason=reason, gone_at=NOW)
    context.store.attempts.add(made, [])
    assert holders(context) == left


def test_a_gang_that_runs_holds_its_machines_until_its_planned_end(context: QueryContext) -> None:
    put(context.store, "night")
    made = attempt("a1", job="one", phase=Phase.RUNNING, met_at=NOW)
    context.store.attempts.add(made, [node("a1", 0, market=Market.SPOT), node("a1", 1, market=Market.SPOT)])
    found = next(each for each in find_promised_machines(context, "new", NOW) if each.job == "one")
    assert (found.machines.machines, found.machines.market, found.end) == (2, Market.SPOT, max(made.end, NOW))
