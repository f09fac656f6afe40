"""The clock of commands: the time of day, or one that runs faster since a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pricing.problems import InvalidInputError
from router.cli import options

SINCE = datetime(2026, 11, 21, 18, tzinfo=UTC)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The time of day, to be moved."""
    now = [SINCE + timedelta(seconds=30)]
    monkeypatch.setattr(options, "wall_clock", lambda: now[0])
    return now


def test_the_time_of_day_is_in_utc_and_goes_on() -> None:
    first = options.wall_clock()
    assert first.tzinfo is UTC
    assert first <= options.wall_clock() < first + timedelta(minutes=1)


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_it_is_the_time_of_day(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(options.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(options.VARIABLE, value)
    assert options.chosen_clock() is options.wall_clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1@2026-11-21T18:00:00Z", 30),
        ("60@2026-11-21T18:00:00Z", 1800),
        ("60@2026-11-21T19:00:00+01:00", 1800),
        ("100000@2026-11-21T18:00:00Z", 3_000_000),
    ],
)
def test_it_runs_that_much_faster_since_the_moment(
    text: str, seconds: int, wall: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(options.VARIABLE, text)
    played = options.chosen_clock()
    assert played() == SINCE + timedelta(seconds=seconds)
    assert played().tzinfo is UTC
    wall[0] += timedelta(seconds=1)
    assert played() == SINCE + timedelta(seconds=seconds + seconds // 30)


@pytest.mark.parametrize(
    "text",
    [
        "60",
        "60@",
        "@2026-11-21T18:00:00Z",
        "x@2026-11-21T18:00:00Z",
        "0@2026-11-21T18:00:00Z",
        "-1@2026-11-21T18:00:00Z",
        "1.5@2026-11-21T18:00:00Z",
        "60@2026-11-21T18:00:00",
        "60@yesterday",
        "60@2026-13-21T18:00:00Z",
        "100001@2026-11-21T18:00:00Z",
        "99999999999999999999@2026-11-21T18:00:00Z",
        # It would stand after the year 9999.
        "100000@2000-01-01T00:00:00Z",
    ],
)
def test_what_is_no_clock_is_refused_with_an_example(
    text: str, wall: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(options.VARIABLE, text)
    with pytest.raises(InvalidInputError) as caught:
        options.chosen_clock()
    (problem,) = caught.value.problems
    assert problem.field == "STEPFARE_CLOCK"
    assert problem.what == f"{text!r} is no clock"
    monkeypatch.setenv(options.VARIABLE, problem.remedy.removeprefix("write "))
    assert options.chosen_clock()() == SINCE + timedelta(seconds=1800)
