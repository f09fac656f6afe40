"""The device that PyTorch plays trains what it is told to; skipped where PyTorch is not installed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from router.jobs.step_measurement import DeviceFullError, MeasuredShape

torch = pytest.importorskip("torch")

SMALL = MeasuredShape(2, 64, 2, 128, 256, 32, 2, "fp32", recompute=False, causal=True)


def test_a_step_changes_every_weight() -> None:
    from router.app.torch_device import _Training

    training = _Training(SMALL, "cpu")
    weights = [training.embedding, *(weight for layer in training.layers for weight in layer)]
    built = sum(weight.numel() for weight in weights)
    assert built == 256 * 64 + 2 * (4 * 64 * 64 + 2 * 64 * 128)
    before = [weight.detach().clone() for weight in weights]
    training.train()
    assert all(bool((weight != old).any()) for weight, old in zip(weights, before, strict=True))


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("recompute", [False, True])
def test_the_processor_trains_in_each_precision(precision: str, recompute: bool) -> None:
    from router.app.torch_device import find_device

    device = find_device("cpu")
    assert device is not None
    assert device.memory_gib > 0
    step = device.prepare(MeasuredShape(2, 64, 2, 128, 256, 32, 2, precision, recompute, causal=True))
    step()
    step()
    device.release()


def test_what_cannot_be_held_is_full() -> None:
    from router.app.torch_device import find_device

    device = find_device("cpu")
    assert device is not None
    with pytest.raises(DeviceFullError):
        device.prepare(MeasuredShape(1, 2**10, 8, 2**10, 2**40, 32, 1, "fp32", recompute=False, causal=True))


def test_a_small_job_is_measured_whole_on_the_processor(tmp_path: Path) -> None:
    import time

    from pricing.book_file import embedded_book
    from router.app.profile import load_measured_job, measure_job, open_device

    now = datetime(2026, 11, 25, tzinfo=UTC)
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "name: tiny\nteam: x\nsteps: 9\nworkload:\n  transformer: {parameters: 3e5, layers: 4, hidden: 64, "
        "sequence_length: 64, tokens_per_step: 64, precision: fp32, vocabulary: 512}\n"
        "gang: {accelerators: 'H100:1'}\n",
        encoding="utf-8",
    )
    job, model = load_measured_job(file, None, now)
    result = measure_job(
        job,
        model,
        open_device("cpu"),
        embedded_book(),
        now,
        clock=time.perf_counter,
        lasting=timedelta(minutes=1),
        max_points=1,
    )
    (point,) = result.points
    assert point.step.whole
    assert 0 < point.step.seconds < 10
