"""Check whether quotes hold on spot availability that the model never saw, by forward chaining over six blocks of time.

    python -m tests.bench.calibrate [--only NAME] [--blocks 6] [--starts N] [--out FOLDER]

The model of a block is fitted on the blocks before it. A quote is given for a job that starts at a moment of the block,
from the availability seen by then. Its outcomes come from playing the policy that quotes assume on that block alone: on
pieces of its real availability (router/spot/availability/evaluation_blocks.py), which share no law with the model, and
on what really followed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from router.cli.console import write_output_file
from router.quotes.forward_chaining import (
    DRAWS,
    EACH,
    PARTS,
    CostsAndFinishes,
    fit_player,
    forecast_starts,
    learn_recalibration,
    play_starts,
)
from router.render.calibration_text import as_csv, as_table, calibration_page
from router.spot.availability.calibration import CalibrationReport, PitIntervals, assess_calibration
from router.spot.availability.evaluation_blocks import BLOCKS, EvaluationTraces
from router.spot.availability.fit import learn_drift
from router.spot.availability.hazard_model import HazardModel
from router.spot.policies.our_policy import quoted_policy_for
from router.spot.simulator.inputs import HOUR_S, Task
from router.spot.simulator.traces import Floats, Ints
from tests.bench.calibration_sets import Kind, kinds

SKIES_ALONE, SKIES_JOINED = 8, 16
WHATS = ("cost", "finish")
Fitter = Callable[[EvaluationTraces, int], HazardModel]


@dataclass(slots=True)
class Heap:
    """Quotes and outcomes as they come in, for cost and for finish."""

    quoted: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))
    outcomes: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))
    groups: list[Ints] = field(default_factory=list)

    def add(self, quoted: CostsAndFinishes, outcomes: CostsAndFinishes, group: int) -> None:
        """Quotes [outcome, value] and outcomes [outcome] that depend on each other."""
        for i in range(2):
            self.quoted[i].append(quoted[i])
            self.outcomes[i].append(outcomes[i])
        self.groups.append(np.full(outcomes[0].size, group))

    def judged(self, name: str, by_time: bool = False) -> list[CalibrationReport]:
        """Of cost and of finish. Groups are zones and blocks of time, or, ``by_time``, blocks alone, whichever zones
        and jobs were quoted in them: availability is common to zones."""
        groups = np.concatenate(self.groups) // (PARTS if by_time else 1)
        pairs = zip(WHATS, self.quoted, self.outcomes, strict=True)
        return [assess_calibration(name, what, np.concatenate(q), np.concatenate(o), groups) for what, q, o in pairs]


MODELS: dict[str, Fitter] = {
    "no drift": lambda ground, end: HazardModel.seen(ground.up[:, :end], ground.series.tick_s, drift=0.0),
    "drift 0.5": lambda ground, end: HazardModel.seen(ground.up[:, :end], ground.series.tick_s, drift=0.5),
    "learned drift": lambda ground, end: learn_drift(ground.up[:, :end], ground.series.tick_s),
}
OURS = "learned drift"
RECALIBRATED = f"{OURS}, recalibrated"
NAIVE = "naive"


def naive(
    ground: EvaluationTraces, zones: Ints, job: Task, at: Ints, end: int, rng: np.random.Generator
) -> CostsAndFinishes:
    """What a spreadsheet says: each tick has spot somewhere with the mean probability of the past, whatever was before;
    it costs the mean of the cheapest that is there; what is missing at the deadline is bought on demand."""
    up, usd = ground.up[zones, :end], ground.usd[zones, :end]
    there = up.any(axis=0)
    price = float(np.where(up, usd, np.inf).min(axis=0)[there].mean()) if there.any() else 0.0
    series, tick_s = ground.series, ground.series.tick_s
    dear = min(series.zones[i].on_demand_usd_per_hour for i in zones)
    ticks, needed = job.ticks(tick_s), -(-(job.work_s + job.changeover_s) // tick_s)
    seen = np.cumsum(rng.random((at.size * DRAWS, ticks)) < there.mean(), axis=1)
    spot = np.minimum(seen[:, -1], needed)
    cost = (spot * price + (needed - spot) * dear) * tick_s / HOUR_S
    done = np.where(seen[:, -1] >= needed, (seen < needed).sum(axis=1) + 1, ticks)
    demand = (job.work_s + job.changeover_s) / HOUR_S * dear
    shape = (at.size, DRAWS)
    return (cost / demand).reshape(shape), (done * (tick_s / job.deadline_s)).reshape(shape)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is quoted: blocks of time from the first, and starts of a job in each; None: as many as a set has."""

    blocks: int = BLOCKS
    starts: int | None = None


