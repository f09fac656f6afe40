"""The policy that quotes play beside the one that runs, on the same recorded windows: do they cost the same?

    python -m tests.bench.quoted_as_run [--groups three v100 h100 gangs ...] [--shifted] [--every HOURS] [--processes 2]

Groups and windows are those of :mod:`tests.bench.cells`; all is learned from the blocks of time before. "run" is what
`watch` runs (:mod:`router.spot.live.as_run`), "quoted" the policy of quotes under the simulator's exact guard, fitted
to the same hazards, "seen" a policy that sees all availability, for which quotes were made before. Costs are in percent
over the least that each window could have cost, "less" in points of that, with the 90 % interval by block bootstrap
over stretches of two days.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from router.backtest.windows import BacktestCell, BacktestSite, WindowLayout, build_window_inputs, select_past
from router.cli import fix_numeric_kernels
from router.spot.availability.calibration import bootstrap_interval
from router.spot.availability.observed import HazardPrior, posterior_hazards
from router.spot.live import as_run
from router.spot.live.as_run import play_as_run
from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.our_policy import build_expected_inputs, policy_for, quoted_policy_for
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import GuardMode, simulate
from router.spot.simulator.traces import Floats, Ints
from tests.bench.cells import BLOCKS, DATA, EVERY_S, GROUPS, later

STRETCH_S = 48 * HOUR_S
RUN, QUOTED, SEEN = "run", "quoted", "seen"


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """The windows of one block of a cell's site."""

    cell: BacktestCell
    site: BacktestSite
    windows: WindowLayout
    block: int


@dataclass(frozen=True, eq=False, slots=True)
class _Played:
    """Dollars by policy and window, the least of each window, and its stretch."""

    job: str
    usd: dict[str, Floats]
    least: Floats
    stretch: Ints


def _parts(names: Sequence[str], every_s: int, *, shifted: bool) -> Iterator[_Part]:
    windows = WindowLayout(BLOCKS, every_s)
    for name in names:
        group = GROUPS[name]()
        group, layout = (later(group, every_s)[1], later(group, every_s)[1].windows) if shifted else (group, windows)
        for cell in group.cells:
            for site in cell.sites:
                for block in layout.scored:
                    if layout.starts(site, cell.task, block).size:
                        yield _Part(cell, site, layout, block)


def _play(part: _Part) -> _Played:
    fix_numeric_kernels()
    starts = part.windows.starts(part.site, part.cell.task, part.block)
    inputs, past = (
        build_window_inputs(part.cell, part.site, starts),
        select_past(part.site, part.windows, part.block),
    )
    assert past is not None
    pools = as_run.pools_of(inputs)
    observed = as_run.pool_lookup(past, inputs)(pools)
    prior = HazardPrior.of(as_run.PRIOR_BACK_H, as_run.PRIOR, knows_losses=False)
    hazards = posterior_hazards([prior] * len(pools), [observed.get(pool) for pool in pools])
    like = build_expected_inputs(past, inputs)
    usd = {RUN: play_as_run(past, inputs).usd}
    for name, policy in ((QUOTED, quoted_policy_for(hazards, like)), (SEEN, policy_for(hazards, like))):
        usd[name] = simulate(inputs, policy, GuardMode.EXACT).usd
    stretch = starts * inputs.tick_s // STRETCH_S + 10_000 * part.site.source
    return _Played(part.cell.job, usd, compute_least_usd(inputs, moves_at_once=True), stretch)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line a cell; exit with 2 where there is no data."""
    asked = argparse.ArgumentParser(description="Does what quotes play cost what runs?")
    asked.add_argument("--groups", nargs="+", choices=list(GROUPS), default=["three", "v100", "h100", "gangs"])
    asked.add_argument("--shifted", action="store_true")
    asked.add_argument("--every", type=float, metavar="HOURS", default=EVERY_S / HOUR_S)
    asked.add_argument("--processes", type=int, default=2)
    options = asked.parse_args(arguments)
    if not DATA.is_dir():
        sys.exit(2)
    parts = list(_parts(options.groups, round(options.every * HOUR_S), shifted=options.shifted))
    print(f"{'cell':34} {'n':>5} {'run':>6} {'quoted':>7} {'seen':>6}   run less quoted, points     run less seen")
    with ProcessPoolExecutor(options.processes) as pool:
        for job, played in groupby(pool.map(_play, parts), lambda found: found.job):
            print(_line(job, list(played)), flush=True)


def _line(job: str, played: Sequence[_Played]) -> str:
    least = np.concatenate([part.least for part in played])
    usd = {name: np.concatenate([part.usd[name] for part in played]) for name in (RUN, QUOTED, SEEN)}
    stretch = np.concatenate([part.stretch for part in played])
    over = {name: 100 * (float(found.mean() / least.mean()) - 1) for name, found in usd.items()}
    less = {name: bootstrap_interval(100 * (usd[RUN] - usd[name]) / least.mean(), stretch) for name in (QUOTED, SEEN)}
    figures = "   ".join(f"{sure.mean:+6.1f} [{sure.low:+6.1f}, {sure.high:+6.1f}]" for sure in less.values())
    return f"{job:34} {least.size:5} {over[RUN]:6.1f} {over[QUOTED]:7.1f} {over[SEEN]:6.1f}   {figures}"


if __name__ == "__main__":
    main()
