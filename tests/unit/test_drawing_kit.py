"""Scales, ticks and labels that all pictures share, and pictures as files of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from router.render.axes import TimeScale, free_ticks, round_minutes, scale_around, time_words
from router.render.drawing import in_widths, line, picture, series_class, stand_alone, text, text_width
from router.render.figures import tick_in

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "ends", "unit"),
    [
        ((0.31, 0.75), (0.3, 0.8), 0.1),
        ((4.0, 99.0), (0.0, 100.0), 20.0),
        ((5.0, 5.0), (5.0, 5.02), 0.02),
        ((0.0, 0.0), (0.0, 2e-7), 2e-7),
    ],
)
def test_a_scale_ends_at_round_ticks_around_its_values(
    values: tuple[float, ...], ends: tuple[float, float], unit: float
) -> None:
    scale, step = scale_around(values, 100, 0, 6)
    assert step == pytest.approx(unit)
    assert scale.low <= min(values) <= max(values) <= scale.high
    assert (scale.low, scale.high) == pytest.approx(ends)
    assert (scale.at(scale.low), scale.at(scale.high)) == (100, 0)


def test_a_tick_has_the_decimals_of_its_unit() -> None:
    units = ((7, 100.0), (1, 0.5), (3, 0.002))
    assert [tick_in(number, unit, "USD") for number, unit in units] == ["$700", "$0.50", "$0.006"]


@pytest.mark.parametrize("hours", [1, 5, 24, 24 * 9, 24 * 400, 24 * 4000])
def test_ticks_of_time_are_round_and_their_words_never_meet(hours: int) -> None:
    scale = TimeScale(NOON, NOON + timedelta(hours=hours), NOON + timedelta(hours=hours), 0.0, 600.0)
    shown = list(free_ticks(scale.ticks(60), time_words, 0.0, 600.0))
    assert shown
    assert all(moment.second == 0 and moment.minute % 5 == 0 for _, moment in shown)
    edges = [(x - text_width(time_words(at)) / 2, x + text_width(time_words(at)) / 2) for x, at in shown]
    assert all(end < begin for (_, end), (begin, _) in pairwise(edges))
    assert round_minutes(600 / (hours * 60), 60) * 600 / (hours * 60) >= 60


def test_thirty_two_series_are_told_apart() -> None:
    assert len({series_class(number) for number in range(32)}) == 32


def test_a_file_has_its_size_and_a_style_without_variables_in_light_and_dark() -> None:
    drawn = stand_alone(picture("a <name>", 100, 50, [line(0, 0, 9, 9, "ln c1"), text(1, 1, "a & b", "s")]))
    root = ElementTree.fromstring(drawn)
    assert (root.attrib["width"], root.attrib["height"], root.attrib["viewBox"]) == ("124", "74", "-12 -12 124 74")
    assert root.attrib["aria-label"] == "a <name>"
    light, dark = drawn.split("@media")
    assert "var(" not in drawn
    assert ".c1{color:#d55e00}" in light
    assert ".c1{color:#ff8a3d}" in dark


def test_a_picture_stands_in_three_widths_or_not_at_all() -> None:
    assert in_widths(str, (3, 2, 1)) == '<div class="w">3</div><div class="t">2</div><div class="n">1</div>'
    assert in_widths(lambda _: "", (3, 2, 1)) == ""
