"""Jobs as the state database stores them. The model is imported when a job is read: it is slow to build."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.jobs.spec import Job


def job_json(job: Job) -> str:
    """Return a job as the state database stores it; :func:`parse_job` reads it back."""
    return json.dumps(job.model_dump(mode="json"), sort_keys=True)


def parse_job(text: str) -> Job:
    """Return the job that :func:`job_json` wrote."""
    from router.jobs.spec import Job

    return Job.model_validate_json(text)


def read_job(text: str | None) -> Job | None:
    """Return the job of a stored specification; None where there is none, or nobody can read it any more."""
    try:
        return None if text is None else parse_job(text)
    except ValueError:
        return None
