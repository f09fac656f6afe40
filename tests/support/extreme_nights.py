"""Nights of extreme figures, drawn from a seed.

Prices go from a cent to $100,000 an hour, jobs from one step to a thousand million, in one night.
"""

from __future__ import annotations

from random import Random
from typing import Any

from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.planner import PlanRequest
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.scenes import a_request

LEAST_USD, MOST_USD = 0.01, 100_000.0
LEAST_STEPS, MOST_STEPS = 1, 10**9
_PLACES = (
    ("aws/north-1", "p9.48xlarge"),
    ("aws/south-1", "p9.48xlarge"),
    ("aws/alps-1", "p9.48xlarge"),
    ("gcp/lake-1", "a9-highgpu-8g"),
    ("azure/fjord-1", "ND96_h9"),
)


def extreme_request(seed: int) -> PlanRequest:
    """Return 4 to 7 jobs with near deadlines over few machines, so that dear ones are needed beside the cheap ones."""
    draw = Random(f"extreme {seed}")
    offers = [o for number, place in enumerate(_PLACES) for o in _offers(draw, number, *place)]
    jobs = [_job(draw, number) for number in range(draw.randint(4, 7))]
    limits = {"teams": [{"team": "red", "budget": "250000"}]} if draw.random() < 0.3 else {}
    return a_request(jobs, offers, limits, gap=0.01, resolve_limits=0, confidence_rounds=0)


def _offers(draw: Random, number: int, place: str, machine: str) -> list[Offer]:
    usd = (LEAST_USD, MOST_USD)[number] if number < 2 else 10 ** draw.uniform(-2, 5)
    found = [offer(place, machine, "on_demand", f"{usd:.2f}", cap=draw.choice((1, 2)))]
    if draw.random() < 0.5:
        cheaper = f"{max(LEAST_USD, 0.4 * usd):.2f}"
        found.append(offer(place, machine, "spot", cheaper, cap=1, interruptions=draw.choice((0.01, 0.3))))
    return found


def _job(draw: Random, number: int) -> Job:
    steps = (LEAST_STEPS, MOST_STEPS)[number] if number < 2 else round(10 ** draw.uniform(0, 9))
    hours = draw.uniform(1, 4)
    more: dict[str, Any] = {"startup_minutes": draw.choice((0, 10)), "priority": draw.choice((-1, 0, 0, 1))}
    if draw.random() < 0.9:
        more["deadline"] = f"+{int(hours * 1.35) + 1}h"
    if draw.random() < 0.8:
        more["checkpoint"] = {"size_gib": 10}
    if draw.random() < 0.2:
        more["min_saving"] = draw.choice(("0.01", "50000"))
    if draw.random() < 0.2:
        more["budget"] = f"{10 ** draw.uniform(-1, 5):.2f}"
    per_hour = max(0.01, round(steps / hours, 2))
    return simple_job(f"j{number}", ("H100", 8), steps=steps, steps_per_hour=per_hour, **more)
