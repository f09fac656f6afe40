"""Turn profile points that state a batch or a placement into the speed of any gang, by the fitted form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pricing.machines import Accelerator, Machine
from router.jobs.point_model import PointLinks, StepForm, StepMeasurement, StepPlace, fit_form
from router.jobs.profile_point import ProfilePoint
from router.jobs.workload import Workload

_SWITCHED_LINKS: Final = frozenset({"nvlink-switch", "nvlink", "infinity-fabric", "ici"})
_USUAL_MACHINE: Final = 8  # accelerators of a machine, where a point does not state its placement
_TOO_UNCERTAIN: Final = 0.7
# Share of a step that is bound by the memory bandwidth rather than by the arithmetic, for ratios of data sheets.
_MEMORY_BOUND: Final = 0.3
_SLOWEST: Final = 0.001  # share of the peak; published runs over plain TCP reach 0.7 %
_LONG_STEP_S: Final = 10.0
#: Standard deviation of a point whose error is not known yet, in proposals.
POINT_ERROR: Final = 0.05


@dataclass(frozen=True, slots=True)
class PointSpeed:
    """Steps an hour of a gang, its relative error, its basis in words; ``exact``: a point is of this very gang."""

    steps_per_hour: float
    relative_error: float
    basis: str
    exact: bool = False


@dataclass(frozen=True, slots=True)
class PointsTooFew:
    """The reason why points say nothing of a gang."""

    reason: str


def states_place(workload: Workload) -> bool:
    """Return whether any point states a batch or a placement: only then the form stands in for the power law."""
    return any(p.batch is not None or p.placement is not None for p in workload.profile)


def speed_from_points(
    workload: Workload, machine: Machine, machines: int, accelerators: Sequence[Accelerator]
) -> PointSpeed | PointsTooFew:
    """Return the speed of the gang: a point of this very gang as it is stated, else by the form.

    Where no point is of the machine's accelerator those of others are carried over, with a wider error.
    """
    points = usable_points(workload, machine, machines)
    exact = next((p for p in points if _is_exact(p, workload, machine, machines)), None)
    if exact is not None:
        basis = f"measured: {exact.source or 'job profile'}"
        return PointSpeed(exact.steps_per_hour, exact.relative_error, basis, exact=True)
    form = form_of(workload, machine, machines, accelerators)
    if isinstance(form, PointsTooFew):
        return form
    seconds, error = form.predict(step_place(workload, machine, machines))
    if error > _TOO_UNCERTAIN:
        gang = f"{machines * machine.accelerator_count} {machine.accelerator}"
        return PointsTooFew(f"the profile is too far from {gang} (error {error:.0%}): measure nearer to it")
    own = [p for p in points if p.accelerator == machine.accelerator]
    others = sorted({p.accelerator for p in points} - {machine.accelerator})
    number = "1 point" if len(points) == 1 else f"{len(points)} points"
    basis = f"fitted to {number}" if own else f"carried from {number} of {', '.join(others)}"
    return PointSpeed(3600 / seconds, error, basis)


def usable_points(workload: Workload, machine: Machine, machines: int) -> list[ProfilePoint]:
    """Return the points that say something of gangs of the machine: over its fabric, in the job's precision.

    A point on one machine serves every fabric if it states its placement. Those of other accelerators are among them.
    """
    shape = workload.transformer
    return [
        p
        for p in workload.profile
        if (shape is None or p.precision in (None, shape.precision)) and _is_over(p, machine, machines)
    ]


def _is_over(point: ProfilePoint, machine: Machine, machines: int) -> bool:
    if machines == 1 and point.count <= machine.accelerator_count and point.stated_machines in (None, 1):
        return True
    if point.stated_machines == 1:
        return True
    return (point.fabric or "rdma") == ("rdma" if machine.has_rdma else "ethernet")


def _is_exact(point: ProfilePoint, workload: Workload, machine: Machine, machines: int) -> bool:
    batch = workload.step_batch
    return (
        point.accelerator == machine.accelerator
        and point.count == machines * machine.accelerator_count
        and point.stated_machines in (None, machines)
        and (point.batch is None or batch is None or math.isclose(point.batch, batch))
    )


def form_of(
    workload: Workload, machine: Machine, machines: int, accelerators: Sequence[Accelerator]
) -> StepForm | PointsTooFew:
    """Return the form for gangs of the machine, fitted to the points of its accelerator, or to those of others."""
    points = usable_points(workload, machine, machines)
    sheets = {a.name: a for a in accelerators}
    own = sheets.get(machine.accelerator)
    others = sorted(
        {p.accelerator for p in points if p.accelerator != machine.accelerator and p.accelerator in sheets}
        if own is not None
        else ()
    )
    kinds = {machine.accelerator: 0} | {name: index + 1 for index, name in enumerate(others)}
    measured = tuple(
        StepMeasurement(_place_of(p, workload), 3600 / p.steps_per_hour, p.relative_error, kinds[p.accelerator])
        for p in points
        if p.accelerator in kinds
    )
    if not measured:
        return PointsTooFew(f"no profile for {machine.accelerator} over its fabric")
    ratios = tuple(_log_ratio(sheets[name], own) for name in others) if own is not None else ()
    return fit_form(tuple(sorted(measured, key=_order)), links_of(machine), ratios)


def links_of(machine: Machine) -> PointLinks:
    """Return the kind of links in and between such machines; what is unknown is taken for a bus and Ethernet."""
    return PointLinks(machine.intra_node_interconnect in _SWITCHED_LINKS, machine.has_rdma)


def _order(point: StepMeasurement) -> tuple[float, ...]:
    place = point.place
    return point.kind, place.machines, place.per_machine, place.batch, point.seconds


def step_place(workload: Workload, machine: Machine, machines: int) -> StepPlace:
    """Return a step of the job on ``machines`` of the machine; its batch is spread over all accelerators."""
    each = machine.accelerator_count
    return StepPlace(machines, each, (workload.step_batch or 1.0) / (machines * each))


def _place_of(point: ProfilePoint, workload: Workload) -> StepPlace:
    batch = (point.batch or workload.step_batch or 1.0) / point.count
    machines = point.stated_machines
    if machines is None:
        machines = 1 if point.fabric is None and point.count <= _USUAL_MACHINE else -(-point.count // _USUAL_MACHINE)
        machines = machines if point.fabric is None else max(machines, 2)
    return StepPlace(machines, point.count / machines, batch)


def _log_ratio(other: Accelerator, accelerator: Accelerator) -> float:
    """Return the logarithm of the compute time on the other accelerator over that on this one, by data sheets."""
    arithmetic = math.log(accelerator.bf16_dense_tflops / other.bf16_dense_tflops)
    memory = math.log(accelerator.memory_bandwidth_gb_per_s / other.memory_bandwidth_gb_per_s)
    return (1 - _MEMORY_BOUND) * arithmetic + _MEMORY_BOUND * memory


def arithmetic_refusal(point: ProfilePoint, workload: Workload, accelerator: Accelerator) -> tuple[str, str] | None:
    """Return why the accelerator cannot have done the point, and what to do; None where it can, or no shape is known.

    The arithmetic is a lower bound: the products with the weights alone.
    """
    shape = workload.transformer
    if shape is None:
        return None
    tokens = shape.tokens_per_step if point.batch is None else point.batch * shape.sequence_length
    operations = (4 if shape.lora else 6) * (shape.active_parameters or shape.parameters) * tokens
    seconds = 3600 / point.steps_per_hour
    rate = operations / seconds / point.count / 1e12
    peak = _peak_tflops(point.precision, accelerator)
    if rate > peak:
        what = f"{rate:,.0f} TFLOP/s a {accelerator.name}, whose peak is {peak:,.0f}: no run is so fast"
        return what, "check the unit of the speed, and that tokens_per_step is the batch of this point"
    if rate < peak * _SLOWEST and seconds > _LONG_STEP_S:
        what = f"{rate:.2g} TFLOP/s a {accelerator.name}, {rate / peak:.2%} of its peak: no run is so slow"
        return what, f"seconds_per_step is in seconds: were {seconds:.3g} milliseconds meant?"
    return None


def _peak_tflops(precision: str | None, accelerator: Accelerator) -> float:
    """Return the highest dense rate that the precision allows; of an unstated one the highest of all."""
    sixteen, eight = accelerator.bf16_dense_tflops, accelerator.fp8_dense_tflops
    if precision in {"fp32", "tf32", "fp16", "bf16"}:
        return sixteen
    if precision == "fp4":
        return 2 * (eight or 2 * sixteen)
    return eight or sixteen
