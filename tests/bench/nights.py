"""Realistic nights of many jobs, drawn from a seed: what a platform team of twenty teams might ask for.

Sizes from 1 to 512 accelerators, three quarters with deadlines of which half are off the hour, two thirds with data,
residency, sweeps of identical jobs, some jobs that run already, budgets and quotas that bind. The same seed gives the
same night on every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.offers import Offer
from router.jobs.limits import Limit, Limits, Reservation, TeamBudget
from router.jobs.spec import Job
from router.planning.planner import PlanRequest
from router.prices.books import load_book

TEAMS = 20
_HOUR = timedelta(hours=1)
_SIZES = {1: 20, 2: 5, 4: 10, 8: 30, 16: 13, 32: 10, 64: 7, 128: 3, 256: 1.3, 512: 0.7}
_DATA_AT = (
    "aws/us-east-1",
    "aws/us-west-2",
    "aws/eu-central-1",
    "gcp/us-central1",
    "gcp/europe-west4",
    "azure/eastus",
    "azure/westeurope",
    "azure/uksouth",
)
_RESIDENCY = (("US",), ("EU",), ("EU", "UK"), ("US", "CA"), ("EEA",))
_SMALL_REGIONS = ("us-east-1", "us-east-2", "eu-central-1", "us-central1", "europe-west4", "eastus")
_ASKED = ("H100", "A100-80GB", "H200", "L40S", "B200")
_USD_PER_ACCELERATOR_HOUR = 2.4  # a round figure between spot and on demand, for budgets alone


@dataclass(frozen=True, slots=True)
class _Model:
    """A transformer that teams train; ``least`` accelerators hold it with ZeRO-3."""

    parameters: float
    layers: int
    hidden: int
    least: int


_MODELS = (
    _Model(0.125e9, 12, 768, 1),
    _Model(1.3e9, 24, 2048, 1),
    _Model(6.7e9, 32, 4096, 4),
    _Model(13e9, 40, 5120, 8),
    _Model(34e9, 48, 8192, 16),
    _Model(70e9, 80, 8192, 32),
    _Model(175e9, 96, 12288, 64),
)


@dataclass(frozen=True, slots=True)
class Night:
    """Jobs, and the limits that they share."""

    jobs: tuple[Job, ...]
    limits: Limits


def realistic_night(count: int, seed: int, now: datetime) -> Night:
    """Return ``count`` jobs and their limits; equal for equal arguments."""
    draw = random.Random(seed)
    jobs: list[Job] = []
    asked = dict.fromkeys(_team_names(), 0.0)
    for fields, accelerator_hours in _specs(draw, now):
        copies = min(draw.choice((3, 4, 6, 8)) if draw.random() < 0.03 else 1, count - len(jobs))
        for copy in range(copies):
            suffix = f"-{copy}" if copies > 1 else ""
            jobs.append(Job.model_validate({**fields, "name": f"j{len(jobs):04}-{fields['name']}{suffix}"}))
            asked[fields["team"]] += accelerator_hours * _USD_PER_ACCELERATOR_HOUR
        if len(jobs) == count:
            break
    return Night(tuple(jobs), _limits(draw, count, asked))


def _team_names() -> list[str]:
    return [f"team-{number:02}" for number in range(TEAMS)]


def _specs(draw: random.Random, now: datetime) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the fields of jobs without end, each with its accelerator-hours on H100."""
    while True:
        size = draw.choices(list(_SIZES), list(_SIZES.values()))[0]
        model = draw.choice([m for m in _MODELS if m.least <= size])
        lora = model.least <= 8 and draw.random() < 0.25
        hours = min(120.0, max(0.4, draw.lognormvariate(math.log(6), 1.0)))
        tokens = max(4096, 2 ** round(math.log2(size * 16384)))
        per_step = (4 if lora else 6) * model.parameters * tokens / (size * 380e12) / 3600
        fields: dict[str, Any] = {
            "name": f"{model.parameters / 1e9:g}b".replace(".", "-"),
            "team": f"team-{min(TEAMS - 1, int(draw.expovariate(1 / 5))):02}",
            "steps": max(10, round(hours / per_step)),
            "priority": draw.choice((-1, 0, 0, 0, 0, 1, 2)),
            "workload": {
                "transformer": {
                    "parameters": model.parameters,
                    "layers": model.layers,
                    "hidden": model.hidden,
                    "sequence_length": 4096,
                    "tokens_per_step": tokens,
                    "lora": lora,
                }
            },
            "gang": _gang(draw, size),
            "startup": f"{draw.choice((6, 10, 15, 25))}m",
        }
        if draw.random() < 0.75:
            fields["deadline"] = _deadline(draw, now, hours)
            fields["confidence"] = draw.choice((0.9, 0.95, 0.95, 0.99))
        if draw.random() < 0.93:
            fields["checkpoint"] = {
                "size_gib": round(14 * model.parameters / 2**30, 1) if not lora else 0.5,
                "write_gib_per_s": draw.choice((1.0, 4.0, 8.0)),
                "asynchronous": draw.random() < 0.4,
            }
        if draw.random() < 2 / 3:
            gib = round(min(40_000.0, max(1.0, draw.lognormvariate(math.log(80), 1.8))))
            fields["data"] = {"uri": "s3://data/x", "at": draw.choice(_DATA_AT), "gib": gib}
        if draw.random() < 0.3:
            fields["residency"] = {"allow": list(draw.choice(_RESIDENCY))}
        chance = draw.random()
        if chance < 0.08:
            fields["market"] = {"spot": draw.choice(("never", "only"))}
        elif chance < 0.14:
            fields["gang"]["on_demand_share"] = 0.25
        _add_progress(draw, fields, size)
        yield fields, hours * size


