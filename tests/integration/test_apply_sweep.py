"""Orphans: found by their tag, in the state and in run directories; what is not ours is shown and survives."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd
from router.ledger.entry import LedgerEntryKind
from tests.support import sandbox_nodes
from tests.support.busy import eventually
from tests.support.deployed import NewSite, Site, job, planned
from tests.support.deployed_checks import disagreements
from tests.support.faults import directory
from tests.support.seen_machines import settled
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine


@pytest.fixture
def site(base: Path, new_site: NewSite) -> Site:
    return new_site(planned(base, "two", job("walk", machines=2)))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[sandbox_nodes.Node]]:
    started: list[sandbox_nodes.Node] = []
    yield started
    for node in started:
        sandbox_nodes.kill(node.id)


def _sweep(site: Site, *options: str) -> dict[str, Any]:
    ran = site.run("sweep", "-o", "json", *options)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = ran.json
    return found


def _of(found: dict[str, Any], attempt: str) -> list[dict[str, Any]]:
    return [orphan for orphan in found["orphans"] if orphan["attempt"] == attempt]


@pytest.mark.slow
def test_machines_that_nobody_knows_are_found_by_their_tag(
    site: Site, nodes: list[sandbox_nodes.Node], tmp_path: Path
) -> None:
    """Ours goes, that of another state stays."""
    ours = sandbox_nodes.start(tmp_path, "ghost-1", 0, site.state)
    nodes.append(ours)
    others = sandbox_nodes.start(tmp_path, "ghost-2", 0, "s0123456789")
    nodes.append(others)
    assert "of another state" in site.run("sweep", "--cloud", "sandbox").out
    shown = _sweep(site, "--cloud", "sandbox")
    assert [(o["ours"], o["released"]) for o in _of(shown, "ghost-1")] == [(True, False)]
    assert [(o["ours"], o["released"]) for o in _of(shown, "ghost-2")] == [(False, False)]
    assert len(ours.pids) == 3

    done = _sweep(site, "--yes")
    assert [(o["ours"], o["released"]) for o in _of(done, "ghost-1")] == [(True, True)]
    assert [(o["ours"], o["released"]) for o in _of(done, "ghost-2")] == [(False, False)]
    assert ours.pids == set()
    assert len(others.pids) == 3
    with site.store() as store:
        assert [entry.what for entry in store.audit.entries()] == ["sweep"]


def test_what_stands_is_no_orphan_and_a_machine_that_went_is_named(site: Site) -> None:
    assert site.apply().code == 0
    assert [o for o in _sweep(site, "--yes")["orphans"] if o["ours"]] == []
    assert disagreements(site) == []
    folder = directory(site)
    for pid, marks in sandbox_nodes.marked().items():
        if marks.get("STEPFARE_NODE") == f"{folder.name}-1":
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(settled(site.state)) == 1)
    assert _sweep(site)["lost"] == [{"attempt": folder.name, "rank": 1}]
    assert f"gone, though the state has it: {folder.name} rank 1" in site.run("sweep").out
    assert site.run("destroy", "walk", "--yes").code == 0
    assert disagreements(site) == []


@pytest.mark.slow
def test_a_gang_without_its_run_directory_is_destroyed_by_its_tag(site: Site) -> None:
    assert site.apply().code == 0
    shutil.rmtree(directory(site))
    gone = site.run("destroy", "walk", "--yes")
    assert (gone.code, gone.out) == (0, "1 released\n")
    assert settled(site.state) == []
    assert disagreements(site) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", ["CAST(x'63616e617279ff' AS TEXT)", '\'{"policy": "canary\''], ids=["no text", "cut off"]
)
def test_a_gang_whose_job_cannot_be_read_is_destroyed_and_metered(site: Site, spec: str) -> None:
    """The gang's own rows, its run directory and the journal say enough to settle it."""
    assert site.apply().code == 0
    with sqlite3.connect(site.home / "state.db") as connection:
        assert connection.execute(f"UPDATE jobs SET spec = {spec}").rowcount == 1
    gone = site.run("destroy", "walk", "--yes")
    assert (gone.code, gone.out) == (0, "1 released\n")
    assert "is metered by what else is known of it" in gone.said
    assert "`stepfare state restore`" in gone.err
    assert "canary" not in gone.said
    with site.store() as store:
        machines = [entry for entry in store.ledger.entries(job="walk") if entry.kind is LedgerEntryKind.METERED]
        assert {(entry.rank, entry.team, entry.unpriced) for entry in machines} == {
            (0, "team-a", False),
            (1, "team-a", False),
        }
        assert all(entry.usd > Usd(0) for entry in machines)
        assert store.ledger.verify().problems == ()
    assert settled(site.state) == []
    assert disagreements(site) == []
    assert site.run("sweep", "--yes").code == 0


