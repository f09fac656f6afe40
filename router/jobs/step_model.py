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
_EXPERTS_A_TOKEN = 8.0
_FEW_ROWS = 10
_WIDE_TILE = 128.0  # matrices of a width that is no multiple of it leave parts of the hardware idle


@dataclass(frozen=True, slots=True)
class Steps:
    """Inputs of the step model, one entry a gang and layout; rates in units of 1e9 bytes/s and TFLOP/s.

    ``again`` is the share of the forward pass that is computed twice, ``domain`` the accelerators joined by fast
    links, ``network`` the rate of a machine one way, ``microbatches`` the number of micro-batches a pipeline takes in
    a step, ``log_efficiency`` that of matrices at the precision used, ``log_attention`` that in 16 bit.
    """

    parameters: Values
    active: Values
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
    experts: Values
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
    sent = _EXPERTS_A_TOKEN * 4 * layers * tokens * s.hidden * (s.expert - 1) / s.expert
    experts = s.experts * c["experts"] * sent / np.where(s.expert <= s.domain, near, far)
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
    reached = np.exp(s.log_efficiency) / (1 + c["width"] / width) / (1 + c["tokens"] / tokens)
    reached = reached / np.where(width % _WIDE_TILE == 0, 1, c["tile"])
    repeated = 1 + s.again / 3
    flops = np.where(s.lora > 0, 4, 6) * repeated * s.active / (s.tensor * s.pipeline) * tokens
    matrices = flops / (s.peak * 1e12 * reached)
    flops = np.where(s.causal > 0, 6, 12) * repeated * layers * s.hidden * s.sequence * tokens / s.tensor
    attention = c["attention"] * flops / (s.peak16 * 1e12 * np.exp(s.log_attention))
    traffic = _BYTES_A_TOKEN * repeated * layers * s.hidden * tokens / s.tensor
    return matrices, attention, c["memory"] * traffic / (s.memory_rate * 1e9), c["launch"] * layers * repeated


def _held_parameters(s: Steps) -> Values:
    """Return the parameters that a rank exchanges: trained ones, of its stage, slice and experts."""
    split = s.tensor * s.pipeline
    spread = np.where(s.experts > 0, np.minimum(s.expert, np.maximum(s.data, 1)), 1)
    held = s.active / split + np.maximum(s.parameters - s.active, 0) / (split * spread)
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


@dataclass(frozen=True)
class Coefficients:
    """The fitted coefficients with their provenance and the spread of the error by kind of estimate."""

    values: Mapping[str, float]
    spread: Mapping[str, float]
    provenance: Mapping[str, Any]

    def log_efficiency(self, family: str, accelerator: str, precision: str, experts: bool) -> tuple[float, float]:
        """Return the logarithm of the share of the peak at large sizes: at the precision, and in 16 bit."""
        v = self.values
        base = v.get(f"family:{family}", v["family:other"]) + v.get(f"accelerator:{accelerator}", 0.0)
        eight = v["fp8"] + v.get(f"fp8:{family}", 0.0)
        more = {"fp8": eight, "fp4": eight + v["fp4"], "tf32": v["tf32"], "fp32": v["fp32"]}.get(precision, 0.0)
        return base + more + (v["experts_efficiency"] if experts else 0.0), base

    def relative_error(self, family: str, experts: bool) -> float:
        """Return the standard deviation of the speed as a share of it; the middle 80 % are within 1.28 of it.

        A family with few published runs has the error of software that was left out of the fit.
        """
        known = self.provenance["rows_by_family"].get(family, 0) >= _FEW_ROWS
        kind = self.spread["experts" if experts else "dense"]
        return kind if known else max(kind, self.spread["unseen"])


@lru_cache(maxsize=1)
def read_coefficients() -> Coefficients:
    """Return the coefficients that are stored beside this module."""
    text = resources.files("router.jobs").joinpath("speed_coefficients.json").read_text(encoding="utf-8")
    return parse_coefficients(json.loads(text))


def parse_coefficients(stored: Mapping[str, Any]) -> Coefficients:
    """Return the coefficients of a parsed ``speed_coefficients.json``."""
    return Coefficients(stored["coefficients"], stored["spread"], stored["provenance"])
