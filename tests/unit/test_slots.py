"""The time grid, edge by edge."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from router.planning.problem.problem import Slot, make_slots

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 21, 18, 17, tzinfo=UTC)


def edges(slots: tuple[Slot, ...]) -> list[datetime]:
    return [slots[0].start, *(s.end for s in slots)]


def test_orders_count_from_now_and_the_outlook_from_midnight_utc() -> None:
    slots = make_slots(NOW, HOUR, 3 * HOUR, (), NOW + 9 * timedelta(days=1))
    found = edges(slots)
    assert found[:4] == [NOW, NOW + HOUR, NOW + 2 * HOUR, NOW + 3 * HOUR]
    assert found[4:8] == [datetime(2026, 11, 22, hour, tzinfo=UTC) for hour in (0, 6, 12, 18)]
    # Six hours up to seven days after now, then days.
    last = [datetime(2026, 11, 28, 18, tzinfo=UTC), *(datetime(2026, 11, day, tzinfo=UTC) for day in (29, 30))]
    assert found[-4:-1] == last
    assert found[-1] == NOW + 9 * timedelta(days=1)
    assert [s.order for s in slots[:4]] == [True, True, True, False]
    assert slots[1].hours == 1.0
    assert slots[0].length == HOUR
    assert slots[0].month == "2026-11"


def test_deadlines_and_earliest_starts_cut_slots_where_they_lie() -> None:
    deadline, start = NOW + timedelta(minutes=95), NOW + timedelta(hours=5, minutes=1)
    slots = make_slots(NOW, HOUR, 2 * HOUR, (deadline, start, NOW, NOW - HOUR, NOW + 99 * HOUR), NOW + 6 * HOUR)
    assert {deadline, start} <= set(edges(slots))
    assert edges(slots)[-1] == NOW + 6 * HOUR


def test_a_month_begins_on_an_edge_inside_the_horizon_and_far_beyond_it() -> None:
    now = datetime(2026, 11, 30, 22, 30, tzinfo=UTC)
    slots = make_slots(now, HOUR, 4 * HOUR, (), datetime(2027, 1, 3, tzinfo=UTC))
    assert datetime(2026, 12, 1, tzinfo=UTC) in edges(slots)
    assert datetime(2027, 1, 1, tzinfo=UTC) in edges(slots)
    assert {s.month for s in slots} == {"2026-11", "2026-12", "2027-01"}
    assert all(s.month == (s.end - timedelta(microseconds=1)).strftime("%Y-%m") for s in slots)


def test_a_horizon_that_is_no_multiple_of_the_slot_ends_with_a_short_one() -> None:
    slots = make_slots(NOW, HOUR, timedelta(minutes=150), (), NOW + 5 * HOUR)
    assert [s.hours for s in slots if s.order] == [1.0, 1.0, 0.5]


def test_nobody_needs_more_than_the_last_instant() -> None:
    slots = make_slots(NOW, HOUR, 24 * HOUR, (), NOW + 90 * timedelta(minutes=1))
    assert [s.hours for s in slots] == [1.0, 0.5]
    assert all(s.order for s in slots)


@given(
    st.integers(0, 60 * 24 * 40),
    st.sampled_from([15, 30, 60, 120, 7]),
    st.integers(1, 48),
    st.lists(st.integers(1, 60 * 24 * 20), max_size=5),
    st.integers(1, 60 * 24 * 30),
)
def test_slots_cover_the_time_without_gap_and_lie_on_one_side_of_the_horizon(
    start: int, slot: int, horizon: int, marks: list[int], last: int
) -> None:
    minute = timedelta(minutes=1)
    now = datetime(2026, 11, 1, tzinfo=UTC) + start * minute
    wanted = [now + m * minute for m in marks]
    slots = make_slots(now, slot * minute, horizon * slot * minute, wanted, now + last * minute)
    assert [s.index for s in slots] == list(range(len(slots)))
    assert (slots[0].start, slots[-1].end) == (now, now + last * minute)
    assert all(a.end == b.start for a, b in itertools.pairwise(slots))
    assert all(s.start < s.end for s in slots)
    end = now + horizon * slot * minute
    assert all(s.order == (s.end <= end) and (s.end <= end or s.start >= end) for s in slots)
    assert {w for w in wanted if w < now + last * minute} <= set(edges(slots))
