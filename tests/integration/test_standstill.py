"""Trainings that stand still: each ends, within what it may cost. Other bad ends are in test_bad_ends.py."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from router.state.records import Phase
from tests.support.bounded_costs import excesses
from tests.support.busy import eventually
from tests.support.deployed import REGION, SANDBOX, ZONE_A, ZONE_B, Site, Template, planned
from tests.support.late_steps import STEP_S
from tests.support.recovered import (
    attempts,
    journal,
    lasting,
    set_off,
    sped_up,
    stop,
    until_finished,
    watched,
)
from tests.support.repository import ROOT
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

SPEED = 60
A100 = "a100.8x"
# Two zones that differ in price, so that a gang that is replaced has somewhere to go.
CLOUD: dict[str, Any] = {
    **SANDBOX,
    "machines": [
        {
            "type": A100, "accelerator": "A100-80GB", "accelerators": 8, "vcpus": 96, "memory_gib": 1024,
            "fabric": "infiniband", "inter_node_gbps": 200,
        }
    ],
    "prices": [
        {"machine": A100, "region": REGION, "zone": zone, "steps": [{"at": "0h", "usd": usd}]}
        for zone, usd in ((ZONE_A, "10.00"), (ZONE_B, "11.00"))
    ],
}  # fmt: skip
HANG = {
    "name": "hang", "team": "research", "steps": 60, "deadline": "+2h",
    "workload": {"profile": {"accelerators": "A100-80GB:8", "seconds_per_step": 1, "fabric": "rdma"}},
    "gang": {"accelerators": "A100-80GB:8"}, "checkpoint": {"size_gib": 1}, "startup": "1m",
    "run": {"engine": "command", "command": "echo started; sleep 100000"},
}  # fmt: skip


@contextmanager
def ended(site: Site) -> Iterator[Site]:
    try:
        yield site
    finally:
        site.end()


def test_a_training_that_hangs_is_named_and_goes_elsewhere_and_then_fails(tmp_path: Path) -> None:
    """The clock of the cloud runs sixty times as fast as life: the sixteen minutes that it may take are sixteen s."""
    template = Template(tmp_path / "planned", [HANG], cloud=CLOUD)
    with ended(template.site(tmp_path / "site")) as site:
        # Pools are avoided for as long as in life.
        site.deploy(timeouts={"rendezvous": "30m"}, policy="greedy")
        fast = sped_up(site, SPEED)
        words = ("apply", site.plan, "--yes", "--follow", "--limits", site.folder / "limits.yaml")
        follow = site.start(*words, environment=fast)
        eventually(lambda: journal(site, "standstill"), 60, why="for the standstill", pause=0.2)
        said = json.loads(site.run("status", "-o", "json", environment=fast).out)["gangs"][-1]
        table = site.run("status", environment=fast).out
        ran = follow.wait(150)
        found = attempts(site)
        assert (said["standstill"]["step"], said["late"]) == (None, True)
        assert said["over_agreed"] is True, (said["agreed_usd"], said["order_spent_usd"], said["planned_end"], ran.err)
        assert [words in table for words in ("reports no step", "over the agreed cost", "late:")] == [True] * 3
        assert ran.code == 5
        assert [
            words in ran.err for words in ("reports no step", "stop and go on elsewhere", "runs past its planned end")
        ] == [True] * 3
        assert [one.reason for one in found] == ["standstill", "standstill", "given_up"]
        assert "as often as the job allows" in found[-1].message
        assert all(one.phase is Phase.FAILED for one in found)
        with site.store() as store:
            zones = [store.attempts.nodes(one.id)[0].zone for one in found]
        assert zones[0] != zones[1]
        logs = [(site.home / "logs" / one.id / "rank-0.log").read_text() for one in found]
        assert all("started" in log and "stands still; stacks of" in log and "sleep" in log for log in logs)
        assert list(excesses(site, timedelta(minutes=16), speed=SPEED)) == []


def test_steps_that_come_ever_later_are_saved_and_done_elsewhere(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "late_steps.py")])
    command = f'exec {command} "${{STEPFARE_SANDBOX%/*}}/checkpoints" 60 10'
    job = lasting("train", command, 60, STEP_S, 1, planned_s=STEP_S * SPEED, standstill={"at_least": "5m", "moves": 1})
    with ended(planned(tmp_path, "late", job).site(tmp_path / "site")) as site:
        fast = sped_up(site, SPEED)
        watcher = watched(site, environment=fast)
        set_off(site, environment=fast)
        until_finished(site, 150)
        stop(watcher)
        first, second = attempts(site)
        assert (first.reason, second.reason) == ("standstill", "finished")
        assert (first.kept_step or 0) >= 20
        assert second.first_step == first.kept_step
        (noted,) = journal(site, "standstill")
        assert "stands still: no step after" in str(noted.details["why"])
        # The training offered its stacks.
        assert "most recent call first" in (site.home / "logs" / first.id / "rank-0.log").read_text()
        assert list(excesses(site, timedelta(minutes=10), speed=SPEED)) == []
