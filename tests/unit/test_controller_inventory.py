"""Which machines existed, and since when, by Terraform's events and by what the cloud shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from providers.fleet import CloudResource, FleetListing, ResourceKind
from router.controller.context import ControllerContext
from router.controller.release.inventory import MachineInventory, record_found_machines
from router.state.records import Attempt
from terraform.events import TerraformEvent
from tests.support.bare_site import bare_site
from tests.support.scenes import NOW
from tests.support.state_values import attempt, node

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
