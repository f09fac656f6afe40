"""Read published training runs as steps of the speed model, by the conventions of their sources.

Layouts that a source leaves out are assumed (see ``_layout``); they are conventions of sources, never tuned on a row.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from pricing.peak_rates import PeakRates, read_peak_rates

FACTS = Path(__file__).resolve().parents[3] / "shared/facts"
RUNS = FACTS / "published_training_runs.csv"
_NAMES = {
    "H100-SXM-80GB": "H100", "H100-96GB-HBM2e-500W": "H100-HBM2e-500W", "H200-SXM-141GB": "H200",
    "A100-SXM-80GB": "A100-80GB", "A100-SXM-40GB": "A100-40GB", "B200-SXM-180GB": "B200", "B300-SXM": "B300",
    "V100-SXM2-32GB": "V100-32GB", "V100-SXM2-16GB": "V100-16GB", "V100-SXM3-32GB": "V100-32GB",
}  # fmt: skip
# GB/s of a machine one way, where the source states no network.
_NETWORKS = {"volta": 50.0, "ampere": 200.0, "hopper": 400.0, "blackwell": 400.0, "tpu": 100.0, "cdna": 400.0}
_SEQUENCES_EACH = 2.0  # of an accelerator, where the source states no batch
_GOODPUT = "llama-gpu-hours"  # tokens per accelerator-hour of whole runs, stops included
_GOODPUT_COUNT = 2048


@dataclass(frozen=True, slots=True)
class Run:
    """One published run: where it is from, what it did, and the values that the speed model takes."""

    source: str
    group: str
    rates: PeakRates
    precision: str
    experts: bool
    tokens_per_s: float
    layout_known: bool
    recompute: str
    values: dict[str, float]


def read_runs(path: Path = RUNS) -> tuple[Run, ...]:
    with path.open(encoding="utf-8", newline="") as lines:
        return tuple(_run(row) for row in csv.DictReader(lines))


def _number(row: dict[str, str], name: str) -> float | None:
    return float(row[name]) if row[name] else None


def _precision(text: str, rates: PeakRates) -> str:
    """Return the precision; ``fp8-or-fp4`` was the submitter's choice and is taken as fp8."""
    if text in ("fp32", "tf32"):
        return text if rates.peak(text) else "fp32"
    return "fp4" if "nvfp4" in text else "fp8" if "fp8" in text else "bf16"


def _run(row: dict[str, str]) -> Run:
    rates = read_peak_rates()[_NAMES.get(row["accelerator"], row["accelerator"])]
    parameters = float(row["params_b"]) * 1e9
    active = float(row["active_params_b"] or row["params_b"]) * 1e9
    layers, hidden, sequence = (_number(row, name) for name in ("layers", "hidden", "seq_len"))
    if layers is None or hidden is None or sequence is None:
        layers = float(round((parameters / 12 / 128**2) ** (1 / 3)))  # the usual proportions: width 128 x layers
        hidden, sequence = 128 * layers, 2048.0
    count, speed = float(row["accelerators"]), _number(row, "tokens_per_s")
    if row["source"] == _GOODPUT and speed is not None:
        count, speed = float(_GOODPUT_COUNT), speed * _GOODPUT_COUNT
    if speed is None:
        flops = 6 * parameters + 12 * layers * hidden * sequence
        speed = float(row["tflops_per_accelerator"]) * 1e12 * count / flops
    precision = _precision(row["precision"], rates)
    experts = active < 0.99 * parameters
    values = {
        "parameters": parameters, "active": active, "layers": layers, "hidden": hidden, "sequence": sequence,
        "count": count, "peak": rates.peak(precision) or 0.0, "peak16": rates.peak("bf16") or 0.0,
        "memory_rate": rates.memory_bandwidth_gb_per_s, "link": rates.link_gb_per_s, "experts": float(experts),
        "causal": float("non-causal" not in row["tflops_kind"] and "bert" not in row["model"].lower()),
        "lora": float("lora" in row["notes"]), "again": _again(row, rates),
    }  # fmt: skip
    values["domain"] = _domain(row, rates, count)
    values["network"] = _network(row["fabric"], rates, values["domain"])
    values |= _layout(row, rates, values)
    group = "|".join(row[n] for n in ("source", "model", "accelerator", "accelerators", "seq_len", "precision"))
    known, recompute = bool(row["tensor_parallel"]), row["activation_recompute"]
    return Run(row["source"], group, rates, precision, experts, speed, known, recompute, values)


