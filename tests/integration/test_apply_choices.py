"""Whole gangs or none: what cannot be had is released whole, remembered, and the plan's next place is tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.controller.plans import orders_of
from router.controller.workspace.workspaces import attempt_name
from router.ledger.entry import MachineUse
from router.planning.document.plan_json import plan_from_json
from router.state.records import Phase
from tests.support.deployed import REGION, TYPE, ZONE_A, ZONE_B, NewSite, Site, job, planned
from tests.support.deployed_checks import disagreements
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine

ONE_LEFT_IN_A = f"{REGION} {ZONE_A} {TYPE} spot 1"
ONE_LEFT_IN_B = f"{REGION} {ZONE_B} {TYPE} spot 1"
NONE_ON_DEMAND = f"{REGION} - {TYPE} on_demand 0"


@pytest.fixture
def site(base: Path, new_site: NewSite) -> Site:
    """Two machines are planned in zone a; next places are zone b, and on demand anywhere."""
    return new_site(planned(base, "two", job("walk", machines=2)))


@pytest.mark.slow
def test_a_pool_that_is_short_is_released_whole_and_remembered(site: Site) -> None:
    site.stock(ONE_LEFT_IN_A)
    with SeenMachines() as seen_machines:
        ran = site.apply("-o", "json")
        assert ran.code == 0, ran.err
        assert "InsufficientInstanceCapacity: the sandbox has no h100.1x spot left in sandbox-east-a" in ran.said
        assert "trying the next place" in ran.said
        (gang,) = ran.json["gangs"]
        assert (gang["result"], gang["phase"], gang["machines"]) == ("ready", "ready", 2)
        assert disagreements(site, seen_machines) == []
    with site.store() as store:
        first, second = store.attempts.find()
        assert (first.phase, first.reason, first.choice, second.choice) == (Phase.FAILED, "short", 0, 1)
        assert {node.zone for node in store.attempts.nodes(second.id)} == {ZONE_B}
        # One was made there and one was refused: only the one that was there costs.
        metered = [entry for entry in store.ledger.entries(attempt=first.id) if entry.rank is not None]
        assert [entry.use for entry in metered] == [MachineUse.FAILED_LAUNCH]
        (refused,) = [entry for entry in store.journal.entries(first.id) if entry.what == "refused"]
        assert {refused.details["rank"], metered[0].rank} == {0, 1}
    folder = site.folder
    again = site.run("plan", folder / "jobs.yaml", "--limits", folder / "limits.yaml", "-o", "json")
    assert "left out until " in again.said
    assert "Z: 1 pool that ran short lately" in again.said
    assert {line["zone"] for line in again.json["lines"]} == {ZONE_B}


@pytest.mark.slow
def test_nowhere_to_be_had_it_ends_and_the_next_try_does_not_even_ask(site: Site) -> None:
    site.stock(ONE_LEFT_IN_A, ONE_LEFT_IN_B, NONE_ON_DEMAND)
    with SeenMachines() as seen_machines:
        ran = site.apply()
        assert ran.code == 5
        assert "walk: no capacity now: " in ran.said
        assert disagreements(site, seen_machines) == []
        again = site.apply()
        assert again.code == 5
        assert "walk: no capacity now: every place is remembered as short" in again.said
        assert again.said.count("passed over, short") == 3
    with site.store() as store:
        assert [(a.choice, a.number, a.reason) for a in store.attempts.find()] == [
            (0, 1, "short"),
            (1, 2, "short"),
            (2, 3, "short"),
        ]
        assert len(store.shortages.in_force(store.attempts.find()[0].created_at)) == 3


def test_no_more_places_than_allowed(site: Site) -> None:
    site.stock(ONE_LEFT_IN_A)
    ran = site.apply("--tries", "1")
    assert ran.code == 5
    with site.store() as store:
        assert [attempt.choice for attempt in store.attempts.find()] == [0]
    assert disagreements(site) == []


@pytest.mark.slow
def test_a_machine_that_never_calls_costs_the_pool(site: Site) -> None:
    site.deploy(timeouts={"rendezvous": "10s"})
    (order,) = orders_of(plan_from_json(site.plan.read_text(), "plan.json"))
    site.stock(f"sick {attempt_name(site.state, site.digest, order, 1)}-1")
    ran = site.apply()
    assert ran.code == 0, ran.err
    assert "rank 1 did not call within 10 s" in ran.said
    with site.store() as store:
        first, second = store.attempts.find()
        assert (first.phase, first.reason, second.phase) == (Phase.FAILED, "unhealthy", Phase.READY)
        assert [shortage.why for shortage in store.shortages.in_force(second.created_at)] == ["unhealthy"]
    assert disagreements(site) == []