def chained(number: int, kind: Kind, heaps: dict[tuple[str, str], Heap], extent: Extent = Extent()) -> None:
    """Quotes and outcomes of a set: of each model, on pieces of the unseen block and on the traces themselves."""
    ground, edges = kind.ground, kind.ground.edges()
    learned: list[tuple[int, tuple[PitIntervals, PitIntervals]]] = []
    for block in range(1, extent.blocks):
        fits = {name: fit(ground, edges[block]) for name, fit in MODELS.items()}
        past = [entry for entry in learned if entry[0] // PARTS < block]
        maps = tuple(learn_recalibration([(g, places[i]) for g, places in past]) for i in range(2))
        at = ground.starts(block, extent.starts or (SKIES_JOINED if kind.joined else SKIES_ALONE))
        for part, zones in enumerate(ground.parts):
            for size, job in enumerate(ground.tasks):
                seed = [number, block, part, size]
                made = ground.made(zones, job, at.repeat(EACH), block, np.random.default_rng([1, *seed]))
                player = fit_player(ground, fits[OURS], zones, job, edges[block], quoted_policy_for)
                outcomes = play_starts(made, player, at.size, EACH)
                fits_in = at + 1 + job.ticks(ground.series.tick_s) <= ground.up.shape[1]
                real = play_starts(ground.real(zones, job, at[fits_in]), player, 1, -1) if fits_in.any() else None
                group = (kind.source * BLOCKS + block) * PARTS + part
                quotes = {
                    name: forecast_starts(
                        ground, fit.only(zones), zones, job, at, player, np.random.default_rng([2, *seed])
                    )
                    for name, fit in fits.items()
                }
                raw = quotes[OURS]
                quotes[RECALIBRATED] = (maps[0].quoted(raw[0]), maps[1].quoted(raw[1]))
                quotes[NAIVE] = naive(ground, zones, job, at, edges[block], np.random.default_rng([3, *seed]))
                flat = (outcomes[0].ravel(), outcomes[1].ravel())
                for name, quote in quotes.items():
                    heaps.setdefault((name, "unseen block"), Heap()).add(_each(quote, EACH), flat, group)
                    if real is not None:
                        here = (quote[0][fits_in], quote[1][fits_in])
                        heaps.setdefault((name, "traces"), Heap()).add(here, (real[0][0], real[1][0]), group)
                told = _each(raw, EACH)
                learned.append(
                    (block * PARTS + part, (PitIntervals.of(told[0], flat[0]), PitIntervals.of(told[1], flat[1])))
                )


def _each(quote: CostsAndFinishes, times: int) -> CostsAndFinishes:
    return quote[0].repeat(times, axis=0), quote[1].repeat(times, axis=0)


def everything(
    only: str, processes: int = 1, extent: Extent = Extent()
) -> Iterator[tuple[str, str, list[CalibrationReport]]]:
    """(what was judged on, set, rows); the last are all sets together."""
    pooled: dict[tuple[str, str], Heap] = {}
    sets = [(number, kind) for number, kind in enumerate(kinds()) if only in kind.name]
    for name_of_set, heaps in _all(sets, processes, extent):
        for (name, where), heap in heaps.items():
            yield where, name_of_set, heap.judged(name)
            pool = pooled.setdefault((name, where), Heap())
            for i in range(2):
                pool.quoted[i].extend(heap.quoted[i])
                pool.outcomes[i].extend(heap.outcomes[i])
            pool.groups.extend(heap.groups)
    for (name, where), heap in pooled.items():
        yield where, "all", heap.judged(name, by_time=True)


def _all(
    sets: list[tuple[int, Kind]], processes: int, extent: Extent
) -> Iterator[tuple[str, dict[tuple[str, str], Heap]]]:
    """In order, as they are done."""
    if processes < 2:
        yield from map(partial(_one, extent), sets)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(partial(_one, extent), sets, chunksize=1)


def _one(extent: Extent, numbered: tuple[int, Kind]) -> tuple[str, dict[tuple[str, str], Heap]]:
    number, kind = numbered
    heaps: dict[tuple[str, str], Heap] = {}
    chained(number, kind, heaps, extent)
    return kind.name, heaps


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", default="", help="sets whose name has this")
    asked.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="as many sets at once")
    asked.add_argument("--blocks", type=int, default=BLOCKS, help="blocks of time, two at least; the first is for fits")
    asked.add_argument("--starts", type=int, help="moments of a block at which a job is quoted")
    asked.add_argument("--out", type=Path, default=Path("out/calibration"), help="folder for table and page")
    options = asked.parse_args()
    began = time.perf_counter()
    rows: dict[str, list[CalibrationReport]] = {}
    for where, name, found in everything(options.only, options.processes, Extent(options.blocks, options.starts)):
        rows.setdefault(where, []).extend(replace(row, name=f"{name}: {row.name}") for row in found)
    options.out.mkdir(parents=True, exist_ok=True)
    for where, judged in rows.items():
        print(f"\nON {where.upper()}\n{as_table(judged)}")
        file = options.out / f"{where.replace(' ', '-')}.csv"
        write_output_file(file, as_csv(judged).encode())
    shown = {where: [row for row in judged if row.name.startswith("all: ")] for where, judged in rows.items()}
    write_output_file(options.out / "calibration.html", calibration_page(shown, rows).encode())
    print("\nIntervals of all sets together take what is of one block of time as one group: 15 blocks, not more.")
    print(f"\n{time.perf_counter() - began:.0f} s; tables and page are in {options.out}")


if __name__ == "__main__":
    main()
