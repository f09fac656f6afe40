"""What the ledger says as charges: a month whose figures were worked out by hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing.money import Usd
from pricing.places import Market
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.showback.accounts import UNKNOWN, Showback
from router.showback.focus_from_ledger import ClosedBooks, UnpricedEntries, charges_of_entries
from tests.support.metered_month import ACCOUNTS, NOVEMBER, OCTOBER, START, month
from tests.support.state_values import HOUR, entry

ENTRIES = month()
CHARGES: tuple[Any, ...] = tuple(charges_of_entries(ENTRIES, ACCOUNTS, ClosedBooks(closed=OCTOBER)))


def of(**wanted: Any) -> list[Any]:
    return [one for one in CHARGES if all(getattr(one, name) == value for name, value in wanted.items())]


def one_of(given: LedgerEntry, books: ClosedBooks | None = None) -> Any:
    (found,) = charges_of_entries([given], ACCOUNTS, books or ClosedBooks())
    return found


def test_a_spot_machine_by_what_its_time_went_into() -> None:
    found = of(resource_id="i-spot-0")
    assert [(one.x_waste_kind, one.billed_cost, one.x_on_demand_equivalent_cost) for one in found] == [
        ("startup", 12, 30),
        (None, 144, 360),
        ("checkpoint_overhead", 12, 30),
        ("restart_lost_work", 24, 60),
    ]
    assert {one.pricing_category for one in found} == {"Dynamic"}
    # A spot price is its own list price: what it saved is seen against the on-demand equivalent alone.
    assert {(one.list_unit_price, one.contracted_unit_price) for one in found} == {(24, 24)}
    assert sum(one.list_cost for one in found) == sum(one.billed_cost for one in found) == 192
    work = found[1]
    assert (work.pricing_quantity, work.pricing_unit, work.consumed_quantity, work.x_gpu_hours) == (6, "Hours", 6, 48)
    assert (work.x_useful_units, work.x_useful_unit) == (5000, "Steps")
    assert {one.x_useful_units for one in (*found[:1], *found[2:])} == {None}
    assert (work.charge_period_start, work.charge_period_end) == (START + HOUR / 2, START + 6.5 * HOUR)
    assert (work.resource_name, work.resource_type, work.availability_zone) == ("spot-0", "Instance", "us-east-1a")
    assert (work.region_id, work.region_name) == ("us-east-1", "US East (N. Virginia)")
    assert work.tags == {"team": "speech", "project": "asr", "cost_center": "cc-7", "job": "whisper"}
    assert (work.x_job_id, work.x_attempt, work.x_record_state) == ("whisper", "spot", "Estimated")
    assert (work.x_price_observed_at, work.x_price_source) == (
        datetime(2026, 11, 2, tzinfo=UTC),
        "price book 3f2a90c1",
    )
    assert work.sku_price_details == {"InstanceType": "p5.48xlarge", "GpuCount": 8, "x_GpuModel": "H100"}
    assert (work.service_provider_name, work.host_provider_name, work.invoice_issuer_name) == ("AWS",) * 3
    assert (work.service_name, work.sub_account_id) == ("Amazon EC2", "000044445555")


def test_on_demand_at_a_discount_and_a_reservation_have_list_prices() -> None:
    (later,) = of(resource_id="i-later-0")
    assert (later.pricing_category, later.billed_cost, later.contracted_cost, later.list_cost) == (
        "Standard",
        162,
        162,
        180,
    )
    (kept,) = of(resource_id="i-kept-0")
    assert (kept.pricing_category, kept.billed_cost, kept.effective_cost, kept.list_cost) == ("Other", 0, 0, 180)
    assert kept.x_on_demand_equivalent_cost == 180


def test_a_launch_that_failed_costs_what_was_billed() -> None:
    (failed,) = of(x_waste_kind="failed_launch")
    assert (failed.billed_cost, failed.pricing_quantity) == (Decimal("2.5"), Decimal("0.1"))
    assert (failed.service_provider_name, failed.service_name) == ("Google Cloud", "Machines")


def test_what_was_copied() -> None:
    (copied,) = of(service_category="Networking")
    assert (copied.billed_cost, copied.pricing_quantity, copied.pricing_unit) == (
        Decimal("0.225"),
        Decimal("2.5"),
        "GB",
    )
    assert (copied.list_unit_price, copied.service_name) == (Decimal("0.09"), "AWS Data Transfer")
    assert (copied.resource_id, copied.charge_description) == ("s3://east", "copied s3://east -> gs://west")
    assert copied.x_gpu_hours is None


def test_what_people_added() -> None:
    said = {one.charge_description: one for one in CHARGES if one.charge_category != "Usage"}
    assert {name: (one.charge_category, one.charge_class, one.billed_cost) for name, one in said.items()} == {
        "support": ("Purchase", None, 15),
        "block was idle": ("Purchase", None, 800),
        "promised": ("Credit", None, -50),
        "VAT": ("Tax", None, 36),
        "rounding": ("Adjustment", None, -1),
        "October was too dear": ("Credit", "Correction", -10),
    }
    for one in said.values():
        assert len({one.billed_cost, one.effective_cost, one.list_cost, one.contracted_cost}) == 1
        assert one.charge_frequency == "One-Time"
        assert (one.billing_period_start, one.billing_period_end) == (NOVEMBER.begins, NOVEMBER.ends)
    for name in ("promised", "VAT", "rounding"):
        assert (said[name].pricing_category, said[name].list_unit_price, said[name].pricing_quantity) == (None,) * 3
    idle = said["block was idle"]
    assert (idle.x_waste_kind, idle.tags, idle.consumed_quantity) == ("reservation_unused", {"team": "vision"}, None)
    # 800 / 168 has no last digit: the amount is exact, and the quantity is one.
    assert (idle.pricing_quantity, idle.pricing_unit, idle.list_unit_price) == (1, "Units", 800)
    assert said["October was too dear"].charge_period_start == OCTOBER.begins
    assert said["rounding"].service_provider_name == UNKNOWN


def test_a_quantity_that_divides_is_kept() -> None:
    fee = next(one for one in ENTRIES if one.key == "block was idle")
    charge = one_of(replace(fee, quantity=Fraction(160)))
    assert (charge.pricing_quantity, charge.pricing_unit, charge.list_unit_price) == (160, "Hours", 5)
    back = one_of(replace(fee, quantity=Fraction(160), usd=Usd.parse("-800"), corrects="support"))
    assert (back.billed_cost, back.pricing_quantity, back.list_unit_price) == (-800, -160, 5)


def test_what_was_metered_late_corrects_a_closed_month() -> None:
    (late,) = of(resource_id="i-late-0")
    assert (late.charge_class, late.billed_cost) == ("Correction", 24)
    assert late.billing_period_start == NOVEMBER.begins
    assert late.charge_period_start == OCTOBER.ends - 2 * HOUR


@pytest.mark.parametrize(
    ("corrects", "books", "is_one"),
    [
        ("", ClosedBooks(closed=OCTOBER), False),
        ("2026-10", ClosedBooks(closed=OCTOBER), True),
        ("support", ClosedBooks(closed=OCTOBER, months={"support": OCTOBER}), True),
        ("support", ClosedBooks(closed=OCTOBER, months={"support": NOVEMBER}), False),  # of the month that is open
        ("support", ClosedBooks(closed=NOVEMBER, months={"support": NOVEMBER}), False),  # and was open when it was made
        ("support", ClosedBooks(closed=Month(2026, 9), months={"support": OCTOBER}), False),  # nobody closed October
        ("support", ClosedBooks(), False),
    ],
)
def test_only_a_change_of_a_closed_month_is_a_correction(corrects: str, books: ClosedBooks, is_one: bool) -> None:
    credit = next(one for one in ENTRIES if one.key == "promised")
    assert (one_of(replace(credit, corrects=corrects), books).charge_class == "Correction") is is_one


def test_what_has_no_price_is_no_charge_and_is_counted() -> None:
    left = UnpricedEntries()
    assert len(list(charges_of_entries(ENTRIES, ACCOUNTS, ClosedBooks(), left))) == len(CHARGES) == len(ENTRIES) - 2
    assert left.entries == {(CostItem.DISK, "GiB-Hours"): 2}
    assert left.quantities == {(CostItem.DISK, "GiB-Hours"): 1600}


def test_what_was_planned_is_no_charge() -> None:
    planned = entry(kind=LedgerEntryKind.PLANNED, attempt="", rank=None)
    assert list(charges_of_entries([planned], ACCOUNTS)) == []


def test_a_third_of_an_hour_keeps_its_money() -> None:
    """20 minutes at 27.52: 9.173333333 in the ledger, 27.52 x 0.333333333333333 as FOCUS has it."""
    charge = one_of(entry(quantity=Fraction(1, 3), end=START + HOUR / 3, start=START, usd=Usd.parse("9.173333333")))
    assert (charge.billed_cost, charge.effective_cost) == (Decimal("9.173333333"),) * 2
    assert charge.pricing_quantity == Decimal("0.333333333333333")
    assert charge.contracted_cost == charge.list_cost == Decimal("9.17333333333332416")


def test_what_is_not_known_stays_unknown() -> None:
    charge = one_of(entry(steps=0, use=None, market=Market.ON_DEMAND))
    assert (charge.x_on_demand_equivalent_cost, charge.x_useful_units, charge.x_useful_unit) == (None,) * 3
    assert (charge.resource_id, charge.resource_name, charge.resource_type) == (None,) * 3
    assert (charge.x_price_source, charge.x_price_observed_at, charge.x_waste_kind) == (None,) * 3
    assert one_of(entry(price_as_of="undated", price_source="a list")).x_price_observed_at is None
    (nowhere,) = charges_of_entries([entry(cloud="moon")], Showback())
    assert (nowhere.billing_account_id, nowhere.service_provider_name) == (UNKNOWN, "moon")


def test_a_row_of_before_prices_were_metered() -> None:
    charge = one_of(entry(usd_per_hour=None))
    assert (charge.billed_cost, charge.list_cost, charge.pricing_quantity) == (Decimal("27.52"),) * 2 + (1,)
    assert charge.list_unit_price == Decimal("27.52")


def test_sums_by_team_are_the_months() -> None:
    """speech 384 + 162 + 0.225 + 24, vision 2.5 + 800, nobody 15 - 50 + 36 - 1 - 10."""
    found: dict[str, Decimal] = defaultdict(Decimal)
    for charge in CHARGES:
        found[str((charge.tags or {}).get("team", "nobody"))] += charge.billed_cost
    assert found == {"speech": Decimal("570.225"), "vision": Decimal("802.5"), "nobody": -10}
    waste: dict[str, Decimal] = defaultdict(Decimal)
    for charge in CHARGES:
        if charge.x_waste_kind:
            waste[charge.x_waste_kind] += charge.effective_cost
    assert waste == {
        "startup": 24,
        "checkpoint_overhead": 24,
        "restart_lost_work": 48,
        "failed_launch": Decimal("2.5"),
        "reservation_unused": 800,
    }
    assert set(waste) <= {use.value for use in MachineUse}
