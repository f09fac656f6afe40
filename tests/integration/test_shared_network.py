"""Gangs of one region share a network: made once, whoever is killed meanwhile, and gone with the last of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from router.controller.context import ControllerContext
from router.controller.release.release import release
from router.controller.sweep import find_orphans, release_orphans
from router.controller.workspace.workspaces import network_name
from terraform.errors import ApplyFailedError
from tests.support.busy import eventually
from tests.support.repository import ROOT
from tests.support.shared_networks import make, moto_site, record
from tests.support.terraform_moto import REGION, Cloud, gang
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def site(aws: Cloud, tmp_path: Path, told: list[str]) -> Iterator[ControllerContext]:
    assert aws.plugins.mirror is not None
    with moto_site(tmp_path, aws.url, aws.plugins.mirror, told) as made:
        yield made


def _subnets(aws: Cloud, attempt: str) -> set[str]:
    return {machine["SubnetId"] for machine in aws.machines(attempt).values()}


def test_four_gangs_made_at_once_share_one_network_and_the_last_takes_it_along(
    aws: Cloud, site: ControllerContext
) -> None:
    before = aws.inventory()
    # Two behind the gateway, two with addresses of their own, of which one in another zone.
    specs = [gang("efa-1", 2), gang("efa-2", 1), gang("plain-1", 1, fabric="none"), gang("plain-2", 1, fabric="none")]
    specs[3] = replace(specs[3], nodes=(replace(specs[3].nodes[0], zone="use1-az6"),))
    with ThreadPoolExecutor(4) as pool:
        attempts = list(pool.map(lambda spec: make(site, spec), specs))
    made = aws.inventory()
    assert len(made["instances"] - before["instances"]) == 5
    assert len(made["networks"] - before["networks"]) == 1
    subnets = [_subnets(aws, spec.attempt) for spec in specs]
    assert subnets[0] == subnets[1]
    assert len(set.union(*subnets)) == 3
    private = {s["SubnetId"]: not s["MapPublicIpOnLaunch"] for s in aws.ec2.describe_subnets()["Subnets"]}
    assert [{private[subnet] for subnet in found} for found in subnets] == [{True}, {True}, {False}, {False}]

    for attempt in attempts[:3]:
        release(site, attempt, "finished", "")
        assert len(aws.inventory()["networks"] - before["networks"]) == 1
    assert sorted(aws.ids("plain-2")) == ["0"]
    release(site, attempts[3], "finished", "")
    assert aws.inventory() == before
    assert not site.directory(network_name(site.store.id, "aws", REGION)).exists()


def test_a_joiner_that_is_killed_leaves_a_network_that_the_next_gang_takes(
    aws: Cloud, site: ControllerContext, tmp_path: Path
) -> None:
    before = aws.inventory()
    words = [sys.executable, "-m", "tests.support.shared_networks", str(tmp_path), aws.url, str(aws.plugins.mirror)]
    child = subprocess.Popen([*words, "killed-1"], cwd=ROOT)
    try:
        eventually(lambda: len(aws.inventory()["networks"]) > len(before["networks"]), 60)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    # Its engine may be at work still, and holds the state until it is done.
    after = make(site, gang("after-1", 1, fabric="none"))
    assert len(aws.inventory()["networks"] - before["networks"]) == 1
    release(site, after, "finished", "")
    # The killed one is not over yet.
    assert len(aws.inventory()["networks"] - before["networks"]) == 1
    killed = site.store.attempts.get("killed-1")
    assert killed is not None
    release(site, killed, "crashed", "")
    assert aws.inventory() == before


def test_a_network_that_nobody_uses_is_swept(aws: Cloud, site: ControllerContext) -> None:
    before = aws.inventory()
    attempt = make(site, gang("swept-1", 1, fabric="none"))
    name = network_name(site.store.id, "aws", REGION)
    assert find_orphans(site, [], {}, others_work=True).orphans == ()
    # As a crash between the gang's end and the network's leaves it.
    site.runner.destroy(site.directory(attempt.directory))
    site.store.attempts.update(attempt.id, lambda a: replace(a, phase=type(a.phase).FAILED))
    assert find_orphans(site, [], {}, others_work=True).orphans == ()
    (orphan,) = find_orphans(site, [], {}).orphans
    assert (orphan.what, orphan.attempt, orphan.ours) == ("network without a gang", name, True)
    assert [why for _, why in release_orphans(site, [orphan])] == [""]
    assert aws.inventory() == before
    assert find_orphans(site, [], {}).orphans == ()


def test_a_network_with_gangs_loses_nothing(aws: Cloud, site: ControllerContext, told: list[str]) -> None:
    before = aws.inventory()
    first = make(site, gang("first-1", 1, fabric="none"))
    directory = site.directory(network_name(site.store.id, "aws", REGION))
    # A network in which a subnet must move: what another version of the module might do.
    text = (directory / "module" / "network.tf").read_text()
    (directory / "module" / "network.tf").write_text(text.replace("block, 5, local.place", "block, 6, local.place"))
    with pytest.raises(
        ApplyFailedError, match=r"has gangs, and making it would destroy module\.gang\.aws_subnet\.gang"
    ):
        make(site, gang("second-1", 1, fabric="none"))
    assert sorted(aws.ids("first-1")) == ["0"]
    for attempt in (first, site.store.attempts.get("second-1")):
        assert attempt is not None
        release(site, attempt, "finished", "")
    assert aws.inventory() == before
    assert told == []


def test_a_network_that_cannot_be_deleted_is_reported_and_the_gang_is_over(
    aws: Cloud, site: ControllerContext, told: list[str]
) -> None:
    attempt = record(site, gang("stuck-1", 1, fabric="none"))
    directory = site.directory(network_name(site.store.id, "aws", REGION))
    directory.mkdir(parents=True)
    assert release(site, attempt, "finished", "").phase.is_over
    assert len(told) == 1
    assert "is left:" in told[0]
    assert "stepfare sweep" in told[0]
