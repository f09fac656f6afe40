"""Random instances in which gangs may have two machine types, and in which no type has machines for all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pricing.book import PriceBook
from pricing.book_check import check_book
from pricing.machines import Accelerator
from pricing.offers import Offer
from router.jobs.limits import Limits
from router.jobs.spec import Job
from tests.support import made_up_book as shop
from tests.support.instances import Instance
from tests.support.made_up_jobs import make_job, make_limits

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
SLOT = timedelta(hours=1)
# Type, accelerator, dollars an hour on demand (about).
SHELF = {
    "aws/north-1": (("p9.48xlarge", "H100", 60), ("p9e.48xlarge", "H100", 66), ("p9f.48xlarge", "H100", 63)),
    "aws/south-1": (("g9.48xlarge", "A100-80GB", 33), ("g9d.48xlarge", "A100-40GB", 27)),
    "gcp/lake-1": (("a9-highgpu-8g", "H100", 58), ("a9-megagpu-8g", "H100", 62)),
}
SPEED = {"H100": 130.0, "A100-80GB": 55.0, "A100-40GB": 50.0}


def mixing_book(offers: tuple[Offer, ...]) -> PriceBook:
    """The made-up book with more machine types beside its own: of one family, and of one fabric."""
    more = (
        shop.made_up_machine("aws", "p9e.48xlarge", "H100", 8, 192, "efa"),
        shop.made_up_machine("aws", "p9f.48xlarge", "H100", 8, 224, "efa"),
        shop.made_up_machine("aws", "g9d.48xlarge", "A100-40GB", 8, 96, "ethernet"),
        shop.made_up_machine("gcp", "a9-megagpu-8g", "H100", 8, 208, "gpudirect-tcpxo"),
    )
    smaller = Accelerator("A100-40GB", 40, 1555.0, 312.0, None, 400, "made up", shop.SOURCE, "2026-11-01", True)
    base = shop.book(())
    book = replace(base, offers=offers, machines=(*base.machines, *more), accelerators=(*base.accelerators, smaller))
    check_book(book)
    return book


def make_mixed_instance(seed: int) -> Instance:
    """The instance of that seed: two or three jobs of two to four machines, few of each type to be had."""
    rng = Random(f"mixes of {seed}")
    place = rng.choice(("aws/north-1", "aws/north-1", "aws/south-1", "gcp/lake-1"))
    market = rng.choice(("on_demand", "on_demand", "spot"))
    types = rng.sample(SHELF[place], k=min(len(SHELF[place]), rng.choice((2, 2, 3))))
    offers = tuple(
        shop.offer(
            place,
            name,
            market,
            f"{dollars * rng.uniform(0.9, 1.1):.2f}",
            zone=None,
            cap=rng.choice((1, 2, 3, None)),
            interruptions=rng.choice((0.01, 0.05)) if market == "spot" else None,
        )
        for name, _, dollars in types
    )
    slots = rng.choice((3, 4))
    families = sorted({accelerator for _, accelerator, _ in types})
    jobs = tuple(_job(rng, index, families, slots) for index in range(rng.choice((2, 2, 3))))
    instance = Instance(seed, jobs, mixing_book(offers), _limits(rng, offers), NOW, slots * SLOT, SLOT)
    return replace(instance, jobs=tuple(_running(rng, job, offers) for job in jobs))


def _job(rng: Random, index: int, accelerators: list[str], slots: int) -> Job:
    count = 8 * rng.choice((2, 2, 3, 4))
    slowest = min(SPEED[name] for name in accelerators) * count
    fields: dict[str, Any] = {
        "name": f"job-{index}",
        "team": "red",
        "steps": max(10, int(slowest * slots * rng.uniform(0.2, 0.6))),
        "deadline": NOW + slots * SLOT,
        "confidence": 0.9,
        "priority": rng.choice((0, 0, 1)),
        "startup_minutes": rng.choice((0, 10)),
        "options": [(name, count) for name in accelerators],
        "profile": [
            {
                "accelerator": name,
                "count": count,
                "steps_per_hour": round(SPEED[name] * count * rng.uniform(0.9, 1.1), 2),
                "relative_error": 0.0,
                "fabric": fabric,
            }
            for name in accelerators
            for fabric in ("rdma", "ethernet")
        ],
        "min_saving": rng.choice(("0", "1")),
        "mixed": rng.random() < 0.85,
    }
    if rng.random() < 0.8:
        fields["checkpoint"] = {"size_gib": 40.0, "write_gib_per_s": 4.0}
    return make_job(fields)


def _running(rng: Random, job: Job, offers: tuple[Offer, ...]) -> Job:
    """The job, one of four as it runs now: on one type, or on two."""
    if rng.random() > 0.25:
        return job
    count, one = job.gang.options[0].count, rng.choice(offers)
    running: dict[str, Any] = {
        "cloud": one.cloud,
        "region": one.region,
        "instance_type": one.instance_type,
        "market": one.market.value,
        "accelerators": count,
    }
    if rng.random() < 0.6:
        other = rng.choice([offer for offer in offers if offer is not one])
        held = 8 * rng.randrange(1, count // 8)
        running["mixed_with"] = {"instance_type": other.instance_type, "accelerators": held}
    done = job.steps // 4 if job.checkpoint is not None else 0
    status = {"steps_done": done, "running": running}
    return Job.model_validate({**job.model_dump(mode="json"), "status": status})


def _limits(rng: Random, offers: tuple[Offer, ...]) -> Limits:
    here = rng.choice(offers)
    limits = []
    for index in range(rng.choice((0, 1, 1, 2))):
        unit, amount = rng.choice((("accelerators", 24), ("accelerators", 32), ("machines", 2), ("vcpus", 600)))
        where = rng.choice(({}, {"instance_type": here.instance_type}, {"region": here.region}))
        limits.append({"name": f"quota-{index}", "cloud": here.cloud, "unit": unit, "amount": amount, **where})
    reservations = []
    if rng.random() < 0.4:
        reservations = [
            {
                "name": f"paid-{offer.instance_type.split('.')[0]}",
                "cloud": offer.cloud,
                "region": offer.region,
                "instance_type": offer.instance_type,
                "machines": rng.choice((1, 2)),
                "usd_per_hour": "21.5",
                **rng.choice(({}, {}, {"until": (NOW + 2 * SLOT).isoformat()})),
            }
            for offer in offers
        ]
    return make_limits({"limits": limits, "reservations": reservations})