def _gang(draw: random.Random, size: int) -> dict[str, Any]:
    """Return the gang: H100 and often more kinds, some of another size."""
    kinds: dict[str, Any] = {"H100": [size, 2 * size] if draw.random() < 0.25 and size < 512 else size}
    if draw.random() < 0.6:
        kinds["A100-80GB"] = size
    if draw.random() < 0.5:
        kinds["H200"] = size
    if size <= 8 and draw.random() < 0.4:
        kinds["L40S"] = size
    if size >= 8 and draw.random() < 0.2:
        kinds["B200"] = size
    gang: dict[str, Any] = {"accelerators": kinds}
    if size > 8 and draw.random() < 0.7:
        gang["rdma"] = "required"
    if draw.random() < 0.1:
        gang["min_saving"] = f"${draw.choice((5, 20, 50))}"
    return gang


def _deadline(draw: random.Random, now: datetime, hours: float) -> str:
    """Return a deadline with some slack over the run on H100, half of them off the hour."""
    slack = draw.choice((1.6, 2.0, 3.0, 5.0))
    minutes = math.ceil((hours * slack + 2) * 60)
    if draw.random() < 0.5:
        minutes = math.ceil(minutes / 60) * 60
    return (now + timedelta(minutes=min(minutes, 60 * 24 * 30))).isoformat()


