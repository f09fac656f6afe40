"""A gang whose all-reduce is a tenth of what the plan assumes: it trains and says so, or is made elsewhere."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from router.ledger.entry import MachineUse
from tests.support.bounded_costs import excesses
from tests.support.busy import on_a_busy_machine
from tests.support.deployed import SANDBOX, ZONE_A, ZONE_B, Site, Template
from tests.support.deployed_checks import disagreements
from tests.support.recovered import attempts, journal, training
from tests.support.repository import ROOT
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

# So slow that the stand-in's exchanges by sockets are no part of it: 1 Gbit/s of Ethernet, of which TCP gives 35 %.
GBPS, ASSUMED = 1, 1 / 8 * 0.35
CLOUD: dict[str, Any] = {**SANDBOX, "machines": [{**SANDBOX["machines"][0], "inter_node_gbps": GBPS}]}
TENTH = {
    "PYTHONPATH": str(ROOT / "tests" / "support" / "torch_stand_in"),
    "STAND_IN_FIRST_GB_PER_S": str(ASSUMED / 10),
    "STAND_IN_GB_PER_S": str(ASSUMED),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    job = training(20, every=10, machines=2)
    return Template(
        tmp_path_factory.mktemp("tenth") / "planned", [{**job, "run": {**job["run"], "env": TENTH}}], cloud=CLOUD
    )


def measured(site: Site) -> list[dict[str, Any]]:
    """Return the measurements over gangs, in order."""
    return [dict(entry.details) for entry in journal(site, "measured")]


@pytest.mark.parametrize("preflight", ["warn", "require"])
def test_a_tenth_of_the_plan_is_said_or_given_back(tmp_path: Path, template: Template, preflight: str) -> None:
    site = template.site(tmp_path / "site")
    try:
        site.deploy(preflight=preflight)
        with SeenMachines() as seen_machines:
            ran = site.run(
                "apply", site.plan, "--yes", "--follow", "--limits", site.folder / "limits.yaml", seconds=180
            )
            assert disagreements(site, seen_machines) == []
        assert ran.code == 0, ran.err
        found, notes = attempts(site), measured(site)
        with site.store() as store:
            zones = [store.attempts.nodes(one.id)[0].zone for one in found]
            uses = [e.use for e in store.ledger.entries(attempt=found[0].id) if e.rank is not None]
        first = notes[0]
        assert first["gb_per_s"], first
        assert first["gb_per_s"] <= ASSUMED / 10
        assert first["assumed_gb_per_s"] == pytest.approx(ASSUMED)
        assert "less than half of the 0.0437 GB/s that the plan assumes" in ran.said
        assert f"sandbox/{ZONE_A} h100.1x spot" in ran.said
        # The margin is the time to measure.
        assert list(excesses(site, timedelta(seconds=on_a_busy_machine(30)))) == []
        if preflight == "warn":
            assert [(one.reason, zone) for one, zone in zip(found, zones, strict=True)] == [("finished", ZONE_A)]
            assert len(notes) == 1
            return
        assert [(one.reason, zone) for one, zone in zip(found, zones, strict=True)] == [
            ("unhealthy", ZONE_A), ("finished", ZONE_B),
        ]  # fmt: skip
        assert "unfit all-reduce: " in found[0].message
        assert uses == [MachineUse.FAILED_LAUNCH] * 2
        second = notes[1]
        assert second["gb_per_s"] >= ASSUMED / 2
        assert second["problem"] == ""
        shown = json.loads(site.run("status", "--all", "-o", "json").out)["gangs"]
        assert [gang["all_reduce"]["gb_per_s"] for gang in shown] == [first["gb_per_s"], second["gb_per_s"]]
        assert "less than half" in shown[0]["all_reduce"]["found"]
        # The place is known now as what it was measured to be.
        learned = site.run("profile", "list").out
        assert f"sandbox/{ZONE_A}/h100.1x" in learned, learned
    finally:
        site.end()
