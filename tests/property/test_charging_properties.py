"""The rules that a ledger of charges keeps (1 to 9 but 4, on split charges), for whatever was metered and added."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings

from pricing.money import Usd
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind
from router.showback.accounts import Showback
from router.showback.apportion import exact_sum
from router.showback.focus.charge_files import write_csv
from router.showback.focus.columns import Charge
from router.showback.focus.survey import check_file
from router.showback.focus_from_ledger import ClosedBooks, UnpricedEntries, charges_of_entries
from tests.support.made_up_ledger import OCTOBER, after_closing, ledgers

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ACCOUNTS, OPEN = Showback(), ClosedBooks()
PRICED = {"Usage", "Purchase"}


def made(entries: list[LedgerEntry], books: ClosedBooks = OPEN, left: UnpricedEntries | None = None) -> list[Charge]:
    return list(charges_of_entries(entries, ACCOUNTS, books, left))


def product(price: Decimal | None, quantity: Decimal | None) -> Fraction:
    assert price is not None
    assert quantity is not None
    return Fraction(price) * Fraction(quantity)


@FEW
@given(ledgers())
def test_one_costs_are_price_times_quantity(entries: list[LedgerEntry]) -> None:
    for charge in made(entries):
        if charge.list_unit_price is not None:
            assert Fraction(charge.list_cost) == product(charge.list_unit_price, charge.pricing_quantity)
            assert Fraction(charge.contracted_cost) == product(charge.contracted_unit_price, charge.pricing_quantity)
        if charge.charge_category in PRICED:
            # The money is the ledger's; what price and quantity make of it is as near as their digits allow.
            assert abs(charge.contracted_cost - charge.billed_cost) < Decimal("2e-9") + abs(charge.billed_cost) / 10**9


@FEW
@given(ledgers())
def test_two_and_three_what_is_billed_is_what_it_costs(entries: list[LedgerEntry]) -> None:
    found = made(entries)
    # Nothing of ours is covered: no purchase, nothing used or unused.
    assert {(charge.billing_currency, charge.commitment_discount_id) for charge in found} <= {("USD", None)}
    billed, effective = exact_sum(c.billed_cost for c in found), exact_sum(c.effective_cost for c in found)
    priced = [one.usd for one in entries if one.kind is not LedgerEntryKind.PLANNED and not one.unpriced]
    assert billed == effective == Decimal(Usd.total(priced).nanos).scaleb(-9)


@FEW
@given(ledgers())
def test_five_taxes_have_no_prices_and_credits_one_cost(entries: list[LedgerEntry]) -> None:
    for charge in made(entries):
        costs = {charge.billed_cost, charge.effective_cost, charge.list_cost, charge.contracted_cost}
        if charge.charge_category not in PRICED:
            assert len(costs) == 1
            assert {charge.list_unit_price, charge.pricing_quantity, charge.sku_id, charge.pricing_category} == {None}
        else:
            assert charge.pricing_quantity is not None


@FEW
@given(ledgers())
def test_six_every_moment_of_a_machine_is_in_one_charge(entries: list[LedgerEntry]) -> None:
    lives: dict[tuple[str, int | None], list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        if entry.kind is LedgerEntryKind.METERED and entry.what is CostItem.MACHINE:
            lives[entry.attempt, entry.rank].append(entry)
    for life in lives.values():
        found = sorted(made(life), key=lambda charge: charge.charge_period_start)
        assert all(one.charge_period_end == next_.charge_period_start for one, next_ in pairwise(found))
        assert {charge.billing_period_start <= charge.charge_period_start for charge in found} <= {True}
        assert {charge.charge_period_end <= charge.billing_period_end for charge in found} <= {True}
        whole = found[-1].charge_period_end - found[0].charge_period_start
        hours = sum((Fraction(charge.pricing_quantity or 0) for charge in found), Fraction(0))
        assert abs(hours - Fraction(whole // timedelta(microseconds=1), 3_600_000_000)) < Fraction(1, 10**14)


@FEW
@given(ledgers())
def test_seven_any_grouping_adds_up_to_all(entries: list[LedgerEntry]) -> None:
    found = made(entries)
    total = exact_sum(charge.billed_cost for charge in found)
    for key in ("service_provider_name", "x_job_id", "charge_category", "x_waste_kind", "billing_period_start"):
        groups: dict[object, list[Decimal]] = defaultdict(list)
        for charge in found:
            groups[getattr(charge, key)].append(charge.billed_cost)
        assert exact_sum(exact_sum(group) for group in groups.values()) == total


@FEW
@given(ledgers())
def test_eight_a_closed_month_stays_and_what_comes_late_corrects_it(entries: list[LedgerEntry]) -> None:
    before = [charge for charge in made(entries) if charge.billing_period_start == OCTOBER.begins]
    late = after_closing(entries, OCTOBER)
    after = made([*entries, *late], ClosedBooks(closed=OCTOBER))
    assert [charge for charge in after if charge.billing_period_start == OCTOBER.begins] == before
    of_october = [entry for entry in late if entry.corrects and not entry.unpriced]
    corrections = [charge for charge in after if charge.charge_class == "Correction"]
    assert len(corrections) == len(of_october)
    assert {charge.billing_period_start >= OCTOBER.ends for charge in corrections} <= {True}
    assert {charge.charge_period_start < OCTOBER.ends for charge in corrections} <= {True}


@FEW
@given(ledgers())
def test_nine_the_same_entries_are_the_same_file_and_it_keeps_every_rule(entries: list[LedgerEntry]) -> None:
    left = UnpricedEntries()
    # Of a month that is open there is nothing to correct: a second entry for the same hour bills it twice.
    late = [entry for entry in after_closing(entries, OCTOBER) if entry.corrects]
    found = made([*entries, *late], ClosedBooks(closed=OCTOBER), left)
    with TemporaryDirectory() as folder:
        one, other = Path(folder) / "one.csv", Path(folder) / "other.csv"
        assert write_csv(one, found) == write_csv(other, list(found)) == len(found)
        assert one.read_bytes() == other.read_bytes()
        checked = check_file(one, OCTOBER.ends)
    assert [(finding.rule, finding.column, finding.value) for finding in checked.findings] == []
    unpriced = [one for one in (*entries, *late) if one.unpriced]
    assert sum(left.entries.values()) == len(unpriced)
    assert sum(left.quantities.values()) == sum(one.quantity for one in unpriced)
