"""Published policies where zones have to be asked, gangs too, on the first halves of SkyNomad's two sets, over the
exact optimum of each window.

    python -m tests.bench.probes [--holes down|last]

Deadline 311 ticks of 600 s (H100), 1106 of 195 s (V100); restart 0.2 h, 50 GB, egress 0.02 $/GB (0.01 between us-east-1
and us-east-2). Windows end to end as published ("tiled"), and one every ten hours, which overlap: the disjoint ones in
them are as many as the tiled. Ticks 746 to 755 of the H100 counts were never probed: as before them unless told
otherwise. "page's trace" is the 1-of-16 series as published, in which 696 to 745 are filled in as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from router.config.trace_files import Holes, read_traces
from router.spot.policies.omniscient import compute_least_usd
from router.spot.policies.published.baselines import CheapestSpot, UniformProgress
from router.spot.policies.published.moves import CheapestWithMoves, Lindy
from router.spot.policies.published.skynomad import SkyNomad
from router.spot.policies.published.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts
from router.spot.simulator.simulation import simulate
from router.spot.simulator.traces import Floats, Series
from tests.support.repository import ROOT

DATA: Final = ROOT.parent / "shared" / "data"
SIX: Final = (
    "us-central1-a",
    "us-west1-a",
    "europe-west1-c",
    "europe-west3-c",
    "asia-southeast1-b",
    "asia-south2-b",
)
THIRTEEN: Final = (
    "asia-southeast1-c", "asia-south2-b", "us-west1-b", "europe-west3-c", "us-west1-a", "us-east4-a", "europe-west1-c",
    "us-central1-c", "us-central1-b", "asia-southeast1-b", "us-central1-a", "us-east5-a", "us-east4-b",
)  # fmt: skip
THREE: Final = ("us-east-1c", "us-east-2b", "us-west-2a")
RESTART_S: Final = 720
EVERY_S: Final = 10 * HOUR_S
GANG: Final = 16
CHECKPOINT_GB: Final = 50.0


@dataclass(frozen=True, slots=True)
class Set:
    """Zones of one kind, the ticks of a deadline, and the settings that SkyNomad's figures of it have."""

    name: str
    series: Series
    deadline_ticks: int
    ratios: tuple[float, ...]
    skynomad: SkyNomad

    def inputs(self, ratio: float, starts: Sequence[int]) -> SimulationInputs:
        """These windows, work a ``ratio``-th of the deadline."""
        deadline = self.deadline_ticks * self.series.tick_s
        ways = ZoneMoveCosts.between(self.series.regions, egress_usd)
        return SimulationInputs.of(Task(round(deadline / ratio), deadline, RESTART_S), self.series, starts, ways)

    def tiled(self) -> list[int]:
        """Windows end to end."""
        return [i * self.deadline_ticks for i in range(self.series.ticks // self.deadline_ticks)]

    def overlapping(self) -> list[int]:
        """A window every ten hours."""
        return list(range(0, self.series.ticks - self.deadline_ticks + 1, EVERY_S // self.series.tick_s))


def egress_usd(a: str, b: str) -> float:
    """Dollars to take the checkpoint from one region to another."""
    return CHECKPOINT_GB * (0.01 if {a, b} == {"us-east-1", "us-east-2"} else 0.02)


def whole(series: Series, size: int) -> Series:
    """Where ``size`` machines could start together, as one; prices are of the whole already."""
    return Series(series.tick_s, tuple(replace(z, counts=(z.counts >= size).astype(np.int64)) for z in series.zones))


def sets(data: Path, holes: Holes) -> Iterator[Set]:
    """All there are."""
    ratios = (1.05, 1.2, 1.5, 2.0)
    page = read_traces(data / "spot-traces" / "availability" / "h100" / "gcp-10-03-2025")
    counts = read_traces(data / "spot-availability" / "h100_gcp_2025-10", holes=holes)
    yield Set("H100 1 of 16, 6 zones, page's trace", page.only(SIX), 311, ratios, SkyNomad())
    for size, name in ((1, "1 of 16"), (GANG, "16 of 16")):
        for zones in (SIX, THIRTEEN):
            series = whole(counts, size).only(zones)
            yield Set(f"H100 {name}, {len(zones)} zones", series, 311, ratios, SkyNomad())
    v100 = read_traces(data / "spot-availability" / "v100_aws_2023-02").only(THREE)
    yield Set("V100, 3 zones", v100, 1106, (1.2, 1.5), SkyNomad.v100())


def policies(of: Set) -> dict[str, BlindPolicy]:
    """Those that play over all zones, by the names of the tables."""
    return {
        "UP(S)": FailoverProgress(),
        "UP(A)": RateProgress(),
        "UP(AP)": RatePerUsdProgress(),
        "SkyNomad": of.skynomad,
        "cheapest": CheapestSpot(),
        "+ moves": CheapestWithMoves(),
        "lindy": Lindy(),
    }


def on_demand_usd(inputs: SimulationInputs) -> float:
    """On demand from the start, where it is cheapest; whole ticks."""
    ticks = -(-(inputs.task.work_s + inputs.task.changeover_s) // inputs.tick_s)
    return ticks * inputs.tick_s / HOUR_S * float(inputs.on_demand_usd.min())


def one_zone_usd(of: Set, ratio: float, starts: Sequence[int]) -> Floats:
    """Uniform Progress in one zone, mean over the zones: one entry a window."""
    found = []
    for zone in of.series.zones:
        alone = replace(of, series=of.series.only([zone.zone]))
        found.append(simulate(alone.inputs(ratio, starts), UniformProgress()).usd)
    mean: Floats = np.mean(found, axis=0)
    return mean


@dataclass(frozen=True, eq=False, slots=True)
class Cell:
    """One entry a window: dollars of the exact optimum, and of each policy; how many deadlines were missed in all."""

    least_usd: Floats
    usd: dict[str, Floats]
    late: int

    def over(self, name: str) -> float:
        """Percent over the optimum, of means."""
        return 100 * (float(self.usd[name].mean()) / float(self.least_usd.mean()) - 1)


def played(of: Set, ratio: float, starts: Sequence[int]) -> Cell:
    """All policies in these windows."""
    inputs = of.inputs(ratio, starts)
    bills = {name: simulate_blind(inputs, policy) for name, policy in policies(of).items()}
    usd = {"on-demand": np.full(len(starts), on_demand_usd(inputs)), "one zone": one_zone_usd(of, ratio, starts)}
    usd |= {name: bill.usd for name, bill in bills.items()}
    return Cell(
        compute_least_usd(inputs, moves_at_once=True), usd, sum(int(bill.late.sum()) for bill in bills.values())
    )


def line(ratio: float, cell: Cell) -> str:
    """Mean dollars of the optimum, what each policy costs over it in percent, deadlines missed."""
    over = "".join(f"{cell.over(name):10.1f}" for name in cell.usd)
    return f"{ratio:6.2f} {cell.least_usd.mean():9.2f} {over}{cell.late:6d}"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", choices=("down", "last"), default="last")
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    for of in sets(args.data, Holes(args.holes)):
        names = ["on-demand", "one zone", *policies(of)]
        for name, starts in (("tiled", of.tiled()), ("every 10 h", of.overlapping())):
            print(f"\n{of.name}: {len(starts)} windows, {name} ({of.series.ticks / of.deadline_ticks:.1f} disjoint)")
            print(f"{'ratio':>6} {'optimum $':>9} " + "".join(f"{n:>10}" for n in names) + f"{'late':>6}")
            for ratio in of.ratios:
                print(line(ratio, played(of, ratio, starts)), flush=True)


if __name__ == "__main__":
    main()
