"""Compute the seconds of a transformer's step from its shape, its layout and the accelerators' rates.

Every function takes numbers or arrays of numpy: a search over layouts, or 100,000 gangs, is one call. The form is
physical; the few coefficients are fitted on published runs (``make fit``) and kept in ``speed_coefficients.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]
_BYTES_A_TOKEN = 68.0  # bytes of activations that a layer writes and reads a token and unit of width
_DISPATCH_BYTES = 16.0  # the same for each expert of a token: what is gathered, sorted and scattered
_MOST_LAUNCHES = 16.0  # experts of a rank that are launched one by one; more share their launches
_FEW_ROWS = 10
#: Software of this year and later is as fast as any.
REFERENCE_YEAR = 2026.5
_USUAL_AGE = 1.0  # years of software whose date is not stated
_OLDEST = 6.0  # years, beyond which older software is no slower
_TILE = 128.0  # matrices are computed in tiles so wide: the last one of a row is as dear as a full one


@dataclass(frozen=True, slots=True)
class Steps:
    """Inputs of the step model, one entry a gang and layout; rates in units of 1e9 bytes/s and TFLOP/s.

    ``routed`` are the parameters of all routed experts (0: dense), of which a layer has ``experts`` and a token uses
    ``chosen``. ``again`` is the share of the forward pass that is computed twice, ``domain`` the accelerators joined by
    fast links, ``network`` the rate of a machine one way, ``microbatches`` the number of micro-batches a pipeline takes
    in a step, ``log_efficiency`` that of matrices at the precision used, ``log_attention`` that in 16 bit.
    """

    parameters: Values
    routed: Values
    experts: Values
    chosen: Values
    layers: Values
    hidden: Values
    sequence: Values
    sequences: Values
    microbatch: Values
    microbatches: Values
    tensor: Values
    pipeline: Values
    data: Values
    context: Values
    expert: Values
    stages: Values
    zero: Values
    again: Values
    causal: Values
    lora: Values
    count: Values
    domain: Values
    peak: Values
    peak16: Values
    memory_rate: Values
    link: Values
    network: Values
    log_efficiency: Values
    log_attention: Values


def as_steps(values: Mapping[str, Any]) -> Steps:
    """Return the values as arrays of one length."""
    arrays = np.broadcast_arrays(*(np.asarray(values[f.name], dtype=np.float64) for f in fields(Steps)))
    return Steps(*arrays)


@dataclass(frozen=True, slots=True)
class StepParts:
    """The seconds that the parts of a step take, and the seconds of the step: what overlaps counts once there."""

    compute: Values
    tensor: Values
    experts: Values
    bubble: Values
    exchange: Values
    seconds: Values


@dataclass(frozen=True, slots=True)
class ComputeParts:
    """The seconds of compute of a step by what takes them; they add up to :attr:`StepParts.compute`.

    ``memory`` is traffic of activations, ``update`` that of the optimizer, ``launches`` what kernels take to start.
    """

    matrices: Values
    attention: Values
    memory: Values
    launches: Values
    update: Values


def split_compute(s: Steps, c: Mapping[str, float]) -> ComputeParts:
    """Return the terms of the compute of each step, as :func:`time_steps` adds them up."""
    once = _compute_terms(s, c, s.microbatch * s.sequence / s.context, s.layers / s.pipeline)
    matrices, attention, memory, launches = (term * s.microbatches for term in once)
    return ComputeParts(matrices, attention, memory, launches, _update_seconds(s, _held_parameters(s)))


def time_steps(s: Steps, c: Mapping[str, float], overlap: bool = True) -> StepParts:
    """Return the seconds of each step by the coefficients ``c``; without overlap, exchange adds to the compute."""
    tokens = s.microbatch * s.sequence / s.context
    layers = s.layers / s.pipeline
    matrices, attention, memory, launches = _compute_terms(s, c, tokens, layers)
    compute = matrices + attention + memory + launches
    near = s.link * 1e9
    far = s.network * 1e9 / np.maximum(s.domain, 1)
    ring = (4 + 2 * s.again) * 4 * layers * tokens * s.hidden * (s.tensor - 1) / s.tensor
    tensor = c["tensor"] * ring / np.where(s.tensor <= s.domain, near, far)
    turn = 3.6 * layers * tokens * s.hidden / s.tensor * (s.context - 1)
    tensor = tensor + c["tensor"] * turn / np.where(s.tensor * s.context <= s.domain, near, far)
    hand_on = 4 * tokens * s.hidden * s.stages / np.where(s.tensor * s.pipeline <= s.domain, near, far)
    tensor = tensor + np.where(s.pipeline > 1, c["pipeline"] * hand_on, 0)
    # Each token goes to its experts and back, forward and backward, in 16 bit.
    sent = 8 * layers * tokens * s.hidden * np.where(s.routed > 0, c["experts"], 0)
    groups = np.maximum(s.expert / s.domain, 1)
    inside = np.minimum(s.chosen, s.expert / groups) * (1 - groups / s.expert)
    experts = sent * (inside / near + np.minimum(s.chosen, groups) * (1 - 1 / groups) / far)
    once = compute + tensor + experts
    bubble = once * c["bubble"] * (s.pipeline - 1) / s.stages
    busy = once * s.microbatches + bubble
    held = _held_parameters(s)
    exchange = _exchange_seconds(s, c, held)
    power = (1 + c["overlap"]) if overlap else 1.0
    updated = _update_seconds(s, held)
    seconds = (busy**power + exchange**power) ** (1 / power) + updated
    many = s.microbatches
    return StepParts(compute * many + updated, tensor * many, experts * many, bubble, exchange, seconds)


def _update_seconds(s: Steps, held: Values) -> Values:
    """Return the seconds in which the optimizer reads and writes its states, once a step."""
    return 32 * held / np.where(s.zero > 0, s.data, 1) / (s.memory_rate * 1e9)


def _compute_terms(
    s: Steps, c: Mapping[str, float], tokens: Values, layers: Values
) -> tuple[Values, Values, Values, Values]:
    """Return the seconds of a micro-batch on a stage: matrices, attention, memory traffic and launches.

    Narrow matrices and few tokens reach less of the peak.
    """
    width = s.hidden / s.tensor
    repeated = 1 + s.again / 3
    peak = s.peak * 1e12 * np.exp(s.log_efficiency)
    work = np.where(s.lora > 0, 4, 6) * repeated / (s.tensor * s.pipeline) * tokens / peak
    shared = s.parameters - s.routed
    matrices = work * shared * _idle(width) * (1 + c["width"] / width) * (1 + c["tokens"] / tokens)
    matrices = matrices + work * s.routed * s.chosen / s.experts * _grouped(s, c, tokens)
    flops = np.where(s.causal > 0, 6, 12) * repeated * layers * s.hidden * s.sequence * tokens / s.tensor
    attention = c["attention"] * flops / (s.peak16 * 1e12 * np.exp(s.log_attention))
    sparse = s.routed > 0
    carried = _BYTES_A_TOKEN / s.tensor + np.where(sparse, c["dispatch"] * _DISPATCH_BYTES * s.chosen, 0)
    memory = c["memory"] * carried * repeated * layers * s.hidden * tokens / (s.memory_rate * 1e9)
    own = np.minimum(s.experts / s.expert, _MOST_LAUNCHES)
    launches = c["launch"] * layers * repeated * (1 + np.where(sparse, c["expert_launches"] * own, 0))
    return matrices, attention, memory, launches


def _idle(width: Values) -> Values:
    """Return by how much matrices of that width cost more than their FLOPs: the last tile is never full."""
    return np.ceil(width / _TILE) * _TILE / width


def _grouped(s: Steps, c: Mapping[str, float], tokens: Values) -> Values:
    """Return the cost of the experts' products over that of large matrices.

    Each expert is as narrow as its share of the routed parameters, and computes the tokens that chose it: those of
    all ranks that share the experts.
    """
    width = np.maximum(s.routed / (3 * s.experts * s.layers * s.hidden), 1)
    rows = np.maximum(tokens * s.chosen * s.expert / s.experts, 1)
    return c["grouped"] * (1 + c["expert_width"] / np.minimum(width, s.hidden)) * (1 + c["expert_tokens"] / rows)


def _held_parameters(s: Steps) -> Values:
    """Return the parameters that a rank exchanges: trained ones, of its stage, slice and experts."""
    # Experts are split by tensor parallelism too, unless they are spread over its ranks.
    spread = np.where(s.expert > s.data * s.context, s.expert, s.expert * s.tensor)
    held = (s.parameters - s.routed) / (s.tensor * s.pipeline) + s.routed / (s.pipeline * spread)
    return held * np.where(s.lora > 0, 0.01, 1)


def _exchange_seconds(s: Steps, c: Mapping[str, float], held: Values) -> Values:
    """Return the seconds of gradients (and ZeRO-3 gathers) inside machines, then between them.

    The network is shared by the rings of a machine; small messages reach less of it, the less the more machines.
    """
    machines = np.maximum(s.count / s.domain, 1)
    gathers = 2 * s.microbatches + 1
    volume = np.where(s.zero == 3, gathers * 2 * held, 4 * held)
    inside = np.minimum(s.tensor, s.domain)
    message = np.where(s.zero == 3, 2 * held / np.maximum(s.layers / s.pipeline, 1), 2 * held)
    half = c["half_message"] * machines ** c["half_message_power"] * inside
    network = s.network * 1e9 / (1 + half / np.maximum(message * inside, 1))
    across = np.where(machines > 1, (machines - 1) / machines, 0) * inside / network
    ranks = np.minimum(s.domain / inside, s.data)
    near = (ranks - 1) / np.maximum(ranks, 1) / (s.link * 1e9)
    calls = np.where(s.zero == 3, 3 * s.microbatches * s.layers / s.pipeline, 2)
    waits = c["latency"] * np.log2(np.maximum(s.data, 1)) * calls
    seconds = c["data"] * np.where(s.zero == 3, c["gathers"], 1) * volume * (across + np.maximum(near, 0)) + waits
    return np.where(s.data > 1, seconds, 0.0)


@dataclass(frozen=True, slots=True)
class EfficiencyKind:
    """The causes of the share of the peak that matrices reach: hardware, precision, and the software of the job.

    ``software`` is empty and ``year`` None where the job does not say them: it then counts as what published runs on
    the family had. Mixtures of ``experts`` have terms of their own for the age of software and for 8 bits.
    """

    family: str
    accelerator: str
    precision: str
    experts: bool
    software: str = ""
    year: float | None = None

    def loads(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return how often each coefficient counts in the logarithm of the share, at the precision and in 16 bit."""
        plain = {f"family:{self.family}": 1.0, f"accelerator:{self.accelerator}": 1.0}
        plain[f"software:{self.software}" if self.software else f"unstated:{self.family}"] = 1.0
        age = _USUAL_AGE if self.year is None else min(max(REFERENCE_YEAR - self.year, 0.0), _OLDEST)
        plain |= {"age": age, "age:experts": age * self.experts}
        eight = {"fp8": 1.0, f"fp8:{self.family}": 1.0, "fp8:experts": float(self.experts)}
        more = {"fp8": eight, "fp4": eight | {"fp4": 1.0}, "tf32": {"tf32": 1.0}, "fp32": {"fp32": 1.0}}
        return plain | more.get(self.precision, {}), plain


