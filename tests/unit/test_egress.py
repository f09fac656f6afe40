"""Tariffs at their edges, the one free allowance, and which row covers which pair of places."""

from __future__ import annotations

import pytest

from pricing.book_file import embedded_book
from pricing.egress import EgressTable, Tariff, compute_meter_costs
from pricing.money import ZERO, Usd
from pricing.places import Region, RegionId
from pricing.units import BYTES_PER_GB
from tests.support.books import a_region, a_tariff

FREE_100_GB = 100 * BYTES_PER_GB
BOOK = embedded_book()


def region(name: str) -> Region:
    found = BOOK.region(RegionId.parse(name))
    assert found is not None, name
    return found


def between(src: str, dst: str) -> Tariff:
    found = BOOK.egress.between(region(src), region(dst))
    assert found is not None, (src, dst)
    return found


@pytest.mark.parametrize(
    ("gb", "cost"),
    [
        (0, "0"),
        (100, "0"),
        (101, "0.09"),
        (1000, "81"),
        (10_240, "912.60"),
        (10_250, "913.45"),
        (51_200, "4394.20"),
        (51_201, "4394.27"),
        (153_600, "11562.20"),
        (153_601, "11562.25"),
    ],
)
def test_aws_us_east_1_to_the_internet(gb: int, cost: str) -> None:
    tariff = between("aws/us-east-1", "gcp/us-central1")
    assert tariff.meter == "aws internet us-east-1 > any"
    assert tariff.cost_of(0, gb * BYTES_PER_GB, FREE_100_GB) == Usd.parse(cost)


def test_without_the_allowance_the_next_tier_applies() -> None:
    tariff = between("aws/us-east-1", "gcp/us-central1")
    assert tariff.allowance_bytes == FREE_100_GB
    assert str(tariff.top_price) == "0.09"
    assert tariff.cost_of(0, FREE_100_GB, 0) == Usd.parse("9")
    assert tariff.cost_of(0, FREE_100_GB, 40 * BYTES_PER_GB) == Usd.parse("5.40")
    assert tariff.cost_of(0, 10_240 * BYTES_PER_GB, 0) == Usd.parse("921.60")


