"""Exposure of observed pools, against cases counted by hand and against public traces."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.hazard import AGE_SCALE_HOURS
from pricing.pool_experience import HALF_LIFE, Exposure, measure_exposure, memory_weight
from tests.support.repository import ROOT

START = datetime(2026, 11, 1, tzinfo=UTC)
TRACES = ROOT.parent / "shared" / "data" / "spot-traces"
HALF_HOUR = timedelta(minutes=30)


def seen(minutes_and_state: str) -> list[tuple[datetime, bool]]:
    """From ``"0+ 10+ 20-"``: at minute 0 and 10 there, at minute 20 not."""
    return [(START + timedelta(minutes=int(word[:-1])), word[-1] == "+") for word in minutes_and_state.split()]


@pytest.mark.parametrize(
    ("observations", "hours", "losses"),
    [
        ("", 0, 0),
        ("0+", 0, 0),
        ("0- 30- 60-", 0, 0),
        ("0+ 30+ 60+", 1, 0),
        ("0+ 30-", 0.5, 1),  # the stretch before the loss counts whole
        ("0- 30+ 60+ 90- 120+ 150-", 1.5, 2),
        ("0+ 31+ 61+", 0.5, 0),  # nobody looked for 31 minutes
        ("0+ 31-", 0, 0),  # nor is it known whether it was lost then
        ("0+ 15+ 16- 17+ 18-", 17 / 60, 2),
    ],
)
def test_exposure_and_losses(observations: str, hours: float, losses: int) -> None:
    found = measure_exposure(seen(observations), HALF_HOUR)
    assert found.hours == pytest.approx(hours)
    assert found.losses == losses


@pytest.mark.parametrize(
    ("observations", "waited_hours", "waits"),
    [
        ("", 0, 0),
        ("0-", 0, 0),
        ("0- 30- 60-", 1, 0),  # it never came back, and the time counts
        ("0+ 30- 60- 90+", 1, 1),
        ("0- 30+ 60+ 90- 120+ 150-", 1, 2),
        ("0- 31+ 61- 91-", 0.5, 0),  # nobody looked for 31 minutes
    ],
)
def test_waits_are_the_time_without_machines_and_how_often_it_ended(
    observations: str, waited_hours: float, waits: float
) -> None:
    found = measure_exposure(seen(observations), HALF_HOUR)
    assert found.waited_hours == pytest.approx(waited_hours)
    assert found.waits == waits
    later = measure_exposure(seen(observations), HALF_HOUR, START + HALF_LIFE)
    assert later.waited_hours == pytest.approx(waited_hours / 2, rel=0.02)
    assert later.waits == pytest.approx(waits / 2, rel=0.02)


@pytest.mark.parametrize("observations", ["10+ 0+", "10+ 10-"])
def test_observations_out_of_order_are_refused(observations: str) -> None:
    with pytest.raises(ValueError, match="order of time"):
        measure_exposure(seen(observations), HALF_HOUR)


def x(*lives: tuple[float, float]) -> float:
    """Return the operational time of stretches (age at the begin, age at the end), in minutes."""
    c = 60 * AGE_SCALE_HOURS
    return sum(math.log((c + end) / (c + begin)) for begin, end in lives)


@pytest.mark.parametrize(
    ("observations", "operational", "lives"),
    [
        ("", 0.0, 0),
        ("0-", 0.0, 0),
        ("0+", 0.0, 1),
        ("0+ 30+ 60+", x((0, 60)), 1),  # one life of an hour
        ("0+ 30- 60+ 90+", x((0, 30), (0, 30)), 2),  # the second life begins anew
        ("0+ 30+ 61+ 91+", x((0, 30), (0, 30)), 2),  # nobody looked for 31 minutes: ages begin anew
        ("0- 30+ 60-", x((0, 30)), 1),
        ("0+ 31-", 0.0, 1),
    ],
)
def test_operational_time_follows_the_age_of_each_life(observations: str, operational: float, lives: int) -> None:
    found = measure_exposure(seen(observations), HALF_HOUR)
    assert found.operational == pytest.approx(operational)
    assert found.lives == lives


def test_a_calm_hour_of_an_old_machine_says_less_than_one_of_a_young_one() -> None:
    day = measure_exposure([(START + i * HALF_HOUR, True) for i in range(49)], HALF_HOUR)
    restarted = measure_exposure([(START + i * HALF_HOUR, i % 3 < 2) for i in range(73)], HALF_HOUR)
    assert day.hours == pytest.approx(restarted.hours) == 24
    assert restarted.operational > 5 * day.operational


def test_what_was_seen_a_half_life_ago_counts_half() -> None:
    fresh = measure_exposure(seen("0+ 30+ 60-"), HALF_HOUR)
    end = START + timedelta(hours=1)
    old = measure_exposure(seen("0+ 30+ 60-"), HALF_HOUR, end + HALF_LIFE)
    for name in ("hours", "losses", "operational"):
        assert getattr(old, name) == pytest.approx(getattr(fresh, name) / 2, rel=0.01)
    assert old.lives == fresh.lives
    assert memory_weight(START, START) == 1.0
    assert memory_weight(START, START + 3 * HALF_LIFE) == pytest.approx(1 / 8)


def test_interruptions_and_time_are_forgotten_alike() -> None:
    """The rate of a steady pool is the same at any half-life; that of one which calmed down follows its late record."""
    often = [(START + i * timedelta(minutes=20), i % 4 < 3) for i in range(24 * 3 * 30)]
    now = often[-1][0]
    found, whole = measure_exposure(often, HALF_HOUR, now), measure_exposure(often, HALF_HOUR)
    assert found.losses < whole.losses / 2
    assert found.losses / found.hours == pytest.approx(whole.losses / whole.hours, rel=0.02)
    calm = [*often, *((now + i * HALF_HOUR, True) for i in range(1, 48 * 14))]
    late, ever = measure_exposure(calm, HALF_HOUR, calm[-1][0]), measure_exposure(calm, HALF_HOUR)
    assert late.losses / late.hours < ever.losses / ever.hours / 2


def _trace(file: Path) -> Exposure:
    trace = json.loads(file.read_text(encoding="utf-8"))
    tick = timedelta(seconds=trace["metadata"]["gap_seconds"])
    return measure_exposure(((START + i * tick, count > 0) for i, count in enumerate(trace["data"])), HALF_HOUR)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("files", "losses", "hours"),
    [
        # As docs/design/interruption-risk.md has counted them, by other code.
        ("preemption/1-node/aws-04-22-2023/*v100*.json", 96, 215),
        ("preemption/1-node/aws-04-19-2023/*.json", 116, 175),
        ("preemption/1-node/gcp-04-30-2023/*.json", 2, 89),
    ],
)
def test_public_traces_of_held_machines(files: str, losses: int, hours: int) -> None:
    found = [_trace(file) for file in TRACES.glob(files)]
    assert sum(pool.losses for pool in found) == losses
    assert round(sum(pool.hours for pool in found)) == hours


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared data are not here")
def test_public_probes_fall_as_often_as_the_design_note_says() -> None:
    found = [_trace(file) for file in TRACES.glob("availability/1-node/aws-02-15-2023/*.json")]
    assert sum(pool.losses for pool in found) / sum(pool.hours for pool in found) == pytest.approx(0.35, abs=0.005)
