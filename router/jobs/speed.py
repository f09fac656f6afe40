"""Compute how fast a gang runs a job: from the job's measured profile points, else by an estimate.

Points that state a batch or a placement carry to any gang by the form of :mod:`router.jobs.point_model`. Every answer
carries a relative error (standard deviation of the finish time over itself). Forms and constants:
``docs/design/speed.md``; measured points: ``docs/design/interruption-risk.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from pricing.machines import Accelerator, Machine
from pricing.peak_rates import read_peak_rates
from router.jobs.layouts import ChosenLayout, Links, estimate_kind, memory_need, time_layouts
from router.jobs.point_model import PointLinks, StepForm, StepMeasurement, StepPlace, fit_form
from router.jobs.profile_point import LearnedPoint, ProfilePoint
from router.jobs.step_model import Coefficients, read_coefficients
from router.jobs.workload import Transformer, Workload

_ERROR_INTERPOLATED = 0.10
_ERROR_PER_DOUBLING = 0.08
_SCALING_UP = 0.9  # exponent beyond the largest measured size
_FARTHEST = 4.0
_BUS_SHARE_TCP = 0.35
_PCIE_GB_PER_S = 16.0
_MEMORY_SHARE = 0.92
_SWITCHED_LINKS: Final = frozenset({"nvlink-switch", "nvlink", "infinity-fabric", "ici"})
_USUAL_MACHINE: Final = 8  # accelerators of a machine, where a point does not state its placement
_TOO_UNCERTAIN: Final = 0.7
# Share of a step that is bound by the memory bandwidth rather than by the arithmetic, for ratios of data sheets.
_MEMORY_BOUND: Final = 0.3
_SLOWEST: Final = 0.001  # share of the peak; published runs over plain TCP reach 0.7 %
_LONG_STEP_S: Final = 10.0
#: The evidence for a speed: points of the job, its earlier runs, published runs on the accelerator, or the shape alone.
SpeedEvidence = Literal["measured", "learned", "published", "shape"]
UNMEASURED: Final[frozenset[SpeedEvidence]] = frozenset({"published", "shape"})
#: Standard deviation of a point whose error is not known yet, in proposals.
POINT_ERROR: Final = 0.05


@dataclass(frozen=True, slots=True)
class Speed:
    """Nominal steps an hour of an undisturbed gang, its relative error, its evidence, and its basis in words.

    ``exact``: a point that states its batch or placement is of this very gang.
    """

    steps_per_hour: float
    relative_error: float
    basis: str
    evidence: SpeedEvidence
    exact: bool = False


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
    by_points = speed_from_points(workload, machine, machines, (accelerator, *accelerators))
    if workload.transformer is None or (isinstance(by_points, Speed) and by_points.exact):
        return by_points
    estimated = _estimate(workload.transformer, machine, machines, accelerator)
    if isinstance(by_points, UnknownSpeed):
        return estimated
    if isinstance(estimated, UnknownSpeed):
        return by_points
    trust = by_points.relative_error**-2 / (by_points.relative_error**-2 + estimated.relative_error**-2)
    rate = by_points.steps_per_hour**trust * estimated.steps_per_hour ** (1 - trust)
    error = (by_points.relative_error**-2 + estimated.relative_error**-2) ** -0.5
    return Speed(rate, error, f"{by_points.basis}, and {estimated.basis}", by_points.evidence)


def states_place(workload: Workload) -> bool:
    """Return whether any point states a batch or a placement: only then the form stands in for the power law."""
    return any(p.batch is not None or p.placement is not None for p in workload.profile)


def speed_from_points(
    workload: Workload, machine: Machine, machines: int, accelerators: Sequence[Accelerator]
) -> Speed | UnknownSpeed:
    """Return the speed of the gang: a point of this very gang as it is stated, else by the form.

    Where no point is of the machine's accelerator those of others are carried over, with a wider error.
    """
    points = usable_points(workload, machine, machines)
    exact = next((p for p in points if _is_exact(p, workload, machine, machines)), None)
    if exact is not None:
        basis = f"measured: {exact.source or 'job profile'}"
        return Speed(exact.steps_per_hour, exact.relative_error, basis, _evidence_of([exact]), exact=True)
    form = form_of(workload, machine, machines, accelerators)
    if isinstance(form, UnknownSpeed):
        return form
    seconds, error = form.predict(step_place(workload, machine, machines))
    if error > _TOO_UNCERTAIN:
        gang = f"{machines * machine.accelerator_count} {machine.accelerator}"
        return UnknownSpeed(f"the profile is too far from {gang} (error {error:.0%}): measure nearer to it")
    own = [p for p in points if p.accelerator == machine.accelerator]
    others = sorted({p.accelerator for p in points} - {machine.accelerator})
    number = "1 point" if len(points) == 1 else f"{len(points)} points"
    basis = f"fitted to {number}" if own else f"carried from {number} of {', '.join(others)}"
    slower = [
        p.placement
        for p in own
        if p.count == machines * machine.accelerator_count
        and p.placement is not None
        and _is_of_batch(p, workload)
        and p.steps_per_hour < 3600 / seconds
    ]
    basis += f", faster than measured on {slower[0]}" if slower else ""
    return Speed(3600 / seconds, error, basis, _evidence_of(points))


def _evidence_of(points: Sequence[ProfilePoint]) -> SpeedEvidence:
    """Return whether any of the points was learned from runs, or all were stated."""
    return "learned" if any(isinstance(point, LearnedPoint) for point in points) else "measured"


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
    if point.fabric is None and machine.accelerator_count < _USUAL_MACHINE and _is_of_shape(point, machine, machines):
        return True
    return (point.fabric or "rdma") == ("rdma" if machine.has_rdma else "ethernet")


def _is_of_shape(point: ProfilePoint, machine: Machine, machines: int) -> bool:
    """Return whether the point states this very shape; without a fabric it holds for it.

    Not for machines of eight and more: there RDMA is usual, and over Ethernet such a gang was 26 to 57 times slower.
    """
    return point.stated_machines == machines and point.count == machines * machine.accelerator_count


def _is_exact(point: ProfilePoint, workload: Workload, machine: Machine, machines: int) -> bool:
    return (
        point.accelerator == machine.accelerator
        and point.count == machines * machine.accelerator_count
        and point.stated_machines in (None, machines)
        and _is_of_batch(point, workload)
    )


def _is_of_batch(point: ProfilePoint, workload: Workload) -> bool:
    """Return whether the point was measured in steps of the job's batch, as far as both are stated."""
    batch = workload.step_batch
    return point.batch is None or batch is None or math.isclose(point.batch, batch)


