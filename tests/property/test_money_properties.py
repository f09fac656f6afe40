"""What holds of money whatever the figures."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour

amounts = st.integers(-(10**18), 10**18).map(Usd)
rates = st.integers(0, 10**15).map(UsdPerHour)
durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400))


@given(amounts, st.lists(st.integers(0, 10**6), min_size=1, max_size=20).filter(any))
def test_shares_add_up_and_are_fair(whole: Usd, weights: list[int]) -> None:
    shares = whole.split(weights)
    assert Usd.total(shares) == whole
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share.nanos - Fraction(whole.nanos * weight, sum(weights))) < 1


@given(amounts)
def test_what_is_shown_can_be_read_again(amount: Usd) -> None:
    assert Usd.parse(str(amount)) == amount


@given(rates, durations)
def test_an_amount_is_within_half_a_nano_dollar(rate: UsdPerHour, duration: timedelta) -> None:
    exact = Fraction(rate.nanos * (duration // timedelta(microseconds=1)), 3_600_000_000)
    assert abs(rate.over(duration).nanos - exact) <= Fraction(1, 2)


@given(rates, durations, durations)
def test_a_longer_time_never_costs_less(rate: UsdPerHour, one: timedelta, other: timedelta) -> None:
    short, long = sorted((one, other))
    assert rate.over(short) <= rate.over(long)


@given(rates, st.integers(0, 1000), durations)
def test_machines_at_one_price_are_priced_together(rate: UsdPerHour, count: int, duration: timedelta) -> None:
    """The gang's rate is multiplied before the one rounding: off by at most half a nano-dollar, not by n."""
    exact = Fraction(rate.nanos * count * (duration // timedelta(microseconds=1)), 3_600_000_000)
    assert abs(rate.times(count).over(duration).nanos - exact) <= Fraction(1, 2)