@pytest.mark.slow
def test_an_attempt_that_the_database_lost_is_an_orphan(site: Site) -> None:
    assert site.apply().code == 0
    attempt = directory(site).name
    with sqlite3.connect(site.home / "state.db") as connection:
        for table, column in (("nodes", "attempt"), ("attempts", "id")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (attempt,))
    assert len([o for o in _of(_sweep(site), attempt) if o["ours"]]) >= 2
    done = _of(_sweep(site, "--yes"), attempt)
    assert all(orphan["released"] for orphan in done)
    assert settled(site.state) == []
    assert _of(_sweep(site), attempt) == []


def test_a_cloud_that_cannot_be_asked_is_said(site: Site) -> None:
    environment = {**site.environment, "AWS_EC2_METADATA_DISABLED": "true"}
    ran = site.run("sweep", "--cloud", "aws", "--cloud", "sandbox", environment=environment)
    assert ran.code == 5
    assert "could not be asked: aws: " in ran.out


@pytest.mark.slow
def test_a_state_that_is_lost_makes_nothing_twice_and_what_it_made_can_be_released(site: Site) -> None:
    assert site.apply().code == 0
    nodes = settled(site.state)
    assert len(nodes) == 2
    for left in site.home.glob("state.db*"):
        left.unlink()
    for words in (("apply", site.plan, "--yes", "--jobs", site.folder / "jobs.yaml"), ("status",), ("sweep", "--yes")):
        ran = site.run(*words)
        assert ran.code == 1, ran.said
        assert f"state.db is missing, and 1 run directory of state {site.state} lies in" in ran.said
        assert f"sweep --state {site.state} --yes" in ran.said
    assert settled(site.state) == nodes
    assert not (site.home / "state.db").exists()

    shown = site.run("sweep", "--state", site.state)
    assert "what Terraform made" in shown.out
    assert not (site.home / "state.db").exists()
    done = _sweep(site, "--state", site.state, "--yes")
    assert done["orphans"]
    assert all(orphan["released"] for orphan in done["orphans"] if orphan["ours"])
    assert settled(site.state) == []
    assert [o for o in _sweep(site, "--state", site.state)["orphans"] if o["ours"]] == []
    with site.store() as store:
        assert [entry.details.get("adopted") for entry in store.audit.entries()] == [site.state]
        assert (site.home / "state.id").read_text().split() == [site.state, store.id]
    assert site.run("sweep", "--state", "all").code == 2


@pytest.mark.slow
def test_a_backup_of_the_state_releases_what_ran_when_it_was_made(site: Site) -> None:
    assert site.apply().code == 0
    file = site.folder / "state.gz"
    assert site.run("state", "backup", file).code == 0
    shutil.rmtree(site.home / "runs")
    for left in site.home.glob("state.*"):
        left.unlink()
    back = site.run("state", "restore", file)
    assert back.code == 0, back.said
    assert f"state {site.state} is there again" in back.said
    assert [o for o in _sweep(site)["orphans"] if o["ours"]] == []
    gone = site.run("destroy", "walk", "--yes")
    assert (gone.code, gone.out) == (0, "1 released\n"), gone.said
    assert settled(site.state) == []
    assert disagreements(site) == []


@pytest.mark.slow
def test_a_damaged_directory_and_an_unreadable_row_stop_no_release(base: Path, tmp_path: Path) -> None:
    gangs = [job(name, machines=1) for name in ("cut", "fine", "spoilt")]
    site = planned(base, "three", *gangs).site(tmp_path / "site")
    try:
        assert site.apply().code == 0
        with site.store() as store:
            ids = {attempt.job: attempt.id for attempt in store.attempts.find()}
        for name in ("terraform.tfvars.json", "main.tf.json"):
            os.truncate(site.home / "runs" / ids["cut"] / name, 100)
        with sqlite3.connect(site.home / "state.db") as connection:
            connection.execute("UPDATE nodes SET market = 'canary-8812' WHERE attempt = ?", (ids["spoilt"],))
            connection.execute("UPDATE attempts SET start_at = 'canary-8813' WHERE id = ?", (ids["fine"],))
        assert site.run("sweep").code == 5  # what cannot be read may train; its machines are no orphans
        gone = site.run("destroy", "--all", "--yes")
        assert (gone.code, gone.out) == (0, "3 released\n"), gone.said
        for row in (f"nodes {ids['spoilt']} 0", f"attempts {ids['fine']}"):
            assert f"{row}: the database holds what cannot be read of it" in gone.said
        assert "`stepfare state restore`" in gone.said
        assert "terraform.tfvars.json" in gone.said
        assert "canary" not in gone.said
        assert site.run("sweep", "--yes").code == 0
        assert settled(site.state) == []
        assert disagreements(site) == []
    finally:
        site.end()
