"""Regions, zones, quotas, reservations, scores and notices, read from plain rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.places import Market
from providers.aws.parse.allowances import read_quotas, read_reservations
from providers.aws.parse.machines import parse_region_index, split_regions_by_status, zone_ids
from providers.aws.parse.stock import choose_scored_types, find_largest_gangs, read_block_hints, read_score_hints
from providers.errors import UnreadableError
from providers.protocol import GangQuery, QuotaUnit

FAMILIES = frozenset({"p3", "p3dn", "p4d", "p4de", "p5", "p5en", "p6", "g4dn", "g5", "g6", "gr6", "g7e"})


def test_regions_are_enabled_or_off() -> None:
    rows = [
        {"RegionName": "us-east-1", "OptInStatus": "opt-in-not-required"},
        {"RegionName": "af-south-1", "OptInStatus": "opted-in"},
        {"RegionName": "eu-south-2", "OptInStatus": "not-opted-in"},
    ]
    assert split_regions_by_status(rows) == (("af-south-1", "us-east-1"), frozenset({"eu-south-2"}))


def test_zone_names_lead_to_ids() -> None:
    assert zone_ids([{"ZoneName": "us-east-1a", "ZoneId": "use1-az6"}, {"ZoneName": "odd"}]) == {
        "us-east-1a": "use1-az6"
    }


def test_the_public_list_has_regions_and_other_things() -> None:
    codes = ["us-east-1", "ap-southeast-3", "us-east-1-wl1-bos-wlz-1", "us-west-2-lax-1", "us-gov-west-1", "cn-north-1"]
    assert parse_region_index("aws", {"regions": {code: {} for code in codes}}) == ("ap-southeast-3", "us-east-1")
    others: list[Any] = [{}, [], {"regions": []}]
    for other in others:
        with pytest.raises(UnreadableError):
            parse_region_index("aws", other)


@pytest.mark.parametrize(
    ("name", "market", "families"),
    [
        ("Running On-Demand P instances", Market.ON_DEMAND, {"p3", "p3dn", "p4d", "p4de", "p5", "p5en", "p6"}),
        ("Running On-Demand G and VT instances", Market.ON_DEMAND, {"g4dn", "g5", "g6", "gr6", "g7e"}),
        ("All P4, P3 and P2 Spot Instance Requests", Market.SPOT, {"p3", "p3dn", "p4d", "p4de"}),
        ("All P5 Spot Instance Requests", Market.SPOT, {"p5", "p5en"}),
        ("All G and VT Spot Instance Requests", Market.SPOT, {"g4dn", "g5", "g6", "gr6", "g7e"}),
    ],
)
def test_a_quotas_name_says_which_families_it_counts(name: str, market: Market, families: set[str]) -> None:
    (quota,) = read_quotas("aws", "us-east-1", [{"QuotaName": name, "Value": 192.0}], FAMILIES)
    assert (quota.market, set(quota.families), quota.amount) == (market, families, 192)
    assert (quota.unit, quota.used, quota.region) == (QuotaUnit.VCPUS, None, "us-east-1")


@pytest.mark.parametrize(
    "name",
    [
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        "Running On-Demand Trn instances",
        "Running Dedicated p5 Hosts",
        "All F Spot Instance Requests",
        "EC2-VPC Elastic IPs",
    ],
)
def test_other_quotas_are_passed_over(name: str) -> None:
    """A quota without families would count for every machine."""
    assert read_quotas("aws", "us-east-1", [{"QuotaName": name, "Value": 5.0}], FAMILIES) == ()


def test_what_is_held_is_active_or_scheduled_linux_with_gpus() -> None:
    row: dict[str, Any] = {
        "CapacityReservationId": "cr-1", "InstanceType": "p5e.48xlarge", "State": "active",
        "InstancePlatform": "Linux/UNIX", "AvailabilityZoneId": "use1-az4", "TotalInstanceCount": 4,
        "AvailableInstanceCount": 3, "StartDate": "2026-11-01T00:00:00.000Z",
    }  # fmt: skip
    others = [{"State": "expired"}, {"InstancePlatform": "Windows"}, {"InstanceType": "m5.large"}]
    (held,) = read_reservations("aws", "us-east-1", [row, *({**row, **other} for other in others)])
    assert (held.name, held.machines, held.free, held.zone) == ("cr-1", 4, 3, "use1-az4")
    assert (held.start, held.end) == (datetime(2026, 11, 1, tzinfo=UTC), None)


def test_the_largest_gang_is_asked_for() -> None:
    spot = [GangQuery("p5.48xlarge", 4, Market.SPOT, ("a", "b")), GangQuery("p5.48xlarge", 16, Market.SPOT, ("b",))]
    everywhere = GangQuery("g5.xlarge", 1, Market.SPOT)
    assert find_largest_gangs([*spot, everywhere, GangQuery("x", 1, Market.ON_DEMAND)], Market.SPOT, ("a",)) == {
        ("p5.48xlarge", "a"): 4,
        ("p5.48xlarge", "b"): 16,
        ("g5.xlarge", "a"): 1,
    }


def test_a_score_is_asked_for_three_types_the_wanted_one_and_those_most_like_it() -> None:
    machines = [machine for machine in embedded_book().machines if machine.cloud == "aws"]
    by_name = {machine.instance_type: machine for machine in machines}
    for name, machine in by_name.items():
        first, *others = choose_scored_types(name, machines)
        assert first == name
        assert len({first, *others}) == 3
        same = [other for other in machines if other.accelerator == machine.accelerator and other != machine]
        assert sum(by_name[other].accelerator == machine.accelerator for other in others) == min(2, len(same))
    assert choose_scored_types("p5.48xlarge", machines) == choose_scored_types("p5.48xlarge", reversed(machines))
    assert choose_scored_types("x9.unheard", machines) == ("x9.unheard",)


def test_scores_run_from_a_tenth_to_one() -> None:
    rows = [{"Region": "a", "AvailabilityZoneId": f"az{score}", "Score": score} for score in (1, 10)]
    assert [(hint.zone, hint.score, hint.machines) for hint in read_score_hints("p5.48xlarge", rows)] == [
        ("az1", 0.1, None),
        ("az10", 1.0, None),
    ]


def test_blocks_count_machines_per_zone() -> None:
    rows = [{"InstanceType": "p5.48xlarge", "AvailabilityZone": "a1", "InstanceCount": count} for count in (2, 4)]
    (hint,) = read_block_hints(
        "a", "p5.48xlarge", [*rows, {"InstanceType": "p4d.24xlarge", "InstanceCount": 9}], {"a1": "z1"}
    )
    assert (hint.zone, hint.machines, hint.score, hint.market) == ("z1", 4, None, Market.RESERVED)
