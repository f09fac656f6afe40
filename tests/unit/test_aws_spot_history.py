"""Spot price history: the newest price holds, and what cannot be used leaves no price."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from pricing.money import UsdPerHour
from pricing.places import Market
from providers.aws.parse.prices import NO_PRICE, NOT_ABOVE_ZERO, TWO_PRICES
from providers.aws.parse.spot import LATER_THAN_NOW, UNKNOWN_ZONE, UNREADABLE_ROW, Row, SpotRows, read_history

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
ZONES = {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1"}
TYPES = frozenset({"p5.48xlarge", "g5.xlarge"})


def _row(at: str, price: str | None, name: str = "p5.48xlarge", zone: str = "us-east-1a", **more: str | None) -> Row:
    return {"Timestamp": at, "SpotPrice": price, "InstanceType": name, "AvailabilityZone": zone, **more}


def _read(rows: Sequence[Row]) -> SpotRows:
    return read_history("aws", "us-east-1", rows, ZONES, TYPES, NOW)


def test_the_newest_row_is_the_current_price_and_every_row_a_point() -> None:
    read = _read([_row("2026-11-20T10:00:00.000Z", "21.5"), _row("2026-11-21T10:00:00.000Z", "20.000100")])
    assert read.current == {("use1-az6", "p5.48xlarge"): UsdPerHour.parse("20.0001")}
    assert [str(point.usd_per_hour) for point in read.points] == ["21.50", "20.0001"]
    point = read.points[1]
    assert point.at == datetime(2026, 11, 21, 10, tzinfo=UTC)
    assert (point.region, point.zone, point.market) == ("us-east-1", "use1-az6", Market.SPOT)
    assert read.whole


def test_zones_are_ids_whether_the_row_says_so_or_not() -> None:
    named = _read([_row("2026-11-20T10:00:00.000Z", "21.5", zone="us-east-1b")])
    told = _read([_row("2026-11-20T10:00:00.000Z", "21.5", zone="us-east-1z", AvailabilityZoneId="use1-az1")])
    assert list(named.current) == list(told.current) == [("use1-az1", "p5.48xlarge")]
    unknown = _read([_row("2026-11-20T10:00:00.000Z", "21.5", zone="us-east-1z")])
    assert [drop.why for drop in unknown.dropped] == [UNKNOWN_ZONE]
    assert not unknown.current


def test_a_newest_row_that_cannot_be_used_leaves_no_price() -> None:
    older = _row("2026-11-20T10:00:00.000Z", "21.5")
    for text, why in (("0.000000", NOT_ABOVE_ZERO), ("-1", NOT_ABOVE_ZERO), ("cheap", NO_PRICE)):
        read = _read([older, _row("2026-11-21T10:00:00.000Z", text)])
        assert [drop.why for drop in read.dropped] == [why]
        assert not read.current
        assert not read.whole
        assert len(read.points) == 1


def test_an_older_row_that_cannot_be_used_does_no_harm() -> None:
    read = _read([_row("2026-11-20T10:00:00.000Z", "0"), _row("2026-11-21T10:00:00.000Z", "20")])
    assert len(read.current) == len(read.dropped) == 1
    assert read.whole


def test_two_prices_for_one_moment_are_none() -> None:
    read = _read([_row("2026-11-20T10:00:00.000Z", "21.5"), _row("2026-11-20T10:00:00.000Z", "99")])
    assert [drop.why for drop in read.dropped] == [TWO_PRICES]
    assert (read.points, read.current, read.whole) == ((), {}, False)


def test_rows_that_are_not_whole_are_named() -> None:
    read = _read([_row("2026-11-20T10:00:00.000Z", None), _row("yesterday", "1"), _row("2026-11-20T10:00:00", "1")])
    assert {drop.why for drop in read.dropped} == {UNREADABLE_ROW}
    assert not read.whole


def test_other_types_are_passed_over() -> None:
    read = _read([_row("2026-11-20T10:00:00.000Z", "0.1", name="m5.large")])
    assert read == SpotRows((), {}, (), whole=True)


def test_with_a_slow_clock_the_price_holds_and_stays_out_of_the_history() -> None:
    read = _read([_row("2026-11-21T18:09:00.000Z", "20")])
    assert len(read.current) == 1
    assert not read.points
    assert [drop.why for drop in read.dropped] == [LATER_THAN_NOW]
    assert read.whole


@st.composite
def _histories(draw: st.DrawFn) -> list[Row]:
    row = st.builds(
        _row,
        st.integers(0, 23).map(lambda hour: f"2026-11-20T{hour:02d}:00:00.000Z"),
        st.sampled_from(["1", "2.5", "2.50", "0", "no"]),
        st.sampled_from(["p5.48xlarge", "g5.xlarge"]),
        st.sampled_from(["us-east-1a", "us-east-1b", "us-east-1z"]),
    )
    return draw(st.lists(row, max_size=12))


@given(_histories(), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(rows: list[Row], random: object) -> None:
    shuffled = [*rows, *rows]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = _read(rows), _read(shuffled)
    assert first.current == second.current
    assert first.whole == second.whole
    assert first.points == second.points
    assert set(first.dropped) == set(second.dropped)


@given(_histories())
def test_no_price_is_invented(rows: list[Row]) -> None:
    read = _read(rows)
    asked = {(row["InstanceType"], UsdPerHour.parse(str(row["SpotPrice"]))) for row in rows if row["SpotPrice"] != "no"}
    assert {(name, price) for (_, name), price in read.current.items()} <= asked
    assert all(price.nanos > 0 for price in read.current.values())
