"""Compute how fast a gang runs a job: from the job's measured profile points, else by an estimate.

Every answer carries a relative error (standard deviation of the finish time over itself). Forms and constants:
published tables as summarised in ``docs/design/004-speed-and-risk.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pricing.machines import Accelerator, Machine
from router.jobs.point_speed import PointSpeed, PointsTooFew, speed_from_points, states_place
from router.jobs.spec import ProfilePoint, Transformer, Workload

# Achieved share of the dense 16-bit peak on large dense models, fitted over published runs (BF16).
_EFFICIENCY = {"V100": 0.40, "A100": 0.53, "H100": 0.44, "H200": 0.44, "GH200": 0.44, "TPU-v6e": 0.40}
_OTHER_EFFICIENCY = 0.35
_FP8_GAIN = 1.2  # speed of whole steps, FP8 over BF16: median of four published pairs (0.8 to 1.3); peaks differ by 2
_ERROR_ESTIMATE = 0.25  # p10-p90 about x0.75 to x1.35 without any profile
_ERROR_OTHER = 0.35
_ERROR_INTERPOLATED = 0.10
_ERROR_PER_DOUBLING = 0.08
_SCALING_UP = 0.9  # exponent beyond the largest measured size
_FARTHEST = 4.0
_OVERLAP_NORM = 7.5  # p-norm of compute and data-parallel time where the fabric overlaps them
_BUS_SHARE_RDMA, _BUS_SHARE_TCP = 0.85, 0.35
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
    known: Sequence[Accelerator] = (),
) -> Speed | UnknownSpeed:
    """Return the speed of ``machines`` of ``machine`` on this workload, or the reason why there is none.

    Points that state a batch or a placement carry to other gangs by the fitted form, and to other accelerators where
    ``known`` has the data sheets of both.
    """
    if states_place(workload):
        return _from_placed_points(workload, machine, machines, accelerator, known)
    measured = [p for p in workload.profile if p.accelerator == machine.accelerator]
    fitting = [p for p in measured if _applies(p, machine, machines)]
    if fitting:
        found = _from_profile(sorted(fitting, key=lambda p: p.count), machines * machine.accelerator_count)
        if isinstance(found, Speed) or workload.transformer is None:
            return found
    if workload.transformer is not None:
        return _estimate(workload.transformer, machine, machines, accelerator)
    if measured and machines > 1 and not machine.has_rdma:
        return UnknownSpeed(f"no profile of {machine.accelerator} over {machines} machines without an RDMA fabric")
    return UnknownSpeed(f"no profile for {machine.accelerator}")


def _from_placed_points(
    workload: Workload, machine: Machine, machines: int, accelerator: Accelerator, known: Sequence[Accelerator]
) -> Speed | UnknownSpeed:
    """Return what the points say; where a shape is known and they are not exact, together with its estimate."""
    found = speed_from_points(workload, machine, machines, (accelerator, *known))
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


def _estimate(model: Transformer, machine: Machine, machines: int, accelerator: Accelerator) -> Speed | UnknownSpeed:
    """Estimate from FLOPs over achieved peak, and the data-parallel exchange over the slowest link, by a p-norm."""
    count = machines * machine.accelerator_count
    short = _memory_short(model, count, accelerator)
    if short is not None:
        return short
    times = step_times(model, machine, machines, accelerator)
    if isinstance(times, UnknownSpeed):
        return times
    error = _ERROR_ESTIMATE if _efficiency(accelerator) is not None else _ERROR_OTHER
    compute, exchange = times.compute, times.exchange
    power = _OVERLAP_NORM if machines == 1 or machine.has_rdma else 1.0
    seconds = (compute**power + exchange**power) ** (1 / power)
    return Speed(3600 / seconds, error, f"estimated: {compute:.3g} s compute, {exchange:.3g} s exchange a step")


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The estimated seconds of a step that each part would take alone."""

    compute: float
    exchange: float


