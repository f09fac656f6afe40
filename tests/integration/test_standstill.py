"""Trainings that stand still, and machines that nobody looks after any more: each ends, within what it may cost."""

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

from pricing.money import Usd
from router.ledger.entry import LedgerEntryKind
from router.state.records import Attempt, Phase
from tests.support.busy import on_a_busy_machine
from tests.support.deployed import REGION, SANDBOX, WAITS, ZONE_A, ZONE_B, NewSite, Site, Template, eventually, planned
from tests.support.deployed_checks import disagreements
from tests.support.late_steps import STEP_S
from tests.support.recovered import (
    attempts,
    journal,
    lasting,
    set_off,
    sped_up,
    stop,
    training,
    until_finished,
    until_step,
    watched,
)
from tests.support.repository import ROOT
from tests.support.seen_machines import settled
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


def metered(site: Site) -> Usd:
    """The cost of the job in the ledger."""
    with site.store() as store:
        return Usd.total(entry.usd for entry in store.ledger.entries(kind=LedgerEntryKind.METERED))


def at_most(all_attempts: tuple[Attempt, ...], margin: timedelta) -> Usd:
    """The agreed cost, and for each attempt what its gang costs in the time that a standstill may take.

    Stacks, saving, making and releasing take half a minute of life, in which the clock of the cloud runs faster.
    """
    margin += timedelta(seconds=SPEED * on_a_busy_machine(30))
    return all_attempts[0].at_risk_usd + Usd.total(one.max_usd_per_hour.over(margin) for one in all_attempts)


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
        assert metered(site) <= at_most(found, timedelta(minutes=16))
        assert disagreements(site) == []


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
        assert metered(site) <= at_most((first, second), timedelta(minutes=10))
        assert disagreements(site) == []


def test_a_coordinator_that_is_gone_for_good_ends_the_training_and_its_machines(new_site: NewSite, base: Path) -> None:
    lifetime = {"unheard": "5s", "plan_times": 1}
    site = new_site(
        planned(base, "orphaned", lasting("train", WAITS, 20, 0.05, 2, startup="1s", market={"spot": "never"}))
    )
    watcher = watched(site, lifetime=lifetime)
    set_off(site)
    eventually(lambda: all(node.agent == "running" for node in nodes(site)), 30, why="for both ranks")
    (attempt,) = attempts(site)
    watcher.process.kill()
    watcher.process.wait()
    assert "nobody watches running gangs, which cost money: train" in site.run("status").err
    eventually(lambda: not machines(site), 60, why="for the machines to end")
    notes = [file.read_text() for file in (site.home / "runs" / attempt.directory).rglob("agent.log")]
    assert ["the training is to save and end: no coordinator answered" in text for text in notes] == [True] * 2
    assert attempts(site)[0].phase.is_up
    # Whoever looks after it again finds that the machines are gone.
    watcher = watched(site, lifetime=lifetime)
    eventually(lambda: attempts(site)[0].phase.is_over, 60, why="for the release")
    assert attempts(site)[0].reason == "lost"
    stop(watcher)
    assert site.run("destroy", "--all", "--yes").code == 0
    assert disagreements(site) == []


def test_a_closed_laptop_leaves_no_machine_behind_a_training_that_is_done(new_site: NewSite, base: Path) -> None:
    site = new_site(planned(base, "closed", training(40, every=20, machines=2)))
    watcher = watched(site, lifetime={"unheard": "5s"})
    set_off(site)
    until_step(site, 5)
    watcher.process.kill()
    watcher.process.wait()
    until_step(site, 40)
    assert machines(site)
    eventually(lambda: not machines(site), 90, why="for the machines to end")


def nodes(site: Site) -> tuple[Any, ...]:
    """The machines of the first attempt."""
    with site.store() as store:
        return store.attempts.nodes(attempts(site)[0].id)


def machines(site: Site) -> list[Any]:
    """The machines of the site that exist."""
    return settled(site.state)
