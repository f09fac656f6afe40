"""Jobs that many offers can carry: several accelerators, each at several counts."""

from __future__ import annotations

from datetime import datetime, timedelta

from router.jobs.spec import Job
from tests.support.made_up_jobs import make_job

_SPEEDS = {"T4": 65.0, "V100-16GB": 125.0, "A10G": 125.0, "L4": 121.0, "L40S": 362.0, "A100-40GB": 312.0, "H100": 989.0}
_COUNTS = (1, 2, 4, 8)


def flexible_jobs(count: int, now: datetime) -> tuple[Job, ...]:
    """Return ``count`` jobs of 10 to 48 h of work on the slowest gang, due in one to two days."""
    return tuple(
        make_job(
            {
                "name": f"job-{number:02d}",
                "steps": 100 * (10 + 2 * (number % 20)),
                "deadline": now + timedelta(hours=24 + number % 24),
                "checkpoint": {"size_gib": 10},
                "options": [(accelerator, gpus) for accelerator in _SPEEDS for gpus in _COUNTS],
                "profile": [
                    {"accelerator": accelerator, "count": gpus, "steps_per_hour": 1.6 * speed * gpus**0.95}
                    for accelerator, speed in _SPEEDS.items()
                    for gpus in _COUNTS
                ],
            }
        )
        for number in range(count)
    )
