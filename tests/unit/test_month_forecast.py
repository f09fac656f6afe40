"""The forecast of a month by parts: amounts worked out by hand, and the range on made-up months."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from router.ledger.month import Month
from router.showback.report.forecast import DailyCost, ForecastPart, OrderedCost, forecast_month
from router.showback.report.rollup_tables import day_number
from tests.bench.made_up_months import KINDS, make_month
from tests.bench.month_forecast import score_lines, score_month

NOVEMBER = Month(2026, 11)
NOW = datetime(2026, 11, 16, tzinfo=UTC)  # a Monday, with fifteen days to come


def day_cost(moment: datetime, cost: float, **said: Any) -> DailyCost:
    given: dict[str, Any] = {"team": "research", "project": None, "category": "Usage", "series": (), **said}
    given.setdefault("is_committed", False)
    return DailyCost(month=f"{moment:%Y-%m}", day=day_number(moment.date()), cost=cost, **given)


def nights(costs: list[float], **said: Any) -> list[DailyCost]:
    """Days until the one before NOW."""
    return [day_cost(NOW - timedelta(days=len(costs) - n), each, **said) for n, each in enumerate(costs)]


def fee(month: int, cost: float, category: str = "Purchase") -> DailyCost:
    return day_cost(datetime(2026, month, 28, tzinfo=UTC), cost, category=category, series=("aws", category))


def parts_of(
    daily: list[DailyCost], *ordered: OrderedCost, now: datetime = NOW, **fixed: int
) -> dict[str, ForecastPart]:
    booked = {name: Decimal(amount) for name, amount in {"booked": 0, **fixed}.items()}
    return {part.name: part for part in forecast_month(booked, daily, ordered, now, NOVEMBER)}


def ends(part: ForecastPart) -> list[Decimal]:
    return [part.low, part.middle, part.high]


@pytest.mark.parametrize("days", [10, 70])
def test_even_days_go_on_and_have_no_range(days: int) -> None:
    parts = parts_of(nights([10.0] * days), booked=150, running=7)
    assert ends(parts["nights"]) == [150, 150, 150]
    assert ends(parts["all"]) == [307, 307, 307]
    assert parts["running"].middle == 7


def test_of_today_the_rest_of_it_counts() -> None:
    at_noon = parts_of(nights([10.0] * 10), now=NOW + timedelta(hours=12))
    assert at_noon["nights"].middle == 145


def test_weekdays_are_kept() -> None:
    """Ten weeks of 10 on five days and none at weekends: in the 15 days to come are 11 weekdays."""
    week = [10.0] * 5 + [0.0, 0.0]
    assert ends(parts_of(nights(week * 10))["nights"]) == [110, 110, 110]


def test_a_trend_goes_on() -> None:
    """Days of 1, 2, ..., 84: the next fifteen are 85 to 99, 1,380 together; the mean of all would give 637.5."""
    rising = parts_of(nights([float(n) for n in range(1, 85)]))["nights"]
    assert float(rising.middle) == pytest.approx(1380, rel=0.06)
    assert rising.low > 1000


def test_fewer_days_have_a_wider_range_and_say_so() -> None:
    def width(days: int) -> Decimal:
        part = parts_of(nights([5.0, 15.0] * (days // 2)))["nights"]
        return part.high - part.low

    assert width(4) > width(8) > width(14)
    assert "only 4 days of usage" in parts_of(nights([5.0, 15.0] * 2))["nights"].rests_on
    assert parts_of(nights([10.0] * 3)) == {}


def test_a_fee_is_expected_once_where_both_months_before_have_it() -> None:
    daily = [*nights([10.0] * 10), fee(9, 40), fee(10, 40)]
    assert ends(parts_of(daily)["charges"]) == [40, 40, 40]
    assert "charges" not in parts_of([*daily, fee(11, 40)])
    assert "day 28" in parts_of(daily)["charges"].rests_on


def test_a_fee_that_did_not_come_is_expected_no_more() -> None:
    """Its date is the 22nd: on the 25th it may be late, on the 26th it is taken to be gone."""
    usage = [day_cost(datetime(2026, 11, day, tzinfo=UTC), 10) for day in range(1, 25)]
    said = {"category": "Purchase", "series": ("aws",)}
    fees = [day_cost(datetime(2026, month, 22, tzinfo=UTC), 40, **said) for month in (9, 10)]
    assert parts_of([*usage, *fees], now=datetime(2026, 11, 25, tzinfo=UTC))["charges"].middle == 40
    assert "charges" not in parts_of([*usage, *fees], now=datetime(2026, 11, 26, tzinfo=UTC))


def test_a_fee_seen_once_comes_in_half_of_the_draws_and_a_credit_in_none() -> None:
    once = parts_of([*nights([10.0] * 10), fee(10, 40)])["charges"]
    assert [once.low, once.high] == [0, 40]
    assert 15 < once.middle < 25
    assert "seen once" in once.rests_on
    assert "charges" not in parts_of([*nights([10.0] * 10), fee(10, -40, "Credit")])


def test_a_credit_of_both_months_is_taken_off() -> None:
    daily = [*nights([10.0] * 10), fee(9, -40, "Credit"), fee(10, -40, "Credit")]
    assert ends(parts_of(daily)["all"]) == [110, 110, 110]


def test_commitments_are_a_part_of_their_own() -> None:
    parts = parts_of([*nights([10.0] * 10), *nights([4.0] * 10, is_committed=True)])
    assert [parts["commitments"].middle, parts["nights"].middle] == [60, 150]


def test_what_is_ordered_counts_once() -> None:
    """100 over two days of 10 each: the nights of these days are in the order."""
    order = OrderedCost(team="research", project=None, start=NOW, end=NOW + timedelta(days=2), cost=100.0)
    parts = parts_of(nights([10.0] * 10), order)
    assert [parts[name].middle for name in ("orders", "nights", "all")] == [100, 130, 230]
    begun = parts_of(nights([10.0] * 10), order, now=NOW + timedelta(days=1))
    assert begun["orders"].middle == 50


def test_means_of_parts_add_up() -> None:
    daily = [
        *nights([3.0, 14.0, 15.0, 9.0, 2.0, 6.0, 5.0] * 6),
        fee(10, 40),
        *nights([4.0, 5.0] * 8, is_committed=True),
    ]
    parts = parts_of(daily, booked=100)
    total = parts.pop("all")
    assert abs(sum((part.middle for part in parts.values()), Decimal(0)) - total.middle) <= Decimal("0.03")
    assert all(part.low <= part.middle <= part.high for part in (*parts.values(), total))


def test_equal_inputs_give_equal_parts() -> None:
    daily = nights([3.0, 14.0, 15.0, 9.0, 2.0, 6.0, 5.0] * 6)
    assert parts_of(daily) == parts_of(daily)


@pytest.mark.parametrize("kind", KINDS)
def test_a_made_up_month_comes_from_its_seed(kind: str) -> None:
    month = make_month(kind, 3)
    assert month == make_month(kind, 3)
    assert month != make_month(kind, 4)
    known = [len(month.rows_known_at(month.month.begins + timedelta(days=day))) for day in (10, 15, 20)]
    assert all(before <= after for before, after in pairwise(known))


def test_a_fee_on_the_28th_is_forecast_on_the_15th() -> None:
    """Without charges by date, no month of these was held (seeds 0 to 39)."""
    months = [make_month("fee", seed) for seed in range(6)]
    scores = [score_month(month, month.month.begins + timedelta(days=15)) for month in months]
    assert sum(score is not None and score.is_held for score in scores) >= 4


def test_the_bench_has_a_line_for_each_kind_and_day() -> None:
    lines = list(score_lines(["new"], [0]))
    assert [line.split()[:2] for line in lines[1:]] == [["new", "10"], ["new", "15"], ["new", "20"]]
