"""Choose how a transformer is split over a gang: the fastest layout that fits into memory.

All layouts of a gang are timed in one call of the step model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from router.jobs.step_model import (
    Coefficients,
    ComputeParts,
    EfficiencyKind,
    StepParts,
    Steps,
    as_steps,
    read_coefficients,
    split_compute,
    time_steps,
)
from router.jobs.workload import Layout, Transformer

AGAIN = {"none": 0.0, "selective": 0.05, "full": 1.0}  # share of the forward pass that is computed twice
ZERO_STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
_TOKEN_BYTES = {"none": 34.0, "selective": 18.0, "full": 2.0}  # activations a token, layer and unit of width
_LOGIT_BYTES = 6.0  # 16-bit logits and their 32-bit gradient
_TENSOR, _PIPELINE, _CONTEXT = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8)
_EXPERT, _MICRO, _STAGES = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16), (2, 4, 8)
_OLD_SOFTWARE = 2023.0  # before that year software fell far short of the fastest layout
# What the step model takes as layouts and links have it.
_OF_LAYOUTS = ("microbatch", "tensor", "pipeline", "data", "context", "expert")
_OF_LINKS = ("count", "domain", "peak", "peak16", "memory_rate", "link", "network")
_Parts = TypeVar("_Parts", StepParts, ComputeParts)


@dataclass(frozen=True, slots=True)
class Links:
    """The rates that a gang computes and communicates at, in TFLOP/s and 1e9 bytes/s one way.

    ``domain`` is how many accelerators the fast links join; ``network`` is the rate of a machine, ``overlap`` whether
    the network moves data while the accelerators compute.
    """

    family: str
    accelerator: str
    count: int
    domain: int
    peak: float
    peak16: float
    memory_rate: float
    link: float
    network: float
    overlap: bool

    def is_wider_than(self, precision: str) -> bool:
        """Return whether 8 bits are computed in 16, because the accelerator has no units for them."""
        return precision == "fp8" and self.peak <= self.peak16


@dataclass(frozen=True, slots=True)
class ChosenLayout:
    """A layout; ``recompute`` and ``sharding`` are what `auto` became, ``stages`` the virtual ones of a pipeline."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    microbatch: float
    accumulation: int
    recompute: str
    sharding: str
    stages: int = 1

    def __str__(self) -> str:
        """Return the layout in words: only the sizes above 1."""
        sizes = {"tensor": self.tensor, "pipeline": self.pipeline, "context": self.context, "expert": self.expert}
        split = [f"{name} {size}" for name, size in sizes.items() if size > 1] + [f"data {self.data}"]
        split += [f"virtual stages {self.stages}"] if self.stages > 1 else []
        micro = f"{self.accumulation} x {self.microbatch:.3g} sequences"
        return f"{' x '.join(split)}, {micro}, {self.sharding}, recompute {self.recompute}"


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The GiB that an accelerator needs, by what needs them."""

    states: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        return self.states + self.activations + self.logits

    def __str__(self) -> str:
        logits = f", {self.logits:.1f} for logits" if self.logits else ""
        return (
            f"{self.states:.1f} for weights, gradients and optimizer states, {self.activations:.1f} for activations"
            f"{logits}"
        )


def memory_need(model: Transformer, layout: ChosenLayout) -> MemoryNeed:
    """Return what each accelerator needs: its share of the state, and activations of the micro-batches in flight.

    The first stage of a pipeline holds as many micro-batches as there are stages, of a stage's layers each.
    """
    ranks = layout.data * layout.context
    routed = model.routed_experts.parameters
    shared = (model.parameters - routed) / layout.tensor * _state_bytes(model, layout.sharding, ranks)
    # Experts are held by fewer replicas, over which their optimizer states are spread.
    held_by = layout.expert if layout.expert > ranks else layout.expert * layout.tensor
    replicas = max(1.0, ranks * layout.tensor / held_by)
    states = (shared + routed / held_by * _state_bytes(model, layout.sharding, replicas)) / layout.pipeline
    tokens = max(layout.microbatch, 1.0) * model.sequence_length / (layout.tensor * layout.context)
    in_flight = model.layers * min(1.0, layout.accumulation / layout.pipeline)
    activations = _TOKEN_BYTES[layout.recompute] * model.hidden * in_flight * tokens
    logits = _LOGIT_BYTES * (model.vocabulary or 0) * tokens
    return MemoryNeed(states / 2**30, activations / 2**30, logits / 2**30)


def _state_bytes(model: Transformer, sharding: str, ranks: float) -> float:
    """Return the bytes that a rank holds for each of its parameters, where so many ranks share them."""
    if model.lora:
        each = 0.9 if model.quantised else 2.5
        return each / ranks if sharding == "zero3" else each
    optimizer = float(model.optimizer_bytes_per_parameter)
    whole = min({"none": optimizer, "zero1": 4.0, "zero2": 2.0, "zero3": 0.0}[sharding], optimizer)
    return whole + (optimizer - whole) / ranks


@dataclass(frozen=True, slots=True)
class TimedLayouts:
    """Layouts that a gang may have, in a fixed order, and the parts of a step in each."""

    layouts: tuple[ChosenLayout, ...]
    parts: StepParts

    def fastest(self, allowed: Sequence[int]) -> int:
        """Return the position of the fastest of the allowed ones; the first of equals."""
        return min(allowed, key=lambda at: (float(self.parts.seconds[at]), at))

    def fitting(self, model: Transformer, room_gib: float) -> tuple[list[int], int]:
        """Return the positions of those that need no more memory than that, and of the one that needs least."""
        needs = [memory_need(model, layout).total for layout in self.layouts]
        least = min(range(len(needs)), key=lambda at: (needs[at], at))
        return [at for at, need in enumerate(needs) if need <= room_gib], least


def time_layouts(model: Transformer, links: Links, fit: Coefficients | None = None) -> TimedLayouts | None:
    """Return every layout that the job allows on the gang, timed by the stored coefficients or those of ``fit``.

    None where there is no layout.
    """
    layouts = tuple(_layouts(model, links))
    if not layouts:
        return None
    fit = fit or read_coefficients()
    parts = time_steps(layout_steps(model, links, layouts, fit), fit.values, links.overlap)
    return TimedLayouts(layouts, _corrected(parts, model, fit))


def compute_parts(model: Transformer, links: Links, layout: ChosenLayout) -> ComputeParts:
    """Return the terms of the compute of one layout's step."""
    stored = read_coefficients()
    return _corrected(split_compute(layout_steps(model, links, (layout,), stored), stored.values), model, stored)


