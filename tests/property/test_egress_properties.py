"""What holds of every tariff and every settlement."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from pricing.book_file import embedded_book
from pricing.egress import Tariff, compute_meter_costs
from pricing.money import Usd
from pricing.units import BYTES_PER_GB

tariffs = st.sampled_from(embedded_book().tariffs)
with_allowance = st.sampled_from([t for t in embedded_book().tariffs if t.allowance_bytes and t.cloud == "aws"])
volumes = st.integers(0, 200_000 * BYTES_PER_GB)


@given(tariffs, volumes, volumes)
def test_more_never_costs_less(tariff: Tariff, one: int, other: int) -> None:
    few, many = sorted((one, other))
    assert tariff.cost_of(0, few, 0) <= tariff.cost_of(0, many, 0)


@given(tariffs, volumes, volumes)
def test_two_parts_cost_as_much_as_the_whole(tariff: Tariff, first: int, second: int) -> None:
    parts = tariff.cost_of(0, first, 0) + tariff.cost_of(first, second, 0)
    assert abs(parts.nanos - tariff.cost_of(0, first + second, 0).nanos) <= 1


@given(tariffs, volumes)
def test_no_byte_costs_more_than_the_top_price(tariff: Tariff, volume: int) -> None:
    assert tariff.cost_of(0, volume, 0).nanos <= tariff.top_price.nanos * volume // BYTES_PER_GB + 1


@given(
    st.lists(with_allowance, min_size=1, max_size=4, unique_by=lambda t: t.meter),
    st.data(),
    st.integers(0, 100 * BYTES_PER_GB),
)
def test_no_other_way_to_share_the_allowance_is_cheaper(chosen: list[Tariff], data: st.DataObject, left: int) -> None:
    items = [(t, 0, data.draw(st.integers(0, 300 * BYTES_PER_GB))) for t in chosen]
    settled = Usd.total(compute_meter_costs(items, {"aws": left}))
    for order in permutations(items):
        rest, total = left, Usd(0)
        for tariff, already, volume in order:
            free = min(rest, tariff.allowance_use(already, volume))
            rest -= free
            total += tariff.cost_of(already, volume, free)
        assert settled.nanos <= total.nanos + len(items)
