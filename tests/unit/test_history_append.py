"""What is appended to a price history comes back: each point once, exactly, the last word on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pandas as pd
import pytest

from pricing.history import PricePoint
from pricing.money import UsdPerHour
from pricing.places import Market, RegionId
from router.prices import history
from router.prices.history import Appended, Selection
from tests.support.price_points import A_POINT, START, a_point, in_order, parts_of, read_back, rows_on_disk

EVERY_KIND = [
    a_point(0, "0.000000001"),
    a_point(1, "9223372036.854775807", zone=None),
    a_point(2, "9007199.254740993", market=Market.ON_DEMAND),  # 2**53 + 1 nano-dollars: no float holds it
    a_point(3, None, available=0.0),
    a_point(4, None, score=1.0, source="another"),
    a_point(5, "3", available=0.1, score=0.3, cloud="azure", region="westeurope", zone="1"),
    a_point(24 * 31, "7", instance_type="name with 'quotes' and ünïcode"),
    a_point(-24 * 365 * 5, "1"),
    replace(A_POINT, at=datetime(2026, 11, 30, 23, 59, 59, 999_999, UTC)),
]


def test_everything_comes_back_exactly(tmp_path: Path) -> None:
    assert history.append(tmp_path / "new" / "folder", EVERY_KIND) == Appended(len(EVERY_KIND), 0)
    assert read_back(tmp_path / "new" / "folder") == in_order(EVERY_KIND)


def test_the_same_points_are_stored_once(tmp_path: Path) -> None:
    history.append(tmp_path, EVERY_KIND)
    assert history.append(tmp_path, EVERY_KIND[::-1]) == Appended(0, len(EVERY_KIND))
    assert history.append(tmp_path, [*EVERY_KIND[:3], a_point(9), a_point(9)]) == Appended(1, 4)
    assert rows_on_disk(tmp_path) == len(EVERY_KIND) + 1


def test_nothing_to_append_makes_nothing(tmp_path: Path) -> None:
    assert history.append(tmp_path / "none", []) == Appended(0, 0)
    assert not (tmp_path / "none").exists()


def test_of_two_prices_for_one_moment_the_later_written_counts_and_both_are_kept(tmp_path: Path) -> None:
    for price in ("3", "1", "2"):
        history.append(tmp_path, [a_point(0, price)])
    assert read_back(tmp_path) == [a_point(0, "2")]
    assert rows_on_disk(tmp_path) == 3
    history.compact(tmp_path)
    assert (read_back(tmp_path), rows_on_disk(tmp_path)) == ([a_point(0, "2")], 3)


def test_a_price_that_was_taken_back_and_said_again_counts(tmp_path: Path) -> None:
    for price in ("3", "1", "3"):
        assert history.append(tmp_path, [a_point(0, price)]).written == 1
    assert read_back(tmp_path) == [a_point(0, "3")]


def test_within_one_call_the_last_counts_and_giving_them_again_writes_nothing(tmp_path: Path) -> None:
    given = [a_point(0, "3"), a_point(0, "1"), a_point(0, "2"), a_point(0, "1")]
    assert history.append(tmp_path, given).written == 3
    assert read_back(tmp_path) == [a_point(0, "1")]
    assert history.append(tmp_path, given) == Appended(0, 4)
    assert history.append(tmp_path, [a_point(0, "5"), a_point(0, "2")]).written == 2
    assert read_back(tmp_path) == [a_point(0, "2")]


def test_sources_do_not_correct_each_other(tmp_path: Path) -> None:
    points = [a_point(0, "3", source="a"), a_point(0, "2", source="b")]
    history.append(tmp_path, points)
    assert read_back(tmp_path) == points


def test_moments_are_the_same_in_every_time_zone_and_months_are_those_of_utc(tmp_path: Path) -> None:
    east = replace(A_POINT, at=START.astimezone(timezone(timedelta(hours=14))))
    assert history.append(tmp_path, [A_POINT, east]) == Appended(1, 1)
    assert [part.parent.name for part in parts_of(tmp_path)] == ["month=2026-11"]


@pytest.mark.parametrize(
    "bad",
    [
        replace(A_POINT, at=START.replace(tzinfo=None)),
        replace(A_POINT, usd_per_hour=None),
        replace(A_POINT, usd_per_hour=UsdPerHour(0)),
        replace(A_POINT, usd_per_hour=UsdPerHour(-1)),
        replace(A_POINT, usd_per_hour=UsdPerHour(1 << 63)),
        replace(A_POINT, available=1.01),
        replace(A_POINT, score=float("nan")),
    ],
    ids=["naive", "no value", "free", "negative", "too large", "over 1", "nan"],
)
def test_a_point_that_means_nothing_is_refused_with_all_others(bad: PricePoint, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"PricePoint\("):
        history.append(tmp_path / "h", [a_point(1), bad])
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    ("which", "hours"),
    [
        (Selection(clouds=("azure",)), [3]),
        (Selection(clouds=("aws", "azure")), [0, 1, 2, 3]),
        (Selection(regions=("eastus",)), [3]),
        (Selection(regions=("aws/eastus",)), []),
        (Selection(regions=("azure/eastus", "us-east-1")), [0, 1, 2, 3]),
        (Selection(zones=("us-east-1b",)), [1]),
        (Selection(markets=(Market.ON_DEMAND,)), [2]),
        (Selection(instance_types=("p5.48xlarge", "p4d.24xlarge"), markets=(Market.SPOT,)), [0, 1, 3]),
        (Selection(sources=("other",)), [1]),
        (Selection(instance_types=("' OR true --",)), []),
    ],
)
def test_selections(which: Selection, hours: list[int], tmp_path: Path) -> None:
    points = [
        a_point(0),
        a_point(1, zone="us-east-1b", source="other"),
        a_point(2, market=Market.ON_DEMAND),
        a_point(3, cloud="azure", region="eastus", zone=None),
    ]
    history.append(tmp_path, points)
    found = read_back(tmp_path, which)
    assert sorted((point.at - START) / timedelta(hours=1) for point in found) == hours


def test_since_belongs_to_the_series_and_until_does_not(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(hours) for hours in (-1, 0, 1, 24 * 40)])

    def hours(since: float | None, until: float | None) -> list[float]:
        span = [None if h is None else START + timedelta(hours=h) for h in (since, until)]
        return list((history.read_series(tmp_path, since=span[0], until=span[1])["at"] - START) / pd.Timedelta(hours=1))

    assert hours(None, None) == [-1, 0, 1, 960]
    assert hours(0, 960) == [0, 1]
    assert hours(0.5, None) == [1, 960]
    assert hours(None, 0) == [-1]
    assert hours(2, 3) == []


def test_the_latest_moments_by_region(tmp_path: Path) -> None:
    history.append(
        tmp_path,
        [
            a_point(0, "1"),
            a_point(5, "2"),
            a_point(6, None, available=1.0),
            a_point(3, "7", region="us-west-2", zone=None),
            a_point(4, "8", cloud="gcp", region="us-east1", zone=None, market=Market.ON_DEMAND),
        ],
    )
    assert history.latest_by_region(tmp_path, Selection(markets=(Market.SPOT,))) == {
        RegionId("aws", "us-east-1"): START + timedelta(hours=6),
        RegionId("aws", "us-west-2"): START + timedelta(hours=3),
    }


def test_an_empty_history_has_the_same_columns(tmp_path: Path) -> None:
    empty = history.read_series(tmp_path / "none")
    history.append(tmp_path, EVERY_KIND)
    full = history.read_series(tmp_path)
    assert dict(empty.dtypes) == dict(full.dtypes)
    assert history.latest_by_region(tmp_path / "none") == {}


def test_the_summary(tmp_path: Path) -> None:
    empty = history.summarize(tmp_path / "none")
    assert (empty.rows, empty.months, empty.clouds, empty.first, empty.last, empty.size) == (0, (), (), None, None, 0)
    history.append(tmp_path, [a_point(0), a_point(24 * 30, cloud="gcp")])
    full = history.summarize(tmp_path)
    assert (full.rows, full.months, full.clouds) == (2, ("2026-11", "2026-12"), ("aws", "gcp"))
    assert (full.first, full.last) == (START, START + timedelta(days=30))
    assert (full.parts, full.size) == (2, sum(part.stat().st_size for part in parts_of(tmp_path)))


@pytest.mark.parametrize("name", ["prices [old]*", "it's here", "month=2026-01"])
def test_folders_with_odd_names(name: str, tmp_path: Path) -> None:
    history.append(tmp_path / "prices oo", [a_point(1)])
    history.append(tmp_path / name, [a_point(0)])
    history.append(tmp_path / name, [a_point(2)])
    history.compact(tmp_path / name)
    assert read_back(tmp_path / name) == [a_point(0), a_point(2)]
