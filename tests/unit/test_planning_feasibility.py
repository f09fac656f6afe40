"""Rules that drop an offer: each by its code, with the reason in words."""

from __future__ import annotations

from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.offers import Offer
from router.jobs.gang import GangOption
from router.jobs.limits import Limit
from router.planning.find.feasibility import ListingRefusal, refusal
from router.planning.find.limit_kinds import covers, use_by_machine
from router.planning.find.listings import OfferListing, listings_by_accelerator
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import ALPS, BAY, NORTH, NORTH_SPOT, a_job

ETHERNET = offer("aws/south-1", "g9.48xlarge", "spot", "9")
HALL = offer("static/hall-1", "hall-h9", "on_demand", "20")


def listing_of(item: Offer, limits: Any = None) -> OfferListing:
    found = listings_by_accelerator(book([item]), make_limits(limits or {}))
    return next(listing for rows in found.values() for listing in rows)


def refused(item: Offer, count: int = 8, limits: Any = None, **job: Any) -> ListingRefusal | None:
    listing = listing_of(item, limits)
    option = GangOption(accelerator=listing.machine.accelerator, count=count)
    return refusal(a_job(**job), option, listing, make_limits(limits or {}))


def limit(**fields: Any) -> dict[str, Any]:
    return {"limits": [{"name": "quota", "amount": 8, "unit": "accelerators", **fields}]}


def test_what_breaks_no_rule_passes() -> None:
    assert refused(NORTH) is None
    assert refused(NORTH_SPOT, 16, limit(amount=16)) is None


@pytest.mark.parametrize(
    ("item", "more", "code", "words"),
    [
        (NORTH, {"count": 12}, "size", "12 H100 is not a whole number of machines of 8"),
        (NORTH, {"count": 16, "machines": 1}, "shape", "H100:16 is to be 1 machine, of p9.48xlarge it takes 2"),
        (NORTH, {"limits": {"clouds": ["gcp"]}}, "cloud", "cloud aws is not allowed"),
        (ALPS, {"residency": {"allow": ["US"]}}, "residency", "residency: "),
        (ALPS, {"residency": {"deny": ["EU"]}}, "residency", "EU"),
        (NORTH_SPOT, {"spot": "never"}, "market", "does not allow spot"),
        (NORTH, {"spot": "only"}, "market", "wants spot only"),
        (NORTH, {"max_price": 7}, "max price", "$7.5 an accelerator-hour, max_price allows $7"),
        (NORTH_SPOT, {"max_price": "$2.999/h"}, "max price", "$3 an accelerator-hour, max_price allows $2.999"),
        (ETHERNET, {"count": 16, "rdma": "required"}, "fabric", "g9.48xlarge has ethernet"),
        (NORTH_SPOT, {"count": 16, "limits": {"default_cap_machines": 1}}, "capacity", "1 machines to be had, 2 n"),
        (NORTH, {"count": 16, "limits": limit()}, "limit", "quota allows 8 accelerators, 16 needed"),
        (NORTH, {"limits": limit(unit="vcpus", amount=191)}, "limit", "quota allows 191 vcpus, 192 needed"),
        (HALL, {"limits": limit(unit="vcpus", amount=10**6)}, "limit", "counts vcpus, unknown for hall-h9"),
    ],
)
def test_each_rule_has_its_code_and_says_why(item: Offer, more: dict[str, Any], code: str, words: str) -> None:
    found = refused(item, **more)
    assert found is not None
    assert found.code == code
    assert words in found.reason


def test_a_slice_of_tpus_is_one_machine() -> None:
    listings = listings_by_accelerator(embedded_book(), make_limits({}))["TPU-v6e"]
    option = GangOption(accelerator="TPU-v6e", count=8)
    found = [each for each in listings if refusal(a_job(), option, each, make_limits({})) is None]
    assert {each.machine.accelerator_count for each in found} == {8}


def test_the_machines_that_were_asked_for_pass() -> None:
    assert refused(NORTH, 16, machines=2) is None


def test_one_machine_needs_no_fabric_between_machines() -> None:
    assert refused(ETHERNET, 8, rdma="required") is None


def test_an_on_demand_core_takes_nothing_of_the_spot_quota() -> None:
    quota = limit(amount=8, market="spot")
    assert refused(NORTH_SPOT, 16, quota, on_demand_share=0.5) is None
    assert refused(NORTH_SPOT, 16, quota) == ListingRefusal("limit", "quota allows 8 accelerators, 16 needed")


def test_an_offers_own_capacity_beats_the_default() -> None:
    roomy = offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=4)
    assert refused(roomy, 32, {"default_cap_machines": 1}) is None


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({}, True),
        ({"cloud": "aws", "region": "north-1"}, True),
        ({"cloud": "gcp"}, False),
        ({"region": "south-1"}, False),
        ({"zone": "north-1a"}, False),
        ({"family": "p9"}, True),
        ({"family": "g9"}, False),
        ({"instance_type": "p9.48xlarge", "accelerator": "H100"}, True),
        ({"instance_type": "p9.24xlarge"}, False),
        ({"accelerator": "A100-80GB"}, False),
        ({"market": "on_demand"}, True),
        ({"market": "spot"}, False),
    ],
)
def test_a_limit_covers_what_it_does_not_exclude(fields: dict[str, Any], covered: bool) -> None:
    quota = Limit.model_validate({"name": "q", "amount": 1, "unit": "machines", **fields})
    assert covers(quota, listing_of(NORTH)) is covered


def test_a_reservation_counts_only_against_limits_that_name_it() -> None:
    limits = make_limits(
        {
            "reservations": [
                {"name": "r", "cloud": "aws", "region": "north-1", "instance_type": "p9.48xlarge", "machines": 2}
            ]
        }
    )
    rows = listings_by_accelerator(book([NORTH]), limits)["H100"]
    reserved = next(row for row in rows if row.reservation == "r")
    every = Limit.model_validate({"name": "q", "amount": 1, "unit": "machines"})
    named = Limit.model_validate({"name": "q", "amount": 1, "unit": "machines", "market": "reserved"})
    assert (covers(every, reserved), covers(named, reserved)) == (False, True)
    # Nobody stated its price: unknown, and not that of a machine on demand.
    assert (reserved.cost, reserved.amortised, reserved.offer.usd_per_hour.nanos) == ("unknown", None, 0)


@pytest.mark.parametrize(("unit", "used"), [("machines", 1), ("accelerators", 8), ("vcpus", 192)])
def test_a_limit_counts_in_its_own_unit(unit: str, used: int) -> None:
    counted = use_by_machine(make_limits(limit(unit=unit)), listing_of(NORTH), "ml")
    assert [(use.limit.name, use.per_machine) for use in counted] == [("quota", used)]


def test_a_lambda_machine_is_not_sieved_out_for_being_advisory() -> None:
    assert refused(BAY) is None
