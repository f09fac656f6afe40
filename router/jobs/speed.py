"""Compute how fast a gang runs a job: from the job's measured profile points, else by an estimate.

Every answer carries a relative error (standard deviation of the finish time over itself). Forms and constants:
``docs/design/speed.md``; measured points: ``docs/design/interruption-risk.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pricing.machines import Accelerator, Machine
from pricing.peak_rates import read_peak_rates
from router.jobs.layouts import ChosenLayout, Links, memory_need, time_layouts
from router.jobs.point_speed import PointSpeed, PointsTooFew, speed_from_points, states_place
from router.jobs.spec import ProfilePoint, Transformer, Workload
from router.jobs.step_model import read_coefficients

_ERROR_INTERPOLATED = 0.10
_ERROR_PER_DOUBLING = 0.08
_SCALING_UP = 0.9  # exponent beyond the largest measured size
_FARTHEST = 4.0
_BUS_SHARE_TCP = 0.35
_PCIE_GB_PER_S = 16.0
_MEMORY_SHARE = 0.92


@dataclass(frozen=True, slots=True)
class Speed:
    """Nominal steps an hour of an undisturbed gang, its relative error, and its basis in words."""

    steps_per_hour: float
    relative_error: float
    basis: str


@dataclass(frozen=True, slots=True)
class UnknownSpeed:
    """The reason why no speed can be given for a gang: it cannot run the workload, or too little is known."""

    reason: str


def gang_speed(
    workload: Workload,
    machine: Machine,
    machines: int,
    accelerator: Accelerator,
    accelerators: Sequence[Accelerator] = (),
) -> Speed | UnknownSpeed:
    """Return the speed of ``machines`` of ``machine`` on this workload, or the reason why there is none.

    Points that state a batch or a placement carry to other gangs by the fitted form, and to other accelerators where
    ``accelerators`` has the data sheets of both.
    """
    if states_place(workload):
        return _from_placed_points(workload, machine, machines, accelerator, accelerators)
    measured = [p for p in workload.profile if p.accelerator == machine.accelerator]
    fitting = [p for p in measured if _applies(p, machine, machines)]
    if fitting:
        speed = _from_profile(sorted(fitting, key=lambda p: p.count), machines * machine.accelerator_count)
        if isinstance(speed, Speed) or workload.transformer is None:
            return speed
    if workload.transformer is not None:
        return _estimate(workload.transformer, machine, machines, accelerator)
    if measured and machines > 1 and not machine.has_rdma:
        return UnknownSpeed(f"no profile of {machine.accelerator} over {machines} machines without an RDMA fabric")
    return UnknownSpeed(f"no profile for {machine.accelerator}")


def _from_placed_points(
    workload: Workload, machine: Machine, machines: int, accelerator: Accelerator, accelerators: Sequence[Accelerator]
) -> Speed | UnknownSpeed:
    """Return what the points say; where a shape is known and they are not exact, together with its estimate."""
    found = speed_from_points(workload, machine, machines, (accelerator, *accelerators))
    if isinstance(found, PointSpeed) and (found.exact or workload.transformer is None):
        return Speed(found.steps_per_hour, found.relative_error, found.basis)
    if workload.transformer is None:
        assert isinstance(found, PointsTooFew)
        return UnknownSpeed(found.reason)
    estimated = _estimate(workload.transformer, machine, machines, accelerator)
    if isinstance(found, PointsTooFew):
        return estimated
    if isinstance(estimated, UnknownSpeed):
        return Speed(found.steps_per_hour, found.relative_error, found.basis)
    trust = found.relative_error**-2 / (found.relative_error**-2 + estimated.relative_error**-2)
    rate = found.steps_per_hour**trust * estimated.steps_per_hour ** (1 - trust)
    error = (found.relative_error**-2 + estimated.relative_error**-2) ** -0.5
    return Speed(rate, error, f"{found.basis}, and {estimated.basis}")


def _applies(point: ProfilePoint, machine: Machine, machines: int) -> bool:
    """Return whether the point was measured over this kind of network.

    A point measured over RDMA says nothing of the same gang over TCP (26 to 57 times slower when measured).
    """
    if machines == 1:
        return True
    return (point.fabric or "rdma") == ("rdma" if machine.has_rdma else "ethernet")


def _from_profile(points: list[ProfilePoint], count: int) -> Speed | UnknownSpeed:
    for point in points:
        if point.count == count:
            return Speed(point.steps_per_hour, point.relative_error, f"measured: {point.source or 'job profile'}")
    below = [p for p in points if p.count < count]
    above = [p for p in points if p.count > count]
    if below and above:
        low, high = below[-1], above[0]
        along = math.log(count / low.count) / math.log(high.count / low.count)
        rate = low.steps_per_hour * (high.steps_per_hour / low.steps_per_hour) ** along
        error = max(low.relative_error, high.relative_error, _ERROR_INTERPOLATED)
        return Speed(rate, error, f"between measured {low.count} and {high.count}")
    nearest = below[-1] if below else above[0]
    ratio = count / nearest.count
    if not 1 / _FARTHEST <= ratio <= _FARTHEST:
        return UnknownSpeed(f"profile at {nearest.count} {nearest.accelerator} is too far from {count}")
    rate = nearest.steps_per_hour * (ratio**_SCALING_UP if ratio > 1 else ratio)
    error = nearest.relative_error + _ERROR_PER_DOUBLING * abs(math.log2(ratio))
    return Speed(rate, error, f"scaled from measured {nearest.count}")


@lru_cache(maxsize=4096)
def _estimate(model: Transformer, machine: Machine, machines: int, accelerator: Accelerator) -> Speed | UnknownSpeed:
    """Estimate from the fastest layout that fits; the same question is answered once."""
    links = gang_links(model.precision, machine, machines, accelerator)
    if isinstance(links, UnknownSpeed):
        return links
    fastest = _choose_for_gang(model, machine, machines, accelerator)
    if isinstance(fastest, UnknownSpeed):
        return fastest
    layout, times = fastest
    experts = (model.active_parameters or model.parameters) < model.parameters
    error = read_coefficients().relative_error(links.family, experts)
    rate = float(f"{3600 / times.seconds:.12g}")
    parts = f"{times.compute:.3g} s compute, {times.exchange:.3g} s exchange a step"
    chosen = "" if model.layout is None else f"; {layout}"
    return Speed(rate, error, f"estimated: {parts}{chosen}")


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The estimated seconds of a step that each part would take alone, and those of the step, parts overlapping.

    ``compute`` includes the ``bubble`` of a pipeline. ``exchange`` is all that goes over links: between ``tensor``
    parallel parts and stages, to ``experts``, and gradients.
    """

    compute: float
    exchange: float
    seconds: float
    bubble: float = 0.0
    tensor: float = 0.0
    experts: float = 0.0

    @property
    def gradients(self) -> float:
        """Return the seconds in which gradients and gathered parameters are exchanged."""
        return max(0.0, self.exchange - self.tensor - self.experts)


