"""A job's stated speeds are corrected by what was measured, now and earlier, on that accelerator alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pricing.machines import Machine
from router.jobs.measured_speed import OWN_GANG_RUNS, RELATIVE_ERROR, MeasuredSpeed, correct_workload
from router.jobs.speed import Speed, gang_speed
from router.jobs.workload import Workload
from tests.support.books import MACHINE, MODEL, a_book

NO_RDMA = replace(MACHINE, fabric="ethernet", inter_node_gbps=100.0)
OTHER = replace(MACHINE, instance_type="p4d.24xlarge", accelerator="A100-40GB")
OTHER_MODEL = replace(MODEL, name="A100-40GB", bf16_dense_tflops=312.0)
BOOK = replace(a_book(), accelerators=(MODEL, OTHER_MODEL))
OWN_PRECISION = OWN_GANG_RUNS / RELATIVE_ERROR**2
STATED_PRECISION = 1 / 0.25**2


def point(count: int, steps_per_hour: float, **more: Any) -> dict[str, Any]:
    return {"accelerator": "H100", "count": count, "steps_per_hour": steps_per_hour, **more}


def speed(workload: Workload, machines: int, machine: Machine = MACHINE) -> Speed:
    accelerator = MODEL if machine.accelerator == "H100" else OTHER_MODEL
    found = gang_speed(workload, machine, machines, accelerator)
    assert isinstance(found, Speed)
    return found


def now(machines: int, steps_per_hour: float, machine: Machine = MACHINE) -> MeasuredSpeed:
    """The job's own gang, now."""
    return MeasuredSpeed(machine, machines, steps_per_hour)


def earlier(machines: int, steps_per_hour: float, runs: float, machine: Machine = MACHINE) -> MeasuredSpeed:
    return MeasuredSpeed(machine, machines, steps_per_hour, 0.05, runs, "earlier runs")


def settled(measured: float, stated: float) -> float:
    """The speed that a gang of its own is planned with: by precision, on logarithms."""
    share = STATED_PRECISION / (OWN_PRECISION + STATED_PRECISION)
    assert share < 1 / 2500
    return float(measured * (stated / measured) ** share)


STATED = Workload.model_validate(
    {"profile": [point(8, 100.0), point(16, 180.0), {"accelerator": "A100-40GB", "count": 8, "steps_per_hour": 40.0}]}
)


def test_the_gang_has_its_measured_speed_and_other_numbers_of_its_accelerator_the_same_ratio() -> None:
    corrected = correct_workload(STATED, [now(2, 90.0)], BOOK)
    found = speed(corrected, 2)
    assert found.steps_per_hour == pytest.approx(settled(90.0, 180.0), rel=1e-9)
    assert found.relative_error == pytest.approx(math.sqrt(RELATIVE_ERROR**2 + 1 / (OWN_PRECISION + STATED_PRECISION)))
    assert found.basis == "measured: this job's own gang"
    assert speed(corrected, 1).steps_per_hour == pytest.approx(50.0)
    assert speed(corrected, 1, OTHER) == speed(STATED, 1, OTHER)


def test_a_size_without_a_point_gets_one_and_the_rest_its_ratio() -> None:
    before = speed(STATED, 4)
    twice = before.steps_per_hour * 2
    corrected = correct_workload(STATED, [now(4, twice)], BOOK)
    assert speed(corrected, 4).steps_per_hour == pytest.approx(settled(twice, twice / 2), rel=1e-9)
    assert speed(corrected, 4).relative_error < before.relative_error
    assert speed(corrected, 2).steps_per_hour == pytest.approx(360.0)


def test_the_newest_measure_of_a_gang_counts_alone() -> None:
    corrected = correct_workload(STATED, [now(1, 80.0), now(1, 50.0), earlier(1, 20.0, 500)], BOOK)
    assert corrected == correct_workload(STATED, [now(1, 80.0)], BOOK)
    assert len(corrected.profile) == len(STATED.profile)


def test_earlier_runs_count_for_gangs_that_do_not_run_now_and_the_own_gang_leads_for_other_sizes() -> None:
    """Earlier runs had 60 of 100 on eight and the gang of sixteen now has 90 of 180; 32 is known by ratio alone."""
    stated = STATED.model_copy(
        update={
            "profile": (*STATED.profile, STATED.profile[0].model_copy(update={"count": 32, "steps_per_hour": 300.0}))
        }
    )
    corrected = correct_workload(stated, [now(2, 90.0), earlier(1, 60.0, 4), earlier(1, 20.0, 2, OTHER)], BOOK)
    precision = 4 / 0.05**2
    assert speed(corrected, 1).steps_per_hour == pytest.approx(60 * (100 / 60) ** (16 / (precision + 16)))
    assert speed(corrected, 1).basis == "measured: earlier runs"
    assert speed(corrected, 2).steps_per_hour == pytest.approx(90, rel=1e-3)
    assert speed(corrected, 4).steps_per_hour == pytest.approx(300 * 0.5 ** (100 / 104) * 0.6 ** (4 / 104))
    assert speed(corrected, 1, OTHER).steps_per_hour == pytest.approx(20, rel=0.02)


def test_points_over_another_fabric_stay() -> None:
    stated = Workload.model_validate({"profile": [point(16, 180.0, fabric="rdma"), point(16, 60.0, fabric="ethernet")]})
    corrected = correct_workload(stated, [now(2, 30.0, NO_RDMA)], BOOK)
    assert speed(corrected, 2, NO_RDMA).steps_per_hour == pytest.approx(settled(30.0, 60.0), rel=1e-9)
    assert len(corrected.profile) == 2


def test_a_shape_alone_is_measured_too() -> None:
    shape = {"parameters": 7e9, "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 2**21}
    stated = Workload.model_validate({"transformer": shape})
    estimate = speed(stated, 2)
    corrected = correct_workload(stated, [now(2, estimate.steps_per_hour * 0.6)], BOOK)
    assert speed(corrected, 2).steps_per_hour == pytest.approx(estimate.steps_per_hour * 0.6, rel=1e-3)
    assert speed(corrected, 2).relative_error < estimate.relative_error
    assert speed(corrected, 4).basis == "scaled from measured 16"


def test_what_comes_out_is_a_workload_that_a_job_file_may_hold() -> None:
    """A file does not say that runs taught a point: there it is one that was measured."""
    corrected = correct_workload(STATED, [now(2, 90.0)], BOOK)
    assert Workload.model_validate(corrected.model_dump()).model_dump() == corrected.model_dump()
