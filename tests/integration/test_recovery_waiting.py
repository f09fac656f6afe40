"""Jobs that wait for a place: destroyed, applied again, given up when the budget is spent; and one whose deadline is
near."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.places import Market
from providers.sandbox.stock import StockFile
from router.state.records import Phase
from tests.support.busy import eventually
from tests.support.deployed import REGION, NewSite, Running, Site, planned
from tests.support.recovered import (
    JOB,
    alone,
    attempts,
    journal,
    set_off,
    sped_up,
    stop,
    taken_back,
    training,
    until_finished,
    until_step,
    watched,
    wrong,
)
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

STEPS, EVERY, STEP_S = 200, 50, 0.03
# Of the clock of a cloud that is played faster than life.
MINUTE = timedelta(minutes=1)


@pytest.fixture
def site(base: Path, new_site: NewSite) -> Site:
    return new_site(planned(base, "waiting", training(STEPS, every=EVERY, step_s=STEP_S)))


def without_a_place(site: Site) -> Running:
    """Whoever watches a job whose machine was taken, in a region that has none left."""
    watcher = watched(site)
    set_off(site)
    until_step(site, 60)
    StockFile(site.folder / "cloud").close(REGION, None, "night")
    with taken_back(site, 1, 3):
        eventually(lambda: _has_tried_all(site), 60, why="for a job that waits")
    return watcher


def _has_tried_all(site: Site) -> bool:
    found = attempts(site)
    return [one.reason for one in found[:3]] == ["interrupted", "short", "short"] and found[-1].phase.is_over


def test_one_that_waits_is_applied_again_and_goes_on_once_there_is_a_place(site: Site, base: Path) -> None:
    with SeenMachines() as seen_machines:
        watcher = without_a_place(site)
        again = site.run("apply", site.plan, "--yes", "--limits", site.folder / "limits.yaml")
        assert again.code == 5, again.said
        kept = max(one.kept_step or 0 for one in attempts(site))
        first, *others = attempts(site)
        # One more may just be tried, as every so often.
        assert first.phase is Phase.FAILED
        assert all(one.met_at is None for one in others)
        assert StockFile(site.folder / "cloud").open(REGION)
        until_finished(site, 120)
        stop(watcher)
        assert wrong(site, STEPS, alone(base, STEPS), seen_machines) == []
    found = attempts(site)
    assert found[-1].reason == "finished"
    assert found[-1].first_step == kept > 0


def test_one_that_waits_and_is_destroyed_is_not_made_again(site: Site) -> None:
    watcher = without_a_place(site)
    destroyed = site.run("destroy", JOB, "--yes")
    gangs = len(attempts(site))
    assert destroyed.code == 0, destroyed.err
    assert "will not be made again" in destroyed.said
    assert StockFile(site.folder / "cloud").open(REGION)
    assert "nothing runs that fits" in site.run("destroy", JOB, "--yes").said
    # Pools are remembered as short for so long.
    eventually(lambda: _shortages(site) == 0, 60)
    with pytest.raises(AssertionError, match="in vain"):
        eventually(lambda: len(attempts(site)) > gangs, 4)
    stop(watcher)
    assert attempts(site)[-1].reason == "stopped"
    assert attempts(site)[-1].message == "destroyed on request"


def _shortages(site: Site) -> int:
    with site.store() as store:
        return len(store.shortages.in_force(datetime.now(UTC)))


def test_one_whose_budget_is_spent_is_given_up_with_a_reason(base: Path, tmp_path: Path) -> None:
    """A minute of the cloud's is a second here, so that it is spent before long."""
    job = training(STEPS, every=EVERY, step_s=STEP_S, budget="$0.30")
    site = planned(base, "poor", job).site(tmp_path / "site")
    fast = sped_up(site, 60)
    try:
        watcher = watched(site, environment=fast)
        set_off(site, environment=fast)
        until_step(site, 100)
        with taken_back(site, 1, 4):
            # Its journal has it a moment before; a watcher that is stopped between the two would come back to it.
            eventually(lambda: attempts(site)[-1].reason == "given_up", 60, why="for a job to be given up")
        (given_up,) = journal(site, "given up")
        stop(watcher)
        told = site.run("status", "--all", environment=fast)
    finally:
        site.end()
    assert given_up.details["why"] == "its budget is spent"
    (one,) = attempts(site)
    assert (one.phase, one.reason, one.message) == (Phase.FAILED, "given_up", "its budget is spent")
    assert "its budget is spent" in told.said


def test_with_little_time_left_it_goes_on_demand_and_is_in_time(base: Path, tmp_path: Path) -> None:
    """Spot machines of another zone are there and cost less than half; but should they be taken as well, on-demand
    would be too late. A minute of the cloud's is five seconds here."""
    # With less the guard's margin of ten minutes leaves no time for spot at all; six of them pass before it begins.
    steps, speed, deadline, passed = 500, 12, 26 * MINUTE, 6 * MINUTE
    job = training(
        steps,
        every=50,
        step_s=0.05,
        planned_s=0.05 * speed,
        startup="4m",
        deadline=f"+{deadline // MINUTE}m",
        interruptions={"per_hour": 0.1},  # with what is assumed of spot, so short a time is better bought on demand
    )
    site = planned(base, "in-time", job).site(tmp_path / "site")
    as_of = datetime.fromisoformat(json.loads(site.plan.read_text())["as_of"])
    fast = sped_up(site, speed, passed)
    try:
        with SeenMachines() as seen_machines:
            watcher = watched(site, environment=fast)
            set_off(site, environment=fast)
            until_step(site, 120)
            with taken_back(site, 0, 5):
                until_finished(site)
            stop(watcher)
            assert wrong(site, steps, alone(base, steps), seen_machines) == []
        with site.store() as store:
            first, second = store.attempts.find()
            markets = [{node.market for node in store.attempts.nodes(one.id)} for one in (first, second)]
    finally:
        site.end()
    assert markets == [{Market.SPOT}, {Market.ON_DEMAND}]
    assert second.result_at is not None
    assert second.result_at < as_of + deadline
