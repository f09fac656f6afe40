"""Offers without a zone: which zones sell them is asked of the cloud, once, and a zone that does not is passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from pricing.places import Market
from providers.aws.fleet import AwsFleet
from providers.errors import PermissionDeniedError
from providers.session import Settings
from router.controller.context import ControllerContext
from router.controller.plans import Order
from router.controller.provision import provision_order
from router.controller.provision.provision_order import (
    PlaceSearch,
    ProvisionRequest,
    ProvisionResult,
    ProvisionStatus,
    fulfil_order,
)
from router.controller.provision.quarantine import mark_short
from router.controller.provision.zone_search import first_open_placement, placements_by_zone
from router.controller.workspace.placement_options import GangPlacement
from router.deploy.deploy_settings import Deploy
from router.faults.fault import NO_ZONE, SHORT, UNKNOWN_FAULT, Fault, FaultKind, FaultReach
from router.state.records import Shortage
from tests.contract.fleet_contract import session
from tests.support.bare_site import bare_site
from tests.support.made_up_book import book
from tests.support.scenes import NOW, a_job
from tests.support.state_values import node

REGION, TYPE = "us-east-1", "p4d.24xlarge"


class Fleet:
    """A cloud that says which zones sell a machine type, and counts how often it was asked."""

    def __init__(self, zones: tuple[str, ...] | Exception | None) -> None:
        self.zones, self.asked = zones, list[tuple[str, tuple[str, ...]]]()

    def zones_that_sell(self, region: str, instance_types: Sequence[str]) -> tuple[str, ...] | None:
        self.asked.append((region, tuple(instance_types)))
        if isinstance(self.zones, Exception):
            raise self.zones
        return self.zones


def placement(*zones: str | None, market: Market = Market.ON_DEMAND) -> GangPlacement:
    seats = [replace(node("a", rank), zone=zone, instance_type=TYPE, market=market) for rank, zone in enumerate(zones)]
    return GangPlacement(0, "aws", REGION, tuple(seats), NOW, NOW + timedelta(hours=1))


def zones_of(places: Sequence[GangPlacement]) -> list[list[str | None]]:
    return [[seat.zone for seat in place.seats] for place in places]


def deploy(**region: Any) -> Deploy:
    return Deploy.model_validate({"clouds": {"aws": {"regions": {REGION: region}}}})


def test_a_placement_without_a_zone_is_one_in_each_zone_that_sells_it_and_asked_for_once_a_day(tmp_path: Path) -> None:
    fleet, now = Fleet(("use1-az1", "use1-az4")), [NOW]

    def wall_clock() -> datetime:
        return now[0]

    with bare_site(tmp_path, fleet=lambda _: fleet, wall_clock=wall_clock) as site:
        for _ in range(3):
            assert zones_of(placements_by_zone(site, placement(None, None))) == [["use1-az1"] * 2, ["use1-az4"] * 2]
        assert fleet.asked == [(REGION, (TYPE,))]
        now[0] += timedelta(days=2)
        fleet.zones = ()
        assert placements_by_zone(site, placement(None)) == ()
        assert len(fleet.asked) == 2


@pytest.mark.parametrize(
    "choice", [placement("use1-az6"), placement("use1-az6", None), placement(None, market=Market.RESERVED)]
)
def test_a_placement_whose_zone_is_known_or_a_reservations_is_as_it_is(tmp_path: Path, choice: GangPlacement) -> None:
    fleet = Fleet(("use1-az1",))
    with bare_site(tmp_path, fleet=lambda _: fleet) as site:
        assert placements_by_zone(site, choice) == (choice,)
        assert first_open_placement(site, choice, ()) == choice
    assert fleet.asked == []


@pytest.mark.parametrize("zones", [None, PermissionDeniedError("aws", "not allowed")])
def test_a_cloud_that_does_not_say_picks_the_zone_itself(tmp_path: Path, zones: Exception | None) -> None:
    choice = placement(None)
    with bare_site(tmp_path, fleet=lambda _: Fleet(zones)) as site:
        assert placements_by_zone(site, choice) == (choice,)
    with bare_site(tmp_path, fleet=lambda _: None) as site:
        assert placements_by_zone(site, choice) == (choice,)


@pytest.mark.parametrize(
    ("region", "zones"),
    [
        ({"network": {"id": "vpc-1", "subnets": {"use1-az4": "s-4", "use1-az9": "s-9"}}}, [["use1-az4"]]),
        ({"network": {"id": "vpc-1", "subnets": {"": "s"}}}, [[None]]),
        ({"zone": "use1-az6"}, [["use1-az6"]]),
    ],
)
def test_the_network_and_the_zone_of_the_deploy_file_decide(
    tmp_path: Path, region: dict[str, Any], zones: list[list[str | None]]
) -> None:
    fleet = Fleet(("use1-az1", "use1-az4"))
    with bare_site(tmp_path, fleet=lambda _: fleet, deploy=deploy(**region)) as site:
        assert zones_of(placements_by_zone(site, placement(None))) == zones


def test_a_zone_that_is_remembered_is_passed_over(tmp_path: Path) -> None:
    def short(zone: str | None, why: str) -> Shortage:
        return Shortage("aws", REGION, zone, TYPE, Market.ON_DEMAND, 1, NOW, NOW + timedelta(hours=1), why)

    choice = placement(None)
    with bare_site(tmp_path, fleet=lambda _: Fleet(("use1-az1", "use1-az4"))) as site:
        (found,) = first_open_placement(site, choice, [short("use1-az1", "not_sold_here")]).seats
        assert found.zone == "use1-az4"
        assert first_open_placement(site, choice, [short(None, "short")]) == choice


def tried_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zones: tuple[str, ...], *faults: Fault) -> list[str]:
    """The places that an order tries that meets these faults, one after the other, and then has its gang."""
    tried = list[str]()
    left = list(faults)

    def play(site: ControllerContext, request: ProvisionRequest, choice: GangPlacement) -> ProvisionResult:
        tried.append(str(choice.seats[0].zone))
        if not left:
            return ProvisionResult(request.order, ProvisionStatus.READY)
        fault = left.pop(0)
        mark_short(site, choice.cloud, choice.region, choice.seats, fault.reason)
        return ProvisionResult(request.order, ProvisionStatus.FAILED, fault=fault)

    monkeypatch.setattr(provision_order, "_provision_choice", play)
    job = a_job()
    order = Order(job.name, "g", NOW, NOW + timedelta(hours=1), ())
    choices = (placement(None), replace(placement("use2-az1"), region="us-east-2"))
    with bare_site(tmp_path, fleet=lambda _: Fleet(zones)) as site:
        fulfil_order(site, ProvisionRequest("p", order, choices, job, job.digest, book([]), NOW))
        here = [s for s in site.store.shortages.in_force(NOW) if s.region == REGION]
        remembered = sorted((str(s.zone), s.why) for s in here)
    expected = [(zone, fault.reason) for zone, fault in zip(tried, faults, strict=False) if zone in zones]
    expected += [("None", "short")] if SHORT in faults else [] if zones else [("None", "not_sold_here")]
    assert remembered == sorted(expected)
    return tried


@pytest.mark.parametrize(
    ("zones", "faults", "tried"),
    [
        (("use1-az1", "use1-az4"), (), ["use1-az1"]),
        (("use1-az1", "use1-az4"), (NO_ZONE,), ["use1-az1", "use1-az4"]),
        (("use1-az1", "use1-az4"), (NO_ZONE, NO_ZONE), ["use1-az1", "use1-az4", "use2-az1"]),
        (("use1-az1", "use1-az4"), (SHORT,), ["use1-az1", "use2-az1"]),
        ((), (), ["use2-az1"]),
    ],
)
def test_a_zone_that_turns_out_not_to_sell_it_is_remembered_and_the_next_one_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zones: tuple[str, ...], faults: tuple[Fault, ...], tried: list[str]
) -> None:
    assert tried_zones(tmp_path, monkeypatch, zones, *faults) == tried


def test_amazon_says_by_zone_ids_which_zones_sell_all_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        theirs = {
            name: {
                row["Location"]
                for row in boto3.client("ec2", REGION).describe_instance_type_offerings(
                    LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": [name]}]
                )["InstanceTypeOfferings"]
            }
            for name in (TYPE, "g6.12xlarge")
        }
        asked = AwsFleet("aws", session("aws", Settings()))
        assert asked.zones_that_sell(REGION, [TYPE]) == tuple(sorted(theirs[TYPE]))
        both = theirs[TYPE] & theirs["g6.12xlarge"]
        assert 0 < len(both) < len(theirs["g6.12xlarge"])
        assert asked.zones_that_sell(REGION, ["g6.12xlarge", TYPE]) == tuple(sorted(both))
        assert asked.zones_that_sell(REGION, [TYPE, "p99.none"]) == ()


OFF = Fault(FaultKind.NOT_ENABLED_HERE, FaultReach.REGION)
DENIED = Fault(FaultKind.REFUSED_BY_POLICY, FaultReach.REGION)
NO_RIGHT = Fault(FaultKind.CREDENTIALS, FaultReach.ACCOUNT)
THROTTLED = Fault(FaultKind.THROTTLED, FaultReach.ACCOUNT)
PASSING = Fault(FaultKind.TRANSIENT, FaultReach.NONE)


@pytest.mark.parametrize(
    ("fault", "same_region", "same_cloud", "other_cloud"),
    [
        (SHORT, True, True, True),
        (OFF, False, True, True),
        (DENIED, False, True, True),
        (NO_RIGHT, False, False, True),
        (THROTTLED, False, False, True),
        (UNKNOWN_FAULT, False, False, True),
        (PASSING, True, True, True),
    ],
)
def test_reach_decides_what_is_passed_over(
    fault: Fault, same_region: bool, same_cloud: bool, other_cloud: bool
) -> None:
    search = PlaceSearch()
    search.note("aws", "eu-south-2", fault)
    places = [("aws", "eu-south-2"), ("aws", "us-east-1"), ("gcp", "us-east4")]
    assert [search.excludes(*place) is None for place in places] == [same_region, same_cloud, other_cloud]
    assert not search.is_over


def test_words_that_nobody_knows_are_tried_once_more_and_then_stop() -> None:
    search = PlaceSearch()
    search.note("aws", "us-east-1", UNKNOWN_FAULT)
    search.note("gcp", "us-east4", UNKNOWN_FAULT)
    assert search.is_over


@pytest.mark.parametrize("kind", [FaultKind.SETUP, FaultKind.JOB_FAULT, FaultKind.OURS])
def test_what_no_place_can_mend_ends_the_search(kind: FaultKind) -> None:
    search = PlaceSearch()
    search.note("aws", "us-east-1", Fault(kind, FaultReach.JOB))
    assert search.is_over


def test_what_passes_is_tried_once_more_and_a_limited_rate_after_pauses() -> None:
    search = PlaceSearch()
    assert [search.pause_before_retry(PASSING) for _ in range(2)] == [0.0, None]
    assert [search.pause_before_retry(THROTTLED) for _ in range(3)] == [20.0, 60.0, None]
    assert search.pause_before_retry(SHORT) is None
    search.note("aws", "us-east-1", PASSING)
    assert search.pause_before_retry(PASSING) == 0.0


def test_a_place_that_is_passed_over_is_told_with_its_region() -> None:
    search = PlaceSearch()
    search.note("aws", "eu-south-2", DENIED)
    assert search.excludes("aws", "eu-south-2") == "denied by a policy of your organisation in eu-south-2"
