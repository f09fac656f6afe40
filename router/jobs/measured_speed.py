"""Correct speeds and networks by what was measured: on a job's own gang now, and on earlier runs. Pure.

Design notes speed and learning. One rule corrects by both; they differ in how many runs a measure is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from pricing.book import PriceBook
from pricing.machine_images import explain_fabric
from pricing.machines import Machine
from pricing.units import to_digits
from router.agent.protocol import LEAST_SHARE
from router.jobs.profile_point import LearnedPoint, ProfilePoint
from router.jobs.speed import Speed, bus_bandwidth, gang_speed, network_of_bandwidth
from router.jobs.workload import Workload

RELATIVE_ERROR = 0.05  # standard deviation of a speed from run to run of one job on one kind of gang
#: A job's own gang counts as so many earlier runs: beside it, what the job states has a part of 1/2501 at most.
OWN_GANG_RUNS = 100.0
# A stated speed counts as no surer than an estimate from a shape once runs are known.
_LEAST_STATED_ERROR = 0.25
#: A measurement counts for so long: software and cables are repaired.
COUNTS_FOR = timedelta(days=30)
_MEASURED = "an all-reduce there gave "


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Steps an hour that a gang of ``machines`` did of its job, without starts and restarts.

    ``spread`` is the relative standard deviation from run to run, ``weight`` how many runs of today it is worth, and
    ``source`` says in words how it is known. As they are by default: the job's own gang, now.
    """

    machine: Machine
    machines: int
    steps_per_hour: float
    spread: float = RELATIVE_ERROR
    weight: float = OWN_GANG_RUNS
    source: str = "this job's own gang"

    @property
    def accelerators(self) -> int:
        return self.machines * self.machine.accelerator_count

    @property
    def fabric(self) -> Literal["rdma", "ethernet"] | None:
        """Return the network between the machines as profile points name it; None for one machine."""
        if self.machines == 1:
            return None
        return "rdma" if self.machine.has_rdma else "ethernet"


def correct_workload(workload: Workload, measured: Sequence[MeasuredSpeed], book: PriceBook) -> Workload:
    """Return the workload with a point for each gang that was measured, and other points of its accelerator corrected.

    Newest evidence first: of several measures of one gang the first counts. A point lies between what was stated and
    what was measured, by how sure each is; its error is that of one more run. Points of other numbers of the same
    accelerator are multiplied by the measured speed over the stated one: a job that is slower than it states on 16 is
    slower on 8 too. Other accelerators keep what was stated.
    """
    points: list[ProfilePoint] = []
    ratios: dict[str, list[tuple[float, float]]] = {}
    for each in measured:
        accelerator = book.accelerator(each.machine.accelerator)
        if accelerator is None or any(_is_of(point, each) for point in points):
            continue
        stated = gang_speed(workload, each.machine, each.machines, accelerator)
        known = stated if isinstance(stated, Speed) else None
        points.append(_point(each, known))
        if known is not None:
            ratio = each.steps_per_hour / known.steps_per_hour
            ratios.setdefault(accelerator.name, []).append((each.weight, ratio))
    if not points:
        return workload
    others = [
        p.model_copy(update={"steps_per_hour": p.steps_per_hour * _mean_ratio(ratios.get(p.accelerator, ()))})
        for p in workload.profile
        if not any(_is_replaced(p, point) for point in points)
    ]
    return workload.model_copy(update={"profile": (*points, *others)})


def _point(measured: MeasuredSpeed, stated: Speed | None) -> ProfilePoint:
    precision = measured.weight / measured.spread**2
    log_speed = math.log(measured.steps_per_hour)
    if stated is not None:
        before = 1 / max(stated.relative_error, _LEAST_STATED_ERROR) ** 2
        log_speed = (precision * log_speed + before * math.log(stated.steps_per_hour)) / (precision + before)
        precision += before
    return LearnedPoint(
        accelerator=measured.machine.accelerator,
        count=measured.accelerators,
        steps_per_hour=to_digits(math.exp(log_speed)),
        fabric=measured.fabric,
        relative_error=to_digits(min(0.9, math.sqrt(measured.spread**2 + 1 / precision))),
        source=measured.source,
    )


def _is_of(point: ProfilePoint, measured: MeasuredSpeed) -> bool:
    gang = (measured.machine.accelerator, measured.accelerators, measured.fabric)
    return (point.accelerator, point.count, point.fabric) == gang


def _is_replaced(stated: ProfilePoint, point: ProfilePoint) -> bool:
    if (stated.accelerator, stated.count) != (point.accelerator, point.count):
        return False
    return point.fabric is None or (stated.fabric or "rdma") == point.fabric


def _mean_ratio(ratios: Sequence[tuple[float, float]]) -> float:
    total = sum(weight for weight, _ in ratios)
    return math.exp(sum(weight * math.log(ratio) for weight, ratio in ratios) / total) if total else 1.0


@dataclass(frozen=True, slots=True)
class FabricRun:
    """The bus bandwidth that one attempt's gang measured in one place, and what its plan assumed, in GB/s."""

    attempt: str
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    machines: int
    gb_per_s: float
    assumed_gb_per_s: float | None
    at: datetime


def learn_fabrics(runs: Iterable[FabricRun], now: datetime) -> tuple[FabricRun, ...]:
    """Return the newest measurement up to ``now`` of each place and machine type that still counts, sorted."""
    newest: dict[tuple[str, str, str, str], FabricRun] = {}
    for run in sorted(runs, key=lambda run: (run.at, run.attempt)):
        if timedelta(0) <= now - run.at <= COUNTS_FOR:
            newest[run.cloud, run.region, run.zone or "", run.instance_type] = run
    return tuple(run for _, run in sorted(newest.items()))


def with_measured_network(machine: Machine, zone: str | None, fabrics: Iterable[FabricRun]) -> Machine:
    """Return the machine with the network that was measured in its region, where that is below half of its own.

    It is planned as Ethernet then: its fabric does not work there. A healthy measurement changes nothing, because
    speeds are fitted with the rates of data sheets. Where no zone is stated the newest of the region counts.
    """
    found = [run for run in fabrics if zone is None or run.zone in (None, zone)]
    run, assumed = max(found, key=lambda run: run.at, default=None), bus_bandwidth(machine)
    if run is None or assumed is None or run.gb_per_s >= LEAST_SHARE * assumed:
        return machine
    source = f"{_MEASURED}{run.gb_per_s:.3g} of {assumed:.3g} GB/s on {run.at.astimezone(UTC):%Y-%m-%d} ({run.attempt})"
    return replace(machine, fabric="ethernet", inter_node_gbps=network_of_bandwidth(run.gb_per_s), source=source)


def explain_network(machine: Machine) -> str:
    """Return why several of the machines are planned at less than their fabric; "" where they are not."""
    return machine.source if machine.source.startswith(_MEASURED) else explain_fabric(machine)
