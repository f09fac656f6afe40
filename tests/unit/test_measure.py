"""Measuring a job on a device: what is built, when it stops, what it refuses; on a clock of the device's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.book_file import embedded_book
from pricing.machines import Accelerator
from router.app.profile import LEAST_STEPS, MOST_STEPS, WARM_UP, find_accelerator, load_measured_job, measure_job
from router.jobs.step_measurement import DeviceMeasurement, MeasurementError
from tests.support.fake_device import H100, JOB, FakeDevice, linear

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., DeviceMeasurement]:
    def run(device: FakeDevice, text: str = JOB, most: int = 1, lasting: float = 900) -> DeviceMeasurement:
        file = tmp_path / "tune.yaml"
        file.write_text(text, encoding="utf-8")
        return measure_job(
            *load_measured_job(file, None, NOW),
            device,
            embedded_book(),
            NOW,
            clock=device.clock,
            lasting=timedelta(seconds=lasting),
            max_points=most,
        )

    return run


def test_a_step_of_all_layers_is_found_from_those_that_fit(measure: Callable[..., DeviceMeasurement]) -> None:
    device = FakeDevice(H100, 79.2, linear)
    result = measure(device, most=2)
    assert [point.fields["batch"] for point in result.points] == [4, 1]
    for point in result.points:
        batch = point.fields["batch"]
        assert isinstance(batch, int)
        assert point.fields["seconds_per_step"] == pytest.approx(0.02 + 0.005 * 32 * (0.5 + batch), rel=1e-3)
        assert point.fields["accelerators"] == "H100:1"
        depths = [timing.shape.layers for timing in point.step.timings]
        assert len(depths) == 3
        assert depths[0] < 32
        assert all(len(timing.seconds) == MOST_STEPS for timing in point.step.timings)
    assert not result.unlisted
    assert device.released == len(device.prepared) == 6


def test_what_fits_is_timed_whole(measure: Callable[..., DeviceMeasurement]) -> None:
    device = FakeDevice("AMD Instinct MI300X", 192, linear)
    (point,) = measure(device).points
    assert point.step.whole
    assert point.fields["accelerators"] == "MI300X:1"
    assert point.fields["seconds_per_step"] == pytest.approx(linear(device.prepared[0]), rel=1e-3)


def test_a_device_that_is_full_sooner_gets_fewer_layers(measure: Callable[..., DeviceMeasurement]) -> None:
    device = FakeDevice(H100, 79.2, linear, holds=5)
    (point,) = measure(device).points
    assert 2 <= point.step.timings[0].shape.layers <= 5
    assert point.fields["seconds_per_step"] == pytest.approx(0.02 + 0.005 * 32 * 4.5, rel=1e-3)
    assert device.released == len(device.prepared)
    with pytest.raises(MeasurementError, match="two layers do not fit into its memory"):
        measure(FakeDevice(H100, 79.2, linear, holds=1))


def test_slow_steps_are_fewer_and_too_slow_ones_end_it(measure: Callable[..., DeviceMeasurement]) -> None:
    device = FakeDevice(H100, 79.2, linear)
    (point,) = measure(device, lasting=22).points
    assert LEAST_STEPS <= len(point.step.timings[0].seconds) < MOST_STEPS
    assert device.clock() < 22 * 1.2
    slow = FakeDevice(H100, 79.2, lambda shape: 1000 * linear(shape))
    with pytest.raises(
        MeasurementError, match=r"batch 4: its steps are too slow for 60 s; batch 1: .* batch 2: "
    ) as error:
        measure(slow, lasting=60)
    assert "--lasting" in error.value.remedy
    # A batch has its minute whatever is tried within it; a step that was begun is ended.
    assert slow.clock() < 3 * 60 + 10 * 1000 * sum(linear(shape) for shape in slow.prepared)
    assert len(slow.prepared) <= 6


def test_a_batch_without_a_sound_result_is_told_apart(measure: Callable[..., DeviceMeasurement]) -> None:
    device = FakeDevice(H100, 79.2, lambda shape: 0.1 if shape.batch == 4 else linear(shape))
    result = measure(device, most=2)
    assert [point.fields["batch"] for point in result.points] == [1, 2]
    ((batch, reason),) = result.failed
    assert batch == 4
    assert "does not grow" in reason


def test_the_warm_up_is_not_counted(measure: Callable[..., DeviceMeasurement]) -> None:
    device = FakeDevice("AMD Instinct MI300X", 192, linear)
    (point,) = measure(device).points
    one = linear(device.prepared[0])
    assert max(point.step.timings[0].seconds) == pytest.approx(one)
    assert device.clock() == pytest.approx((10 + WARM_UP - 1 + MOST_STEPS) * one)


def test_a_gang_too_small_for_the_job_is_not_hidden_by_a_scaled_point(
    measure: Callable[..., DeviceMeasurement],
) -> None:
    small = JOB.replace('"H100:64"', "{H100: [1, 64]}")
    device = FakeDevice(H100, 79.2, linear)
    with pytest.raises(MeasurementError, match="the gang lists H100:1, on which the job does not fit") as error:
        measure(device, small)
    assert "take H100:1 out of gang.accelerators" in error.value.remedy
    assert device.prepared == []


def test_a_device_that_no_book_sells_keeps_its_own_name(measure: Callable[..., DeviceMeasurement]) -> None:
    result = measure(FakeDevice("cpu", 400, linear))
    assert result.unlisted == "the accelerator is not in the book"
    assert result.points[0].fields["accelerators"] == "cpu:1"


@pytest.mark.parametrize(
    ("driver", "gib", "name"),
    [
        ("Tesla T4", 14.6, "T4"),
        ("NVIDIA L4", 22.0, "L4"),
        ("NVIDIA A10G", 22.1, "A10G"),
        ("NVIDIA L40S", 44.4, "L40S"),
        ("Tesla V100-SXM2-16GB", 15.8, "V100-16GB"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", 79.3, "A100-80GB"),
        (H100, 79.2, "H100"),
        ("NVIDIA H100 PCIe", 79.2, "H100-PCIe"),
        ("NVIDIA H200", 139.8, "H200"),
        ("NVIDIA B200", 178.4, "B200"),
        ("AMD Instinct MI300X", 191.7, "MI300X"),
        ("NVIDIA GeForce RTX 4090", 23.6, None),
        ("cpu", 10.0, None),
    ],
)
def test_names_of_drivers_are_those_of_the_book(driver: str, gib: float, name: str | None) -> None:
    found = find_accelerator(embedded_book(), FakeDevice(driver, gib, linear))
    assert (found.name if isinstance(found, Accelerator) else None) == name
