"""What an entry of the ledger refuses to say, and which month of the books it goes into once some are closed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from router.ledger.entry import ClosedError, CostItem, LedgerEntryKind, MachineUse, book_entry
from router.ledger.month import Month
from tests.support.state_values import HOUR, NOW, entry

_THERE = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"start": NOW.astimezone(_THERE)}, "start is not in UTC"),
        ({"end": (NOW + HOUR).replace(tzinfo=None)}, "end is not in UTC"),
        ({"recorded_at": NOW.replace(tzinfo=None)}, "recorded_at is not in UTC"),
        ({"end": NOW}, "ends when it begins"),
        ({"end": NOW - HOUR}, "ends when it begins"),
        ({"quantity": Fraction(-1, 10)}, "never negative"),
        ({"usd_per_hour": UsdPerHour(-1)}, "never negative"),
        ({"usd": Usd(-1)}, "never negative"),
        ({"machines": -1}, "never negative"),
        ({"kind": LedgerEntryKind.PLANNED, "machines": 0}, "of at least one"),
        ({"attempt": ""}, "something of an attempt"),
        ({"what": CostItem.EGRESS, "attempt": ""}, "something of an attempt"),
        ({"period": Month(2026, 12)}, "in the books of 2026-12 without correcting"),
        ({"unpriced": True}, "no price is known, but there is an amount"),
        ({"kind": LedgerEntryKind.CREDIT, "who": "anna", "reason": "won"}, "a credit is not above zero"),
        ({"kind": LedgerEntryKind.FEE, "who": "anna"}, "who added it and why"),
        ({"kind": LedgerEntryKind.FEE, "reason": "support"}, "who added it and why"),
        ({"rank": None}, "one machine of an attempt"),
        ({"machines": 2}, "one machine of an attempt"),
    ],
)
def test_it_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"k1: .*{why}"):
        entry(**change)


def test_a_planned_one_may_be_about_a_gang() -> None:
    assert entry(kind=LedgerEntryKind.PLANNED, attempt="", rank=None, machines=16).machines == 16


def test_what_may_be_below_zero() -> None:
    said: dict[str, Any] = {"who": "anna", "reason": "as agreed", "usd": Usd(-5)}
    for kind in (LedgerEntryKind.CREDIT, LedgerEntryKind.TAX, LedgerEntryKind.ADJUSTMENT):
        assert entry(kind=kind, **said).usd == Usd(-5)
    assert entry(kind=LedgerEntryKind.FEE, corrects="k0", **said).usd == Usd(-5)


def test_egress_is_of_no_single_machine() -> None:
    one = entry(what=CostItem.EGRESS, rank=None, machines=0, unit="GB")
    assert one.hours == 0
    assert entry(quantity=Fraction(1, 2), machines=1).hours == Fraction(1, 2)
    assert entry(kind=LedgerEntryKind.PLANNED, quantity=Fraction(1, 2), machines=4).hours == 2


@given(st.integers(-(10**18), 10**18), st.lists(st.integers(-(10**9), 2 * 10**10), max_size=5), st.integers(1, 10**10))
def test_parts_of_the_time_add_up_to_the_money(nanos: int, cuts: list[int], length: int) -> None:
    one = entry(
        kind=LedgerEntryKind.ADJUSTMENT,
        who="anna",
        reason="r",
        usd=Usd(nanos),
        end=NOW + timedelta(microseconds=length),
    )
    moments = sorted([one.start, *(NOW + timedelta(microseconds=us) for us in cuts), one.end])
    ends = [one.usd_until(moment) for moment in moments]
    assert Usd.total(b - a for a, b in pairwise(ends)) == one.usd - one.usd_until(moments[0])
    assert (one.usd_until(one.start - HOUR), one.usd_until(one.end + HOUR)) == (Usd(0), one.usd)


def test_the_part_of_a_month() -> None:
    over = entry(start=datetime(2026, 10, 31, 23, tzinfo=UTC), end=datetime(2026, 11, 1, 3, tzinfo=UTC), usd=Usd(8))
    assert [over.usd_in(Month(2026, month)).nanos for month in (9, 10, 11, 12)] == [0, 2, 6, 0]


_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  zone given


@given(_MOMENTS)
def test_every_moment_is_in_one_month(moment: datetime) -> None:
    month = Month.of(moment)
    assert month.begins <= moment < month.ends
    assert month.next.begins == month.ends
    assert Month.parse(str(month)) == month
    assert month < month.next
    assert str(month) < str(month.next)


def test_a_month_is_one_in_utc() -> None:
    late = datetime(2026, 10, 31, 23, 30, tzinfo=timezone(-timedelta(hours=1)))
    assert str(Month.of(late)) == "2026-11"


@pytest.mark.parametrize(
    "text", ["2026-13", "2026-00", "2026", "26-11", "2026-1", "0000-01", "9999-01", " 2026-11", ""]
)
def test_what_is_no_month(text: str) -> None:
    with pytest.raises(ValueError, match="no month such as 2026-11"):
        Month.parse(text)


def test_nothing_changes_while_its_month_is_open() -> None:
    one = entry()
    assert book_entry(one, None) is one
    assert book_entry(one, Month(2026, 10)) is one


def test_what_is_late_goes_into_the_month_in_which_it_was_recorded_and_says_which_it_corrects() -> None:
    late = book_entry(entry(recorded_at=datetime(2027, 2, 3, tzinfo=UTC)), Month(2026, 12))
    assert (str(late.period), late.corrects, late.start) == ("2027-02", "2026-11", NOW)
    # A clock that was set back records it in a month that is closed.
    assert str(book_entry(entry(recorded_at=datetime(2026, 11, 30, tzinfo=UTC)), Month(2026, 12)).period) == "2027-01"


def test_what_a_person_adds_to_a_closed_month_is_refused() -> None:
    fee = entry(kind=LedgerEntryKind.FEE, who="anna", reason="support")
    with pytest.raises(ClosedError, match=r"2026-11 are closed; `period: 2026-12` with `corrects: 2026-11`"):
        book_entry(fee, Month(2026, 11))
    into_open = entry(
        kind=LedgerEntryKind.FEE, who="anna", reason="support", period=Month(2026, 12), corrects="2026-11"
    )
    assert book_entry(into_open, Month(2026, 11)) is into_open
    with pytest.raises(ClosedError):
        book_entry(into_open, Month(2026, 12))


def test_all_uses_but_one_are_waste() -> None:
    assert [use for use in MachineUse if not use.is_waste] == [MachineUse.WORK]