def gang_links(precision: str, machine: Machine, machines: int, accelerator: Accelerator) -> Links | UnknownSpeed:
    """Return the rates of a gang, or which of them is unknown."""
    rates = read_peak_rates().get(accelerator.name)
    stated = {"bf16": accelerator.bf16_dense_tflops, "fp16": accelerator.bf16_dense_tflops}
    stated["fp8"] = accelerator.fp8_dense_tflops or 0.0
    peak = stated.get(precision) if precision in stated else rates.peak(precision) if rates else None
    if not peak:
        return UnknownSpeed(f"{accelerator.name} has no {precision.upper()}")
    if machines > 1 and machine.inter_node_gbps is None:
        return UnknownSpeed(f"network of {machine.instance_type} is unknown, so {machines} machines cannot be timed")
    count = machines * machine.accelerator_count
    domain = min(rates.link_domain, count) if rates and machine.fabric == "ici" else machine.accelerator_count
    rdma = machines == 1 or machine.has_rdma
    link = machine.intra_node_gb_per_s
    return Links(
        family=rates.family if rates else "other",
        accelerator=accelerator.name,
        count=count,
        domain=domain,
        peak=peak,
        peak16=accelerator.bf16_dense_tflops,
        memory_rate=accelerator.memory_bandwidth_gb_per_s,
        link=link / 2 if link else _PCIE_GB_PER_S,
        network=(machine.inter_node_gbps or 1.0) / 8 * (1.0 if rdma else _BUS_SHARE_TCP),
        overlap=rdma,
    )


