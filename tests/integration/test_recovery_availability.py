"""A stretch of two real zones, played on the sandbox with a gang that trains."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from providers.sandbox.machines import SandboxMachines
from providers.sandbox.stock import StockFile
from tests.support.availability_player import TRACES, Availability, Trace, play_availability, read_trace
from tests.support.busy import eventually
from tests.support.deployed import ZONE_A, ZONE_B, planned
from tests.support.recovered import (
    alone,
    attempts,
    is_done,
    set_off,
    stop,
    training,
    until_step,
    watched,
    wrong,
)
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = [
    needs_engine,
    pytest.mark.slow,
    pytest.mark.skipif(not TRACES.is_dir(), reason="needs shared/data/spot-traces"),
]

STEPS, EVERY = 500, 50
# A tick of these traces was half a minute.
_FOLDER, _NAMES = "preemption/1-node/aws-04-22-2023", ("us-west-2b_v100_1.json", "us-west-2c_v100_1.json")
TICK_S, NOTICE_S = 0.6, 3.0
# In ticks: how long a stretch is rough, and how long it is calm before.
STRETCH, LEAD = 40, 4


def roughest(traces: list[Trace]) -> int:
    """The tick from which on zones go down most often; the first zone is the first to go."""

    def falls(trace: Trace, first: int, last: int) -> list[int]:
        return [t for t in range(first, last) if trace.up(t, 1) and not trace.up(t + 1, 1)]

    def rough(first: int) -> int:
        return sum(len(falls(trace, first, first + STRETCH)) for trace in traces)

    begins = falls(traces[0], LEAD, len(traces[0].machines) - STRETCH)
    return max(begins, key=lambda first: (rough(first), -first)) - LEAD


def test_a_gang_that_trains_through_the_availability_of_real_zones(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    base = tmp_path_factory.getbasetemp()
    site = planned(base, "weather", training(STEPS, every=EVERY, step_s=0.03)).site(tmp_path / "site")
    (site.folder / "cloud").mkdir()
    traces = [read_trace(TRACES / _FOLDER / name) for name in _NAMES]
    try:
        with SeenMachines() as seen_machines:
            watcher = watched(site)
            set_off(site)
            until_step(site, 20)
            with site.store() as store:
                availability = Availability(
                    store,
                    SandboxMachines(store.id),
                    StockFile(site.folder / "cloud"),
                    dict(zip((ZONE_A, ZONE_B), traces, strict=True)),
                    time.monotonic,
                    notice_s=NOTICE_S,
                )
                with play_availability(availability, TICK_S, roughest(traces)):
                    eventually(lambda: is_done(site) and attempts(site)[-1].phase.is_over, 90, pause=0.2)
            stop(watcher)
            assert wrong(site, STEPS, alone(base, STEPS), seen_machines) == []
    finally:
        site.end()
    assert availability.outages > 0
    assert {one.reason for one in attempts(site)} <= {"interrupted", "lost", "short", "finished"}
    assert attempts(site)[-1].reason == "finished"
    assert len(attempts(site)) > 1
