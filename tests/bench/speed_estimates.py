"""How quickly speeds are estimated: 100,000 gangs and layouts in one call, and the search of a layout.

    python -m tests.bench.speed_estimates

The first figure is beside 100 powers of as many numbers, of the same run: the ratio holds on any machine.
"""

from __future__ import annotations

import time

import numpy as np

from router.jobs.layouts import time_layouts
from router.jobs.speed import UnknownSpeed, gang_links
from router.jobs.step_model import as_steps, read_coefficients, time_steps
from router.jobs.workload import Transformer
from tests.support.books import MACHINE, MODEL

COUNT = 100_000


def estimate_many(count: int = COUNT) -> float:
    """Return the seconds that one call takes for this many gangs."""
    rng = np.random.default_rng(0)
    drawn = {name: rng.uniform(1, 8, count) for name in ("tensor", "pipeline", "data", "microbatch", "microbatches")}
    fixed = {
        "parameters": 7e9, "routed": 0.0, "experts": 1.0, "chosen": 1.0,
        "layers": 32.0, "hidden": 4096.0, "sequence": 2048.0, "sequences": 1024.0,
        "context": 1.0, "expert": 1.0, "stages": 1.0, "zero": 3.0, "again": 0.0, "causal": 1.0, "lora": 0.0,
        "count": 64.0, "domain": 8.0, "peak": 989.0, "peak16": 989.0, "memory_rate": 3350.0,
        "link": 450.0, "network": 400.0, "log_efficiency": -0.6, "log_attention": -0.6,
    }  # fmt: skip
    start = time.perf_counter()
    time_steps(as_steps(drawn | fixed), read_coefficients().values)
    return time.perf_counter() - start


def powers(count: int = COUNT) -> float:
    """Return the seconds of 100 powers of this many numbers."""
    numbers = np.random.default_rng(0).uniform(1, 2, count)
    start = time.perf_counter()
    for _ in range(100):
        numbers**3.3
    return time.perf_counter() - start


def search() -> tuple[int, float]:
    """Return how many layouts `auto` times for a gang of 64, and the seconds it takes."""
    fields = {"parameters": 70e9, "layers": 80, "hidden": 8192, "sequence_length": 4096, "tokens_per_step": 2**22}
    free = {"layout": "auto", "sharding": "auto", "recompute": "auto"}
    model = Transformer.model_validate(fields | free)
    links = gang_links("bf16", MACHINE, 8, MODEL)
    assert not isinstance(links, UnknownSpeed)
    start = time.perf_counter()
    found = time_layouts(model, links)
    assert found is not None
    return len(found.layouts), time.perf_counter() - start


def main() -> None:
    estimate_many()
    many, beside = estimate_many(), powers()
    layouts, seconds = search()
    print(f"{COUNT:,} estimates in one call: {many:.3f} s, {many / beside:.2f} of 100 powers of as many numbers")
    print(f"search of {layouts:,} layouts of 64 accelerators: {seconds * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
