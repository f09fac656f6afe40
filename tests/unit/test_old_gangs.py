"""A spot gang that has lived long is worth more than its price shows: a move resets its age."""

from __future__ import annotations

from datetime import timedelta

from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.prices.books import load_book
from tests.support.night import NOW

ONE_DAY = timedelta(days=1)


def running_for(age: timedelta | None) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Return the candidate on which the job runs, and the others of the same pool's type."""
    since = None if age is None else (NOW - age).isoformat()
    place = {"cloud": "gcp", "region": "us-central1", "instance_type": "a3-highgpu-8g", "market": "spot"}
    job = Job.model_validate(
        {
            "name": "lives",
            "team": "research",
            "steps": 24_000,
            "deadline": "+36h",
            "workload": {"profile": {"accelerators": "H100:8", "steps_per_hour": 1000}},
            "gang": {"accelerators": "H100:8"},
            "checkpoint": {"size_gib": 20},
            "status": {"running": {**place, "accelerators": 8, **({} if since is None else {"since": since})}},
        }
    )
    found, _ = CandidateFinder(load_book("embedded"), Limits.none(), NOW, advisory=False).find(job)
    (own,) = (c for c in found if c.running)
    return own, tuple(c for c in found if not c.running)


def test_the_older_the_gang_the_less_its_rest_costs() -> None:
    usd, needed = [], []
    for age in (None, timedelta(hours=1), timedelta(hours=6), ONE_DAY):
        own, _ = running_for(age)
        assert own.guard is not None
        usd.append(own.expected_usd(24_000))
        needed.append(own.guard.probability)
    assert usd == sorted(usd, reverse=True)
    assert needed == sorted(needed, reverse=True)
    assert usd[-1] < 0.9 * usd[0]


def test_only_the_gang_that_runs_has_an_age() -> None:
    _, others = running_for(None)
    _, beside = running_for(ONE_DAY)
    assert [(c.key, c.steps_per_hour, c.guard) for c in others] == [(c.key, c.steps_per_hour, c.guard) for c in beside]


def test_a_clock_that_is_behind_makes_no_gang_younger_than_new() -> None:
    own, _ = running_for(timedelta(minutes=-5))
    fresh, _ = running_for(None)
    assert own.guard == fresh.guard
