"""A job with a deadline under the policy that the deploy file names, where the one of old would decide otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.places import Market
from providers.sandbox.stock import StockFile
from tests.support.busy import eventually
from tests.support.deployed import ZONE_A, ZONE_B, NewSite, Site, planned
from tests.support.recovered import (
    JOB,
    alone,
    attempts,
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
# Of the cloud's clock: a tick of five minutes is fifteen seconds.
SPEED = 20


@pytest.fixture
def site(base: Path, new_site: NewSite) -> Site:
    """One on which nothing runs yet; the deadline is in six hours."""
    job = training(STEPS, every=EVERY, step_s=STEP_S, planned_s=STEP_S * SPEED)
    return new_site(planned(base, "policies", job))


def test_with_time_enough_uniform_progress_waits_for_spot(site: Site, base: Path) -> None:
    """Its zone takes machines back and is left alone, the other has none; on-demand is there all the time."""
    fast = sped_up(site, SPEED)
    with SeenMachines() as seen_machines:
        watcher = watched(site, environment=fast, policy="uniform-progress")
        set_off(site, environment=fast)
        until_step(site, 60)
        StockFile(site.folder / "cloud").close(ZONE_B, None, "night")
        with taken_back(site, 1, 3):
            eventually(lambda: "waits for spot" in watcher.err, 60, why="for a job that waits")
        until_finished(site, 120)
        stop(watcher)
        assert wrong(site, STEPS, alone(base, STEPS), seen_machines) == []
    found = attempts(site)
    assert found[-1].reason == "finished"
    assert {one.reason for one in found} <= {"interrupted", "short", "finished"}
    with site.store() as store:
        nodes = [node for one in found if one.met_at is not None for node in store.attempts.nodes(one.id)]
        tried = {node.market for one in found for node in store.attempts.nodes(one.id)}
    assert tried == {Market.SPOT}
    assert {node.zone for node in nodes} == {ZONE_A}
    assert found[0].job == JOB


def test_a_policy_that_there_is_not_is_said_at_once(site: Site) -> None:
    site.deploy(policy="uniform-progres")
    refused = site.run("watch")
    assert refused.code == 2
    assert "policy: is no policy did you mean uniform-progress?" in refused.said
