"""Figures of a series over a stretch of time, counted by hand; lines of blocks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from router.prices import history
from router.prices.history import EVERYTHING
from router.prices.history_stats import SeriesStats, compute_statistics, read_buckets, read_price_steps
from router.render.history_text import sparkline
from tests.support.price_points import START, a_point

DAY = timedelta(days=1)
NAME = ("aws", "us-east-1", "us-east-1a", "p5.48xlarge", "spot", "a feed")


def one(folder: Path, since: float = 0, until: float = 24) -> SeriesStats:
    (found,) = compute_statistics(folder, EVERYTHING, START + timedelta(hours=since), START + timedelta(hours=until))
    return found


def prices(*texts: str | None) -> list[UsdPerHour | None]:
    return [None if text is None else UsdPerHour.parse(text) for text in texts]


def test_the_mean_is_weighted_by_time_and_the_last_price_holds_until_the_end(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(0, "10"), a_point(6, "20"), a_point(7, "20"), a_point(18, "2")])
    found = one(tmp_path)
    # 6 h at 10, 12 h at 20, 6 h at 2: 312 / 24
    assert [found.last, found.lowest, found.highest, found.mean] == prices("2", "2", "20", "13")
    assert (found.changes, found.points, found.last_at) == (2, 4, START + timedelta(hours=18))
    assert (found.available, found.observations, found.score) == (None, 0, None)


def test_the_price_before_the_stretch_holds_at_its_beginning(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(-48, "99"), a_point(-5, "8"), a_point(12, "4")])
    found = one(tmp_path)
    assert [found.last, found.lowest, found.highest, found.mean] == prices("4", "4", "8", "6")
    assert (found.changes, found.points) == (1, 1)
    at_the_edge = one(tmp_path, since=12)
    assert [at_the_edge.lowest, at_the_edge.highest, at_the_edge.mean] == prices("4", "4", "4")


def test_a_series_without_a_point_in_the_stretch_is_not_shown(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(-1), a_point(25)])
    assert compute_statistics(tmp_path, EVERYTHING, START, START + DAY) == ()
    assert compute_statistics(tmp_path / "none", EVERYTHING, START, START + DAY) == ()


def test_a_point_at_the_very_end_is_the_last_and_weighs_nothing(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(0, "10"), a_point(24, "20")])
    assert [one(tmp_path).last, one(tmp_path).mean] == prices("20", "10")
    assert [one(tmp_path, since=24).mean] == prices("20")


def test_a_mean_is_rounded_half_to_even_to_the_nano_dollar(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(0, "0.000000001"), a_point(12, "0.000000002")])
    assert [one(tmp_path).mean] == prices("0.000000002")
    history.append(tmp_path, [a_point(12, "0.000000004")])
    assert [one(tmp_path).mean] == prices("0.000000002")


def test_the_largest_prices_do_not_overflow(tmp_path: Path) -> None:
    most = "9223372036.854775807"
    history.append(tmp_path, [a_point(-24 * 365 * 9, most), a_point(-24 * 365 * 5, most), a_point(1, most)])
    assert [one(tmp_path, since=-24 * 3650).mean] == prices(most)


def test_stock_is_joined_from_every_source_and_prices_are_not_mixed(tmp_path: Path) -> None:
    history.append(
        tmp_path,
        [
            a_point(0, "10", source="a"),
            a_point(0, "30", source="b"),
            a_point(1, None, available=1.0, source="probe"),
            a_point(2, None, available=0.5, score=0.2, source="probe"),
            a_point(3, None, available=0.0, score=0.9, source="other probe"),
            a_point(4, None, available=1.0, market=Market.ON_DEMAND, source="probe"),
        ],
    )
    found = compute_statistics(tmp_path, EVERYTHING, START, START + DAY)
    assert [(s.source, s.market.value) for s in found] == [("a", "spot"), ("b", "spot"), ("", "on_demand")]
    assert [s.available for s in found] == [0.5, 0.5, 1.0]
    assert [s.observations for s in found] == [3, 3, 1]
    assert [s.score for s in found] == [0.9, 0.9, None]
    assert [s.last for s in found] == prices("10", "30", None)


def test_a_corrected_price_counts_as_corrected(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(0, "10")])
    history.append(tmp_path, [a_point(0, "7")])
    assert [one(tmp_path).lowest, one(tmp_path).highest] == prices("7", "7")


def test_cheapest_first_and_unpriced_last(tmp_path: Path) -> None:
    history.append(
        tmp_path,
        [
            a_point(0, "5", zone="b"),
            a_point(0, "5", zone="a"),
            a_point(0, "4", zone=None),
            a_point(0, None, score=0.1, zone="0"),
        ],
    )
    assert [s.zone for s in compute_statistics(tmp_path, EVERYTHING, START, START + DAY)] == [None, "a", "b", "0"]


def test_buckets_hold_the_last_price_and_the_mean_of_what_was_observed(tmp_path: Path) -> None:
    history.append(
        tmp_path,
        [
            a_point(-1, "1"),
            a_point(6, "2"),
            a_point(8, "3"),
            a_point(8.5, None, available=1.0, source="probe"),
            a_point(9, None, available=0.0, source="probe"),
            a_point(24, "4"),
        ],
    )
    found = read_buckets(tmp_path, EVERYTHING, START, START + DAY, 4)
    assert list(found) == [NAME]
    assert list(found[NAME].prices) == prices("1", "3", "3", "4")
    assert found[NAME].available == (None, 0.5, None, None)
    steps = read_price_steps(tmp_path, EVERYTHING, START, START + DAY)[NAME]
    assert [(at - START) / timedelta(hours=1) for at, _ in steps] == [0, 6, 8, 24]
    assert [price for _, price in steps] == prices("1", "2", "3", "4")


def test_buckets_of_a_series_that_begins_late_or_has_no_price(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(13, "2"), a_point(1, None, available=1.0, zone=None, source="probe")])
    found = read_buckets(tmp_path, EVERYTHING, START, START + DAY, 2)
    assert [list(course.prices) for course in found.values()] == [prices(None, "2"), prices(None, None)]
    assert [course.available for course in found.values()] == [(None, None), (1.0, None)]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([None, None], "  "),
        ([5], "▄"),
        ([5, None, 5], "▄ ▄"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([7, 0, None, 3.4], "█▁ ▄"),
    ],
)
def test_a_line_of_blocks(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line