def _add_progress(draw: random.Random, fields: dict[str, Any], size: int) -> None:
    """Let a tenth have steps done and a checkpoint somewhere, and let a few run now."""
    chance = draw.random()
    if chance >= 0.1 or "checkpoint" not in fields:
        return
    place = draw.choice(("us-east-2", "us-east-1"))
    status: dict[str, Any] = {"steps_done": fields["steps"] // 3, "checkpoint_in": f"aws/{place}"}
    if chance < 0.04 and size in (8, 16, 32):
        status["running"] = {
            "cloud": "aws",
            "region": place,
            "instance_type": "p5.48xlarge",
            "market": "spot",
            "accelerators": size,
        }
        fields.pop("residency", None)
        fields.pop("market", None)
        fields["gang"].pop("on_demand_share", None)
    fields["status"] = status


def _limits(draw: random.Random, count: int, asked: dict[str, float]) -> Limits:
    """Return quotas, reservations and budgets that grow with the number of jobs; about a dozen bind."""
    per = count / 24
    quotas: tuple[dict[str, Any], ...] = (
        {"cloud": "aws", "region": "us-east-1", "family": "p5", "market": "on_demand", "amount": 384, "unit": "vcpus"},
        {"cloud": "aws", "region": "us-east-1", "family": "p5", "market": "spot", "amount": 1536, "unit": "vcpus"},
        {"cloud": "aws", "region": "us-east-2", "family": "p5", "market": "spot", "amount": 1536, "unit": "vcpus"},
        {"cloud": "aws", "region": "us-west-2", "family": "p5", "market": "spot", "amount": 768, "unit": "vcpus"},
        {"cloud": "aws", "region": "eu-north-1", "family": "p5", "market": "spot", "amount": 768, "unit": "vcpus"},
        {"cloud": "aws", "family": "p4d", "market": "spot", "amount": 768, "unit": "vcpus"},
        {"cloud": "aws", "family": "p6", "market": "spot", "amount": 1152, "unit": "vcpus"},
        {"cloud": "gcp", "family": "a3", "market": "spot", "amount": 96, "unit": "accelerators"},
        {"cloud": "gcp", "family": "a3", "market": "on_demand", "amount": 64, "unit": "accelerators"},
        {"cloud": "gcp", "family": "a2", "market": "spot", "amount": 48, "unit": "accelerators"},
        {"cloud": "azure", "accelerator": "A100-80GB", "market": "spot", "amount": 32, "unit": "accelerators"},
        {"cloud": "azure", "accelerator": "H100", "market": "spot", "amount": 32, "unit": "accelerators"},
    )
    named = [
        Limit.model_validate(
            {
                **quota,
                "name": " ".join(str(quota[key]) for key in quota if key not in ("amount", "unit")),
                "amount": max(1, round(quota["amount"] * per * draw.uniform(0.7, 1.3))),
            }
        )
        for quota in quotas
    ]
    reservations = (
        Reservation.model_validate(
            {
                "name": "p5 until June",
                "region": "aws/us-east-1",
                "cloud": "aws",
                "instance_type": "p5.48xlarge",
                "machines": max(1, round(per)),
                "until": "2027-06-01T00:00Z",
                "usd_per_hour": "33.02",
            }
        ),
    )
    teams = tuple(
        TeamBudget(team=team, budget=Usd(round((amount * draw.uniform(0.7, 1.6) + 200) * 100) * 10_000_000))
        for team, amount in asked.items()
    )
    return Limits(
        default_cap_machines=96,
        limits=tuple(named),
        reservations=reservations,
        teams=teams,
        egress_month_to_date_gb={"aws": Decimal(9900), "gcp": Decimal(1200), "azure": Decimal(40)},
    )


def mid_size_request(seed: int, **knobs: Any) -> PlanRequest:
    """Return a night of 6 to 25 jobs over 12 to 24 offers of two or three regions, about a second of planning.

    Machines are few, so that limits bind. What varies besides the jobs: horizon, a start off the hour, a month's end.
    """
    draw = random.Random(f"mid-size {seed}")
    now = datetime(2026, 11, draw.choice((21, 21, 30)), 18, draw.choice((0, 0, 20)), tzinfo=UTC)
    night = realistic_night(draw.randint(6, 25), 2_000_000 + seed, now)
    regions = draw.sample(_SMALL_REGIONS, k=draw.choice((2, 3)))
    book = load_book("embedded")
    sold = [offer for offer in book.offers if offer.region in regions and _is_asked(book, offer)]
    offers = draw.sample(sold, k=min(len(sold), draw.randint(12, 24)))
    limits = night.limits.model_copy(update={"default_cap_machines": draw.choice((2, 4, 8, 16))})
    knobs = {"horizon": timedelta(hours=draw.choice((6, 8, 12))), "gap": 0.01, "resolve_limits": 0, **knobs}
    knobs.setdefault("confidence_rounds", 0)
    jobs = tuple(_shorter(job, 3) for job in night.jobs)
    return PlanRequest(jobs=jobs, book=book.with_offers(offers), limits=limits, now=now, **knobs)


def _shorter(job: Job, times: int) -> Job:
    """Return the job with that much less to do, so that more of few offers fits before its deadline."""
    status = job.status and job.status.model_copy(update={"steps_done": job.status.steps_done // times})
    return job.model_copy(update={"steps": max(10, job.steps // times), "status": status})


def _is_asked(book: PriceBook, offer: Offer) -> bool:
    """Return whether jobs of these nights ask for the offer's accelerator."""
    machine = book.machine(offer.cloud, offer.instance_type)
    return machine is not None and machine.accelerator in _ASKED
