"""A job's stated speeds are corrected by what its own gang was measured to do, on that accelerator alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing.machines import Machine
from router.jobs.measured_speed import RELATIVE_ERROR, MeasuredSpeed, correct_workload
from router.jobs.speed import Speed, gang_speed
from router.jobs.workload import Workload
from tests.support.books import MACHINE, MODEL

NO_RDMA = replace(MACHINE, fabric="ethernet", inter_node_gbps=100.0)
OTHER = replace(MACHINE, instance_type="p4d.24xlarge", accelerator="A100-40GB")
OTHER_MODEL = replace(MODEL, name="A100-40GB", bf16_dense_tflops=312.0)


def point(count: int, steps_per_hour: float, **more: Any) -> dict[str, Any]:
    return {"accelerator": "H100", "count": count, "steps_per_hour": steps_per_hour, **more}


def speed(workload: Workload, machines: int, machine: Machine = MACHINE) -> Speed:
    accelerator = MODEL if machine.accelerator == "H100" else OTHER_MODEL
    found = gang_speed(workload, machine, machines, accelerator)
    assert isinstance(found, Speed)
    return found


STATED = Workload.model_validate(
    {"profile": [point(8, 100.0), point(16, 180.0), {"accelerator": "A100-40GB", "count": 8, "steps_per_hour": 40.0}]}
)


def test_the_gang_has_its_measured_speed_and_other_numbers_of_its_accelerator_the_same_ratio() -> None:
    corrected = correct_workload(STATED, MeasuredSpeed(MACHINE, 2, 90.0), MODEL)
    assert speed(corrected, 2) == Speed(90.0, RELATIVE_ERROR, "measured: this job's own gang")
    assert speed(corrected, 1).steps_per_hour == pytest.approx(50.0)
    assert speed(corrected, 1, OTHER) == speed(STATED, 1, OTHER)


def test_a_size_without_a_point_gets_one_and_the_rest_its_ratio() -> None:
    before = speed(STATED, 4)
    corrected = correct_workload(STATED, MeasuredSpeed(MACHINE, 4, before.steps_per_hour * 2), MODEL)
    assert speed(corrected, 4).steps_per_hour == pytest.approx(before.steps_per_hour * 2)
    assert speed(corrected, 4).relative_error < before.relative_error
    assert speed(corrected, 2).steps_per_hour == pytest.approx(360.0)


def test_the_newest_measure_of_a_gang_wins() -> None:
    once = correct_workload(STATED, MeasuredSpeed(MACHINE, 1, 50.0), MODEL)
    twice = correct_workload(once, MeasuredSpeed(MACHINE, 1, 80.0), MODEL)
    assert speed(twice, 1).steps_per_hour == 80.0
    assert len(twice.profile) == len(STATED.profile)


def test_points_over_another_fabric_stay() -> None:
    stated = Workload.model_validate({"profile": [point(16, 180.0, fabric="rdma"), point(16, 60.0, fabric="ethernet")]})
    corrected = correct_workload(stated, MeasuredSpeed(NO_RDMA, 2, 30.0), MODEL)
    assert speed(corrected, 2, NO_RDMA).steps_per_hour == 30.0
    assert len(corrected.profile) == 2


def test_a_shape_alone_is_measured_too() -> None:
    shape = {"parameters": 7e9, "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 2**21}
    stated = Workload.model_validate({"transformer": shape})
    estimate = speed(stated, 2)
    corrected = correct_workload(stated, MeasuredSpeed(MACHINE, 2, estimate.steps_per_hour * 0.6), MODEL)
    assert speed(corrected, 2).steps_per_hour == pytest.approx(estimate.steps_per_hour * 0.6)
    assert speed(corrected, 2).relative_error < estimate.relative_error
    assert speed(corrected, 4).basis == "scaled from measured 16"


def test_what_comes_out_is_a_workload_that_a_job_file_may_hold() -> None:
    corrected = correct_workload(STATED, MeasuredSpeed(MACHINE, 2, 90.0), MODEL)
    assert Workload.model_validate(corrected.model_dump()) == corrected
