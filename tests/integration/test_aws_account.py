"""The AWS adapter as an account sees it, through the real SDK over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import requests

from pricing.book_file import embedded_book
from pricing.history import PricePoint
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from providers.aws.parse.machines import FRACTION, UNKNOWN_ACCELERATOR
from providers.aws.parse.prices import NOT_LISTED
from providers.aws.parse.stock import choose_scored_types
from providers.errors import CredentialsError, NotForSaleError, RegionOffError
from providers.protocol import GangQuery, Scope
from tests.support.aws_service import make_app
from tests.support.aws_service_session import CANARY, NOW, NOW_TEXT, provider, somebody
from tests.support.aws_service_world import NEW_KNOWN, NEW_UNKNOWN, World, decimal, first_regions, gpu_of, score
from tests.support.service import in_thread

ROWS = 4_000
SINCE = NOW - timedelta(days=31)
WORLD = World(("us-west-2", "eu-west-1"), (), NOW, ROWS, 30.0)
BOOK = embedded_book()


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    somebody(monkeypatch)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    regions, off = ["us-west-2", "eu-west-1"], ["eu-south-2"]
    with in_thread(make_app(regions=regions, off=off, now=NOW_TEXT, history_rows=ROWS)) as address:
        yield address


def _known(name: str) -> bool:
    return BOOK.machine("aws", name) is not None or name == "p5e.48xlarge"


def test_scopes_are_the_regions_that_are_switched_on(url: str) -> None:
    assert [scope.region for scope in provider(url).scopes()] == ["eu-west-1", "us-west-2"]


def test_a_region_that_is_off_or_does_not_exist_says_so(url: str) -> None:
    asked = provider(url, regions=("eu-south-2", "us-esat-1"))
    off, unknown = asked.scopes()
    with pytest.raises(RegionOffError, match="eu-south-2"):
        asked.fetch(off, None)
    with pytest.raises(NotForSaleError, match="no region us-esat-1"):
        asked.fetch(unknown, None)


def test_a_region_is_fetched_whole(url: str) -> None:
    harvest = provider(url).fetch(Scope("aws", "us-west-2"), SINCE)
    sold = [pair for pair in WORLD.sold_with_gpus("us-west-2") if _known(pair[0])]
    keys = {market: {(o.instance_type, o.zone) for o in harvest.offers if o.market is market} for market in Market}
    assert keys[Market.SPOT] == set(sold)
    assert keys[Market.ON_DEMAND] == {pair for pair in sold if pair[0] != "p5e.48xlarge"}
    assert harvest.covered == {("us-west-2", Market.SPOT), ("us-west-2", Market.ON_DEMAND)}
    assert not harvest.gaps
    assert not harvest.regions
    assert [machine.instance_type for machine in harvest.machines] == ["p5e.48xlarge"]


def _spot(name: str, zone: str, offers: tuple[Offer, ...]) -> Offer:
    (offer,) = (o for o in offers if (o.instance_type, o.zone, o.market) == (name, zone, Market.SPOT))
    return offer


def test_prices_are_those_that_were_served(url: str) -> None:
    harvest = provider(url).fetch(Scope("aws", "us-west-2"), SINCE)
    newest: dict[tuple[str, str], str] = {}
    for _, name, _, zone, price in WORLD.history("us-west-2"):  # newest first
        newest.setdefault((name, zone), price)
    checked = 0
    for (name, zone), price in newest.items():
        if _known(name):
            assert _spot(name, zone, harvest.offers).usd_per_hour == UsdPerHour.parse(price)
            checked += 1
    assert checked > 150
    listed = {o.instance_type: o.usd_per_hour for o in harvest.offers if o.market is Market.ON_DEMAND}
    expected = decimal(WORLD.list_price("us-west-2", "p5.48xlarge"), 100_000, 10)
    assert listed["p5.48xlarge"] == UsdPerHour.parse(expected)
    assert {o.price_basis for o in harvest.offers} == {"zone", "list"}
    assert {o.as_of for o in harvest.offers} == {NOW.date()}
    assert {o.zone is not None and o.zone.startswith("usw2-az") for o in harvest.offers} == {True}
    assert all(o.interruption_band for o in harvest.offers if o.market is Market.SPOT)


def test_history_comes_page_by_page_and_each_row_is_a_point(url: str) -> None:
    before = requests.get(f"{url}/_calls", timeout=5).json().get("DescribeSpotPriceHistory", 0)
    points = provider(url).fetch(Scope("aws", "us-west-2"), SINCE).points
    pages = requests.get(f"{url}/_calls", timeout=5).json()["DescribeSpotPriceHistory"] - before
    served = [row for row in WORLD.history("us-west-2") if _known(row[1])]
    assert pages == 1 + -(-len(served) // 1000)
    assert {_row(point) for point in points} == {(at, name, zone, price) for at, name, _, zone, price in served}
    assert len(points) == len(served)


def _row(point: PricePoint) -> tuple[str, str, str | None, str]:
    whole, _, rest = str(point.usd_per_hour).partition(".")
    return f"{point.at:%Y-%m-%dT%H:%M:%S}.000Z", point.instance_type, point.zone, f"{whole}.{rest.ljust(6, '0')}"


def test_without_history_only_what_holds_now_is_asked_for(url: str) -> None:
    harvest = provider(url).fetch(Scope("aws", "us-west-2"), None)
    spot = [o for o in harvest.offers if o.market is Market.SPOT]
    assert len(harvest.points) == len(spot)
    recent = provider(url).fetch(Scope("aws", "us-west-2"), NOW - timedelta(days=3))
    assert len(spot) < len(recent.points) < ROWS // 2
    assert recent.offers == harvest.offers


def test_what_cannot_be_used_is_named(url: str) -> None:
    harvest = provider(url).fetch(Scope("aws", "us-west-2"), None)
    why = {drop.row: drop.why for drop in harvest.dropped}
    assert why["us-west-2 inf2.xlarge"] == why["us-west-2 g5g.xlarge"] == UNKNOWN_ACCELERATOR
    assert why["us-west-2 g6f.large"] == FRACTION
    assert why["us-west-2 p5e.48xlarge on demand"] == NOT_LISTED
    assert set(why.values()) == {UNKNOWN_ACCELERATOR, FRACTION, NOT_LISTED}


def test_new_types_are_described_once_for_all_regions() -> None:
    faults = [{"match": "", "kind": "new_type"}]
    with in_thread(
        make_app(regions=["us-west-2", "eu-lab-1"], now=NOW_TEXT, history_rows=900, faults=faults)
    ) as address:
        asked = provider(address)
        one, other = (asked.fetch(scope, None) for scope in asked.scopes())
        calls = requests.get(f"{address}/_calls", timeout=5).json()
    for harvest in (one, other):
        (machine,) = (m for m in harvest.machines if m.instance_type == NEW_KNOWN)
        assert (machine.accelerator, machine.accelerator_count, machine.inter_node_gbps) == (*gpu_of(NEW_KNOWN), 20.0)
        assert any(o.instance_type == NEW_KNOWN for o in harvest.offers)
        assert any(NEW_UNKNOWN in d.row and d.why == UNKNOWN_ACCELERATOR for d in harvest.dropped)
        assert not any(o.instance_type == NEW_UNKNOWN for o in harvest.offers)
    assert calls["DescribeInstanceTypes"] <= 2
    assert [str(region.id) for region in one.regions] == ["aws/eu-lab-1"]
    assert one.regions[0].country is None


def test_placement_scores_are_by_zone_and_ten_regions_at_a_time() -> None:
    with in_thread(make_app(regions=23, now=NOW_TEXT, history_rows=0)) as address:
        asked = provider(address)
        hints = asked.stock([GangQuery("g5.xlarge", 4, Market.SPOT)])
        calls = requests.get(f"{address}/_calls", timeout=5).json()
    assert calls["GetSpotPlacementScores"] == 3
    assert hints
    # Asked together with the two types most like it: EC2 answers low to fewer than three.
    together = choose_scored_types("g5.xlarge", (m for m in embedded_book().machines if m.cloud == "aws"))
    assert len(set(together)) == 3
    world = World(first_regions(23), (), NOW, 0, 30.0)
    for hint in hints:
        assert hint.zone is not None
        sold = {name for name, zone in world.sold(hint.region) if zone == hint.zone} & set(together)
        assert hint.score == max(score(hint.region, hint.zone, name, 4) for name in sold) / 10
    assert max(hint.score or 0 for hint in hints) > 0.5


def test_blocks_for_sale_are_counted_and_on_demand_stock_is_not_known(url: str) -> None:
    asked = provider(url)
    wanted = GangQuery("p5.48xlarge", 4, Market.RESERVED, ("us-west-2",))
    hints = asked.stock([wanted, GangQuery("g5.xlarge", 1, Market.RESERVED, ("us-west-2",))])
    assert {hint.zone for hint in hints} == {z for n, z in WORLD.sold("us-west-2") if n == "p5.48xlarge"}
    assert {(hint.machines, hint.score, hint.market) for hint in hints} == {(4, None, Market.RESERVED)}
    assert asked.stock([GangQuery("p5.48xlarge", 4, Market.ON_DEMAND)]) == ()


def test_quotas_and_reservations_are_found_on_every_page(url: str) -> None:
    found = provider(url).allowances(("us-west-2", "eu-west-1"))
    amounts = {(quota.region, quota.name): quota.amount for quota in found.quotas}
    assert len(amounts) == 10
    assert amounts["us-west-2", "All P5 Spot Instance Requests"] == 576
    assert amounts["eu-west-1", "All G and VT Spot Instance Requests"] == 0
    # A scheduled block has no machine available yet, and all of them from its beginning on.
    assert [(held.name, held.machines, held.free) for held in found.held] == [("cr-1", 4, 3), ("cr-2", 2, 2)]
    assert [(str(held.end), held.prepaid) for held in found.held] == [
        ("None", False),
        ("2026-12-01 11:00:00+00:00", True),
    ]
    assert not found.gaps
    assert {quota.region for quota in provider(url).allowances(()).quotas} == {"us-west-2", "eu-west-1"}


def test_a_profile_that_does_not_exist_is_a_matter_of_credentials(url: str) -> None:
    with pytest.raises(CredentialsError, match="ProfileNotFound") as caught:
        provider(url, options={"profile": f"nobody-{CANARY[:3]}"}).scopes()
    assert caught.value.remedy