def form_of(
    workload: Workload, machine: Machine, machines: int, accelerators: Sequence[Accelerator]
) -> StepForm | UnknownSpeed:
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
        fabric = "rdma" if machine.has_rdma else "ethernet"
        return UnknownSpeed(f"no profile for {machine.accelerator} over its fabric (a point needs `fabric: {fabric}`)")
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
            basis = f"measured: {point.source or 'job profile'}"
            return Speed(point.steps_per_hour, point.relative_error, basis, _evidence_of([point]))
    below = [p for p in points if p.count < count]
    above = [p for p in points if p.count > count]
    if below and above:
        low, high = below[-1], above[0]
        along = math.log(count / low.count) / math.log(high.count / low.count)
        rate = low.steps_per_hour * (high.steps_per_hour / low.steps_per_hour) ** along
        error = max(low.relative_error, high.relative_error, _ERROR_INTERPOLATED)
        return Speed(rate, error, f"between measured {low.count} and {high.count}", _evidence_of([low, high]))
    nearest = below[-1] if below else above[0]
    ratio = count / nearest.count
    if not 1 / _FARTHEST <= ratio <= _FARTHEST:
        return UnknownSpeed(f"profile at {nearest.count} {nearest.accelerator} is too far from {count}")
    rate = nearest.steps_per_hour * (ratio**_SCALING_UP if ratio > 1 else ratio)
    error = nearest.relative_error + _ERROR_PER_DOUBLING * abs(math.log2(ratio))
    return Speed(rate, error, f"scaled from measured {nearest.count}", _evidence_of([nearest]))


@lru_cache(maxsize=4096)
def _estimate(model: Transformer, machine: Machine, machines: int, accelerator: Accelerator) -> Speed | UnknownSpeed:
    """Estimate from the fastest layout that fits; the same question is answered once."""
    links = gang_links(model.precision, machine, machines, accelerator)
    if isinstance(links, UnknownSpeed):
        return links
    return _speed_of(_choose_for_gang(model, machine, machines, accelerator), model, links, read_coefficients())


