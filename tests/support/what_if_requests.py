"""A small request over the made-up book, of which variants are planned in a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from router.planning.planner import PlanRequest
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits, simple_job

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
OFFERS = (
    offer("aws/north-1", "p9.48xlarge", "spot", "20"),
    offer("aws/north-1", "p9.48xlarge", "on_demand", "60"),
    offer("aws/south-1", "p9.48xlarge", "on_demand", "64"),
    offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "70"),
)
LIMITS = {
    "limits": [
        {"name": "north p9 spot", "cloud": "aws", "region": "north-1", "market": "spot", "amount": 8}
        | {"unit": "accelerators"},
        {"name": "a9 x8+", "cloud": "gcp", "amount": 16, "unit": "accelerators"},
    ],
    "reservations": [
        {
            "name": "hall",
            "cloud": "aws",
            "region": "south-1",
            "instance_type": "p9.48xlarge",
            "machines": 1,
            "sunk": True,
        }
    ],
    "teams": [{"team": "red", "budget": "$5000"}],
}


def small_request() -> PlanRequest:
    """Three jobs that share one place on spot and one reserved machine; two have a deadline."""
    jobs = (
        simple_job("llama-7b", ("H100", 8), steps=2000, steps_per_hour=500, deadline="+12h"),
        simple_job("mpt-13b", ("H100", 8), steps=3000, steps_per_hour=500, deadline="2026-11-22T08:00Z"),
        simple_job("tts", ("H100", 8), steps=1000, steps_per_hour=500, team="blue"),
    )
    return PlanRequest(
        jobs=jobs, book=book(OFFERS), limits=make_limits(LIMITS), now=NOW, horizon=timedelta(hours=24), resolve_limits=0
    )
