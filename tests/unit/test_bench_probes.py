"""The table of paid probes, on made-up availability."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.policies.published.skynomad import SkyNomad
from router.spot.simulator.traces import Series, ZoneSeries
from tests.bench.probes import Set, line, played, policies, whole


def made_up() -> Series:
    """Two zones, up for hours, of sixteen machines at most."""
    rng = np.random.default_rng(3)
    zones = []
    for number in range(2):
        counts = 16 * (np.cumsum(rng.random(240) < 0.1) % 2)
        zones.append(ZoneSeries(f"z{number}", f"r{number}", counts, np.full(240, 1.0 + number), 6.0))
    return Series(600, tuple(zones))


def test_a_line_of_the_table() -> None:
    of = Set("made up", whole(made_up(), 16), 60, (1.5,), SkyNomad())
    assert of.tiled() == [0, 60, 120, 180]
    assert of.overlapping() == [0, 60, 120, 180]
    cell = played(of, 1.5, of.tiled())
    assert cell.late == 0
    assert len(cell.usd) == 2 + len(policies(of))
    assert all((usd >= cell.least_usd * (1 - 1e-5)).all() for usd in cell.usd.values())
    assert cell.over("on-demand") == pytest.approx(max(map(cell.over, cell.usd)))
    figures = [float(word) for word in line(1.5, cell).split()]
    assert figures == pytest.approx([1.5, cell.least_usd.mean(), *map(cell.over, cell.usd), 0], abs=0.05)


def test_a_gang_is_there_whole_or_not_at_all() -> None:
    series = Series(600, (ZoneSeries("a", "r", np.array([0, 1, 15, 16]), np.ones(4), 2.0),))
    assert whole(series, 16).up().tolist() == [[False, False, False, True]]
    assert whole(series, 1).up().tolist() == [[False, True, True, True]]
