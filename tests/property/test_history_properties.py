"""A price history answers as a dictionary would, whatever was appended in whichever order, merged or not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.hazard import AGE_SCALE_HOURS
from pricing.history import PricePoint
from pricing.money import UsdPerHour
from pricing.places import Market
from pricing.pool_experience import measure_exposure, memory_weight
from router.prices import history
from tests.support.price_points import A_POINT, START, in_order, parts_of, read_back

shares = st.none() | st.sampled_from([0.0, 0.25, 1.0])
# Few keys and values, so that points meet; moments around the end of a month.
points = st.builds(
    PricePoint,
    at=st.sampled_from([START + timedelta(microseconds=m) for m in (-1, 0, 1, 3_600_000_000)]),
    cloud=st.sampled_from(["aws", "gcp"]),
    region=st.just("r"),
    zone=st.sampled_from([None, "", "a"]),
    instance_type=st.just("t"),
    market=st.sampled_from([Market.SPOT, Market.ON_DEMAND]),
    usd_per_hour=st.sampled_from([UsdPerHour(1), UsdPerHour((1 << 63) - 1)]),
    available=shares,
    score=shares,
    source=st.sampled_from(["x", "y"]),
)
steps = st.lists(st.lists(points, max_size=6) | st.just("merge"), min_size=1, max_size=6)


@contextmanager
def a_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def key(point: PricePoint) -> Any:
    return (point.at, point.cloud, point.region, point.zone, point.instance_type, point.market, point.source)


@pytest.mark.slow
@settings(max_examples=12)
@given(steps)
def test_it_answers_as_a_dictionary_would(taken: list[list[PricePoint] | str]) -> None:
    expected: dict[Any, PricePoint] = {}
    with a_folder() as folder:
        for step in taken:
            if isinstance(step, str):
                history.compact(folder)
            else:
                added = history.append(folder, step)
                assert added.written + added.already_there == len(step)
                expected |= {key(point): point for point in step}
        assert read_back(folder) == in_order(expected.values())
        history.compact(folder)
        assert read_back(folder) == in_order(expected.values())
        assert len(parts_of(folder)) == len({point.at.month for point in expected.values()})
        assert history.append(folder, expected.values()).written == 0


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(points, max_size=12, unique_by=key), st.randoms(use_true_random=False))
def test_the_order_of_points_with_different_keys_does_not_matter(given_points: list[PricePoint], random: Any) -> None:
    shuffled = given_points[:]
    random.shuffle(shuffled)
    with a_folder() as one, a_folder() as other:
        history.append(one, given_points)
        for point in shuffled:
            history.append(other, [point])
        assert read_back(one) == read_back(other)


observations = st.lists(
    st.tuples(st.integers(1, 90), st.booleans()).map(lambda gap: (timedelta(minutes=gap[0]), gap[1])), max_size=30
)


@given(observations, st.integers(0, 90).map(lambda minutes: timedelta(minutes=minutes)))
def test_exposure_is_what_was_watched_and_every_loss_has_some(gaps: list[Any], longest_gap: timedelta) -> None:
    at, seen = START, []
    for gap, available in gaps:
        at += gap
        seen.append((at, available))
    found = measure_exposure(seen, longest_gap)
    watched = sum((gap for gap, _ in gaps[1:] if gap <= longest_gap), timedelta(0))
    assert 0 <= found.hours <= watched / timedelta(hours=1) + 1e-9
    assert found.losses <= sum(available for _, available in seen)
    assert found.losses == 0 or found.hours > 0
    assert measure_exposure([(moment, True) for moment, _ in seen], longest_gap).losses == 0


@given(observations, st.integers(0, 90).map(lambda minutes: timedelta(minutes=minutes)), st.floats(0, 100))
def test_an_older_record_counts_less_in_all_parts_alike(gaps: list[Any], longest_gap: timedelta, days: float) -> None:
    at, seen = START, []
    for gap, available in gaps:
        at += gap
        seen.append((at, available))
    whole = measure_exposure(seen, longest_gap)
    fresh, old = (measure_exposure(seen, longest_gap, at + timedelta(days=d)) for d in (0.0, days))
    for told in (whole, fresh, old):
        # A life's operational time is at most that of its hours at age 0, where it passes fastest.
        assert told.operational <= told.hours / AGE_SCALE_HOURS + 1e-9
        assert (told.operational > 0) == (told.hours > 0)
    assert fresh.hours <= whole.hours + 1e-9
    assert fresh.losses <= whole.losses + 1e-9
    faded = memory_weight(at, at + timedelta(days=days))
    assert old.hours == pytest.approx(fresh.hours * faded)
    assert old.losses == pytest.approx(fresh.losses * faded)
    assert old.operational == pytest.approx(fresh.operational * faded)
    assert old.lives == fresh.lives == whole.lives


def test_points_of_the_same_moment_differ_by_microseconds() -> None:
    """What the strategies above rely on: the smallest step in time is kept."""
    with a_folder() as folder:
        near = [replace(A_POINT, at=START + timedelta(microseconds=m)) for m in range(3)]
        assert history.append(folder, near).written == 3
        assert read_back(folder) == near
