"""Interruption rates from observations, against cases counted by hand and against public traces."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.observed_risk import Exposure, estimate_loss_rate, measure_exposure
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


@pytest.mark.parametrize("observations", ["10+ 0+", "10+ 10-"])
def test_observations_out_of_order_are_refused(observations: str) -> None:
    with pytest.raises(ValueError, match="order of time"):
        measure_exposure(seen(observations), HALF_HOUR)


@pytest.mark.parametrize(
    ("exposure", "rate"),
    [
        (Exposure(0, 0), 0.1),  # nothing seen: the prior
        (Exposure(24, 0), 0.05),  # as long as the prior weighs, and no loss
        (Exposure(24, 12), 0.3),  # (12 + 2.4) / 48
        (Exposure(2376, 237), 0.09975),  # (237 + 2.4) / 2400: what was seen prevails
    ],
)
def test_the_rate_lies_between_what_was_seen_and_the_prior(exposure: Exposure, rate: float) -> None:
    assert estimate_loss_rate(exposure, prior_rate=0.1, prior_hours=24) == pytest.approx(rate)


@pytest.mark.parametrize(("rate", "hours"), [(-0.1, 24), (0.1, 0), (0.1, -1), (float("nan"), 24), (0.1, float("nan"))])
def test_a_prior_that_is_none_is_refused(rate: float, hours: float) -> None:
    with pytest.raises(ValueError, match="prior needs"):
        estimate_loss_rate(Exposure(1, 1), rate, hours)


def _trace(file: Path) -> Exposure:
    trace = json.loads(file.read_text(encoding="utf-8"))
    tick = timedelta(seconds=trace["metadata"]["gap_seconds"])
    return measure_exposure(((START + i * tick, count > 0) for i, count in enumerate(trace["data"])), HALF_HOUR)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("files", "losses", "hours"),
    [
        # As docs/design/005-interruption-priors.md has counted them, by other code.
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
