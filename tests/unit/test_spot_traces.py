"""Series are values: checked once, cut, slowed down, picked from, never written to."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.simulator.inputs import ZoneMoveCosts
from router.spot.simulator.traces import Series, ZoneSeries


def zone(name: str = "a", counts: tuple[int, ...] = (0, 2, 4), price: float = 1.0, demand: float = 3.0) -> ZoneSeries:
    return ZoneSeries(name, "r", np.array(counts), np.full(len(counts), price), demand)


def test_a_gang_is_whole_or_not_at_all() -> None:
    series = Series(60, (zone(),))
    assert series.up(1).tolist() == [[False, True, True]]
    assert series.up(3).tolist() == [[False, False, True]]
    with pytest.raises(ValueError, match="at least one machine"):
        series.up(0)


def test_cut_slowed_and_picked() -> None:
    series = Series(60, (zone("a", (0, 1, 2, 3, 4)), zone("b", (5, 6, 7, 8, 9))))
    assert series.part(1, 3).up(2).tolist() == [[False, True], [True, True]]
    slow = series.every(2).only(["b"])
    assert (slow.tick_s, slow.zones[0].counts.tolist()) == (120, [5, 7, 9])
    with pytest.raises(ValueError, match="slower"):
        series.every(0)


def test_it_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        zone().counts[0] = 1


@pytest.mark.parametrize("wrong", [{"counts": (-1, 0)}, {"price": 0.0}, {"price": float("nan")}, {"demand": -1.0}])
def test_what_a_zone_refuses(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a:"):
        zone(**wrong)  # type: ignore[arg-type]


def test_as_many_prices_as_counts() -> None:
    with pytest.raises(ValueError, match="as many prices"):
        ZoneSeries("a", "r", np.array([1]), np.ones(2), 3.0)


@pytest.mark.parametrize(
    ("tick", "zones"), [(0, (zone(),)), (60, ()), (60, (zone(), zone())), (60, (zone(), zone("b", (1,))))]
)
def test_what_a_series_refuses(tick: int, zones: tuple[ZoneSeries, ...]) -> None:
    with pytest.raises(ValueError, match=r"tick|zone"):
        Series(tick, zones)


def test_ways() -> None:
    ways = ZoneMoveCosts.between(["r", "s", "r"], lambda a, b: 1.5, 8)
    assert ways.egress_usd.tolist() == [[0, 1.5, 0], [1.5, 0, 1.5], [0, 1.5, 0]]
    assert ways.longest_s == 8
    with pytest.raises(ValueError, match="within a zone"):
        ZoneMoveCosts(np.ones((1, 1)), np.zeros((1, 1), dtype=np.int64))
    with pytest.raises(ValueError, match="none below zero"):
        ZoneMoveCosts(-np.ones((2, 2)), np.zeros((2, 2), dtype=np.int64))
