"""``stepfare quotes fit``: what is learned from the price history, and that quotes go by it."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from pricing.history import PricePoint
from pricing.places import Market
from router.app import fit_availability
from router.app.fit_availability import recorded_pools
from router.config.plan_files import read_fit
from router.prices import history
from router.spot.availability.fit import GRID
from tests.support.command import NOW, run
from tests.support.repository import ROOT

MOMENT = datetime.fromisoformat(NOW).astimezone(UTC)
JOB = ROOT / "examples" / "nightly" / "mpt-7b-pretrain.yaml"
REGIONS = ("eastus", "westus2", "southcentralus")
HALF_HOUR = timedelta(minutes=30)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fit_availability, "_STARTS", 2)
    return tmp_path / "home"


def watch(home: Path, days: float, every: int = 1, regions: tuple[str, ...] = REGIONS) -> None:
    """Looks at spot in each region, half an hour apart, which comes and goes."""
    rng, count = np.random.default_rng(3), int(days * 48)
    points = []
    for region in regions:
        up = np.cumsum(rng.random(count) < 0.06) % 2 == 0
        points += [
            PricePoint(
                "azure",
                region,
                None,
                "Standard_ND96asr_v4",
                Market.SPOT,
                MOMENT - HALF_HOUR * (count - i),
                "a feed",
                available=float(up[i]),
            )
            for i in range(0, count, every)
        ]
    history.append(home / "history", points)


@pytest.mark.slow
def test_quotes_go_by_what_was_learned(home: Path, tmp_path: Path) -> None:
    watch(home, 16)
    watched = tmp_path / "watched.yaml"  # the job on the accelerator of the machines that were watched alone
    watched.write_text(re.sub(r"accelerators: .*", "accelerators: {A100-40GB: [16, 32, 64]}", JOB.read_text()))
    before = run("quote", watched, "--book", "embedded", "--now", NOW)
    assert "how far spot availability drifts is assumed" in " ".join(before.stdout.split())
    result = run("quotes", "fit", "--now", NOW)
    assert result.exit_code == 0, result.stderr
    assert "learned from 3 pools, 15 days" in result.stdout
    fit = read_fit(home / "weather-fit.json")
    assert fit is not None
    assert (fit.pools, fit.outcomes) == (3, 5 * 3 * 2 * 6)
    assert all(math.isclose(sum(shares), 1) for shares in fit.likely)
    sizes = [sum(p * s.size for p, s in zip(shares, GRID, strict=True)) for shares in fit.likely]
    assert max(sizes) < 0.6  # the availability was made without drift
    after = run("quote", watched, "--book", "embedded", "--now", NOW)
    assert after.exit_code == 0
    assert "were learned from 15 days of 3 pools" in " ".join(after.stdout.split())
    assert after.stdout.splitlines()[0] != before.stdout.splitlines()[0]
    late = (MOMENT + timedelta(days=40)).isoformat()
    old = run("quote", watched, "--book", "embedded", "--now", late, "--by", "+14d")
    assert "learned from 15 days" not in " ".join(old.stdout.split())


def test_what_is_too_little_is_said(home: Path) -> None:
    watch(home, 13)
    result = run("quotes", "fit", "--now", NOW)
    assert result.exit_code == 1
    assert "3 spot pools were observed, for 13.0 days at most" in " ".join(result.stderr.split())
    assert not (home / "weather-fit.json").exists()
    watch(home, 30, every=4, regions=("brazilsouth",))  # two hours apart: a look holds for a quarter of that
    assert recorded_pools(home / "history", MOMENT).ground is None


@pytest.mark.slow
def test_the_same_history_gives_the_same_fit(home: Path) -> None:
    watch(home, 15, regions=REGIONS[:1])
    first = run("quotes", "fit", "-o", "json", "--now", NOW)
    assert run("quotes", "fit", "-o", "json", "--now", NOW).stdout == first.stdout
    assert set(json.loads(first.stdout)) >= {"since", "until", "pools", "cost", "finish", "likely"}


@pytest.mark.parametrize("text", ["", "[]", '{"format": 9}', '{"format": 1, "since": "2026-11-01", "until": 3}'])
def test_a_damaged_fit_is_named(home: Path, text: str) -> None:
    home.mkdir()
    (home / "weather-fit.json").write_text(text)
    result = run("quote", JOB, "--book", "embedded", "--now", NOW)
    assert result.exit_code == 2
    assert "weather-fit.json" in result.stderr
    assert "stepfare quotes fit" in " ".join(result.stderr.split())
