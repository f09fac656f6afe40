"""Our policy beside the published ones, group by group of cells, by forward chaining: fit on the past, played on what
came next.

    python -m tests.bench.cells [--groups one three nine big v100 h100 gangs ...] [--shifted] [--every HOURS]
        [--ours as-run]
        [--processes 2] [--csv FILE]

Each series is cut into six blocks of time. A window belongs to the block in which it begins; all that is learned comes
from the blocks before. In "one", "three", "nine" and "big" (500 GB) availability is free to see; in "v100", "h100" (one
of 16 is enough) and "gangs" (all 16) zones are asked, under SkyNomad's rules. Costs are over the least that each window
could have cost. The difference to the best of the other policies, chosen in hindsight cell by cell, is a share of
on-demand, with its 90 % interval by block bootstrap over stretches of the length of a window that all zones share;
"apart" counts those.

``--ours as-run`` judges the very policy that the watcher runs: it asks zones in every group, tries one place at a time,
and leaves alone for a while what refused. Else it is the policy as back-tests fit it.

``--shifted``: the same availability at other prices. Half way through the series the price of spot in one zone goes up
by a tenth, or down by one, and stays there; zone by zone, in all windows of a cell that end after it, one every
``--every`` hours (6). Before them stand the same windows with no price moved. The others are then spot-or-wait and
UP(S) alone.
Else ``--every`` takes fewer windows than all: those that begin so many hours apart.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from router.app.backtest import run_backtest
from router.backtest.scores import PolicyScore, PooledWindows, pool_windows, score_policies
from router.backtest.windows import AS_RUN, BacktestCell, BacktestSite, CheckpointMove, WindowLayout
from router.config.trace_files import Holes, ListPrices, read_traces
from router.spot.availability.calibration import bootstrap_interval
from router.spot.policies.registry import OUR_POLICY
from router.spot.simulator.inputs import HOUR_S, Task, ZoneMoveCosts
from router.spot.simulator.simulation import WindowOutcomes
from router.spot.simulator.traces import Floats, Ints, Series
from tests.bench.probes import GANG, RESTART_S, SIX, THIRTEEN, whole
from tests.support.repository import ROOT

DATA = ROOT.parent / "shared" / "data"
OLD = DATA / "spot-traces/availability/1-node/aws-10-26-2022"
NEW = DATA / "spot-traces/availability/1-node/aws-02-15-2023"
PROBED = DATA / "spot-availability/v100_aws_2023-02"
COUNTED = DATA / "spot-availability/h100_gcp_2025-10"
LISTED = ListPrices(spot_usd_per_hour=0.9731, on_demand_usd_per_hour=3.06)
BLOCKS = 6
SLOWER = 3  # 195 s to 585 s
THREE = ("us-east-1c", "us-east-2b", "us-west-2a")
NEAR = {"us-east-1", "us-east-2"}
WORK_H, WORK_ZONES_S = 48, 143_780
H100_TICKS, V100_TICKS = 311, 1106
EVERY_S: Final = 6 * HOUR_S
USUAL: Final = WindowLayout(BLOCKS, EVERY_S)
TIGHT: Final = 1.05
STEPS: Final = (1.1, 0.9)

ONE: Final = ("greedy", "sliced", "up", "up-plain")
SEVERAL: Final = (*ONE, "up-s")
ASKED: Final = ("greedy", "up-s", "up-a", "up-ap")


@dataclass(frozen=True, slots=True)
class Apart(CheckpointMove):
    """0.02 dollars a gigabyte between regions, 0.01 between the eastern ones."""

    def ways(self, series: Series) -> ZoneMoveCosts:
        gb = self.checkpoint_gb
        return ZoneMoveCosts.between(series.regions, lambda a, b: gb * (0.01 if {a, b} == NEAR else 0.02))


@dataclass(frozen=True, slots=True)
class LaterHalf(WindowLayout):
    """Those alone that end after the middle of the series."""

    def starts(self, site: BacktestSite, task: Task, block: int) -> Ints:
        found = WindowLayout.starts(self, site, task, block)
        return found[found + task.ticks(site.series.tick_s) > site.series.ticks // 2]


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Cells that are judged together, in these windows; ``paid``: zones are asked."""

    name: str
    cells: tuple[BacktestCell, ...]
    others: tuple[str, ...]
    paid: bool = False
    windows: WindowLayout = USUAL


