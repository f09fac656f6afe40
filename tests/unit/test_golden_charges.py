"""The golden month adds up to what its head says, by hand."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

from tests.support.golden_charges import golden_charges, of_job

CHARGES = golden_charges()


def test_billed_by_issuer_and_currency() -> None:
    found: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for each in CHARGES:
        found[each.invoice_issuer_name, each.billing_currency] += each.billed_cost
    assert found == {
        ("AWS", "USD"): Decimal("646.3"),
        ("Google Cloud", "USD"): Decimal("516.5"),
        ("Nebius", "EUR"): Decimal("215.985"),
    }


def test_billed_and_effective_by_team() -> None:
    billed: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    effective: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for each in CHARGES:
        team = str({**(each.tags or {}), **(each.allocated_tags or {})}.get("team", "nobody"))
        billed[team, each.billing_currency] += each.billed_cost
        effective[team, each.billing_currency] += each.effective_cost
    assert billed == effective
    assert billed == {
        ("speech", "USD"): Decimal("464.4666667"),
        ("speech", "EUR"): Decimal("181.5"),
        ("vision", "USD"): Decimal("276.66666665"),
        ("search", "USD"): Decimal("402.66666665"),
        ("nobody", "USD"): Decimal(19),
        ("nobody", "EUR"): Decimal("34.485"),
    }


def test_waste_by_kind() -> None:
    found: dict[str, Decimal] = defaultdict(Decimal)
    for each in CHARGES:
        if each.x_waste_kind is not None:
            assert each.billing_currency == "USD"
            found[each.x_waste_kind] += each.effective_cost
    assert found == {
        "startup": 35,
        "checkpoint_overhead": 35,
        "restart_lost_work": Decimal("37.5"),
        "failed_launch": Decimal("2.5"),
        "idle_allocated": 100,
        "overrun": 25,
        "commitment_unused": 30,
        "reservation_unused": 120,
    }
    assert sum(found.values()) == 385


def test_the_job_that_lost_its_gang_three_times() -> None:
    nodes = [each for each in of_job(CHARGES, "whisper-ft") if each.x_gpu_hours is not None]
    by_attempt: dict[str | None, Decimal] = defaultdict(Decimal)
    for each in nodes:
        by_attempt[each.x_attempt] += each.effective_cost
    assert by_attempt == {"0": Decimal("2.5"), "1": 80, "2": 60, "3": 125, "4": 150}
    assert sum(each.x_gpu_hours or 0 for each in nodes) == Decimal("120.8")
    assert sum(each.x_useful_units or 0 for each in nodes) == 10750
    spot = [each for each in nodes if each.pricing_category == "Dynamic"]
    assert sum(each.effective_cost for each in spot) == Decimal("267.5")
    assert sum(each.x_on_demand_equivalent_cost or 0 for each in spot) == 656


def test_what_a_unit_costs() -> None:
    tts = of_job(CHARGES, "tts")
    assert (sum(each.effective_cost for each in tts), sum(each.x_useful_units or 0 for each in tts)) == (180, 3600)
    rank = [each for each in of_job(CHARGES, "rank") if each.pricing_category == "Dynamic"]
    assert (sum(each.effective_cost for each in rank), sum(each.x_useful_units or 0 for each in rank)) == (
        125,
        5_000_000,
    )


def test_list_prices_and_the_commitment() -> None:
    aws = [each for each in CHARGES if each.invoice_issuer_name == "AWS"]
    assert sum(each.list_cost for each in aws) == Decimal("826.3")
    covered = [each for each in aws if each.commitment_discount_id is not None]
    assert sum(each.billed_cost for each in covered) == sum(each.effective_cost for each in covered) == 120


def test_parts_are_the_whole() -> None:
    for origin in ("i-s1/08T00:00", "i-s1/08T01:00"):
        parts = [each for each in CHARGES if each.x_split_origin_id == origin]
        assert [each.x_split_origin_cost for each in parts] == [Decimal(50)] * 3
        assert sum(each.billed_cost for each in parts) == sum((each.pricing_quantity or 0) * 50 for each in parts) == 50
