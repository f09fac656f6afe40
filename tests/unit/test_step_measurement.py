"""The shape that is timed, and the profile point that its times become."""

from __future__ import annotations

from typing import Any

import pytest

from router.config.job_points import parse_point, point_argument
from router.jobs.profile_point import ProfilePoint
from router.jobs.step_measurement import (
    ScaledStep,
    StepTimings,
    UnsoundScale,
    choose_batches,
    choose_depths,
    find_shape_refusal,
    fits_whole,
    fitting_layers,
    point_fields,
    scale_step,
    shape_of,
)
from router.jobs.workload import Transformer
from tests.support.narrowed import typed

SEVEN = {"parameters": "6.74B", "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 524288}


def shape(**changes: Any) -> Transformer:
    return Transformer.model_validate(SEVEN | changes)


def timed(layers: int, *seconds: float, model: Transformer | None = None) -> StepTimings:
    return StepTimings(shape_of(model or shape(), layers, 4), seconds)


def line(depth: int) -> float:
    return 0.05 + 0.02 * depth


def test_the_shape_has_the_parameters_of_the_job() -> None:
    for model in (
        shape(),
        shape(parameters="8.03B", vocabulary=128256),
        shape(parameters="124M", layers=12, hidden=768),
    ):
        built = shape_of(model, model.layers, 1)
        layer = 4 * built.hidden**2 + 2 * built.hidden * built.feed_forward
        assert built.vocabulary * built.hidden + built.layers * layer == pytest.approx(model.parameters, rel=0.01)
        assert built.hidden % built.heads == 0
        assert built.feed_forward % 64 == 0
    assert shape_of(shape(recompute="full"), 2, 1).recompute
    assert shape_of(shape(), 2, 1).layers == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"active_parameters": "2B"}, "mixture of experts"),
        ({"lora": True}, "adapters"),
        ({"precision": "fp8"}, "fp8 is not measured"),
        ({"layout": {"tensor_parallel": 2}}, "the layout splits"),
        ({"hidden": 4099}, "no multiple of 16"),
        ({"parameters": "1B"}, "too few for 32 layers"),
    ],
)
def test_what_a_plain_loop_on_one_accelerator_cannot_show_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in (find_shape_refusal(shape(**changes)) or "")


def test_usual_shapes_are_not_refused() -> None:
    for changes in ({}, {"layout": "auto"}, {"layout": {"data_parallel": 8}}, {"precision": "tf32"}, {"causal": False}):
        assert find_shape_refusal(shape(**changes)) is None


def test_batches_are_powers_of_two_up_to_an_accelerators_share_and_both_ends_come_first() -> None:
    assert choose_batches(shape(), (64, 128)) == (4, 1, 2)
    assert choose_batches(shape(), (8,)) == (8, 1, 4, 2)  # a share of 32, of which no more than 8 are timed
    assert choose_batches(shape(), (1024,)) == (1,)


def test_more_memory_holds_more_layers_and_a_larger_batch_fewer() -> None:
    held = [fitting_layers(shape(), 1, memory) for memory in (1, 16, 40, 80, 141, 288)]
    assert held == sorted(held)
    assert held[0] == 0
    assert held[-1] == 32
    assert 0 < fitting_layers(shape(), 8, 80) < fitting_layers(shape(), 1, 80) < 32
    assert fits_whole(shape(), 288)
    assert not fits_whole(shape(), 80)


def test_depths_are_the_most_half_and_a_quarter_or_all_layers() -> None:
    assert choose_depths(40, 32) == (32,)
    assert choose_depths(32, 32) == (32,)
    assert choose_depths(12, 32) == (12, 6, 3)
    assert choose_depths(2, 32) == (2, 1)
    assert choose_depths(1, 32) == ()
    assert choose_depths(1, 1) == (1,)


def test_a_step_is_scaled_along_the_line_of_its_depths() -> None:
    step = typed(ScaledStep, scale_step([timed(depth, *[line(depth)] * 20) for depth in (2, 8, 4)], 32))
    assert step.seconds == pytest.approx(line(32))
    # Two doublings beyond the deepest, and nothing else: the steps do not vary.
    assert step.relative_error == pytest.approx((0.05**2 + 0.06**2) ** 0.5)
    assert step.depths == "8, 4 and 2 of 32 layers"
    assert not step.whole


def test_steps_that_vary_widen_the_error() -> None:
    def noisy(depth: int, share: float) -> StepTimings:
        return timed(depth, *(line(depth) * (1 + share * (i % 5 - 2)) for i in range(20)))

    errors = []
    for share in (0.0, 0.01, 0.03):
        step = typed(ScaledStep, scale_step([noisy(depth, share) for depth in (8, 4, 2)], 32))
        errors.append(step.relative_error)
    assert errors == sorted(errors)
    assert errors[2] > 1.02 * errors[0]
    assert isinstance(scale_step([noisy(depth, 0.5) for depth in (2, 1)], 32), UnsoundScale)


def test_one_depth_off_the_line_counts_even_where_steps_do_not_vary() -> None:
    exact = scale_step([timed(depth, line(depth)) for depth in (8, 4, 2)], 32)
    bent = scale_step([timed(8, line(8)), timed(4, 1.05 * line(4)), timed(2, line(2))], 32)
    assert isinstance(exact, ScaledStep)
    assert isinstance(bent, ScaledStep)
    assert bent.relative_error > 1.1 * exact.relative_error


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ({8: 0.21, 4: 0.19, 2: 0.09}, "off the straight line"),
        ({8: 0.10, 4: 0.10, 2: 0.11}, "does not grow"),
        ({8: 0.80, 4: 0.20, 2: 0.05}, "does not grow"),
    ],
)
def test_depths_that_are_no_line_are_refused(seconds: dict[int, float], said: str) -> None:
    step = typed(UnsoundScale, scale_step([timed(depth, *[taken] * 9) for depth, taken in seconds.items()], 32))
    assert said in step.reason


def test_all_layers_are_taken_as_timed() -> None:
    step = typed(ScaledStep, scale_step([timed(32, 0.7, 0.68, 0.72, 0.69, 0.71)], 32))
    assert step.whole
    assert step.seconds == 0.7
    assert 0.05 <= step.relative_error < 0.06
    assert step.depths == "all 32 layers"


def test_one_slow_step_moves_neither_median_nor_spread() -> None:
    calm, once = timed(32, *[0.7, 0.71] * 10), timed(32, *[0.7, 0.71] * 9, 0.7, 9.0)
    assert once.median == pytest.approx(calm.median, rel=0.01)
    assert once.spread == pytest.approx(calm.spread, abs=0.005)


def test_the_point_is_what_add_reads() -> None:
    step = typed(ScaledStep, scale_step([timed(depth, *[line(depth)] * 20) for depth in (8, 4, 2)], 32))
    fields = point_fields(step, "H100", "NVIDIA H100 80GB HBM3", "2026-11-25")
    assert parse_point(point_argument(fields)) == fields
    point = ProfilePoint.model_validate(fields)
    assert (point.accelerator, point.count, point.placement, point.batch) == ("H100", 1, "1x1", 4)
    assert point.precision == "bf16"
    assert 3600 / point.steps_per_hour == pytest.approx(line(32), rel=1e-3)
    assert point.source == "measured on NVIDIA H100 80GB HBM3, 2026-11-25: 8, 4 and 2 of 32 layers"
    assert str(point.date) == "2026-11-25"
