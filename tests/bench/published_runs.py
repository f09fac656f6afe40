"""Read published training runs as jobs on gangs, by the conventions of their sources.

What a source leaves out of a layout is assumed (see ``_layout``); conventions are of sources, never tuned on a row.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pricing.machines import Accelerator, Machine
from pricing.peak_rates import PeakRates, read_peak_rates
from router.jobs.layouts import ChosenLayout, Links
from router.jobs.speed import UnknownSpeed, gang_links
from router.jobs.workload import Transformer

FACTS = Path(__file__).resolve().parents[3] / "shared/facts"
RUNS = FACTS / "published_training_runs.csv"
RUN_TABLES = (RUNS, FACTS / "published_training_runs_2.csv")
_NAMES = {
    "H100-SXM-80GB": "H100", "H100-96GB-HBM2e-500W": "H100-HBM2e-500W", "H200-SXM-141GB": "H200",
    "A100-SXM-80GB": "A100-80GB", "A100-SXM-40GB": "A100-40GB", "B200-SXM-180GB": "B200", "B300-SXM": "B300",
    "V100-SXM2-32GB": "V100-32GB", "V100-SXM2-16GB": "V100-16GB", "V100-SXM3-32GB": "V100-32GB",
}  # fmt: skip
# GB/s of a machine one way, where the source states no network; of machines of eight.
_NETWORKS = {"volta": 50.0, "ampere": 200.0, "hopper": 400.0, "blackwell": 400.0, "tpu": 100.0, "cdna": 400.0}
_SEQUENCES_EACH = 2.0  # of an accelerator, where the source states no batch
_GOODPUT = "llama-gpu-hours"  # tokens per accelerator-hour of whole runs, stops included
_GOODPUT_COUNT = 2048
_INTERLEAVED = 2022  # pipelines of this year and later go round as often as their layers allow, up to four times
_INTERCONNECT = {"volta": "nvlink", "tpu": "ici", "cdna": "infinity-fabric"}
# Software of a source, the first whose name the source's begins with, and its year.
_SOFTWARE = (
    ("bigscience-tr3m", "megatron-deepspeed", 2021), ("bigscience", "megatron-deepspeed", 2022),
    ("mt-nlg", "megatron-deepspeed", 2021), ("dlexamples", "other", 2021), ("llama-gpu-hours", "other", 2023),
    ("llama3-herd", "other", 2024), ("llm-foundry", "llm-foundry", 2023), ("maxtext-tiering", "maxtext", 2025),
    ("maxtext", "maxtext", 2024), ("tpu-recipes", "maxtext", 2026), ("megatron-2020", "megatron", 2020),
    ("megatron-sc21", "megatron", 2021), ("megatron-selective", "megatron", 2022), ("megatron-core", "megatron", 2024),
    ("megatron-llama", "megatron", 2025), ("megatron-bridge", "nemo", 2025), ("nemo-25", "nemo", 2025),
    ("nemo", "nemo", 2024), ("mlperf-training-v3", "nemo", 2023), ("mlperf", "nemo", 2025),
    ("torchtitan", "torchtitan", 2024),
)  # fmt: skip
# Experts of a layer and those of a token, by the beginning of the model's name without signs; hybrids are not stated.
_EXPERTS = {
    "mixtral": (8, 2), "deepseekv3": (256, 8), "qwen3": (128, 8), "gptoss": (128, 4), "kimik2": (384, 8),
    "llama4scout": (16, 1), "llama4maverick": (128, 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PublishedGang:
    """Machines of a published run, as the machine table describes such machines."""

    machine: Machine
    machines: int
    accelerator: Accelerator


@dataclass(frozen=True)
class Run:
    """One published run: where it is from, the job and the gang, how it was laid out, and how fast it was.

    ``model`` is the job without a layout; ``layout`` is that of the run, which ``layout_known`` says is the source's.
    Near-duplicates share ``group``.
    """

    source: str
    group: str
    software: str
    date: str
    rates: PeakRates
    tokens_per_s: float
    layout_known: bool
    recompute: str
    model: Transformer
    layout: ChosenLayout
    gang: PublishedGang

    @property
    def precision(self) -> str:
        return self.model.precision

    @property
    def active(self) -> float:
        return self.model.active_parameters or self.model.parameters

    @property
    def experts(self) -> bool:
        return self.active < 0.99 * self.model.parameters

    @property
    def tokens_per_step(self) -> int:
        return self.model.tokens_per_step

    @property
    def family(self) -> str:
        """Return the software family; submissions to MLPerf are one, whatever they are built on."""
        return "mlperf" if self.source.startswith("mlperf") else self.software

    @property
    def gang_peak(self) -> float:
        """Return the FLOP/s of all accelerators at the run's precision."""
        return (self.rates.peak(self.precision) or 0.0) * 1e12 * self.links.count

    @cached_property
    def links(self) -> Links:
        """Return the rates of the gang as the product sees them."""
        found = gang_links(self.precision, self.gang.machine, self.gang.machines, self.gang.accelerator)
        if isinstance(found, UnknownSpeed):
            raise ValueError(f"{self.group}: {found.reason}")
        return found