def one() -> Group:
    """A zone alone, 48 h of work."""
    old = tuple(read_traces(path, listed=LISTED) for path in sorted(OLD.glob("*.json")))
    new = tuple(read_traces(path, listed=LISTED).every(SLOWER) for path in sorted(NEW.glob("*.json")))
    asked = [("2022 x8", old, h, d) for h, d in ((52, 0.2), (60, 0.2), (70, 0.2), (80, 0.2), (60, 0.05), (60, 0.4))]
    asked += [("2023 x9", new, h, 0.2) for h in (52, 60, 70)]
    made = []
    for name, series, deadline_h, d in asked:
        past = _pooled(series)
        sites = tuple(
            BacktestSite(past.zones[i].zone, _named(s, past.zones[i].zone), past, int(name[:4]))
            for i, s in enumerate(series)
        )
        task = Task(WORK_H * HOUR_S, deadline_h * HOUR_S, round(d * HOUR_S))
        made.append(BacktestCell(f"{name} R {deadline_h} d {d}", "each zone", 1, task, CheckpointMove(), sites))
    return Group("one zone", tuple(made), ONE)


def joined(name: str, zones: Mapping[str, Sequence[str] | None], gb: float) -> Group:
    """V100 zones joined, all to be seen."""
    nine = read_traces(PROBED)
    made = []
    for count, names in zones.items():
        series = nine if names is None else nine.only(names)
        for ratio in (1.1, 1.25, 1.5):
            ticks = round(WORK_ZONES_S * ratio / series.tick_s)
            task = Task(WORK_ZONES_S, ticks * series.tick_s, RESTART_S)
            made.append(_cell(f"{count} zones, {ratio}, {gb:.0f} GB", series, task, gb))
    return Group(name, tuple(made), SEVERAL)


def v100() -> Group:
    series = read_traces(PROBED).only(THREE)
    made = [_asked("V100, 3 zones", series, V100_TICKS, ratio) for ratio in (1.2, 1.5)]
    return Group("V100 windows", tuple(made), (*ASKED, "skynomad-v100"), paid=True)


def h100(name: str, size: int, zones: Sequence[str]) -> Group:
    """SkyNomad's H100 zones, asked, where ``size`` of 16 have to be there."""
    series = whole(read_traces(COUNTED, holes=Holes.LAST), size).only(zones)
    made = [_asked(name, series, H100_TICKS, ratio) for ratio in (TIGHT, 1.2, 1.5, 2.0)]
    return Group(name, tuple(made), (*ASKED, "skynomad"), paid=True)


GROUPS: Final[Mapping[str, Callable[[], Group]]] = {
    "one": one,
    "three": lambda: joined("three zones", {"3": THREE}, 50.0),
    "nine": lambda: joined("nine zones", {"9": None}, 50.0),
    "big": lambda: joined("500 GB", {"3": THREE, "9": None}, 500.0),
    "v100": v100,
    "h100": lambda: h100("H100, any of 16, 6 zones", 1, SIX),
    "h100-13": lambda: h100("H100, any of 16, 13 zones", 1, THIRTEEN),
    "gangs": lambda: h100("H100, 16 of 16, 6 zones", GANG, SIX),
    "gangs-13": lambda: h100("H100, 16 of 16, 13 zones", GANG, THIRTEEN),
}


def later(group: Group, every_s: int) -> tuple[Group, Group]:
    """The group in the windows that end after the middle of the series; and so, with each cell's prices shifted."""
    windows, others = LaterHalf(BLOCKS, every_s), ("greedy", _failover(group))
    cells = tuple(
        replace(cell, sites=tuple(other for site in cell.sites for other in shifts(site))) for cell in group.cells
    )
    as_it_was = replace(group, name=f"{group.name}, later half", others=others, windows=windows)
    return as_it_was, replace(as_it_was, name=f"{group.name}, shifted", cells=cells)


