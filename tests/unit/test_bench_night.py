"""The night that ``make bench`` plans: as many jobs as asked, each its own, the same every time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from router.config.job_files import load_jobs, read_limits
from router.jobs.spec import Job
from tests.bench.hundred_jobs import many_jobs, many_limits
from tests.support.repository import ROOT

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
NIGHTLY = ROOT / "examples" / "nightly"


@pytest.fixture(scope="module")
def night() -> tuple[Job, ...]:
    return load_jobs([str(NIGHTLY)], NOW).jobs


def test_every_copy_is_a_job_that_a_file_could_hold(night: tuple[Job, ...]) -> None:
    jobs = many_jobs(night, 100, NOW)
    assert len({job.name for job in jobs}) == 100
    assert all(Job.model_validate(job.model_dump()) == job for job in jobs)


def test_copies_have_time_and_work_of_their_own(night: tuple[Job, ...]) -> None:
    first, again = many_jobs(night, len(night), NOW), many_jobs(night, 2 * len(night), NOW)[len(night) :]
    for job, copy in zip(first, again, strict=True):
        assert copy.team == f"{job.team}-1"
        assert copy.steps_left >= 1
        assert copy.deadline is None or (job.deadline and copy.deadline.at(NOW) >= job.deadline.at(NOW))


def test_the_order_of_the_examples_does_not_matter(night: tuple[Job, ...]) -> None:
    assert many_jobs(night[::-1], 100, NOW) == many_jobs(night, 100, NOW)


def test_limits_grow_and_every_team_keeps_its_budget(night: tuple[Job, ...]) -> None:
    limits = read_limits(NIGHTLY / "limits.yaml")
    grown = many_limits(limits, 100 / 24)
    assert all(many.amount >= 4 * one.amount for many, one in zip(grown.limits, limits.limits, strict=True))
    teams = {team.team for team in grown.teams}
    with_budget = {team.team for team in limits.teams}
    assert {job.team for job in many_jobs(night, 100, NOW) if job.team.rpartition("-")[0] in with_budget} <= teams
