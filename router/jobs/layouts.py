"""Choose how a transformer is split over a gang: the fastest layout that fits into memory.

All layouts of a gang are timed in one call of the step model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from router.jobs.step_model import (
    ComputeParts,
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
_EXPERT, _MICRO = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16)
# What the step model takes as layouts and links have it.
_OF_LAYOUTS = ("microbatch", "tensor", "pipeline", "data", "context", "expert")
_OF_LINKS = ("count", "domain", "peak", "peak16", "memory_rate", "link", "network")


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


@dataclass(frozen=True, slots=True)
class ChosenLayout:
    """A layout with the memory that it needs; ``recompute`` and ``sharding`` are what `auto` became."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    microbatch: float
    accumulation: int
    recompute: str
    sharding: str

    def __str__(self) -> str:
        """Return the layout in words: only the sizes above 1."""
        sizes = {"tensor": self.tensor, "pipeline": self.pipeline, "context": self.context, "expert": self.expert}
        split = [f"{name} {size}" for name, size in sizes.items() if size > 1] + [f"data {self.data}"]
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
    split = layout.tensor * layout.pipeline
    ranks = layout.data * layout.context
    optimizer = float(model.optimizer_bytes_per_parameter)
    if model.lora:
        each = 0.9 if model.quantised else 2.5
        each = each / ranks if layout.sharding == "zero3" else each
    else:
        whole = {"none": optimizer, "zero1": 4.0, "zero2": 2.0, "zero3": 0.0}[layout.sharding]
        whole = min(whole, optimizer)
        each = whole + (optimizer - whole) / ranks
    held = model.parameters
    if layout.expert > 1:
        common = model.active_parameters or model.parameters
        held = common + (model.parameters - common) / layout.expert
        if layout.sharding != "none":  # experts are held by fewer replicas: their optimizer states are spread less
            each = min(each * layout.expert, optimizer) if layout.sharding == "zero3" else each
    tokens = max(layout.microbatch, 1.0) * model.sequence_length / (layout.tensor * layout.context)
    in_flight = model.layers * min(1.0, layout.accumulation / layout.pipeline)
    activations = _TOKEN_BYTES[layout.recompute] * model.hidden * in_flight * tokens
    logits = _LOGIT_BYTES * (model.vocabulary or 0) * tokens
    return MemoryNeed(held * each / split / 2**30, activations / 2**30, logits / 2**30)


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


def time_layouts(model: Transformer, links: Links) -> TimedLayouts | None:
    """Return every layout that the job allows on the gang, timed; None where there is none."""
    layouts = tuple(_layouts(model, links))
    if not layouts:
        return None
    stored = read_coefficients()
    return TimedLayouts(layouts, time_steps(_as_steps(model, links, layouts), stored.values, links.overlap))


def compute_parts(model: Transformer, links: Links, layout: ChosenLayout) -> ComputeParts:
    """Return the terms of the compute of one layout's step."""
    return split_compute(_as_steps(model, links, (layout,)), read_coefficients().values)


def _layouts(model: Transformer, links: Links) -> list[ChosenLayout]:
    stated_layout = model.layout
    sequences = model.tokens_per_step / model.sequence_length
    again = [model.recompute] if model.recompute != "auto" else list(AGAIN)
    sharding = [model.sharding] if model.sharding != "auto" else ["zero1", "zero3"]
    sizes = [(1, 1, 1, 1)] if stated_layout is None else _sizes(model, stated_layout, links)
    layouts = []
    for tensor, pipeline, context, expert in sizes:
        data, rest = divmod(links.count, tensor * pipeline * context)
        if rest or not data or (stated_layout is not None and stated_layout.data_parallel not in (None, data)):
            continue
        if expert > 1 and data * context % expert:
            continue
        for micro, accumulation in _micro_batches(stated_layout, sequences / data):
            layouts += [
                ChosenLayout(tensor, pipeline, context, expert, data, micro, accumulation, r, z)
                for r, z in product(again, sharding)
                if pipeline == 1 or z != "zero3" or model.sharding == "zero3"
            ]
    return layouts


def _sizes(model: Transformer, stated_layout: Layout, links: Links) -> list[tuple[int, int, int, int]]:
    """Return the tensor, pipeline, context and expert sizes to try: the stated one, or powers of two that make sense.

    Tensor parallelism stays within the fast links; no stage is without a layer.
    """
    inside = [t for t in _TENSOR if t <= links.domain and links.domain % t == 0 and model.hidden % t == 0]
    stages = [p for p in _PIPELINE if p <= model.layers]
    experts = model.experts or (64 if (model.active_parameters or model.parameters) < model.parameters else 1)
    spread = [e for e in _EXPERT if experts % e == 0]
    choices = (
        [stated_layout.tensor_parallel] if stated_layout.tensor_parallel else inside,
        [stated_layout.pipeline_parallel] if stated_layout.pipeline_parallel else stages,
        [stated_layout.context_parallel] if stated_layout.context_parallel else list(_CONTEXT),
        [stated_layout.expert_parallel] if stated_layout.expert_parallel else spread,
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


def _as_steps(model: Transformer, links: Links, layouts: Sequence[ChosenLayout]) -> Steps:
    def column(values: Sequence[float]) -> NDArray[np.float64]:
        return np.array(values, dtype=np.float64)

    active = model.active_parameters or model.parameters
    experts = active < 0.99 * model.parameters
    efficiency, plain = read_coefficients().log_efficiency(links.family, links.accelerator, model.precision, experts)
    return as_steps(
        {
            "parameters": model.parameters,
            "active": active,
            "layers": model.layers,
            "hidden": model.hidden,
            "sequence": model.sequence_length,
            "sequences": model.tokens_per_step / model.sequence_length,
            **{name: column([getattr(one, name) for one in layouts]) for name in _OF_LAYOUTS},
            "microbatches": column([one.accumulation for one in layouts]),
            "stages": 1.0,
            "zero": column([ZERO_STAGES[one.sharding] for one in layouts]),
            "again": column([AGAIN[one.recompute] for one in layouts]),
            "causal": float(model.causal),
            "lora": float(model.lora),
            "experts": float(experts),
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
    if layout.expert > 1:
        flags.append(f"--expert-model-parallel-size={layout.expert}")
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
