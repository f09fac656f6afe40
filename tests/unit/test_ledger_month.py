"""Months of the books, and which one an entry goes into once some are closed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ledger.entry import ClosedError, LedgerEntryKind, book_entry
from router.ledger.month import Month
from tests.support.state_values import NOW, entry

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