def read_runs(*paths: Path) -> tuple[Run, ...]:
    """Return the runs of the tables, all of them where none is named."""
    return tuple(_run(row) for row in read_rows(*paths))


def read_rows(*paths: Path) -> list[dict[str, str]]:
    """Return the rows of the tables as they are written."""
    rows: list[dict[str, str]] = []
    for path in paths or RUN_TABLES:
        with path.open(encoding="utf-8", newline="") as lines:
            rows += csv.DictReader(lines)
    return rows


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
    count, speed = int(row["accelerators"]), _number(row, "tokens_per_s")
    if row["source"] == _GOODPUT and speed is not None:
        count, speed = _GOODPUT_COUNT, speed * _GOODPUT_COUNT
    if speed is None:
        # How the source counted attention turns its FLOP/s into tokens; what was computed is the model's mask.
        masked = 12 if "non-causal" in row["tflops_kind"] else 6
        flops = 6 * parameters + masked * layers * hidden * sequence
        speed = float(row["tflops_per_accelerator"]) * 1e12 * count / flops
    name = re.sub(r"[^a-z0-9]", "", row["model"].lower())
    shape: dict[str, Any] = {
        "parameters": parameters, "layers": int(layers), "hidden": int(hidden), "sequence_length": int(sequence),
        "precision": _precision(row["precision"], rates), "lora": "lora" in row["notes"], "causal": "bert" not in name,
    }  # fmt: skip
    if active < 0.99 * parameters:
        shape["active_parameters"] = active
        numbers = next((numbers for known, numbers in _EXPERTS.items() if name.startswith(known)), (None, None))
        shape |= dict(zip(("experts", "experts_per_token"), numbers, strict=True))
    software, year = next((s, y) for known, s, y in _SOFTWARE if row["source"].startswith(known))
    software = "deepspeed" if "zero3-vs" in row["source"] and row["sharding"] == "zero3" else software
    container = re.search(r"container (\d\d)\.(\d\d)", row["notes"])
    date = f"20{container[1]}-{container[2]}" if container else str(year)
    batch, layout = _layout(row, rates, count, parameters, sequence, int(layers) if year >= _INTERLEAVED else 0)
    shape |= {"software": software, "software_date": date, "tokens_per_step": round(batch * sequence)}
    model = Transformer.model_validate(shape)
    group = "|".join((name, rates.accelerator, str(count), row["seq_len"], model.precision))
    return Run(
        row["source"], group, software, date, rates, speed, bool(row["tensor_parallel"]),
        row["activation_recompute"], model, layout, _gang(row, rates, count),
    )  # fmt: skip


