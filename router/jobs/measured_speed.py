"""Correct the speeds that a job states by what its own gangs were measured to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pricing.machines import Accelerator, Machine
from router.jobs.spec import ProfilePoint, Workload
from router.jobs.speed import Speed, gang_speed

RELATIVE_ERROR = 0.05  # standard deviation of a speed that was measured on the job's own gang
_SOURCE = "this job's own gang"


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Steps an hour that a gang of ``machines`` did of its job, without starts and restarts."""

    machine: Machine
    machines: int
    steps_per_hour: float

    @property
    def accelerators(self) -> int:
        return self.machines * self.machine.accelerator_count

    @property
    def fabric(self) -> Literal["rdma", "ethernet"] | None:
        """Return the network between the machines as profile points name it; None for one machine."""
        if self.machines == 1:
            return None
        return "rdma" if self.machine.has_rdma else "ethernet"


def correct_workload(workload: Workload, measured: MeasuredSpeed, accelerator: Accelerator) -> Workload:
    """Return the workload with the measured speed as a profile point.

    Points of other numbers of the same accelerator are multiplied by the measured speed over the stated one: a job that
    is slower than it states on 16 is slower on 8 too. Other accelerators keep their speeds.
    """
    stated = gang_speed(workload, measured.machine, measured.machines, accelerator)
    ratio = measured.steps_per_hour / stated.steps_per_hour if isinstance(stated, Speed) else 1.0
    point = ProfilePoint(
        accelerator=accelerator.name,
        count=measured.accelerators,
        steps_per_hour=measured.steps_per_hour,
        fabric=measured.fabric,
        relative_error=RELATIVE_ERROR,
        source=_SOURCE,
    )
    others = [_scaled(p, ratio) if p.accelerator == accelerator.name else p for p in _others(workload.profile, point)]
    return workload.model_copy(update={"profile": (point, *others)})


def _others(points: Iterable[ProfilePoint], measured: ProfilePoint) -> list[ProfilePoint]:
    """Return the points that say nothing of the gang that was measured."""
    return [
        p
        for p in points
        if (p.accelerator, p.count) != (measured.accelerator, measured.count)
        or (measured.fabric is not None and (p.fabric or "rdma") != measured.fabric)
    ]


def _scaled(point: ProfilePoint, ratio: float) -> ProfilePoint:
    return point.model_copy(update={"steps_per_hour": point.steps_per_hour * ratio})
