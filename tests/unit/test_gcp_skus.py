"""SKUs to rates: which descriptions count, units, and prices that cannot be used.

Descriptions are those of the public catalogue, as open-source price tools quote them in their tests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from pricing.places import Market
from providers.gcp.skus import BilledComponent, BilledPart, SkuTable, parse_component

NOW = datetime(2026, 11, 21, tzinfo=UTC)
CORE = BilledComponent(BilledPart.VCPU, "a3")
RAM = BilledComponent(BilledPart.RAM, "a3")


def sku(description: str, nanos: int, unit: str = "h", usage: str = "OnDemand", **more: Any) -> dict[str, Any]:
    price = {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]}
    return {
        "skuId": "0000-0000-0000",
        "description": description,
        "category": {"usageType": usage},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"effectiveTime": "2026-11-01T00:00:00Z", "pricingExpression": expression}],
        **more,
    }


def table(*skus: dict[str, Any]) -> SkuTable:
    found = SkuTable(NOW)
    found.add(skus)
    return found


def rate(component: BilledComponent, *skus: dict[str, Any], market: Market = Market.ON_DEMAND) -> Fraction | str:
    return table(*skus).rate(component, market, "us-central1")


@pytest.mark.parametrize(
    ("description", "part", "of", "spot"),
    [
        ("A2 Instance Core running in Americas", BilledPart.VCPU, "a2", False),
        ("Spot Preemptible A3 Instance Ram running in Americas", BilledPart.RAM, "a3", True),
        ("A3Plus Instance Core running in Americas", BilledPart.VCPU, "a3plus", False),
        ("A3Ultra Instance Ram running in Americas", BilledPart.RAM, "a3ultra", False),
        ("A3 Ultra Instance Ram running in Americas", BilledPart.RAM, "a3ultra", False),
        ("G4 Instance Core running in Iowa", BilledPart.VCPU, "g4", False),
        ("G4 Instance Local SSD running in Iowa", BilledPart.LOCAL_SSD, "g4", False),
        ("Nvidia Tesla A100 GPU running in Netherlands", BilledPart.GPU, "nvidia-tesla-a100", False),
        ("Nvidia Tesla A100 80GB GPU running in Netherlands", BilledPart.GPU, "nvidia-a100-80gb", False),
        (
            "Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in X",
            BilledPart.GPU,
            "nvidia-h100-80gb",
            True,
        ),
        ("Nvidia H100 80GB Plus GPU running in Americas", BilledPart.GPU, "nvidia-h100-mega-80gb", False),
        ("Nvidia H100 80GB Mega GPU running in Frankfurt", BilledPart.GPU, "nvidia-h100-mega-80gb", False),
        ("H200 141GB GPU running in Belgium", BilledPart.GPU, "nvidia-h200-141gb", False),
        ("RTX 6000 96GB attached to Spot Preemptible VMs running in Iowa", BilledPart.GPU, "nvidia-rtx-pro-6000", True),
        ("A4 Nvidia B200 (1 gpu slice) running in Americas", BilledPart.SLICE, "nvidia-b200", False),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", BilledPart.SLICE, "nvidia-b200", True),
        ("SSD backed Local Storage", BilledPart.LOCAL_SSD, "", False),
        ("SSD backed Local Storage in Paris", BilledPart.LOCAL_SSD, "", False),
        ("SSD backed Local Storage attached to Spot Preemptible VMs in Paris", BilledPart.LOCAL_SSD, "", True),
    ],
)
def test_parts_are_told_by_the_whole_description(description: str, part: BilledPart, of: str, spot: bool) -> None:
    assert parse_component(description) == (BilledComponent(part, of), spot)


@pytest.mark.parametrize(
    "description",
    [
        "Commitment v1: Nvidia H100 80GB GPU running in Americas for 1 Year",
        "Nvidia H100 Mega 80GB GPU attached to DWS Defined Duration VMs running in Americas",
        "DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) running in Americas",
        "DWS Defined Duration A3 Core running in Americas",
        "Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode",
        "Reserved A2 Ram in Netherlands",
        "Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas",
        "Nvidia L4 Virtual Workstation GPU running in Netherlands",
        "Nvidia L40 GPU running in Netherlands",
        "1/8 vGPU no lssd running in Iowa",
        "C3 Sole Tenancy Instance Core running in Iowa",
        "N2 Custom Instance Core running in Americas",
        "M3 Memory-optimized Instance Ram running in Americas",
        "VM state: preserved local SSD in Americas",
        "SSD backed PD Capacity in Paris",
    ],
)
def test_other_tariffs_are_never_taken_for_ours(description: str) -> None:
    assert parse_component(description) is None


def test_commitments_are_left_out_whatever_their_name() -> None:
    row = sku("A3 Instance Core running in Americas", 10_000_000, usage="Commit1Yr")
    assert rate(CORE, row) == "no price for its vCPU in the region"


def test_the_name_says_spot_where_the_category_does_not() -> None:
    row = sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4_954_200_000)
    component = BilledComponent(BilledPart.SLICE, "nvidia-b200")
    assert rate(component, row, market=Market.SPOT) == 4_954_200_000
    assert rate(component, row) == "no price for its GPU slice in the region"


def test_memory_by_decimal_gigabytes_is_made_gibibytes_exactly() -> None:
    row = sku("A3 Instance Ram running in Americas", 3_000_000, "GBy.h")
    assert rate(RAM, row) == Fraction(3_000_000 * 2**30, 10**9)
    assert rate(RAM, sku("A3 Instance Ram running in Americas", 3_000_000, "GiBy.h")) == 3_000_000


def test_a_month_of_local_ssd_is_730_hours() -> None:
    row = sku("SSD backed Local Storage", 80_000_000, "GiBy.mo")
    assert rate(BilledComponent(BilledPart.LOCAL_SSD, ""), row) == Fraction(80_000_000, 730)


def test_one_sku_serves_several_regions() -> None:
    row = sku("A3 Instance Core running in Americas", 7, serviceRegions=["us-central1", "us-east1"])
    assert table(row).rate(CORE, Market.ON_DEMAND, "us-east1") == 7


def test_the_same_price_twice_is_one() -> None:
    row = sku("A3 Instance Core running in Americas", 7)
    found = table(row, {**row, "skuId": "1111-1111-1111"})
    assert found.rate(CORE, Market.ON_DEMAND, "us-central1") == 7
    assert found.dropped("us-central1") == ()


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_two_prices_for_one_thing_are_none(order: tuple[int, int]) -> None:
    found = table(*(sku("A3 Instance Core running in Americas", nanos) for nanos in order))
    assert found.rate(CORE, Market.ON_DEMAND, "us-central1") == "two prices for its vCPU in the region"
    assert found.faulty(CORE, Market.ON_DEMAND, "us-central1")
    assert [d.why for d in found.dropped("us-central1")] == ["a second price for the same thing"]


def _with(price: dict[str, Any]) -> dict[str, Any]:
    row = sku("A3 Instance Core running in Americas", 7)
    row["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"].update(price)
    return row


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (_with({"nanos": 0}), "is not above 0"),
        (_with({"nanos": -7}), "is not above 0"),
        (_with({"currencyCode": "EUR"}), "is not in USD"),
        (_with({"units": "a few"}), "cannot be read"),
        (sku("A3 Instance Core running in Americas", 7, "mo"), "is for an unknown unit"),
        (sku("A3 Instance Core running in Americas", 7, pricingInfo=[]), "cannot be read"),
        (sku("A3 Instance Core running in Americas", 7, pricingInfo=[{"pricingExpression": None}]), "cannot be read"),
    ],
)
def test_an_unusable_price_is_named_and_not_used(row: dict[str, Any], why: str) -> None:
    found = table(row)
    assert found.rate(CORE, Market.ON_DEMAND, "us-central1") == f"the price of its vCPU {why}"
    assert [d.why for d in found.dropped("us-central1")] == [f"a price that {why}"]
    assert found.dropped("europe-west4") == ()


def test_prices_in_tiers_are_not_guessed_at() -> None:
    row = sku("A3 Instance Core running in Americas", 7)
    tiers = row["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    tiers.append({"startUsageAmount": 100, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 5}})
    assert rate(CORE, row) == "the price of its vCPU has several tiers"


def test_a_usable_price_beside_an_unusable_one_does_not_count_either() -> None:
    """Which of the two is charged cannot be known."""
    assert isinstance(rate(CORE, sku("A3 Instance Core running in A", 7), _with({"nanos": 0})), str)
    assert isinstance(rate(CORE, _with({"nanos": 0}), sku("A3 Instance Core running in A", 7)), str)


def test_an_announced_price_does_not_hold_yet() -> None:
    row = sku("A3 Instance Core running in Americas", 7)
    later = sku("A3 Instance Core running in Americas", 9)["pricingInfo"][0]
    row["pricingInfo"].append({**later, "effectiveTime": "2099-01-01T00:00:00Z"})
    assert rate(CORE, row) == 7
    row["pricingInfo"].reverse()
    assert rate(CORE, row) == 7


@pytest.mark.parametrize("row", [None, 7, {}, {"skuId": "1", "category": None}, {"skuId": "1", "description": "A3"}])
def test_a_sku_that_says_nothing_is_named_everywhere(row: Any) -> None:
    found = table(row, sku("A3 Instance Core running in Americas", 7))
    assert found.rate(CORE, Market.ON_DEMAND, "us-central1") == 7
    assert [d.why for d in found.dropped("europe-west4")] == ["a SKU that cannot be read"]
