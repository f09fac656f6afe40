"""Policies on the cells that need no paid probes, by forward chaining: fit on the past, played on what came next.

    python -m tests.bench.cells [--cells one|three|nine|big ...] [--blocks 2] [--out FILE.csv]

Each series is cut into six blocks of time. A window belongs to the block in which it begins; all that is learned comes
from the blocks before. Costs are ratios: to on-demand from the start, and to the least that the window could have cost.
The 90 % interval of the paired difference to the best published policy is by block bootstrap.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from router.files.trace_files import read_traces
from router.files.trace_values import ListPrices
from router.quoting.baselines import Greedy, TimeSliced, UniformProgress, cheapest_elsewhere
from router.quoting.bootstrap import Interval, interval
from router.quoting.joint import JointLearned
from router.quoting.learned import Learned
from router.quoting.omniscient import least_usd
from router.quoting.scene import HOUR_S, Scene, Task, Ways
from router.quoting.series import Floats, Ints, Series
from router.quoting.simulation import Net, VectorPolicy, simulate
from tests.support.repository import ROOT

DATA = ROOT.parent / "shared" / "data"
OLD = DATA / "spot-traces/availability/1-node/aws-10-26-2022"
NEW = DATA / "spot-traces/availability/1-node/aws-02-15-2023"
PROBED = DATA / "spot-availability/v100_aws_2023-02"
LISTED = ListPrices(spot_usd_per_hour=0.9731, on_demand_usd_per_hour=3.06)
BLOCKS = 6
SLOWER = 3  # 195 s to 585 s
THREE = ("us-east-1c", "us-east-2b", "us-west-2a")
NEAR = {"us-east-1", "us-east-2"}
WORK_H, WORK_ZONES_S = 48, 143_780
GAP_H = 6.0  # between starts of windows


@dataclass(frozen=True, slots=True)
class Cell:
    """Windows of several series with one task each; ``gib`` of checkpoint where zones are joined."""

    group: str
    name: str
    series: tuple[Series, ...]
    task: Task
    gib: float = 0.0

    def ways(self, series: Series) -> Ways:
        """0.02 dollars a gigabyte between regions, 0.01 between the eastern ones."""
        return Ways.between(series.regions, lambda a, b: self.gib * (0.01 if {a, b} == NEAR else 0.02))


@dataclass(slots=True)
class Played:
    """Pooled windows of a cell."""

    group: list[int] = field(default_factory=list)
    demand: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    usd: dict[str, list[float]] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def cells(wanted: set[str]) -> Iterator[Cell]:
    """Those of the groups that are wanted."""
    if "one" in wanted:
        old = tuple(read_traces(path, listed=LISTED) for path in sorted(OLD.glob("*.json")))
        new = tuple(read_traces(path, listed=LISTED).every(SLOWER) for path in sorted(NEW.glob("*.json")))
        for deadline, d in ((52, 0.2), (60, 0.2), (70, 0.2), (80, 0.2), (60, 0.05), (60, 0.4)):
            yield _one("2022 x8", old, deadline, d)
        for deadline in (52, 60, 70):
            yield _one("2023 x9", new, deadline, 0.2)
    if not wanted & {"three", "nine", "big"}:
        return
    nine = read_traces(PROBED)
    sets = {"three": nine.only(THREE), "nine": nine}
    for name, series in sets.items():
        for gib, group in ((50.0, name), (500.0, "big")):
            for ratio in (1.1, 1.25, 1.5) if group in wanted else ():
                ticks = round(WORK_ZONES_S * ratio / series.tick_s)
                task = Task(WORK_ZONES_S, ticks * series.tick_s, 720)
                yield Cell(group, f"{len(series.zones)} zones {ratio} {gib:.0f} GB", (series,), task, gib)


def _one(name: str, series: tuple[Series, ...], deadline_h: int, d_h: float) -> Cell:
    task = Task(WORK_H * HOUR_S, deadline_h * HOUR_S, round(d_h * HOUR_S))
    return Cell("one", f"{name} R {deadline_h} d {d_h}", series, task)


def published(zones: int) -> dict[str, VectorPolicy]:
    """By name. UP over zones takes the cheapest, or the cheapest of another region than it was lost in."""
    if zones == 1:
        return {
            "Greedy": Greedy(), "Sliced": TimeSliced(8), "UP": UniformProgress(), "UP plain": UniformProgress(False),
        }  # fmt: skip
    return {
        "cheapest, else wait": Greedy(), "Sliced": TimeSliced(8), "UP(S)": UniformProgress(ranking=cheapest_elsewhere),
        "UP cheapest": UniformProgress(), "UP plain": UniformProgress(False),
    }  # fmt: skip


def play(cell: Cell, first_block: int, last_block: int) -> Played:
    """All windows of a cell that begin in those blocks, counted from 0."""
    found = Played()
    many = len(cell.series) > 1
    ticks = cell.series[0].ticks
    needed = cell.task.ticks(cell.series[0].tick_s)
    gap = max(1, round(GAP_H * HOUR_S / cell.series[0].tick_s))
    edges = [ticks * b // BLOCKS for b in range(BLOCKS + 1)]
    began = time.process_time()
    for block in range(first_block, last_block + 1):
        starts = np.arange(edges[block], min(edges[block + 1], ticks - needed + 1), gap)
        if not starts.size:
            continue
        past = _pooled([s.part(0, edges[block]) for s in cell.series])
        scenes = [Scene.of(cell.task, s, starts, cell.ways(s)) for s in cell.series]
        ours = (Learned if scenes[0].up.shape[0] == 1 else JointLearned).fitted(past, scenes[0])
        for number, scene in enumerate(scenes):
            groups = _groups(starts, needed, many, number, block)
            _add(found, scene, ours, groups)
    found.seconds = time.process_time() - began
    return found


def _groups(starts: Ints, needed: int, many: bool, number: int, block: int) -> Ints:
    """Zone and block of time; with zones joined, stretches of the length of half a window."""
    return np.full(starts.size, number * BLOCKS + block) if many else starts // max(1, needed // 2)


def _pooled(parts: list[Series]) -> Series:
    """One series of all zones; the machine types of one zone count as zones."""
    zones = [replace(z, zone=f"{n} {z.zone}") for n, part in enumerate(parts) for z in part.zones]
    return Series(parts[0].tick_s, tuple(zones))


def _add(found: Played, scene: Scene, ours: VectorPolicy, groups: Ints) -> None:
    task = scene.task
    ticks = -(-(task.work_s + task.changeover_s) // scene.tick_s)
    found.demand += [ticks * scene.tick_s / HOUR_S * float(scene.on_demand_usd.min())] * scene.starts.size
    found.least += least_usd(scene).tolist()
    found.group += groups.tolist()
    policies = {name: (policy, Net.PUBLISHED) for name, policy in published(len(scene.series.zones)).items()}
    policies["ours"] = (ours, Net.EXACT)
    for name, (policy, net) in policies.items():
        outcome = simulate(scene, policy, net)
        found.usd.setdefault(name, []).extend(outcome.usd.tolist())
        found.late[name] = found.late.get(name, 0) + int(outcome.late.sum())


def best_published(found: Played) -> str:
    """Of the cell, by mean dollars."""
    return min((name for name in found.usd if name != "ours"), key=lambda name: float(np.mean(found.usd[name])))


def difference(found: Played) -> Interval:
    """Ours less the best published, share of on-demand, with its 90 % interval."""
    ours, best = (np.array(found.usd[name]) for name in ("ours", best_published(found)))
    values: Floats = (ours - best) / np.array(found.demand)
    return interval(values, np.array(found.group))


def main() -> None:
    """Prints a line a cell."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--cells", nargs="+", default=["one", "three", "nine", "big"])
    asked.add_argument("--first", type=int, default=1, help="first block scored, from 0")
    asked.add_argument("--last", type=int, default=BLOCKS - 1)
    asked.add_argument("--only", default="", help="cells whose name has this")
    asked.add_argument("--out", type=Path)
    options = asked.parse_args()
    rows = []
    for cell in cells(set(options.cells)):
        if options.only not in cell.name:
            continue
        found = play(cell, options.first, options.last)
        demand = float(np.mean(found.demand))
        least = float(np.mean(found.least))
        best, gap = best_published(found), difference(found)
        names = {name: float(np.mean(usd)) for name, usd in found.usd.items()}
        shares = "  ".join(f"{name} {usd / demand:.4f}" for name, usd in names.items())
        print(
            f"{cell.name:26} n {len(found.least):4} eff {gap.effective:5.1f}  least {least / demand:.4f}  {shares}\n"
            f"      over least: ours {names['ours'] / least - 1:+.1%}, {best} {names[best] / least - 1:+.1%}; "
            f"ours - {best}: {gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]; late {sum(found.late.values())}; "
            f"{found.seconds:.0f} s",
            flush=True,
        )
        rows.append({"cell": cell.name, "windows": len(found.least), "effective": gap.effective, "least": least,
                     **names, "low": gap.low, "high": gap.high, "late": found.late["ours"]})  # fmt: skip
    if options.out and rows:
        with options.out.open("w", encoding="utf-8", newline="") as file:
            columns = list(dict.fromkeys(k for row in rows for k in row))
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
