"""Points with a batch or a placement: exact as stated, others by the form, wrong ones refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from router.jobs.fields import RefusedError
from router.jobs.measured_speed import MeasuredSpeed, correct_workload
from router.jobs.speed import Speed, UnknownSpeed, arithmetic_refusal, gang_speed
from router.jobs.workload import Workload
from tests.support.books import MACHINE, MODEL, a_book
from tests.support.narrowed import typed

OTHER = replace(MODEL, name="A100-80GB", bf16_dense_tflops=312.0, memory_bandwidth_gb_per_s=2039.0)
OTHER_MACHINE = replace(MACHINE, instance_type="p4de.24xlarge", accelerator="A100-80GB")
ETHERNET = replace(MACHINE, fabric="ethernet", inter_node_gbps=100.0)
SHAPE: dict[str, Any] = {
    "parameters": 7e9,
    "layers": 32,
    "hidden": 4096,
    "sequence_length": 2048,
    "tokens_per_step": 2**21,
}


def point(accelerators: str = "H100:8", **more: Any) -> dict[str, Any]:
    speed = {} if {"seconds_per_step", "tokens_per_second"} & more.keys() else {"steps_per_hour": 60.0}
    return {"accelerators": accelerators, **speed, **more}


def work(*points: dict[str, Any], **more: Any) -> Workload:
    return Workload.model_validate({"profile": list(points), **more})


def speed(workload: Workload, machines: int, machine: Any = MACHINE, known: Any = (MODEL, OTHER)) -> Speed:
    kind = OTHER if machine.accelerator == OTHER.name else MODEL
    return typed(Speed, gang_speed(workload, machine, machines, kind, known))


def refused(*points: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        work(*points, **more)
    error = typed(RefusedError, caught.value.errors()[0]["ctx"]["error"])
    return f"{error.what}; {error.remedy}"


def test_an_exact_point_is_taken_as_stated() -> None:
    placed = work(point(placement="1x8", batch=256, source="a run"), point("H100:16", placement="2x8", batch=256))
    found = speed(placed, 1)
    assert (found.steps_per_hour, found.relative_error, found.basis) == (60, 0.05, "measured: a run")


def test_a_point_of_another_placement_or_batch_is_not_exact() -> None:
    other_shape = speed(work(point(placement="2x4")), 1)
    assert other_shape.basis == "fitted to 1 point, faster than measured on 2x4"
    assert other_shape.relative_error > 0.05
    larger = speed(work(point(placement="1x8", batch=512), batch=256), 1)
    assert 60 < larger.steps_per_hour < 120
    assert larger.basis == "fitted to 1 point"


def test_one_point_gives_a_narrower_interval_than_none() -> None:
    none = speed(Workload.model_validate({"transformer": SHAPE}), 2)
    one = speed(work(point(placement="1x8", batch=1024), transformer=SHAPE), 2)
    two = speed(work(point(placement="1x8"), point("H100:32", steps_per_hour=200, placement="4x8"), batch=1024), 2)
    assert one.relative_error < none.relative_error
    assert two.relative_error < one.relative_error
    assert 60 < two.steps_per_hour < 200


def test_a_profile_carries_to_another_accelerator_only_where_it_states_a_place() -> None:
    placed = work(point(placement="1x8"))
    carried = speed(placed, 1, OTHER_MACHINE)
    assert 60 * 312 / 989 < carried.steps_per_hour < 60 * 2039 / 3350
    assert carried.basis == "carried from 1 point of H100"
    assert carried.relative_error > 0.3
    for workload, known in ((work(point()), (MODEL, OTHER)), (placed, ())):
        found = typed(UnknownSpeed, gang_speed(workload, OTHER_MACHINE, 1, OTHER, known))
        assert found.reason.startswith("no profile for A100-80GB")


def test_a_point_over_rdma_says_nothing_of_ethernet_but_one_on_a_machine_does() -> None:
    over = work(point("H100:16", placement="2x8"))
    assert isinstance(gang_speed(over, ETHERNET, 2, MODEL), UnknownSpeed)
    alone = speed(work(point("H100:4", placement="1x4"), point(placement="1x8", steps_per_hour=115)), 1)
    slower = gang_speed(work(point(placement="1x8"), point("H100:1", steps_per_hour=9)), ETHERNET, 2, MODEL)
    assert alone.steps_per_hour == 115
    assert isinstance(slower, UnknownSpeed) or slower.relative_error > 0.3


def test_batches_count_in_all_or_for_each_accelerator_and_steps_are_those_of_the_job() -> None:
    each = work(point(batch_per_accelerator=32))
    assert each.profile[0].batch == 256
    assert each.step_batch == 256
    assert work(point(placement="1x8"), transformer=SHAPE).step_batch == 1024
    tokens = work(point(tokens_per_second=2048 * 16, batch=16), transformer=SHAPE)
    assert tokens.profile[0].steps_per_hour == pytest.approx(3600)


def test_a_point_is_read_as_it_is_stored() -> None:
    for stored in (work(point()), work(point(placement="1x8", batch=64, precision="bf16", date="2026-11-24"))):
        assert Workload.model_validate(stored.model_dump(mode="json")) == stored


def test_a_measured_speed_corrects_placed_points() -> None:
    placed = work(point(placement="1x8"), point("H100:16", placement="2x8", steps_per_hour=110))
    corrected = correct_workload(placed, [MeasuredSpeed(MACHINE, 2, 55.0)], a_book())
    assert speed(corrected, 2).steps_per_hour == pytest.approx(55 * 2 ** (16 / 40_016), rel=1e-9)
    assert speed(corrected, 1).steps_per_hour == pytest.approx(30)


@pytest.mark.parametrize(
    ("points", "more", "said"),
    [
        ([point(placement="2x8")], {}, "2x8 are 16 accelerators, not 8"),
        ([point(placement="8")], {}, "is no placement"),
        ([point(batch=8, batch_per_accelerator=1)], {}, "both given"),
        ([point(seconds_per_step=1e-7)], {}, "impossible"),
        (
            [point(seconds_per_step=1.2), point("H100:16", seconds_per_step=640, batch=8)],
            {},
            "times slower than entry 1",
        ),
        ([point(), point(placement="1x8", steps_per_hour=90)], {}, ""),
        ([point(seconds_per_step=1.2), point("H100:16", seconds_per_step=640)], {}, ""),
        ([point(batch=8, steps_per_hour=60), point(placement="1x8", batch=8, steps_per_hour=90)], {}, "contradicts"),
        ([point(batch=8), point("H100:16", batch=8, steps_per_hour=300)], {}, "in proportion"),
        ([point(batch=8), point("H100:16", batch=16)], {}, "add `batch` beside `profile`"),
        ([point(precision="bf16"), point("H100:16", precision="fp8")], {}, "points are in bf16 and fp8"),
    ],
)
def test_points_that_cannot_be_true_are_refused(points: list[dict[str, Any]], more: dict[str, Any], said: str) -> None:
    if not said:  # An earlier point without a placement may have been measured in another one.
        work(*points, **more)
        return
    assert re.search(re.escape(said), refused(*points, **more))


@pytest.mark.parametrize(
    ("seconds", "said"), [(11.0, ""), (7.0, "whose peak is 1,979"), (11_000.0, "milliseconds meant"), (600.0, "")]
)
def test_arithmetic_beyond_the_hardware_is_refused(seconds: float, said: str) -> None:
    """A step of 2 million tokens of 7 billion parameters is 88,000 TFLOP: 5.6 s on 8 H100 at their FP8 peak."""
    workload = work(point(seconds_per_step=seconds * 0.75, placement="1x8"), transformer=SHAPE)
    found = arithmetic_refusal(workload.profile[0], workload, MODEL)
    assert said in " ".join(found or ())
    assert (found is None) == (not said)
    bf16 = work(point(seconds_per_step=8.0, placement="1x8", precision="bf16"), transformer=SHAPE)
    assert arithmetic_refusal(bf16.profile[0], bf16, MODEL) is not None