def choose_layout(
    model: Transformer, links: Links, accelerator: Accelerator | None
) -> tuple[ChosenLayout, StepTimes] | UnknownSpeed:
    """Return the fastest layout that fits with its times, or what does not fit; None leaves memory aside."""
    timed = time_layouts(model, links)
    if timed is None:
        return UnknownSpeed(f"no layout splits the job over {links.count} accelerators as its `layout` states")
    room = math.inf if accelerator is None else usable_memory_gib(accelerator)
    allowed, least = timed.fitting(model, room)
    if not allowed:
        need = memory_need(model, timed.layouts[least])
        more = "" if model.layout is not None else "; `layout: auto` tries to split it further"
        return UnknownSpeed(
            f"needs {need.total:.0f} GiB a {links.accelerator}, which has {room:.0f} usable ({need}){more}"
        )
    at = timed.fastest(allowed)
    parts = timed.parts
    compute = float(parts.compute[at] + parts.bubble[at])
    exchange = float(parts.exchange[at] + parts.tensor[at] + parts.experts[at])
    times = StepTimes(
        compute,
        exchange,
        float(parts.seconds[at]),
        bubble=float(parts.bubble[at]),
        tensor=float(parts.tensor[at]),
        experts=float(parts.experts[at]),
    )
    return timed.layouts[at], times


@lru_cache(maxsize=4096)
def _choose_for_gang(
    model: Transformer, machine: Machine, machines: int, accelerator: Accelerator
) -> tuple[ChosenLayout, StepTimes] | UnknownSpeed:
    """Return the fastest layout that fits a gang, once for its speed and for the terms of its step."""
    links = gang_links(model.precision, machine, machines, accelerator)
    return links if isinstance(links, UnknownSpeed) else choose_layout(model, links, accelerator)


@lru_cache(maxsize=4096)
def step_times(
    model: Transformer, machine: Machine, machines: int, accelerator: Accelerator
) -> StepTimes | UnknownSpeed:
    """Return the seconds of the parts of a step in the layout that its speed has; where none fits, in the fastest."""
    links = gang_links(model.precision, machine, machines, accelerator)
    if isinstance(links, UnknownSpeed):
        return links
    found = _choose_for_gang(model, machine, machines, accelerator)
    if isinstance(found, UnknownSpeed):
        found = choose_layout(model, links, None)
    return found if isinstance(found, UnknownSpeed) else found[1]


def memory_need_gib(model: Transformer, count: int, recompute: str | None = None) -> float:
    """Return the GiB that each accelerator needs at the least, one sequence at a time, whatever its speed.

    ``recompute`` stands in for the model's own.
    """
    again = recompute or ("full" if model.recompute == "auto" else model.recompute)
    sharding = "zero3" if model.sharding == "auto" else model.sharding
    if model.layout is None:
        return memory_need(model, ChosenLayout(1, 1, 1, 1, count, 1.0, 1, again, sharding)).total
    wanted = model.layout
    tensor, pipeline, context = (
        s or 1 for s in (wanted.tensor_parallel, wanted.pipeline_parallel, wanted.context_parallel)
    )
    data = max(1, count // (tensor * pipeline * context))
    layout = ChosenLayout(
        tensor,
        pipeline,
        context,
        wanted.expert_parallel or 1,
        data,
        float(wanted.micro_batch or 1),
        pipeline,
        again,
        sharding,
    )
    return memory_need(model, layout).total


def usable_memory_gib(accelerator: Accelerator) -> float:
    """Return the memory that a job can use of the accelerator's."""
    return accelerator.memory_gib * _MEMORY_SHARE