def speed_from_shape(
    model: Transformer, links: Links, accelerator: Accelerator, fit: Coefficients
) -> Speed | UnknownSpeed:
    """Return the speed of the fastest layout that fits, by the coefficients of ``fit``, or what does not fit."""
    return _speed_of(choose_layout(model, links, accelerator, fit), model, links, fit)


def _speed_of(
    fastest: tuple[ChosenLayout, StepTimes] | UnknownSpeed, model: Transformer, links: Links, fit: Coefficients
) -> Speed | UnknownSpeed:
    """Return the speed of the chosen layout with its error and what it rests on; a refusal as it is."""
    if isinstance(fastest, UnknownSpeed):
        return fastest
    layout, times = fastest
    error = fit.relative_error(links.family, estimate_kind(model, fit))
    if links.is_wider_than(model.precision):
        error = max(error, fit.unseen_error)
    rate = float(f"{3600 / times.seconds:.12g}")
    parts = f"{times.compute:.3g} s compute, {times.exchange:.3g} s exchange a step"
    chosen = "" if model.layout is None else f"; {layout}"
    basis = f"estimated from the shape, {_likeness(links, model, fit)}: {parts}{chosen}"
    return Speed(rate, error, basis, "published" if fit.runs_like(links.accelerator) else "shape")


def _likeness(links: Links, model: Transformer, fit: Coefficients) -> str:
    """Return in words how many published runs the estimate rests on, and what the job leaves to be assumed."""
    runs = fit.runs_like(links.accelerator)
    words = f"like {runs} published runs on {links.accelerator}"
    if not runs:
        words = f"without a published run on {links.accelerator}"
    words += f", {model.precision} computed in 16 bit" if links.is_wider_than(model.precision) else ""
    if not estimate_kind(model, fit).endswith("unknown"):
        return words
    return f"{words}, none of them on {model.software}" if model.software else f"{words}, software not stated"


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


def bus_bandwidth(machine: Machine) -> float | None:
    """Return the bus bandwidth in GB/s that estimates give an all-reduce over such machines; None where unknown."""
    if machine.inter_node_gbps is None:
        return None
    network = machine.inter_node_gbps / 8 * (1.0 if machine.has_rdma else _BUS_SHARE_TCP)
    link = machine.intra_node_gb_per_s
    return network if link is None else min(network, link / 2)


def network_of_bandwidth(gb_per_s: float) -> float:
    """Return the Gbit/s a machine of an Ethernet with that bus bandwidth."""
    return gb_per_s * 8 / _BUS_SHARE_TCP


def gang_links(precision: str, machine: Machine, machines: int, accelerator: Accelerator) -> Links | UnknownSpeed:
    """Return the rates of a gang, or which of them is unknown."""
    rates = read_peak_rates().get(accelerator.name)
    stated = {"bf16": accelerator.bf16_dense_tflops, "fp16": accelerator.bf16_dense_tflops}
    stated["fp8"] = accelerator.fp8_dense_tflops or 0.0
    if rates is not None and rates.family == "tpu":  # without 8-bit units they compute it in 16 bit
        stated["fp8"] = rates.peak("fp8") or accelerator.bf16_dense_tflops
    peak = stated.get(precision) if precision in stated else rates.peak(precision) if rates else None
    if not peak:
        return UnknownSpeed(f"{accelerator.name} has no {precision.upper()}")
    if machines > 1 and machine.inter_node_gbps is None:
        return UnknownSpeed(f"network of {machine.instance_type} is unknown, so {machines} machines cannot be timed")
    count = machines * machine.accelerator_count
    switched = machine.intra_node_interconnect == "nvlink-switch"
    # Switches of a rack and meshes of a slice join accelerators of many machines.
    domain = machine.accelerator_count
    if rates is not None and (switched or machine.fabric == "ici"):
        domain = min(max(rates.link_domain, domain), count)
    rdma = machines == 1 or machine.has_rdma
    link = machine.intra_node_gb_per_s or (2 * rates.link_gb_per_s if rates and machine.fabric == "ici" else None)
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
    model: Transformer, links: Links, accelerator: Accelerator | None, fit: Coefficients | None = None
) -> tuple[ChosenLayout, StepTimes] | UnknownSpeed:
    """Return the fastest layout that fits with its times, or what does not fit; no accelerator leaves memory aside."""
    timed = time_layouts(model, links, fit)
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