@dataclass(frozen=True, slots=True)
class EstimateAccuracy:
    """How far estimates of one kind were off ``runs`` published runs that their fit never saw.

    ``log_bias`` is the median logarithm of estimated over published speed, which later estimates are corrected by;
    ``error`` the standard deviation of the time as a share of it, whose middle 80 % hold 80 % of the runs.
    """

    log_bias: float
    error: float
    runs: int


@dataclass(frozen=True)
class Coefficients:
    """The fitted coefficients with their provenance and the accuracy of each kind of estimate.

    ``unseen_error`` is that of runs whose whole software family the fit never saw.
    """

    values: Mapping[str, float]
    accuracy: Mapping[str, EstimateAccuracy]
    unseen_error: float
    provenance: Mapping[str, Any]

    def log_efficiency(self, kind: EfficiencyKind) -> tuple[float, float]:
        """Return the logarithm of the share of the peak at large sizes: at the precision, and in 16 bit."""
        v = self.values
        base = 0.0 if f"family:{kind.family}" in v else v["family:other"]
        matrices, plain = (base + sum(v.get(n, 0.0) * load for n, load in loads.items()) for loads in kind.loads())
        return matrices, plain

    def software_family(self, software: str) -> str:
        """Return the family of published runs that the software is of, by the longest name that begins its own."""
        names = sorted((n.removeprefix("software:") for n in self.values if n.startswith("software:")), key=len)
        return next((name for name in reversed(names) if software.startswith(name)), "")

    def relative_error(self, family: str, kind: str) -> float:
        """Return the standard deviation of the time as a share of it; the middle 80 % are within 1.28 of it.

        A family with few published runs has at least the error of software that was left out of the fit.
        """
        known = self.provenance["rows_by_family"].get(family, 0) >= _FEW_ROWS
        error = self.accuracy[kind].error
        return error if known else max(error, self.unseen_error)

    def runs_like(self, accelerator: str) -> int:
        """Return how many published runs of the accelerator the fit has seen."""
        return int(self.provenance["rows_by_accelerator"].get(accelerator, 0))


@lru_cache(maxsize=1)
def read_coefficients() -> Coefficients:
    """Return the coefficients that are stored beside this module."""
    text = resources.files("router.jobs").joinpath("speed_coefficients.json").read_text(encoding="utf-8")
    return parse_coefficients(json.loads(text))


def parse_coefficients(stored: Mapping[str, Any]) -> Coefficients:
    """Return the coefficients of a parsed ``speed_coefficients.json``."""
    accuracy = {kind: EstimateAccuracy(**figures) for kind, figures in stored["accuracy"].items()}
    return Coefficients(stored["coefficients"], accuracy, stored["unseen_error"], stored["provenance"])
