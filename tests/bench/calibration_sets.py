"""Sets of traces on which quotes are judged: which zones, which jobs, and the blocks of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from router.config.trace_files import Holes, read_traces
from router.spot.availability.evaluation_blocks import EvaluationTraces
from router.spot.simulator.inputs import HOUR_S, Task, ZoneMoveCosts
from router.spot.simulator.traces import Series
from tests.bench.cells import LISTED, NEAR, NEW, OLD, PROBED, SLOWER, THREE
from tests.support.repository import ROOT

H100 = ROOT.parent / "shared/data/spot-availability/h100_gcp_2025-10"
GIB = 50.0
MOVE_USD = 1.0  # of an H100 checkpoint, from region to region


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """Traces with the jobs that are quoted on them. ``joined``: a job may use all zones; else each zone has its own.
    ``source``: sets of one source are views of the same availability."""

    name: str
    source: int
    joined: bool
    ground: EvaluationTraces

    @classmethod
    def of(
        cls, name: str, series: Series, source: int, joined: bool, tasks: tuple[Task, ...], gib_usd: float = 0.0
    ) -> Kind:
        """``gib_usd``: of a checkpoint from region to region."""
        zones = np.arange(len(series.zones))
        parts = (zones,) if joined else tuple(zones[i : i + 1] for i in zones)
        ways = ZoneMoveCosts.between(series.regions, lambda a, b: gib_usd * (0.5 if {a, b} == NEAR else 1.0))
        return cls(name, source, joined, EvaluationTraces.of(series, tasks, parts, ways))


def task(work_h: float, ratio: float, changeover_h: float, tick_s: int) -> Task:
    return Task(round(work_h * HOUR_S), round(work_h * ratio * HOUR_S / tick_s) * tick_s, round(changeover_h * HOUR_S))


def kinds() -> Iterator[Kind]:
    old = _together([read_traces(path, listed=LISTED) for path in sorted(OLD.glob("*.json"))])
    yield Kind.of("one zone, 2022", old, 0, False, _jobs(old))
    new = _together([read_traces(path, listed=LISTED).every(SLOWER) for path in sorted(NEW.glob("*.json"))])
    yield Kind.of("one zone, 2023", new, 1, False, _jobs(new))
    nine = read_traces(PROBED).every(SLOWER)
    three = nine.only(THREE)
    yield Kind.of("three zones", three, 1, True, _jobs(three), 0.02 * GIB)
    yield Kind.of("nine zones", nine, 1, True, _jobs(nine), 0.02 * GIB)
    h100 = read_traces(H100, holes=Holes.LAST)
    yield Kind.of("H100, any of 16", h100, 2, True, _jobs(h100), MOVE_USD)
    six = h100.only(SIX)
    yield Kind.of("H100, six zones", six, 2, True, _jobs(six), MOVE_USD)


SIX = ("europe-west1-c", "us-central1-b", "us-east5-a", "us-west1-a", "asia-southeast1-b", "europe-west3-c")


def _jobs(series: Series) -> tuple[Task, ...]:
    return tuple(task(work, ratio, 0.2, series.tick_s) for work, ratio in ((8, 1.5), (24, 1.25), (48, 1.25)))


def _together(series: list[Series]) -> Series:
    zones = tuple(replace(z, zone=f"{n} {z.zone}") for n, one in enumerate(series) for z in one.zones)
    return Series(series[0].tick_s, zones)
