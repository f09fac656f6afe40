"""A region or a cloud that cannot be had at all is passed over, by what lets a person put it right and what runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pricing.places import Market
from router.app.plan import without_short_pools
from router.controller.provision.provision_order import PlaceSearch, _remember_fault
from router.controller.provision.quarantine import REGION_OFF_FOR, ShortPools, current_shortages
from router.controller.workspace.placement_options import blocking_shortage
from router.faults.fault import NO_ZONE, SHORT, UNKNOWN_FAULT, Fault, FaultKind, FaultReach
from router.jobs.limits import Limits
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt, node

OFF = Fault(FaultKind.NOT_ENABLED_HERE, FaultReach.REGION)
NO_BILLING = Fault(FaultKind.NOT_ENABLED_HERE, FaultReach.ACCOUNT)


def offer(cloud: str, region: str, instance_type: str = "p5.48xlarge", market: Market = Market.SPOT) -> Any:
    part = SimpleNamespace(
        offer=SimpleNamespace(cloud=cloud, region=region, zone=None, instance_type=instance_type, market=market)
    )
    return SimpleNamespace(parts=(part,))


def choice(cloud: str, region: str, instance_type: str = "p5.48xlarge") -> Any:
    seat = SimpleNamespace(zone=None, instance_type=instance_type, market=Market.ON_DEMAND)
    return SimpleNamespace(cloud=cloud, region=region, seats=(seat,))


def test_a_region_that_is_off_is_passed_over_by_all(tmp_path: Path) -> None:
    one = attempt("a1")
    with bare_site(tmp_path, []) as site:
        site.store.attempts.add(one, [node("a1")])
        _remember_fault(site, one, OFF)
        now = site.clock()
        rows = site.store.shortages.of_places(now)
        assert {row.until - row.at for row in rows} == {REGION_OFF_FOR}
        pools = current_shortages(site).modelled
        assert pools.has(offer(one.cloud, one.region, "whatever"))
        assert not pools.has(offer(one.cloud, "elsewhere"))
        assert blocking_shortage(choice(one.cloud, one.region), rows) is not None
        assert blocking_shortage(choice(one.cloud, "elsewhere"), rows) is None
        limits = without_short_pools(Limits(), rows).limits
        assert {(limit.region, limit.instance_type, limit.amount) for limit in limits} == {(one.region, None, 0)}


def test_a_cloud_that_the_account_cannot_use_is_passed_over_by_what_runs_alone(tmp_path: Path) -> None:
    one = attempt("a1")
    with bare_site(tmp_path, []) as site:
        site.store.attempts.add(one, [node("a1")])
        _remember_fault(site, one, NO_BILLING)
        now = site.clock()
        assert site.store.shortages.of_places(now) == ()
        everything = site.store.shortages.in_force(now)
        assert {row.until - row.at for row in everything} == {site.deploy.timeouts.shortage}
        assert ShortPools(everything).has(offer(one.cloud, "elsewhere"))
        assert not ShortPools(everything).has(offer("another", one.region))
        assert blocking_shortage(choice(one.cloud, one.region), everything) is None


@pytest.mark.parametrize(("fault", "marks"), [(SHORT, 1), (UNKNOWN_FAULT, 0)])
def test_other_faults_mark_their_pool_or_nothing(tmp_path: Path, fault: Fault, marks: int) -> None:
    one = attempt("a1")
    with bare_site(tmp_path, []) as site:
        site.store.attempts.add(one, [node("a1")])
        _remember_fault(site, one, fault)
        assert len(site.store.shortages.in_force(NOW - timedelta(days=1))) == marks


def test_a_place_without_a_known_zone_leaves_the_others_of_its_cloud() -> None:
    search = PlaceSearch()
    search.note("gcp", "europe-north1", NO_ZONE)
    assert search.excludes("gcp", "us-east4") is None
    assert not search.is_over