def test_one_rounding_of_the_total() -> None:
    tariff = a_tariff((0, 1, "0.000000001"), (1, None, "0.000000003"))
    assert tariff.cost_of(0, BYTES_PER_GB + BYTES_PER_GB // 2, 0).nanos == 2  # 2.5 goes to the even one
    assert tariff.cost_of(BYTES_PER_GB // 2, BYTES_PER_GB, 0).nanos == 2


@pytest.mark.parametrize(("volume", "free"), [(-1, 0), (1, -1), (1, FREE_100_GB + 1)])
def test_nonsense_volumes_are_refused(volume: int, free: int) -> None:
    with pytest.raises(ValueError, match=r"negative|allowance"):
        a_tariff((0, 100, "0"), (100, None, "0.09")).cost_of(0, volume, free)


@pytest.mark.parametrize("tiers", [((0, None, "0"),), ((0, 100, "0.1"), (100, None, "0.2"))])
def test_no_allowance_without_a_free_tier_before_a_priced_one(
    tiers: tuple[tuple[int, int | None, str], ...],
) -> None:
    assert a_tariff(*tiers).allowance_bytes == 0


def test_the_allowance_is_shared_by_all_regions_and_saves_most() -> None:
    """Two regions send 100 GB each: one allowance, given to the dearer one."""
    cheap = a_tariff((0, 100, "0"), (100, None, "0.09"))
    dear = a_tariff((0, 100, "0"), (100, None, "0.154"), groups=("af-south-1", "any"))
    items = [(cheap, 0, FREE_100_GB), (dear, 0, FREE_100_GB)]
    assert compute_meter_costs(items, {"aws": FREE_100_GB}) == (Usd.parse("9"), ZERO)
    assert compute_meter_costs(items, {"aws": 150 * BYTES_PER_GB}) == (Usd.parse("4.50"), ZERO)
    assert compute_meter_costs(items, {}) == (Usd.parse("9"), Usd.parse("15.40"))
    assert compute_meter_costs(items[::-1], {"aws": FREE_100_GB}) == (ZERO, Usd.parse("9"))


def test_what_was_moved_before_counts() -> None:
    tariff = between("aws/us-east-1", "gcp/us-central1")
    already, volume = 10_240 * BYTES_PER_GB, 10 * BYTES_PER_GB
    assert compute_meter_costs([(tariff, already, volume)], {"aws": 0}) == (Usd.parse("0.85"),)
    assert compute_meter_costs([(tariff, 60 * BYTES_PER_GB, FREE_100_GB)], {"aws": 40 * BYTES_PER_GB}) == (
        Usd.parse("5.40"),
    )


def test_allowances_of_two_clouds_are_apart() -> None:
    aws = a_tariff((0, 100, "0"), (100, None, "0.09"))
    azure = a_tariff((0, 100, "0"), (100, None, "0.087"), cloud="azure", groups=("NA|EU", "any"))
    items = [(aws, 0, FREE_100_GB), (azure, 0, FREE_100_GB)]
    assert compute_meter_costs(items, {"aws": FREE_100_GB, "azure": 0}) == (ZERO, Usd.parse("8.70"))


def test_a_meter_settles_once() -> None:
    tariff = a_tariff((0, None, "0.1"))
    with pytest.raises(ValueError, match="meter of its own"):
        compute_meter_costs([(tariff, 0, 1), (tariff, 0, 1)], {})


@pytest.mark.parametrize(
    ("src", "dst", "meter", "price"),
    [
        ("aws/us-east-1", "aws/us-east-1", "aws same region any > any", "0.00"),
        ("aws/us-east-1", "aws/us-east-2", "aws inter-region same continent us-east-1 > us-east-2", "0.01"),
        ("aws/us-east-1", "aws/us-west-2", "aws inter-region same continent us-east-1 > any", "0.02"),
        ("aws/us-east-1", "aws/eu-west-1", "aws inter-region cross-continent us-east-1 > any", "0.02"),
        ("azure/eastus", "azure/westeurope", "azure inter-region cross-continent NA|EU > any", "0.05"),
        ("azure/brazilsouth", "azure/eastus", "azure inter-region cross-continent SA > any", "0.16"),
        ("azure/eastus", "aws/us-east-1", "azure internet NA|EU > any", "0.087"),
        ("gcp/us-central1", "gcp/europe-west4", "gcp inter-region cross-continent any > any", "0.08"),
        (
            "gcp/us-central1",
            "gcp/asia-southeast2",
            "gcp inter-region cross-continent any > asia-southeast2",
            "0.15",
        ),
        ("gcp/us-central1", "gcp/australia-southeast1", "gcp inter-region cross-continent any > OC", "0.15"),
        ("gcp/us-central1", "aws/us-east-1", "gcp internet any > any except OC and CN", "0.12"),
        ("gcp/us-central1", "aws/ap-southeast-2", "gcp internet any > OC", "0.19"),
        ("lambda/us-east-1", "aws/us-east-1", "lambda internet any > any", "0.00"),
    ],
)
def test_the_most_specific_row_covers_a_pair(src: str, dst: str, meter: str, price: str) -> None:
    tariff = between(src, dst)
    assert (tariff.meter, str(tariff.top_price)) == (meter, price)


def test_data_in_one_region_of_a_cloud_are_not_free_in_another() -> None:
    assert between("aws/us-east-1", "aws/us-west-2").cost_of(0, BYTES_PER_GB, 0) == Usd.parse("0.02")


def test_an_unknown_pair_is_unknown_and_not_free() -> None:
    assert BOOK.egress.between(region("nebius/eu-north1"), region("nebius/us-central1")) is None
    assert BOOK.egress.between(a_region("moon/base-1"), region("aws/us-east-1")) is None
    assert EgressTable(()).outbound("moon", None) is None


def test_premium_network_only() -> None:
    pairs = [(a, b) for a in BOOK.regions for b in BOOK.regions]
    scopes = {t.scope for a, b in pairs if (t := BOOK.egress.between(a, b)) is not None}
    assert "internet standard tier" not in scopes
    assert not any("cross-zone" in scope or scope == "same-zone" for scope in scopes)


def test_a_store_that_is_no_region() -> None:
    r2 = BOOK.egress.outbound("cloudflare-r2", None)
    assert r2 is not None
    assert r2.cost_of(0, 10**15, 0) == ZERO
    assert r2.weak


def test_outbound_never_understates_by_destination() -> None:
    gcp = BOOK.egress.outbound("gcp", region("gcp/us-central1"))
    assert gcp is not None
    assert str(gcp.top_price) == "0.19"


def test_china_is_left_out_where_the_tariff_says_so() -> None:
    beijing = a_region("elsewhere/beijing", "AS", "CN")
    assert BOOK.egress.between(region("gcp/us-central1"), beijing) is None


def test_allowances_by_cloud() -> None:
    assert BOOK.egress.allowances["aws"] == BOOK.egress.allowances["azure"] == FREE_100_GB
    assert "gcp" not in BOOK.egress.allowances
