"""Sets of traces on which quotes are judged: which zones, which jobs, and the blocks of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from router.files.trace_files import read_traces
from router.files.trace_values import Holes
from router.quoting.forecast import PAST_H
from router.quoting.outlook import Sky, ages_h
from router.quoting.resampling import resampled
from router.quoting.scene import HOUR_S, Scene, Task, Ways
from router.quoting.series import Bools, Floats, Ints, Series, ZoneSeries
from tests.bench.cells import BLOCKS, LISTED, NEAR, NEW, OLD, PROBED, SLOWER, THREE
from tests.support.repository import ROOT

H100 = ROOT.parent / "shared/data/spot-availability/h100_gcp_2025-10"
GIB = 50.0
MOVE_USD = 1.0  # of an H100 checkpoint, from region to region
PIECE_H = 12.0


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """Traces with the jobs that are quoted on them. ``joined``: a job may use all zones; else each zone has its own.
    ``source``: sets of one source are views of the same weather."""

    name: str
    series: Series
    source: int
    joined: bool
    tasks: tuple[Task, ...]
    gib_usd: float = 0.0

    def ways(self) -> Ways:
        """Egress by region."""
        return Ways.between(self.series.regions, lambda a, b: self.gib_usd * (0.5 if {a, b} == NEAR else 1.0))

    def parts(self) -> list[Ints]:
        """The zones of each job."""
        zones = np.arange(len(self.series.zones))
        return [zones] if self.joined else [zones[i : i + 1] for i in zones]

    def edges(self) -> list[int]:
        """Where each block begins, and the end."""
        return [self.series.ticks * b // BLOCKS for b in range(BLOCKS + 1)]


def task(work_h: float, ratio: float, changeover_h: float, tick_s: int) -> Task:
    """With its deadline on a tick."""
    return Task(round(work_h * HOUR_S), round(work_h * ratio * HOUR_S / tick_s) * tick_s, round(changeover_h * HOUR_S))


def kinds() -> Iterator[Kind]:
    """All sets."""
    old = _together([read_traces(path, listed=LISTED) for path in sorted(OLD.glob("*.json"))])
    yield Kind("one zone, 2022", old, 0, False, _jobs(old))
    new = _together([read_traces(path, listed=LISTED).every(SLOWER) for path in sorted(NEW.glob("*.json"))])
    yield Kind("one zone, 2023", new, 1, False, _jobs(new))
    nine = read_traces(PROBED).every(SLOWER)
    three = nine.only(THREE)
    yield Kind("three zones", three, 1, True, _jobs(three), 0.02 * GIB)
    yield Kind("nine zones", nine, 1, True, _jobs(nine), 0.02 * GIB)
    h100 = read_traces(H100, holes=Holes.LAST)
    yield Kind("H100, any of 16", h100, 2, True, _jobs(h100), MOVE_USD)
    six = h100.only(SIX)
    yield Kind("H100, six zones", six, 2, True, _jobs(six), MOVE_USD)


SIX = ("europe-west1-c", "us-central1-b", "us-east5-a", "us-west1-a", "asia-southeast1-b", "europe-west3-c")


def _jobs(series: Series) -> tuple[Task, ...]:
    return tuple(task(work, ratio, 0.2, series.tick_s) for work, ratio in ((8, 1.5), (24, 1.25), (48, 1.25)))


def _together(series: list[Series]) -> Series:
    zones = tuple(replace(z, zone=f"{n} {z.zone}") for n, one in enumerate(series) for z in one.zones)
    return Series(series[0].tick_s, zones)


@dataclass(frozen=True, eq=False, slots=True)
class Weather:
    """A kind's traces as arrays."""

    kind: Kind
    up: Bools
    ages: Floats
    usd: Floats

    @classmethod
    def of(cls, kind: Kind) -> Weather:
        """The same."""
        up = kind.series.up()
        return cls(kind, up, ages_h(up, kind.series.tick_s), kind.series.spot_usd())

    def sky(self, zones: Ints, at: Ints) -> Sky:
        """[window, zone] at these ticks."""
        return Sky(self.up[zones][:, at].T, self.ages[zones][:, at].T)

    def scene(self, zones: Ints, job: Task, which: Ints) -> Scene:
        """Windows of the ticks [window, tick], ``PAST_H`` hours of them before each begins."""
        past, flat = self.past, which.ravel()
        made = tuple(
            ZoneSeries(z.zone, z.region, self.up[i][flat].astype(np.int64), self.usd[i][flat], z.on_demand_usd_per_hour)
            for i, z in ((i, self.kind.series.zones[i]) for i in zones)
        )
        series = Series(self.kind.series.tick_s, made)
        ways = self.kind.ways()
        own = Ways(ways.egress_usd[np.ix_(zones, zones)], ways.transfer_s[np.ix_(zones, zones)])
        return Scene.of(job, series, past + which.shape[1] * np.arange(len(which)), own)

    @property
    def past(self) -> int:
        """Ticks shown before a window."""
        return PAST_H * HOUR_S // self.kind.series.tick_s

    def real(self, zones: Ints, job: Task, at: Ints) -> Scene:
        """What followed each of these ticks. ValueError where the traces end before."""
        ticks = job.ticks(self.kind.series.tick_s)
        return self.scene(zones, job, np.maximum(at[:, None] + np.arange(1 - self.past, ticks + 1), 0))

    def made(self, zones: Ints, job: Task, at: Ints, block: int, rng: np.random.Generator) -> Scene:
        """What might have followed each of them in this block: pieces of its real weather."""
        edges, tick_s = self.kind.edges(), self.kind.series.tick_s
        later = resampled(
            self.up[zones], self.ages[zones], range(edges[block], edges[block + 1]), at, job.ticks(tick_s),
            PIECE_H * HOUR_S / tick_s, rng,
        )  # fmt: skip
        before = np.maximum(at[:, None] + np.arange(1 - self.past, 1), 0)
        return self.scene(zones, job, np.concatenate([before, later], axis=1))


def starts(kind: Kind, block: int, count: int) -> Ints:
    """The ticks before windows of a block begin, evenly spaced."""
    edges = kind.edges()
    return np.linspace(edges[block], edges[block + 1], count, endpoint=False).astype(np.int64) - 1
