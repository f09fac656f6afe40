"""Layouts of a transformer: what `auto` chooses fits and is the fastest, and is written as launchers read it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.peak_rates import PRECISIONS, read_peak_rates
from router.jobs.layouts import (
    AGAIN,
    ChosenLayout,
    deepspeed_config,
    estimate_kind,
    launcher_flags,
    memory_need,
    time_layouts,
)
from router.jobs.speed import Speed, UnknownSpeed, choose_layout, gang_links, gang_speed, usable_memory_gib
from router.jobs.step_model import read_coefficients
from router.jobs.workload import Transformer, Workload
from tests.bench.published_runs import RUNS, Run, read_runs
from tests.support.books import MACHINE, MODEL
from tests.support.narrowed import present, typed

LARGE: dict[str, Any] = {
    "parameters": "70B",
    "layers": 80,
    "hidden": 8192,
    "sequence_length": 4096,
    "tokens_per_step": 2**22,
}


def large(**changes: Any) -> Transformer:
    return Transformer.model_validate(LARGE | changes)


def chosen(model: Transformer, machines: int) -> ChosenLayout:
    links = gang_links(model.precision, MACHINE, machines, MODEL)
    assert not isinstance(links, UnknownSpeed)
    found = choose_layout(model, links, MODEL)
    assert not isinstance(found, UnknownSpeed), found
    return found[0]


def test_auto_finds_a_layout_where_data_parallel_alone_does_not_fit() -> None:
    alone = large(sharding="zero1")
    assert isinstance(gang_speed(Workload(transformer=alone), MACHINE, 8, MODEL), UnknownSpeed)
    layout = chosen(large(sharding="zero1", layout="auto"), 8)
    assert layout.tensor * layout.pipeline > 1
    assert layout.tensor * layout.pipeline * layout.context * layout.data == 64
    assert memory_need(large(), layout).total <= usable_memory_gib(MODEL)


def rate_before_correction(model: Transformer, machines: int) -> float | None:
    """Return the steps an hour that the step model gives, without what estimates of such a kind are corrected by."""
    found = gang_speed(Workload(transformer=model), MACHINE, machines, MODEL)
    if isinstance(found, UnknownSpeed):
        return None
    fit = read_coefficients()
    return found.steps_per_hour * math.exp(fit.accuracy[estimate_kind(model, fit)].log_bias)


@pytest.mark.parametrize("machines", [2, 4, 8])
def test_auto_chooses_a_layout_as_fast_as_any_that_is_stated(machines: int) -> None:
    """By the step model; what `auto` promises is corrected by more, since the fastest of many is judged too fast."""
    free = large(sharding="auto", recompute="auto", layout="auto")
    best = present(rate_before_correction(free, machines))
    for tensor in (1, 2, 8):
        stated = large(layout={"tensor_parallel": tensor}, recompute="full")
        found = rate_before_correction(stated, machines)
        assert found is None or found <= best * (1 + 1e-9)


def test_auto_tries_zero3_with_a_pipeline() -> None:
    links = gang_links("bf16", MACHINE, 8, MODEL)
    assert not isinstance(links, UnknownSpeed)
    timed = time_layouts(large(layout="auto", sharding="auto"), links)
    assert timed is not None
    assert any(one.pipeline > 1 and one.sharding == "zero3" for one in timed.layouts)


def test_a_stated_layout_is_kept_and_shown() -> None:
    stated = large(
        layout={"tensor_parallel": 4, "pipeline_parallel": 2, "micro_batch": 1}, sharding="zero1", recompute="full"
    )
    layout = chosen(stated, 8)
    assert (layout.tensor, layout.pipeline, layout.data, layout.microbatch) == (4, 2, 8, 1)
    found = typed(Speed, gang_speed(Workload(transformer=stated), MACHINE, 8, MODEL))
    assert "tensor 4 x pipeline 2 x data 8 x virtual stages 8, 128 x 1 sequences, zero1, recompute full" in found.basis


def test_a_layout_that_does_not_divide_the_gang_is_refused() -> None:
    found = typed(
        UnknownSpeed, gang_speed(Workload(transformer=large(layout={"tensor_parallel": 3})), MACHINE, 8, MODEL)
    )
    assert "no layout splits the job over 64 accelerators" in found.reason


def test_quantised_weights_need_less_memory() -> None:
    layout = ChosenLayout(1, 1, 1, 1, 1, 1.0, 1, "full", "none")
    plain, quantised = large(lora=True), large(lora=True, quantised=True)
    assert memory_need(quantised, layout).states < memory_need(plain, layout).states / 2
    assert memory_need(large(vocabulary=128_000), layout).logits > 2.9


def test_flags_are_those_that_launchers_read() -> None:
    layout = ChosenLayout(4, 2, 1, 1, 8, 2.0, 64, "full", "zero1")
    assert launcher_flags(layout, 8, 8) == (
        "--nnodes=8",
        "--nproc-per-node=8",
        "--tensor-model-parallel-size=4",
        "--pipeline-model-parallel-size=2",
        "--micro-batch-size=2",
        "--use-distributed-optimizer",
        "--recompute-granularity=full",
        "--recompute-method=uniform",
        "--recompute-num-layers=1",
    )
    assert deepspeed_config(layout) == {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 64,
        "zero_optimization": {"stage": 1},
    }


def test_the_table_agrees_with_the_price_book() -> None:
    """Where both state a figure they state the same; every accelerator that is sold has a row."""
    rates = read_peak_rates()
    for sold in embedded_book().accelerators:
        row = rates[sold.name]
        assert (row.memory_gib, row.peak("bf16")) == (sold.memory_gib, sold.bf16_dense_tflops)
        assert row.memory_bandwidth_gb_per_s == sold.memory_bandwidth_gb_per_s
        assert row.peak("fp8") == sold.fp8_dense_tflops
    assert all(row.source and row.as_of for row in rates.values())


def test_lower_precision_has_no_lower_peak() -> None:
    for row in read_peak_rates().values():
        known = [peak for peak in map(row.peak, PRECISIONS) if peak is not None]
        assert known == sorted(known), row.accelerator


def fits(run: Run) -> bool:
    """Return whether the memory check admits the run as its source states it; what it leaves out is `auto`."""
    stated = [run.recompute] if run.recompute in AGAIN else list(AGAIN)
    sharding = run.layout.sharding if run.layout_known else "zero3"
    layouts = [replace(run.layout, recompute=again, sharding=sharding) for again in stated]
    return min(memory_need(run.model, one).total for one in layouts) <= 0.92 * run.rates.memory_gib


@pytest.mark.skipif(not RUNS.is_file(), reason="the published tables lie outside the repository")
def test_published_runs_fit_as_they_ran() -> None:
    runs = read_runs()
    assert sum(fits(run) for run in runs) / len(runs) >= 0.95


def test_an_unheard_of_precision_is_refused() -> None:
    found = typed(UnknownSpeed, gang_speed(Workload(transformer=large(precision="fp4")), MACHINE, 8, MODEL))
    assert found.reason == "H100 has no FP4"
    old = replace(MODEL, name="X1")
    assert isinstance(gang_speed(Workload(transformer=large(precision="tf32")), MACHINE, 8, old), UnknownSpeed)


def test_a_job_file_without_the_new_fields_keeps_its_form() -> None:
    """What is stored and digested is as it was; what states them is read back as it was written."""
    assert not {"layout", "experts", "vocabulary", "quantised"} & set(large().model_dump(exclude_defaults=True))
    stated = large(lora=True, quantised=True, layout={"tensor_parallel": 4}, experts=8)
    assert Transformer.model_validate(stated.model_dump(mode="json")) == stated
