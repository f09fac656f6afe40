"""State which jobs are to be beside each other: those of one group of the job files, in one region. Pure.

The rule is :mod:`router.planning.rules.job_groups`; others ask for a job's affinity alone.
"""

from __future__ import annotations

from router.jobs.spec import Job


def affinity_of(job: Job) -> str | None:
    """Return what the jobs beside which it has to be share; None for a job that may be anywhere."""
    return job.group


def without_affinity(job: Job) -> Job:
    """Return the job as one that may be anywhere."""
    return job.model_copy(update={"group": None})
