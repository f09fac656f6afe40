"""Amounts and charges split by weights: parts worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from router.showback.apportion import ChargeShare, exact_sum, split_amount, split_charge, weight_ratios
from router.showback.focus.charge import Charge
from router.showback.focus.charge_files import write_csv
from router.showback.focus.survey import check_file
from tests.support.golden_charges import golden_charges, of_job


def amounts(*texts: str) -> tuple[Decimal, ...]:
    return tuple(Decimal(text) for text in texts)


@pytest.mark.parametrize(
    ("total", "weights", "places", "parts"),
    [
        ("100", [1, 1, 1], 2, ("33.34", "33.33", "33.33")),
        ("-100", [1, 1, 1], 2, ("-33.34", "-33.33", "-33.33")),
        ("0.02", [1, 1, 1], 2, ("0.01", "0.01", "0")),
        ("0.05", [1, 2, 1], 2, ("0.01", "0.03", "0.01")),  # 0.0125, 0.025, 0.0125
        ("10", [0, 1, 3], 1, ("0", "2.5", "7.5")),
        ("7", [0, 0], 0, ("4", "3")),  # nobody weighs anything: even, and nothing is dropped
        ("1.2345", [1, 1], 2, ("0.6173", "0.6172")),  # at the scale of the total, where that is finer
        ("0", [5, 1], 2, ("0", "0")),
        ("8", [Fraction(1, 3), Decimal("0.5")], 1, ("3.2", "4.8")),
    ],
)
def test_parts(total: str, weights: list[int | Fraction | Decimal], places: int, parts: tuple[str, ...]) -> None:
    found = split_amount(Decimal(total), weights, places)
    assert found == amounts(*parts)
    assert sum(found) == Decimal(total)


@pytest.mark.parametrize("weights", [[], [1, -1], [Decimal("-0.1")]])
def test_weights_that_are_none(weights: list[int | Decimal]) -> None:
    with pytest.raises(ValueError, match="none of them below zero"):
        split_amount(Decimal(1), weights, 2)


def test_many_digits_are_not_cut() -> None:
    # The usual context of decimals keeps 28.
    total = Decimal("12345678901234.123456789012345678901234")
    one, other = split_amount(total, [1, 1], 2)
    assert Fraction(one) + Fraction(other) == Fraction(total)
    assert one - other <= Decimal("1e-24")


def test_ratios_are_one() -> None:
    assert weight_ratios([1, 1, 1], 9) == amounts("0.333333334", "0.333333333", "0.333333333")
    assert weight_ratios([0, 0]) == amounts("0.5", "0.5")


def test_a_shared_node() -> None:
    """An hour of a node at 50 dollars, used for 2,160 and 1,080 and 360 seconds: the golden month's charge 35 and its
    neighbours, made from the whole."""
    part = next(
        c for c in golden_charges() if c.x_split_origin_id == "i-s1/08T00:00" and c.pricing_quantity is not None
    )
    node = whole_of(part)
    shares = [
        ChargeShare(resource=job, weight=seconds, unit="Seconds", tags={"job": job, "owner": "somebody"})
        for job, seconds in (("a", 2160), ("b", 1080), ("c", 360))
    ]
    parts = split_charge(node, shares, "gpu-seconds-v1", "i-s1/1")
    assert [part.billed_cost for part in parts] == [30, 15, 5]
    assert [part.list_cost for part in parts] == [30, 15, 5]
    assert [part.pricing_quantity for part in parts] == list(amounts("0.6", "0.3", "0.1"))
    assert [part.consumed_quantity for part in parts] == list(amounts("0.6", "0.3", "0.1"))
    assert [part.x_gpu_hours for part in parts] == list(amounts("4.8", "2.4", "0.8"))
    assert [part.x_on_demand_equivalent_cost for part in parts] == [30, 15, 5]
    assert {part.list_unit_price for part in parts} == {Decimal(50)}
    assert {part.resource_id for part in parts} == {"i-s1"}
    assert [part.allocated_resource_id for part in parts] == ["a", "b", "c"]
    assert parts[0].allocated_method_details == {
        "Elements": [{"AllocatedRatio": Decimal("0.6"), "UsageUnit": "Seconds", "UsageQuantity": Decimal(2160)}]
    }
    # The origin's tags win: all its keys and values have to be there.
    assert parts[0].tags == {"owner": "platform"}
    assert parts[0].allocated_tags == {"job": "a", "owner": "platform"}
    assert {(part.x_split_origin_id, part.x_split_origin_cost) for part in parts} == {("i-s1/1", Decimal(50))}


def test_a_part_is_not_split_again() -> None:
    part = next(c for c in golden_charges() if c.x_split_origin_id is not None)
    with pytest.raises(ValueError, match="already"):
        split_charge(part, [ChargeShare(resource="a", weight=1, unit="Seconds", tags={})], "gpu-seconds-v1", "x")


def test_what_is_not_there_stays_so() -> None:
    credit = next(c for c in golden_charges() if c.charge_category == "Credit")
    parts = split_charge(
        credit, [ChargeShare(resource=n, weight=0, unit="Seconds", tags={}) for n in "ab"], "even-v1", "c"
    )
    assert [part.billed_cost for part in parts] == [-25, -25]
    assert [part.effective_cost for part in parts] == [-25, -25]
    assert [part.pricing_quantity for part in parts] == [None, None]


def test_a_cost_of_its_own_splits_by_itself() -> None:
    """Usage that a commitment covers: billed 0, effective 30, list 50."""
    used = next(c for c in of_job(golden_charges(), "vit-l") if c.commitment_discount_status == "Used")
    parts = split_charge(
        used, [ChargeShare(resource=n, weight=1, unit="Seconds", tags={}) for n in "abc"], "even-v1", "u"
    )
    assert [part.billed_cost for part in parts] == [0, 0, 0]
    assert [part.effective_cost for part in parts] == [10, 10, 10]
    assert all(part.list_cost == part.list_unit_price * part.pricing_quantity for part in parts)  # type: ignore[operator]
    assert sum(part.list_cost for part in parts) == 50
    assert [part.commitment_discount_quantity for part in parts] == [10, 10, 10]


def test_parts_of_a_dear_charge_keep_every_rule(tmp_path: Path) -> None:
    """More digits than the usual context of decimals keeps, and thirds."""
    part = next(c for c in golden_charges() if c.x_split_origin_id is not None)
    price, hours = Decimal("1234567.123456789"), Decimal("719.123456789012")
    cost = Decimal("887806177.458313047555672002468")
    node = replace(
        whole_of(part),
        list_unit_price=price,
        contracted_unit_price=price,
        pricing_quantity=hours,
        pricing_currency_list_unit_price=price,
        pricing_currency_contracted_unit_price=price,
        billed_cost=cost,
        effective_cost=cost,
        list_cost=cost,
        contracted_cost=cost,
        pricing_currency_effective_cost=cost,
    )
    shares = [ChargeShare(resource=name, weight=1, unit="Seconds", tags={"job": name}) for name in "abcdefg"]
    parts = split_charge(node, shares, "even-v1", "node/1")
    assert exact_sum(part.billed_cost for part in parts) == cost
    write_csv(tmp_path / "parts.csv", parts)
    assert check_file(tmp_path / "parts.csv").counts == {}


def whole_of(part: Charge) -> Charge:
    hour = Decimal(1)
    return replace(
        part,
        billed_cost=Decimal(50),
        effective_cost=Decimal(50),
        list_cost=Decimal(50),
        contracted_cost=Decimal(50),
        pricing_quantity=hour,
        consumed_quantity=hour,
        x_gpu_hours=Decimal(8),
        x_on_demand_equivalent_cost=Decimal(50),
        pricing_currency_effective_cost=Decimal(50),
        allocated_method_id=None,
        allocated_method_details=None,
        allocated_resource_id=None,
        allocated_resource_name=None,
        allocated_tags=None,
        x_split_origin_id=None,
        x_split_origin_cost=None,
    )
