"""The judging of quotes, on small made-up traces."""

from __future__ import annotations

import numpy as np
import pytest

from router.quotes import forward_chaining
from router.spot.availability.evaluation_blocks import BLOCKS
from router.spot.simulator.inputs import HOUR_S, Task
from router.spot.simulator.traces import Series, ZoneSeries
from tests.bench import calibrate
from tests.bench.calibration_sets import Kind, task

TICK_S, BLOCK = 1800, 60


def kind(joined: bool) -> Kind:
    rng = np.random.default_rng(1)
    ticks = BLOCKS * BLOCK
    up = (np.cumsum(rng.random((2, ticks)) < 0.15, axis=1) % 2).astype(np.int64)
    prices = np.linspace(1.0, 1.5, ticks)
    zones = tuple(ZoneSeries(f"z{i}", f"r{i}", up[i], prices + i / 10, 4.0) for i in range(2))
    return Kind.of(f"made up {joined}", Series(TICK_S, zones), 0, joined, (task(4, 1.5, 0.2, TICK_S),), 0.5)


def test_windows_of_a_block_are_of_its_ticks_and_begin_as_they_did() -> None:
    availability = kind(True).ground
    job, zones, at = Task(4 * HOUR_S, 6 * HOUR_S, 720), np.arange(2), availability.starts(2, 5)
    assert at.tolist() == [119, 131, 143, 155, 167]
    made, real = availability.made(zones, job, at, 2, np.random.default_rng(1)), availability.real(zones, job, at)
    before, known = real.before(availability.past)
    assert known.all()
    assert (before == made.before(availability.past)[0]).all()
    assert (before[:, :, -1] == availability.up[:, at]).all()
    ticks = real.starts[:, None] + np.arange(real.ticks)
    assert (real.up[:, ticks] == availability.up[:, at[:, None] + 1 + np.arange(real.ticks)]).all()
    dollars = made.spot_usd[0][made.starts[:, None] + np.arange(made.ticks)]
    block = availability.usd[0, 2 * BLOCK : 3 * BLOCK]
    assert dollars.min() >= block.min()
    assert dollars.max() <= block.max()
    assert availability.state(zones, at).up.shape == (5, 2)


@pytest.mark.slow
def test_all_rows_come_from_both_kinds_of_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "kinds", lambda: iter([kind(True), kind(False)]))
    monkeypatch.setattr(forward_chaining, "DRAWS", 20)
    monkeypatch.setattr(calibrate, "DRAWS", 20)
    monkeypatch.setattr(calibrate, "EACH", 2)
    found = list(calibrate.everything(""))
    names = {row.name for _, _, rows in found for row in rows}
    assert names == {*calibrate.MODELS, calibrate.RECALIBRATED, calibrate.NAIVE}
    assert {where for where, _, _ in found} == {"unseen block", "traces"}
    assert {name for _, name, _ in found} == {"made up True", "made up False", "all"}
    pooled = [row for where, name, rows in found for row in rows if (where, name) == ("unseen block", "all")]
    windows = (BLOCKS - 1) * 2 * (calibrate.SKIES_JOINED + 2 * calibrate.SKIES_ALONE)
    assert {row.count for row in pooled} == {windows}
    assert all(0 <= c.held.mean <= 1 for row in pooled for c in row.covered)
    assert [name for _, name, _ in calibrate.everything("False")].count("made up True") == 0
