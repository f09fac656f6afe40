"""A device whose steps take the seconds that a function states, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable

from router.jobs.step_measurement import DeviceFullError, MeasuredShape

H100 = "NVIDIA H100 80GB HBM3"
JOB = """\
name: tune
team: search
steps: 40000
workload:
  transformer:
    parameters: 6.74B
    layers: 32
    hidden: 4096
    sequence_length: 2048
    tokens_per_step: 524288
gang:
  accelerators: "H100:64"
"""


def linear(shape: MeasuredShape) -> float:
    """Return the seconds of a step: a constant, and a term for each layer that grows with the batch."""
    return 0.02 + 0.005 * shape.layers * (0.5 + shape.batch)


class FakeDevice:
    """Plays an accelerator. The first step of a shape takes ten times as long, as kernels are loaded then.

    ``holds`` is the most layers that really fit, whatever the memory says.
    """

    def __init__(
        self, name: str, memory_gib: float, seconds: Callable[[MeasuredShape], float], holds: int = 10**6
    ) -> None:
        self.name = name
        self.memory_gib = memory_gib
        self.prepared: list[MeasuredShape] = []
        self.released = 0
        self._seconds = seconds
        self._holds = holds
        self._now = 0.0

    def clock(self) -> float:
        """Return the seconds that have passed."""
        return self._now

    def prepare(self, shape: MeasuredShape) -> Callable[[], None]:
        self.prepared.append(shape)
        if shape.layers > self._holds:
            raise DeviceFullError
        steps = iter(range(10**6))

        def step() -> None:
            self._now += self._seconds(shape) * (1 if next(steps) else 10)

        return step

    def release(self) -> None:
        self.released += 1
