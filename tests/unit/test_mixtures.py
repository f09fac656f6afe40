"""Mixtures of experts: the shape that follows from what a job states, their memory, layouts and speed."""

from __future__ import annotations

from typing import Any

import pytest

from pricing.peak_rates import read_peak_rates
from router.jobs.layouts import ChosenLayout, Links, launcher_flags, memory_need, time_layouts
from router.jobs.speed import Speed, gang_links, gang_speed
from router.jobs.workload import Transformer, Workload
from tests.bench.published_runs import usual_gang
from tests.support.books import MACHINE, MODEL
from tests.support.narrowed import present, typed

DEEPSEEK: dict[str, Any] = {
    "parameters": "671B", "active_parameters": "37B", "layers": 61, "hidden": 7168,
    "sequence_length": 4096, "tokens_per_step": 2**23,
}  # fmt: skip
MIXTRAL = DEEPSEEK | {"parameters": 46.7e9, "active_parameters": 12.9e9, "layers": 32, "hidden": 4096}
GPT_OSS = DEEPSEEK | {"parameters": 116.8e9, "active_parameters": 5.1e9, "layers": 36, "hidden": 2880}


def mixture(shape: dict[str, Any], **changes: Any) -> Transformer:
    return Transformer.model_validate(shape | changes)


@pytest.mark.parametrize(
    ("shape", "experts", "chosen", "width"),
    [(DEEPSEEK, 256, 8, 2048), (MIXTRAL, 8, 2, 14336), (GPT_OSS, 128, 4, 2880)],
)
def test_the_width_of_experts_follows_from_the_parameters(
    shape: dict[str, Any], experts: int, chosen: int, width: int
) -> None:
    """The widths are those of the models' published configurations; 6 % are what rounded parameters leave open."""
    found = mixture(shape, experts=experts, experts_per_token=chosen).routed_experts
    assert found.parameters / (3 * experts * shape["layers"] * shape["hidden"]) == pytest.approx(width, rel=0.06)


@pytest.mark.parametrize(("shape", "experts", "chosen"), [(DEEPSEEK, 256, 8), (MIXTRAL, 8, 2), (GPT_OSS, 128, 4)])
def test_experts_of_a_token_are_those_of_usual_models_where_they_are_not_stated(
    shape: dict[str, Any], experts: int, chosen: int
) -> None:
    assert mixture(shape, experts=experts).routed_experts.chosen == chosen
    assert mixture(shape).routed_experts.chosen <= 8


def test_zero3_shares_all_parameters_once() -> None:
    """671 billion at 16 bytes over 256 ranks are 39 GiB, however the experts are spread."""
    for expert in (1, 8, 64):
        layout = ChosenLayout(1, 1, 1, expert, 256, 1.0, 1, "full", "zero3")
        assert memory_need(mixture(DEEPSEEK), layout).states == pytest.approx(671e9 * 16 / 256 / 2**30)


def test_experts_may_be_spread_over_tensor_parallelism() -> None:
    """As Megatron does: 64 experts over tensor 2 x data 32, each held whole by its rank."""
    layout = {"tensor_parallel": 2, "pipeline_parallel": 8, "context_parallel": 1, "expert_parallel": 64}
    model = mixture(DEEPSEEK, layout=layout, sharding="zero1", recompute="full")
    links = gang_links("bf16", MACHINE, 64, MODEL)
    found = present(time_layouts(model, typed(Links, links))).layouts
    assert {(one.tensor, one.data, one.expert) for one in found} == {(2, 32, 64)}
    assert "--expert-tensor-parallel-size=1" in launcher_flags(found[0], 64, 8)
    within = ChosenLayout(2, 8, 1, 32, 32, 1.0, 8, "full", "zero1")
    assert "--expert-tensor-parallel-size=1" not in launcher_flags(within, 64, 8)


def test_a_mixture_is_slower_than_a_dense_model_of_its_active_parameters() -> None:
    """Its experts are narrow, and each token is sent to several; it is far faster than a dense one of all of them."""
    rates = read_peak_rates()["H200"]
    gang = usual_gang(rates, 256)

    def rate(**changes: Any) -> float:
        job = Workload(transformer=mixture(DEEPSEEK, layout="auto", sharding="auto", recompute="auto", **changes))
        return typed(Speed, gang_speed(job, gang.machine, gang.machines, gang.accelerator)).steps_per_hour

    assert rate(parameters=37e9, active_parameters=None) > rate() > 2 * rate(active_parameters=None)
