"""Compare estimates with whole published trainings: hours, dollars, and whether the 80 % interval holds them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator

from pricing.peak_rates import read_peak_rates
from router.jobs.speed import UnknownSpeed, gang_links, speed_from_shape
from router.jobs.step_model import Coefficients
from router.jobs.workload import Transformer
from tests.bench.published_runs import FACTS, usual_gang

TRAININGS = FACTS / "end_to_end_trainings.csv"
_REACH = 1.2816
_SAME_COMPUTE = {"H800": "H100"}  # accelerators without a row, by the one whose arithmetic they have
_STEP_SECONDS = {"Llama2-70B LoRA": 3.15}  # published as a step time, not as hours


def training_lines(fit: Coefficients) -> Iterator[str]:
    """Yield a line for each training: published and estimated hours and dollars, and the interval of the hours."""
    yield f"{'':<26} published  estimated      80 % interval  error  dollars published / estimated"
    errors, inside = [], 0
    with TRAININGS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            found = _hours(row, fit)
            if isinstance(found, str):
                yield f"{row['case']:<26} none: {found}"
                continue
            hours, error, published = found
            low, high = hours * max(0.2, 1 - _REACH * error), hours * (1 + _REACH * error)
            errors.append(abs(hours / published - 1))
            inside += low <= published <= high
            usd = float(row["usd_per_accelerator_hour"] or 0) * hours * int(row["accelerators"])
            paid = float(row["published_usd"] or 0)
            money = f"{paid:,.0f} / {usd:,.0f}" if paid and usd else ""
            yield (
                f"{row['case']:<26} {published:>9.4g} {hours:>10.4g} {low:>9.4g} to {high:<7.4g} "
                f"{hours / published - 1:>+6.0%}  {money}"
            )
    yield f"median error {sorted(errors)[len(errors) // 2]:.0%}; inside the interval: {inside} of {len(errors)}"


def _hours(row: dict[str, str], fit: Coefficients) -> tuple[float, float, float] | str:
    """Return estimated hours, their relative error and the published hours; or why there is no estimate."""
    shape = {
        "parameters": float(row["parameters"]),
        "layers": int(row["layers"]),
        "hidden": int(row["hidden"]),
        "sequence_length": int(row["sequence_length"]),
        "tokens_per_step": int(row["tokens_per_step"]),
        "precision": "fp8" if "fp8" in row["notes"] else "bf16",
        "lora": "LoRA" in row["notes"],
        "layout": "auto",
        "sharding": "auto",
        "recompute": "auto",
    }
    if row["active_parameters"]:
        shape["active_parameters"] = float(row["active_parameters"])
    model = Transformer.model_validate(shape)
    rates = read_peak_rates()[_SAME_COMPUTE.get(row["accelerator"], row["accelerator"])]
    gang = usual_gang(rates, int(row["accelerators"]))
    links = gang_links(model.precision, gang.machine, gang.machines, gang.accelerator)
    found = links if isinstance(links, UnknownSpeed) else speed_from_shape(model, links, gang.accelerator, fit)
    if isinstance(found, UnknownSpeed):
        return found.reason
    if row["case"] in _STEP_SECONDS:
        return 1 / found.steps_per_hour, found.relative_error, _STEP_SECONDS[row["case"]] / 3600
    steps = math.ceil(float(row["tokens_total"]) / model.tokens_per_step)
    return steps / found.steps_per_hour, found.relative_error, float(row["published_hours"])
