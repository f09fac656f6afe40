"""Which of one's own hosts a gang gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from router.controller.context import ControllerContext
from router.controller.provision.provision_order import TooFewHostsError, assign_hosts
from router.state.records import Attempt, NodeRecord, Phase
from terraform.spec import Host
from tests.support.bare_site import bare_site
from tests.support.state_values import attempt, node

POOL = {
    ("hall", "dgx"): tuple(Host(f"10.0.0.{n}", user="train") for n in range(1, 5)),
    ("hall", "other"): (Host("10.0.1.1"), Host("10.0.0.4")),
    ("lab", "dgx"): (Host("10.0.2.1"),),
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with bare_site(tmp_path, pool=POOL) as made:
        yield made


def gang(name: str, machines: int, kind: str = "dgx", **changes: object) -> tuple[Attempt, tuple[NodeRecord, ...]]:
    made = attempt(name, cloud="static", region="hall", machines=machines, **changes)
    return made, tuple(node(name, rank, instance_type=kind) for rank in range(machines))


def taken(site: ControllerContext, name: str, machines: int, kind: str = "dgx", **changes: object) -> list[str | None]:
    """Chosen and written down; the addresses."""
    one, nodes = gang(name, machines, kind, **changes)
    hosts, nodes = assign_hosts(site, one, nodes)
    assert {rank: host.address for rank, host in hosts.items()} == {n.rank: n.address for n in nodes}
    site.store.attempts.add(one, nodes)
    return [n.address for n in nodes]


def test_clouds_make_their_machines(site: ControllerContext) -> None:
    one, nodes = gang("a1", 2)
    assert assign_hosts(site, replace(one, cloud="aws"), nodes) == ({}, nodes)


def test_each_rank_has_a_host_of_its_own_and_no_gang_another_ones(site: ControllerContext) -> None:
    assert taken(site, "a1", 2) == ["10.0.0.1", "10.0.0.2"]
    assert taken(site, "a2", 1) == ["10.0.0.3"]
    assert taken(site, "a3", 1, "other") == ["10.0.1.1"]


def test_a_host_that_the_pool_lists_twice_is_given_once(site: ControllerContext) -> None:
    assert taken(site, "a1", 4) == [f"10.0.0.{n}" for n in range(1, 5)]
    with pytest.raises(TooFewHostsError, match="2 are needed"):
        taken(site, "a2", 2, "other")
    assert taken(site, "a3", 1, "other") == ["10.0.1.1"]


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.PROVISIONING, Phase.READY, Phase.RUNNING, Phase.RELEASING])
def test_what_is_not_over_keeps_its_hosts(site: ControllerContext, phase: Phase) -> None:
    taken(site, "a1", 3, phase=phase)
    with pytest.raises(TooFewHostsError, match="hall has too few free dgx"):
        taken(site, "a2", 2)
    assert taken(site, "a3", 1) == ["10.0.0.4"]


@pytest.mark.parametrize("phase", [Phase.FINISHED, Phase.FAILED])
def test_what_is_over_has_given_them_back(site: ControllerContext, phase: Phase) -> None:
    taken(site, "a1", 4, phase=phase)
    assert taken(site, "a2", 4) == [f"10.0.0.{n}" for n in range(1, 5)]


def test_an_attempt_does_not_stand_in_its_own_way(site: ControllerContext) -> None:
    assert taken(site, "a1", 4) == [f"10.0.0.{n}" for n in range(1, 5)]
    hosts, _ = assign_hosts(site, *gang("a1", 4))
    assert len(hosts) == 4
    assert hosts[0] is POOL["hall", "dgx"][0]


def test_a_place_or_type_that_the_pool_does_not_have(site: ControllerContext) -> None:
    one, nodes = gang("a1", 1, "unknown")
    for wrong in ((one, nodes), (replace(one, region="attic"), nodes)):
        with pytest.raises(ValueError, match="too few free unknown"):
            assign_hosts(site, *wrong)


def test_machines_of_clouds_are_no_hosts(site: ControllerContext) -> None:
    """A cloud's private addresses may be the same."""
    one = attempt("a1", cloud="aws", region="hall", machines=1)
    site.store.attempts.add(one, [node("a1", 0, address="10.0.0.1")])
    assert taken(site, "a2", 1) == ["10.0.0.1"]
