"""The figures that DuckDB works out are those of a plain loop over the points."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.history import PricePoint
from pricing.money import divide_half_even
from router.prices import history
from router.prices.history_stats import LOOK_BACK, SeriesStats, compute_statistics
from tests.support.price_points import START, a_point

DAYS = 120
points = st.builds(
    lambda hours, nanos, zone, available, source: a_point(
        hours, None if nanos is None else f"0.{nanos:09d}", zone=zone, available=available, source=source
    ),
    st.sampled_from([-24 * 100, -24 * 95, -24 * 91, -30, -1, 0, 1, 5, 24, 47.5, 48, 49]),
    st.sampled_from([None, 1, 2, 7, 999_999_999]),
    st.sampled_from([None, "a"]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(["x", "y"]),
)


def key(point: PricePoint) -> Any:
    return (point.zone or "", point.source, point.at)


def by_hand(given_points: list[PricePoint]) -> dict[tuple[str, str], Any]:
    """Per (zone, source): last, least, most, mean in nanos, changes, points; then what was observed in the zone."""
    since, until = START, START + timedelta(hours=48)
    stretch = sorted((p for p in given_points if since <= p.at <= until), key=lambda p: p.at)
    groups: dict[tuple[str, str], list[PricePoint]] = defaultdict(list)
    for point in stretch:
        if point.usd_per_hour is not None:
            groups[point.zone or "", point.source].append(point)
    looks: dict[str, list[float]] = defaultdict(list)
    for point in stretch:
        if point.available is not None:
            looks[point.zone or ""].append(point.available)
    found: dict[tuple[str, str], Any] = {}
    for (zone, source), inside in groups.items():
        steps = [(p.at, p.usd_per_hour.nanos) for p in inside if p.usd_per_hour]
        said = [price for _, price in steps]
        before = [
            (p.at, p.usd_per_hour.nanos)
            for p in given_points
            if ((p.zone or ""), p.source) == (zone, source) and p.usd_per_hour and since - LOOK_BACK <= p.at < since
        ]
        if before:
            said.insert(0, max(before)[1])
        if before and steps[0][0] > since:
            steps.insert(0, (since, said[0]))
        ends = [at for at, _ in steps[1:]] + [until]
        micros = [(end - at) // timedelta(microseconds=1) for (at, _), end in zip(steps, ends, strict=True)]
        nanos = [price for _, price in steps]
        weight = sum(length * price for length, price in zip(micros, nanos, strict=True))
        mean = divide_half_even(weight, sum(micros)) if sum(micros) else nanos[-1]
        changes = sum(a != b for a, b in pairwise(said))
        found[zone, source] = (nanos[-1], min(nanos), max(nanos), mean, changes, len(inside))
    for zone in looks.keys() - {zone for zone, _ in found}:
        found[zone, ""] = (None, None, None, None, 0, 0)
    return {
        name: (*figures, round(sum(looks[name[0]]) / len(looks[name[0]]), 9), len(looks[name[0]]))
        for name, figures in found.items()
    }


def as_found(series: SeriesStats) -> Any:
    prices = (series.last, series.lowest, series.highest, series.mean)
    nanos = tuple(None if price is None else price.nanos for price in prices)
    share = None if series.available is None else round(series.available, 9)
    return (*nanos, series.changes, series.points, share, series.observations)


@settings(max_examples=15)
@given(st.lists(points, max_size=14, unique_by=key))
def test_the_figures_are_those_of_a_plain_loop(given_points: list[PricePoint]) -> None:
    with tempfile.TemporaryDirectory() as name:
        history.append(Path(name), given_points)
        found = compute_statistics(Path(name), history.EVERYTHING, START, START + timedelta(hours=48))
    assert {(s.zone or "", s.source): as_found(s) for s in found} == by_hand(given_points)
