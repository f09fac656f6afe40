"""The step model keeps what physics says: better hardware is never slower, more work is never faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from router.jobs.step_model import as_steps, read_coefficients, time_steps
from tests.bench.speed_estimates import estimate_many, powers

_COUNT = 4000


def drawn(seed: int) -> dict[str, Any]:
    """Return many gangs and layouts drawn at random."""
    rng = np.random.default_rng(seed)

    def one_of(*values: float) -> Any:
        return rng.choice(np.array(values, dtype=np.float64), _COUNT)

    tensor, pipeline, data = one_of(1, 2, 4, 8), one_of(1, 2, 8), one_of(1, 4, 32)
    parameters = 10 ** rng.uniform(8.5, 11.5, _COUNT)
    experts = one_of(0, 1)
    return {
        "parameters": parameters, "routed": experts * parameters * 0.9, "experts": 1 + experts * 63,
        "chosen": 1 + experts * 7,
        "layers": one_of(24, 48, 96), "hidden": one_of(2048, 5000, 8192), "sequence": one_of(512, 4096, 32768),
        "sequences": 1.0, "microbatch": one_of(1, 4), "microbatches": one_of(1, 16), "tensor": tensor,
        "pipeline": pipeline, "data": data, "context": 1.0, "expert": one_of(1, 8), "stages": one_of(1, 4),
        "zero": one_of(0, 1, 3), "again": one_of(0, 1), "causal": one_of(0, 1), "lora": one_of(0, 1),
        "count": tensor * pipeline * data, "domain": 8.0, "peak": one_of(312, 989, 4500), "peak16": one_of(312, 989),
        "memory_rate": one_of(2000, 8000), "link": one_of(32, 450), "network": one_of(12, 400),
        "log_efficiency": -0.6, "log_attention": -0.6,
    }  # fmt: skip


def seconds(values: dict[str, Any], overlap: bool = True) -> Any:
    return time_steps(as_steps(values), read_coefficients().values, overlap).seconds


@pytest.mark.parametrize("rate", ["peak", "peak16", "memory_rate", "link", "network", "log_efficiency"])
def test_a_higher_rate_is_never_slower(rate: str) -> None:
    values = drawn(1)
    better = values | {rate: values[rate] + 0.5 if rate.startswith("log") else values[rate] * 1.7}
    assert np.all(seconds(better) <= seconds(values) * (1 + 1e-12))


@pytest.mark.parametrize("work", ["parameters", "layers", "sequence", "microbatches", "again"])
def test_more_work_is_never_faster(work: str) -> None:
    values = drawn(2)
    more = values | {work: values[work] * 2 + (0.5 if work == "again" else 0)}
    assert np.all(seconds(more) >= seconds(values) * (1 - 1e-12))


def test_overlap_never_costs_time_and_no_part_exceeds_the_step() -> None:
    values = drawn(3)
    parts = time_steps(as_steps(values), read_coefficients().values)
    assert np.all(seconds(values) <= seconds(values, overlap=False) * (1 + 1e-12))
    assert np.all(parts.exchange <= parts.seconds)
    assert np.all(parts.bubble >= 0)
    assert np.all(np.isfinite(parts.seconds) & (parts.seconds > 0))


def test_one_call_for_many_gangs_is_the_same_as_one_each() -> None:
    values = drawn(4)
    together = seconds(values)
    for at in range(0, _COUNT, 500):
        alone = {k: v if isinstance(v, float) else v[at] for k, v in values.items()}
        assert float(seconds(alone)) == pytest.approx(float(together[at]), rel=1e-12)


def test_a_hundred_thousand_estimates_cost_little_more_than_arithmetic() -> None:
    """Beside 100 powers of as many numbers, so that a busy machine slows both."""
    estimate_many()
    ratios = [estimate_many() / powers() for _ in range(3)]
    assert min(ratios) < 4