def _again(row: dict[str, str], rates: PeakRates) -> float:
    """Return the share of the forward pass computed twice; not stated is taken as selective, half on TPUs."""
    unstated = 0.5 if rates.family == "tpu" else 0.05
    stated = {"full": 1.0, "selective": 0.05, "none": 0.0, "not stated": unstated}
    return stated.get(row["activation_recompute"], 0.5 if rates.family == "tpu" else 0.0)


def _domain(row: dict[str, str], rates: PeakRates, count: float) -> float:
    if rates.link_domain > 8 or not row["machines"]:
        return min(rates.link_domain, count)
    return max(1.0, count / float(row["machines"]))


def _network(fabric: str, rates: PeakRates, domain: float) -> float:
    """Return the GB/s of a machine one way, as the source states it."""
    if match := re.search(r"(\d+)x(\d+) Gb/s", fabric):
        return int(match[1]) * int(match[2]) / 8
    if "RoCE 1600 Gb/s per machine" in fabric:
        return 200.0
    if match := re.search(r"(\d+) Gb/s per GPU", fabric):
        return int(match[1]) / 8 * domain
    return _NETWORKS[rates.family]


def _layout(row: dict[str, str], rates: PeakRates, v: dict[str, float]) -> dict[str, float]:
    """Return batch and layout. Of runs over 100 billion parameters, a missing one is tensor 8 and pipeline 8."""
    count, sequence = v["count"], v["sequence"]
    sequences = _number(row, "global_batch_sequences")
    if sequences is None:
        tokens = _number(row, "global_batch_tokens")
        sequences = tokens / sequence if tokens else count * (_SEQUENCES_EACH if rates.family == "tpu" else 8.0)
    tensor, pipeline = _number(row, "tensor_parallel") or 1.0, _number(row, "pipeline_parallel") or 1.0
    context, known = _number(row, "context_parallel") or 1.0, bool(row["tensor_parallel"])
    if not known and rates.family != "tpu" and v["parameters"] > 1e11:
        tensor = 8.0
        pipeline = 8.0 if v["parameters"] > 3e11 else max(1.0, min(8.0, count // 64))
    data = max(1.0, count / (tensor * pipeline * context))
    while not known and sequences < data and context < 8:
        context *= 2
        data = max(1.0, count / (tensor * pipeline * context))
    micro = _number(row, "micro_batch")
    if micro is None:
        micro = 1.0 if pipeline > 1 or v["parameters"] > 2e9 else max(1.0, min(sequences / data, 8.0))
    if row["source"] == "torchtitan" and pipeline > 1:
        micro = 1.0  # what it states is a pipeline's local batch, which it splits
    micro = min(micro, sequences / data)
    stated = {"zero1": 1.0, "zero2": 2.0, "zero3": 3.0, "none": 0.0}
    zero = stated.get(row["sharding"], 3.0 if rates.family == "tpu" or (not known and tensor == 1) else 1.0)
    return {
        "sequences": sequences, "tensor": tensor, "pipeline": pipeline, "context": context, "data": data,
        "expert": _number(row, "expert_parallel") or 1.0, "stages": _number(row, "virtual_stages") or 1.0,
        "microbatch": micro, "microbatches": max(1.0, sequences / data / micro), "zero": zero,
    }  # fmt: skip