def step_times(
    model: Transformer, machine: Machine, machines: int, accelerator: Accelerator
) -> StepTimes | UnknownSpeed:
    """Return the seconds of compute and of exchange in a step, whether or not the job fits in memory."""
    count = machines * machine.accelerator_count
    peak = accelerator.bf16_dense_tflops * 1e12 * (_efficiency(accelerator) or _OTHER_EFFICIENCY)
    if model.precision == "fp8":
        if accelerator.fp8_dense_tflops is None:
            return UnknownSpeed(f"{accelerator.name} has no FP8")
        peak *= _FP8_GAIN
    exchange = _exchange_seconds(model, machine, machines)
    if isinstance(exchange, UnknownSpeed):
        return exchange
    return StepTimes(_flops_per_step(model) / (count * peak), exchange)


def _efficiency(accelerator: Accelerator) -> float | None:
    """Return the share of the peak that published runs achieve; None where there are none."""
    return _EFFICIENCY.get(accelerator.name, _EFFICIENCY.get(accelerator.name.split("-")[0]))


def _flops_per_step(model: Transformer) -> float:
    """Return 6 P + attention 12 L h s (half where causal) a token; full recomputation repeats the forward third."""
    active = model.active_parameters or model.parameters
    weights = (4 if model.lora else 6) * active
    attention = (6 if model.causal else 12) * model.layers * model.hidden * model.sequence_length
    again = {"none": 1.0, "selective": 1.03, "full": 4 / 3}[model.recompute]
    return (weights + attention) * model.tokens_per_step * again


def _exchange_seconds(model: Transformer, machine: Machine, machines: int) -> float | UnknownSpeed:
    """Return the seconds of the exchange of gradients (and ZeRO-3 gathers) once a step over the slowest link.

    Ring factor 2(k-1)/k, 16-bit.
    """
    payload = 0.0 if model.lora else 2.0 * model.parameters * (1.5 if model.sharding == "zero3" else 1.0)
    if machines > 1:
        if machine.inter_node_gbps is None:
            return UnknownSpeed(
                f"network of {machine.instance_type} is unknown, so {machines} machines cannot be timed"
            )
        share = _BUS_SHARE_RDMA if machine.has_rdma else _BUS_SHARE_TCP
        return 2 * (machines - 1) / machines * payload / (machine.inter_node_gbps / 8 * 1e9 * share)
    ranks = machine.accelerator_count
    if ranks == 1:
        return 0.0
    link = (machine.intra_node_gb_per_s or 32.0) / 2 * 1e9 * 0.8
    return 2 * (ranks - 1) / ranks * payload / link


def memory_need_gib(model: Transformer, count: int, recompute: str | None = None) -> float:
    """Return the GiB that each accelerator needs: the state over its shards plus one sequence of activations.

    ``recompute`` stands in for the model's own.
    """
    state = model.parameters * (2.5 if model.lora else model.optimizer_bytes_per_parameter)
    if model.sharding == "zero3":
        state /= count
    elif model.sharding == "zero1" and not model.lora:
        state = model.parameters * (4 + (model.optimizer_bytes_per_parameter - 4) / count)
    per_token = {"none": 34.0, "selective": 18.0, "full": 2.0}[recompute or model.recompute]
    return (state + per_token * model.hidden * model.layers * model.sequence_length) / 2**30


def usable_memory_gib(accelerator: Accelerator) -> float:
    """Return the memory that a job can use of the accelerator's."""
    return accelerator.memory_gib * _MEMORY_SHARE


def _memory_short(model: Transformer, count: int, accelerator: Accelerator) -> UnknownSpeed | None:
    """Return why the memory is too small; None if the job fits."""
    needed, room = memory_need_gib(model, count), usable_memory_gib(accelerator)
    if needed > room:
        return UnknownSpeed(f"needs {needed:.0f} GiB a {accelerator.name}, which has {room:.0f} usable")
    return None