def estimate_kind(model: Transformer, fit: Coefficients) -> str:
    """Return the kind of estimate, which its correction and its error depend on.

    A mixture or not; its layout stated, chosen by `auto` or left out; its software known, and whether it is old.
    """
    mixture = "experts" if model.routed_experts.parameters else "dense"
    stated = model.layout is not None and (model.layout.tensor_parallel or model.layout.pipeline_parallel)
    layout = "none" if model.layout is None else "stated" if stated else "auto"
    old = model.software_year is not None and model.software_year < _OLD_SOFTWARE
    software = "old" if old else "known" if fit.software_family(model.software or "") else "unknown"
    return f"{mixture}:{layout}:{software}"


def _corrected(parts: _Parts, model: Transformer, fit: Coefficients) -> _Parts:
    """Return the seconds as they would be if estimates of this kind were right in the median."""
    factor = math.exp(fit.accuracy[estimate_kind(model, fit)].log_bias)
    return replace(parts, **{part.name: getattr(parts, part.name) * factor for part in fields(parts)})


def _layouts(model: Transformer, links: Links) -> list[ChosenLayout]:
    stated = model.layout
    sequences = model.tokens_per_step / model.sequence_length
    again = [model.recompute] if model.recompute != "auto" else list(AGAIN)
    sharding = [model.sharding] if model.sharding != "auto" else ["zero1", "zero3"]
    sizes = [(1, 1, 1, 1)] if stated is None else _sizes(model, stated, links)
    layouts = []
    for tensor, pipeline, context, expert in sizes:
        data, rest = divmod(links.count, tensor * pipeline * context)
        if rest or not data or (stated is not None and stated.data_parallel not in (None, data)):
            continue
        if tensor * data * context % expert:  # experts may be spread over the ranks of tensor parallelism too
            continue
        for micro, accumulation in _micro_batches(stated, sequences / data):
            stages = _virtual_stages(model, pipeline, accumulation)
            layouts += [
                ChosenLayout(tensor, pipeline, context, expert, data, micro, accumulation, r, z, v)
                for r, z, v in product(again, sharding, stages)
            ]
    return layouts


def _virtual_stages(model: Transformer, pipeline: int, accumulation: int) -> list[int]:
    """Return how often a pipeline may go round: the stated number, or one and the most that divide its layers evenly.

    An interleaved schedule takes micro-batches in rounds of as many as there are stages.
    """
    if model.layout is not None and model.layout.virtual_stages:
        return [model.layout.virtual_stages]
    if pipeline == 1 or accumulation % pipeline:
        return [1]
    return [1, *(v for v in _STAGES if v * pipeline <= model.layers)]