def usual_gang(
    rates: PeakRates, count: int, per_machine: int | None = None, network: float | None = None
) -> PublishedGang:
    """Return a gang of machines as they are sold; ``network`` is the GB/s of a machine one way, where it is known."""
    usual = 4 if rates.family == "tpu" or rates.link_domain > 8 else rates.link_domain
    each = math.gcd(count, per_machine or min(count, usual))
    if network is None:
        network = _NETWORKS[rates.family] * (each / 8 if rates.link_domain > 8 and rates.family != "tpu" else 1)
    accelerator = Accelerator(
        rates.accelerator, int(rates.memory_gib), rates.memory_bandwidth_gb_per_s, rates.peak("bf16") or 0.0,
        rates.peak("fp8"), None, rates.family, rates.source, rates.as_of, rates.checked,
    )  # fmt: skip
    machine = Machine(
        "published", rates.accelerator, rates.accelerator, each, int(rates.memory_gib), None, None,
        _INTERCONNECT.get(rates.family, "nvlink-switch") if each > 1 else "none",
        2 * rates.link_gb_per_s if each > 1 else None, network * 8,
        "ici" if rates.family == "tpu" else "infiniband", None, rates.source, rates.as_of, rates.checked,
    )  # fmt: skip
    return PublishedGang(machine, count // each, accelerator)


def _gang(row: dict[str, str], rates: PeakRates, count: int) -> PublishedGang:
    """Return the gang, with the network that the source states."""
    per_machine = max(1, count // int(row["machines"])) if row["machines"] else None
    return usual_gang(rates, count, per_machine, _network(row["fabric"], per_machine or min(count, 8)))


def _network(fabric: str, per_machine: int) -> float | None:
    """Return the GB/s of a machine one way, as the source states it."""
    if match := re.search(r"(\d+)x(\d+) Gb/s", fabric):
        return int(match[1]) * int(match[2]) / 8
    if "RoCE 1600 Gb/s per machine" in fabric:
        return 200.0
    if match := re.search(r"(\d+) Gb/s per GPU", fabric):
        return int(match[1]) / 8 * per_machine
    return None


def _layout(
    row: dict[str, str], rates: PeakRates, count: int, parameters: float, sequence: float, layers: int
) -> tuple[float, ChosenLayout]:
    """Return the sequences of a step and the layout.

    Of runs over 100 billion parameters, a missing layout is tensor 8 and pipeline 8. ``layers`` 0: not interleaved.
    """
    sequences = _number(row, "global_batch_sequences")
    if sequences is None:
        tokens = _number(row, "global_batch_tokens")
        sequences = tokens / sequence if tokens else count * (_SEQUENCES_EACH if rates.family == "tpu" else 8.0)
    sizes = (_number(row, f"{name}_parallel") for name in ("tensor", "pipeline", "context", "expert"))
    tensor, pipeline, context, expert = (int(size or 1) for size in sizes)
    known = bool(row["tensor_parallel"])
    if not known and rates.family != "tpu" and parameters > 1e11:
        tensor = 8
        pipeline = 8 if parameters > 3e11 else max(1, min(8, count // 64))
    data = max(1, count // (tensor * pipeline * context))
    while not known and sequences < data and context < 8:
        context *= 2
        data = max(1, count // (tensor * pipeline * context))
    micro = _number(row, "micro_batch")
    if micro is None:
        micro = 1.0 if pipeline > 1 or parameters > 2e9 else max(1.0, min(sequences / data, 8.0))
    if row["source"] == "torchtitan" and pipeline > 1:
        micro = 1.0  # what it states is a pipeline's local batch, which it splits
    accumulation = max(1, round(sequences / data / micro))
    stages = _number(row, "virtual_stages")
    if stages is None:
        stages = max([1, *(v for v in (2, 4) if pipeline > 1 and v * pipeline <= layers)])
    known_zero = row["sharding"] in ("zero1", "zero2", "zero3", "none")
    zero = "zero3" if rates.family == "tpu" or (not known and tensor == 1) else "zero1"
    # Recomputation that is not stated is taken as selective, and as full where MaxText's default stands.
    again = {"not stated": "selective", "": "full" if rates.family == "tpu" else "none"}
    return sequences, ChosenLayout(
        tensor, pipeline, context, expert, data, sequences / data / accumulation, accumulation,
        again.get(row["activation_recompute"], row["activation_recompute"]),
        row["sharding"] if known_zero else zero, int(stages),
    )  # fmt: skip
