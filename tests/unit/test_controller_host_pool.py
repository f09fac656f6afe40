"""Which of one's own hosts a gang gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from providers.fleet import CloudResource, FleetListing, ResourceKind
from router.controller.context import ControllerContext
from router.controller.provision.provision_order import TooFewHostsError, assign_hosts
from router.controller.release.inventory import MachineInventory, record_found_machines
from router.state.records import Attempt, NodeRecord, Phase
from terraform.events import TerraformEvent
from terraform.spec import Host
from tests.support.bare_site import bare_site
from tests.support.scenes import NOW
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


EARLIER = NOW - timedelta(minutes=5)


def _begun(site: ControllerContext) -> Attempt:
    one = attempt(made_at=EARLIER, created_at=EARLIER)
    site.store.attempts.add(one, [node(), node(rank=1)])
    return one


def _since(site: ControllerContext) -> list[datetime | None]:
    return [one.made_at for one in site.store.attempts.nodes("a1")]


def _event(kind: str, action: str, rank: int, resource: str = "aws_instance.node") -> TerraformEvent:
    return TerraformEvent(kind, f'module.gang.{resource}["{rank}"]', action)


def test_a_machine_exists_since_it_is_begun(tmp_path: Path) -> None:
    with bare_site(tmp_path) as site:
        witness = MachineInventory(site, _begun(site))
        witness.saw(_event("apply_start", "create", 0, "aws_network_interface.node"))
        witness.saw(_event("apply_complete", "create", 0))
        assert _since(site) == [None, None]
        witness.saw(_event("apply_start", "create", 1))
        assert _since(site) == [None, NOW]


def test_one_that_was_refused_never_existed_though_it_is_destroyed(tmp_path: Path) -> None:
    with bare_site(tmp_path) as site:
        one = _begun(site)
        witness = MachineInventory(site, one)
        for rank in (0, 1):
            witness.saw(_event("apply_start", "create", rank))
        witness.saw(_event("apply_errored", "create", 1))
        assert _since(site) == [NOW, NOW]  # it failed; whether there was one is another matter
        witness.refused()
        MachineInventory(site, one).saw(_event("apply_complete", "delete", 1))
        assert _since(site) == [NOW, None]


def test_one_that_is_destroyed_did_exist(tmp_path: Path) -> None:
    with bare_site(tmp_path) as site:
        MachineInventory(site, _begun(site)).saw(_event("apply_complete", "delete", 1))
        assert _since(site) == [None, EARLIER]


def test_what_the_cloud_shows_exists_since_it_says_unless_its_clock_is_another(tmp_path: Path) -> None:
    def found(rank: int, since: datetime | None, state: str) -> CloudResource:
        return CloudResource(
            "aws", "us-east-1", None, f"i-{rank}", "a1", state, rank, ResourceKind.MACHINE, "", since, billed=True
        )

    shown: list[CloudResource] = []
    fleet = SimpleNamespace(found=lambda regions: FleetListing(tuple(shown)))
    with bare_site(tmp_path, fleet=lambda cloud: fleet) as site:
        one = _begun(site)
        shown += [found(0, NOW - timedelta(minutes=1), site.store.id), found(1, NOW, "s0123456789")]
        record_found_machines(site, one)
        assert _since(site) == [NOW - timedelta(minutes=1), None]
        shown.append(found(1, NOW + timedelta(hours=1), site.store.id))
        record_found_machines(site, one)
        assert _since(site) == [NOW - timedelta(minutes=1), EARLIER]
