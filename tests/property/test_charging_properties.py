"""The rules that a ledger of charges keeps (1 to 9 but 4, on split charges), for whatever was metered and added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.controller.history.metering import TrainingRecord, disk_entries, metered_entries, transfer_entries
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse, book_entry
from router.ledger.month import Month
from router.showback.accounts import Showback
from router.showback.apportion import exact_sum
from router.showback.focus.charge_files import write_csv
from router.showback.focus.columns import Charge
from router.showback.focus.survey import check_file
from router.showback.focus_from_ledger import ClosedBooks, UnpricedEntries, charges_of_entries
from router.state.records import Attempt, JournalEntry, NodeRecord
from tests.support.state_values import attempt, node

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
LATER = datetime(2026, 12, 1, tzinfo=UTC)
_FROM = datetime(2026, 10, 25, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY = 86_400 * 10**6

_MOMENTS = st.integers(0, 30 * _DAY).map(lambda ticks: _FROM + timedelta(microseconds=ticks))
_LENGTHS = st.integers(1, 3 * _DAY).map(lambda ticks: timedelta(microseconds=ticks))
_RATES = st.integers(0, 200 * 10**9).map(UsdPerHour)
_WORDS = st.sampled_from(["research", "speech", "=cmd", "ö☃", "-x"])
_PLACES = st.sampled_from([("aws", "us-east-1"), ("gcp", "us-central1")])
_COURSES = st.builds(
    TrainingRecord,
    met_at=st.none() | _MOMENTS,
    ended_at=st.none() | _MOMENTS,
    finished=st.booleans(),
    told=st.booleans(),
    first_step=st.just(0),
    last_step=st.integers(0, 10**6),
    kept_step=st.integers(0, 10**6),
    step_seconds=st.none() | st.floats(0.001, 100),
    saving=st.integers(0, 10**4).map(lambda s: s * _SECOND),
    deadline=st.none() | _MOMENTS,
)


@st.composite
def lives(draw: st.DrawFn, number: int) -> list[LedgerEntry]:
    """All that one attempt leaves behind: machines, disks, what was copied to it."""
    cloud, region = draw(_PLACES)
    name = f"a{number}"
    begun = draw(_MOMENTS)
    machines = [_machine(draw, name, rank, begun) for rank in range(draw(st.integers(1, 2)))]
    of: Attempt = attempt(
        name,
        cloud=cloud,
        region=region,
        team=draw(_WORDS),
        project=draw(st.none() | _WORDS),
        job=draw(_WORDS),
        cost_center=draw(st.none() | _WORDS),
        kept_step=draw(st.none() | st.integers(0, 10**6)),
        last_step=draw(st.none() | st.integers(10**6, 10**7)),
    )
    journal = [_copied(draw, name, begun)] if draw(st.booleans()) else []
    return [
        *metered_entries(of, machines, LATER, draw(_COURSES)),
        *disk_entries(of, machines, draw(st.none() | st.integers(1, 500)), LATER),
        *transfer_entries(of, journal, LATER),
    ]


def _machine(draw: st.DrawFn, name: str, rank: int, begun: datetime) -> NodeRecord:
    made = begun + draw(_LENGTHS)
    return node(
        name,
        rank,
        machine_id=draw(st.none() | st.just(f"i-{name}-{rank}")),
        market=draw(st.sampled_from(Market)),
        usd_per_hour=draw(_RATES),
        on_demand_usd_per_hour=draw(st.none() | _RATES),
        accelerators=draw(st.sampled_from([0, 1, 8])),
        made_at=made,
        gone_at=draw(st.none() | _LENGTHS.map(made.__add__)),
        price_source=draw(st.sampled_from(["", "book"])),
        price_as_of=draw(st.sampled_from(["", "undated", "2026-10-20"])),
    )


def _copied(draw: st.DrawFn, name: str, at: datetime) -> JournalEntry:
    usd = draw(st.none() | st.integers(0, 10**12).map(lambda nanos: str(Usd(nanos))))
    details: dict[str, object] = {
        "from": f"s3://{name}",
        "to": "gs://b",
        "origin": "aws/us-east-1",
        "bytes": draw(st.integers(1, 10**13)),
        "seconds": 7.5,
        "usd": usd,
    }
    return JournalEntry(1, at, name, "copied", details)


@st.composite
def added(draw: st.DrawFn, number: int) -> LedgerEntry:
    """Entries that a person adds, in the books of October or November."""
    kind = draw(
        st.sampled_from([LedgerEntryKind.FEE, LedgerEntryKind.CREDIT, LedgerEntryKind.TAX, LedgerEntryKind.ADJUSTMENT])
    )
    month = draw(st.sampled_from([OCTOBER, NOVEMBER]))
    nanos = draw(st.integers(-(10**12), 10**12))
    usd = {LedgerEntryKind.FEE: abs(nanos), LedgerEntryKind.CREDIT: -abs(nanos)}.get(kind, nanos)
    known = draw(st.booleans())
    fields: dict[str, Any] = {
        "what": draw(st.sampled_from(CostItem)),
        "use": draw(st.sampled_from([None, MachineUse.RESERVATION_UNUSED])),
        "quantity": Fraction(draw(st.integers(0, 10**9)), 1000) if known else Fraction(0),
        "unit": draw(st.sampled_from(["Hours", "Months", "7"])) if known else "",
        "cloud": draw(st.sampled_from(["", "aws"])),
        "team": draw(st.just("") | _WORDS),
        "machines": draw(st.integers(1, 3)),
    }
    return LedgerEntry(
        key=f"added {number}",
        kind=kind,
        recorded_at=LATER,
        period=month,
        start=month.begins,
        end=month.ends,
        usd=Usd(usd),
        who="anna",
        reason=draw(_WORDS),
        **fields,
    )


@st.composite
def ledgers(draw: st.DrawFn) -> list[LedgerEntry]:
    """Entries as they are appended: some of October, which is open still."""
    found = [one for number in range(draw(st.integers(0, 4))) for one in draw(lives(number))]
    found += [draw(added(number)) for number in range(draw(st.integers(0, 3)))]
    return found


def after_closing(entries: Iterable[LedgerEntry], closed: Month) -> list[LedgerEntry]:
    """The same entries as they would be booked once books up to ``closed`` are closed. Metered ones alone."""
    late = (
        replace(one, key=f"late {one.key}", recorded_at=LATER) for one in entries if one.kind is LedgerEntryKind.METERED
    )
    return [book_entry(one, closed) for one in late]


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