def shifts(site: BacktestSite) -> Iterator[BacktestSite]:
    """One for each zone and step: the zone's price times that from the middle on. A past of other zones stays."""
    for zone in site.series.zones:
        for step in STEPS:
            series = stepped(site.series, zone.zone, step)
            past = series if site.past is site.series else site.past
            yield BacktestSite(f"{site.name}, {zone.zone} x {step}", series, past, site.source)


def stepped(series: Series, zone: str, step: float) -> Series:
    """Spot in the zone at ``step`` times its price, from the middle on."""
    times = np.where(np.arange(series.ticks) < series.ticks // 2, 1.0, step)
    return Series(
        series.tick_s,
        tuple(replace(z, spot_usd_per_hour=z.spot_usd_per_hour * times) if z.zone == zone else z for z in series.zones),
    )


def _asked(name: str, series: Series, ticks: int, ratio: float) -> BacktestCell:
    deadline = ticks * series.tick_s
    return _cell(f"{name}, {ratio}", series, Task(round(deadline / ratio), deadline, RESTART_S), 50.0)


def _cell(name: str, series: Series, task: Task, gb: float) -> BacktestCell:
    site = BacktestSite("all", series, series, 0)
    return BacktestCell(name, "joined", len(series.zones), task, Apart(gb), (site,))


def _pooled(parts: Sequence[Series]) -> Series:
    """One series of all zones; the machine types of one zone count as zones."""
    zones = [replace(z, zone=f"{n} {z.zone}") for n, part in enumerate(parts) for z in part.zones]
    return Series(parts[0].tick_s, tuple(zones))


def _named(series: Series, name: str) -> Series:
    return Series(series.tick_s, (replace(series.zones[0], zone=name),))


@dataclass(frozen=True, eq=False, slots=True)
class Verdict:
    """Of a cell: ``less`` [window] our dollars less those of the ``best`` other policy, as a share of on-demand."""

    pooled: PooledWindows
    best: str
    less: Floats
    by_name: Mapping[str, PolicyScore]
    ours: str = OUR_POLICY

    def to(self, other: str) -> Floats:
        """[window]: as ``less``, but to this policy."""
        found: Floats = (self.pooled.played[self.ours].usd - self.pooled.played[other].usd) / self.pooled.demand_usd
        return found


def verdict(pooled: PooledWindows, ours: str = OUR_POLICY) -> Verdict:
    """By mean dollars."""
    found = {score.policy: score for score in score_policies(pooled)}
    best = min((name for name in found if name != ours), key=lambda name: found[name].usd)
    less = (pooled.played[ours].usd - pooled.played[best].usd) / pooled.demand_usd
    return Verdict(pooled, best, less, found, ours)


def row(v: Verdict) -> dict[str, object]:
    sure = bootstrap_interval(v.less, v.pooled.stretch)
    share = float(v.pooled.least_usd.mean() / v.pooled.demand_usd.mean())
    ours, best = v.by_name[v.ours], v.by_name[v.best]
    return {
        "cell": v.pooled.cell.job, "windows": v.less.size, "apart": v.pooled.apart, "least_share": round(share, 4),
        "ours_share": round(ours.share, 4), "ours_over_percent": round(100 * ours.over, 2), "best": v.best,
        "best_over_percent": round(100 * best.over, 2), "difference": round(sure.mean, 4),
        "low": round(sure.low, 4), "high": round(sure.high, 4), "effective": round(sure.effective, 1),
        "late": sum(s.misses for s in v.by_name.values()),
        **{f"{name}_over_percent": round(100 * s.over, 2) for name, s in sorted(v.by_name.items())},
    }  # fmt: skip


def together(verdicts: Sequence[Verdict], other: str | None = None) -> tuple[float, float, float]:
    """The mean difference to ``other`` (None: to the best) of the cells of a group, each of the same weight, with its
    interval: cells share availability, so what is drawn is a stretch with all that began in it."""
    differences = [v.less if other is None else v.to(other) for v in verdicts]
    less = np.concatenate([each / each.size for each in differences]) / len(verdicts)
    stretch = np.concatenate(
        [
            v.pooled.start * v.pooled.cell.sites[0].series.tick_s // (48 * HOUR_S)
            + 10_000 * v.pooled.cell.sites[0].source
            for v in verdicts
        ]
    )
    sure = bootstrap_interval(less * less.size, stretch)
    return sure.mean, sure.low, sure.high


def play(group: Group, processes: int, ours: str = OUR_POLICY) -> tuple[Verdict, ...]:
    windows = group.windows
    found: Mapping[object, WindowOutcomes | Floats] = run_backtest(
        group.cells, windows, (ours, *group.others), paid=group.paid, processes=processes, advance=lambda *_: None
    )  # type: ignore[assignment]
    return tuple(verdict(p, ours) for p in pool_windows(group.cells, windows, found))  # type: ignore[arg-type]


@cache
def _header() -> str:
    return (
        f"{'cell':32} {'n':>5} {'apart':>5} {'least':>6} {'ours':>6} {'over':>7} {'best other':>14} {'over':>7} "
        f"{'difference':>10} {'90 %':>18} {'late':>4}"
    )


def line(of: Mapping[str, object]) -> str:
    return (
        f"{of['cell']:32} {of['windows']:5} {of['apart']:5} {of['least_share']:6.3f} {of['ours_share']:6.3f} "
        f"{of['ours_over_percent']:6.1f}% {of['best']:>14} {of['best_over_percent']:6.1f}% {of['difference']:+10.4f} "
        f"[{of['low']:+.4f}, {of['high']:+.4f}] {of['late']:4}"
    )


def tables(
    names: Sequence[str], processes: int, ours: str, every_s: int | None, *, shifted: bool
) -> Iterator[dict[str, object]]:
    for name in names:
        group = GROUPS[name]()
        if not shifted:
            sparse = group if every_s is None else replace(group, windows=WindowLayout(BLOCKS, every_s))
            yield from table(sparse, processes, ours)
            continue
        was, now = (list(table(one, processes, ours)) for one in later(group, every_s or EVERY_S))
        costs = [_over(b) - _over(a) for a, b in zip(was, now, strict=True)]
        print(
            f"  the shift costs {np.mean(costs):+.2f} points over the least ({', '.join(f'{c:+.1f}' for c in costs)})"
        )
        yield from (*was, *now)


def table(group: Group, processes: int, ours: str = OUR_POLICY) -> Iterator[dict[str, object]]:
    began = time.monotonic()
    verdicts = play(group, processes, ours)
    rows = [row(v) for v in verdicts]
    print(f"\n{group.name}\n{_header()}")
    for one_row in rows:
        print(line(one_row))
        yield {"group": group.name, **one_row}
    over = np.mean([_over(r) for r in rows])
    print(f"  all cells: ours {over:.1f}% over the least; {time.monotonic() - began:.0f} s")
    for text, other in (("the best other", None), ("greedy", "greedy"), ("UP(S)", _failover(group))):
        mean, low, high = together(verdicts, other)
        least = "" if other is None else f", {np.mean([100 * v.by_name[other].over for v in verdicts]):.1f}% over"
        print(f"    ours less {text} {mean:+.4f} [{low:+.4f}, {high:+.4f}] of on-demand{least}", flush=True)


def _failover(group: Group) -> str:
    """UP(S), which is Uniform Progress in one zone."""
    return "up-s" if "up-s" in group.others else "up"


def _over(of: Mapping[str, object]) -> float:
    return float(str(of["ours_over_percent"]))


def main() -> None:
    """Prints the tables; exits with 2 where there is no data."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    asked.add_argument("--ours", choices=(OUR_POLICY, AS_RUN), default=OUR_POLICY)
    asked.add_argument("--shifted", action="store_true")
    asked.add_argument("--every", type=float, metavar="HOURS")
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("--csv", type=Path)
    options = asked.parse_args()
    if not DATA.is_dir():
        sys.exit(2)
    every_s = None if options.every is None else round(options.every * HOUR_S)
    rows = list(tables(options.groups, options.processes, options.ours, every_s, shifted=options.shifted))
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for one_row in rows for key in one_row)))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
