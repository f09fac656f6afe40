"""A candidate as a policy sees it."""

from __future__ import annotations

from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.candidates import Candidate, steps_to_do
from router.planning.whats_left import left_usd
from router.quoting.policy import Place

# What one stream between two regions carries, where nobody measured it; clouds advertise several times as much.
TRANSFER_GIB_PER_S = 0.25
_STREAMED = "stream"


def place_of(candidate: Candidate, job: Job, limits: Limits) -> Place:
    """Where the rest of the job could be done; ``job`` with the steps that are confirmed. What is streamed while it
    runs holds nothing up."""
    steps = steps_to_do(job, running=candidate.running)
    moved = sum(t.gib for t in candidate.transfers if t.what != _STREAMED)
    return Place(
        key=candidate.key,
        market=candidate.market,
        usd_per_hour=candidate.usd_per_hour,
        hours=steps / candidate.on_time_steps_per_hour,
        startup_hours=candidate.startup_hours,
        expected_usd=left_usd(job, candidate, limits),
        transfer_hours=moved / TRANSFER_GIB_PER_S / 3600,
        interruptions_per_hour=candidate.risk.interruptions_per_hour,
    )