def _sizes(model: Transformer, stated: Layout, links: Links) -> list[tuple[int, int, int, int]]:
    """Return the tensor, pipeline, context and expert sizes to try: the stated one, or powers of two that make sense.

    Tensor parallelism stays within the fast links; no stage is without a layer.
    """
    inside = [t for t in _TENSOR if t <= links.domain and links.domain % t == 0 and model.hidden % t == 0]
    stages = [p for p in _PIPELINE if p <= model.layers]
    spread = [e for e in _EXPERT if model.routed_experts.count % e == 0]
    choices = (
        [stated.tensor_parallel] if stated.tensor_parallel else inside,
        [stated.pipeline_parallel] if stated.pipeline_parallel else stages,
        [stated.context_parallel] if stated.context_parallel else list(_CONTEXT),
        [stated.expert_parallel] if stated.expert_parallel else spread,
    )
    return [(t, p, c, e) for t, p, c, e in product(*choices)]


def _micro_batches(stated_layout: Layout | None, sequences: float) -> list[tuple[float, int]]:
    """Return micro-batches and how many of them a replica takes, given its sequences of a step.

    Without a stated layout a batch smaller than the gang is split further, as it always was.
    """
    if sequences < 1:
        return [(sequences, 1)] if stated_layout is None else []
    if stated_layout is not None and stated_layout.accumulation:
        return [
            (m, stated_layout.accumulation)
            for m in [sequences / stated_layout.accumulation]
            if m >= 1 and stated_layout.micro_batch in (None, m)
        ]
    stated = [stated_layout.micro_batch] if stated_layout is not None and stated_layout.micro_batch else list(_MICRO)
    return [(float(m), math.ceil(sequences / m)) for m in stated if m <= sequences]


def layout_steps(model: Transformer, links: Links, layouts: Sequence[ChosenLayout], fit: Coefficients) -> Steps:
    """Return the inputs of the step model, one entry a layout, with the efficiencies of ``fit``."""

    def column(values: Sequence[float]) -> NDArray[np.float64]:
        return np.array(values, dtype=np.float64)

    routed = model.routed_experts
    software = fit.software_family(model.software or "")
    precision = "bf16" if links.is_wider_than(model.precision) else model.precision
    kind = EfficiencyKind(
        links.family, links.accelerator, precision, routed.parameters > 0, software, model.software_year
    )
    efficiency, plain = fit.log_efficiency(kind)
    return as_steps(
        {
            "parameters": model.parameters,
            "routed": routed.parameters,
            "experts": routed.count,
            "chosen": routed.chosen,
            "layers": model.layers,
            "hidden": model.hidden,
            "sequence": model.sequence_length,
            "sequences": model.tokens_per_step / model.sequence_length,
            **{name: column([getattr(one, name) for one in layouts]) for name in _OF_LAYOUTS},
            "microbatches": column([one.accumulation for one in layouts]),
            "stages": column([one.stages for one in layouts]),
            "zero": column([ZERO_STAGES[one.sharding] for one in layouts]),
            "again": column([AGAIN[one.recompute] for one in layouts]),
            "causal": float(model.causal),
            "lora": float(model.lora),
            **{name: getattr(links, name) for name in _OF_LINKS},
            "log_efficiency": efficiency,
            "log_attention": plain,
        }
    )


def launcher_flags(layout: ChosenLayout, machines: int, accelerators: int) -> tuple[str, ...]:
    """Return the layout as flags of torchrun and Megatron-LM; expert and context sizes only where they split."""
    flags = [f"--nnodes={machines}", f"--nproc-per-node={accelerators}"]
    flags += [f"--tensor-model-parallel-size={layout.tensor}", f"--pipeline-model-parallel-size={layout.pipeline}"]
    if layout.context > 1:
        flags.append(f"--context-parallel-size={layout.context}")
    if layout.stages > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank={layout.stages}")
    if layout.expert > 1:
        flags.append(f"--expert-model-parallel-size={layout.expert}")
    if layout.expert > layout.data * layout.context:  # experts are spread over the ranks of tensor parallelism
        flags.append("--expert-tensor-parallel-size=1")
    flags.append(f"--micro-batch-size={max(1, math.floor(layout.microbatch))}")
    if layout.sharding in ("zero1", "zero2"):
        flags.append("--use-distributed-optimizer")
    if layout.sharding == "zero3":
        flags.append("--use-torch-fsdp2")
    if layout.recompute == "selective":
        flags.append("--recompute-activations")
    if layout.recompute == "full":
        flags += ["--recompute-granularity=full", "--recompute-method=uniform", "--recompute-num-layers=1"]
    return tuple(flags)


def deepspeed_config(layout: ChosenLayout) -> dict[str, object]:
    """Return the layout as the fields of a DeepSpeed configuration."""
    return {
        "train_micro_batch_size_per_gpu": max(1, math.floor(layout.microbatch)),
        "gradient_accumulation_steps": layout.accumulation,
        "zero_optimization": {"stage": ZERO_STAGES[layout.sharding]},
    }
