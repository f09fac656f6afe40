"""Seeded random instances that are small enough to enumerate. The same seed gives the same instance.

Two to four jobs, two to five offers, three to six slots, all inside the horizon. What varies: deadlines on and
off slot edges, earliest starts, budgets of jobs and teams, priorities, markets, risk, start-ups, data and their
moves (also over a month's end), checkpoints, jobs that run already, caps, quotas in three units, reservations,
discounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from pricing.offers import Offer
from router.jobs.limits import Limits, Reservation
from router.jobs.spec import Job
from tests.support import made_up_book as shop
from tests.support.made_up_jobs import make_job, make_limits

PATTERNS = 150_000
SLOTS = 6
# place, machine, accelerator, on-demand dollars an hour (about), vCPUs
SHELF = (
    ("aws/north-1", "p9.48xlarge", "H100", 60, 192),
    ("aws/south-1", "p9.48xlarge", "H100", 64, 192),
    ("aws/north-1", "p9.24xlarge", "H100", 31, 96),
    ("aws/alps-1", "p9.48xlarge", "H100", 72, 192),
    ("aws/south-1", "g9.48xlarge", "A100-80GB", 33, 96),
    ("azure/fjord-1", "ND96_h9", "H100", 80, 96),
    ("gcp/lake-1", "a9-highgpu-8g", "H100", 70, 208),
    ("gcp/rhine-1", "a7-highgpu-8g", "A100-80GB", 30, 96),
    ("gcp/lake-1", "a7-highgpu-8g", "A100-80GB", 28, 96),
    ("static/hall-1", "hall-h9", "H100", 20, None),
    ("lambda/bay-1", "gpu_8x_h9", "H100", 25, 208),
)
PER_MACHINE = {"p9.24xlarge": 4}
SPEED = {"H100": 130.0, "A100-80GB": 55.0}


@dataclass(frozen=True)
class Instance:
    seed: int
    jobs: tuple[Job, ...]
    book: PriceBook
    limits: Limits
    now: datetime
    horizon: timedelta
    slot: timedelta


def make_instance(seed: int) -> Instance:
    rng = Random(seed)
    minutes = rng.choice((30, 60, 60, 120))
    base = rng.choice((3, 4, 4, 5, 5, 6))
    now = rng.choice(
        (
            datetime(2026, 11, 12, 18, tzinfo=UTC),
            datetime(2026, 11, 21, 9, 17, tzinfo=UTC),
            datetime(2026, 11, 30, 22, tzinfo=UTC),
        )
    )
    slot = timedelta(minutes=minutes)
    offers = _offers(rng)
    edges = SLOTS - base  # deadlines and earliest starts off the grid that may still be added
    jobs = []
    families = _family_of_offers(rng, offers)
    for index in range(rng.choice((2, 3, 4, 4, 4))):
        job, edges = _job(rng, index, offers, families, now, slot, base, edges)
        jobs.append(_in_shape(Random(f"{seed} {job.name}"), job))
    limits = _dated(_limits(rng, offers, base), seed, now, base * slot)
    return Instance(seed, tuple(jobs), shop.book(offers), limits, now, base * slot, slot)


def make_capped_instance(seed: int) -> Instance:
    """The instance of that seed, where half of the jobs have a cap on prices, with offers on either side."""
    instance, rng = make_instance(seed), Random(f"caps of {seed}")
    caps = [UsdPerHour.parse(f"{rng.uniform(2, 10):.2f}") if rng.random() < 0.5 else None for _ in instance.jobs]
    jobs = (job.model_copy(update={"max_price": cap}) for job, cap in zip(instance.jobs, caps, strict=True))
    return replace(instance, jobs=tuple(jobs))


def _offers(rng: Random) -> tuple[Offer, ...]:
    wanted = rng.choice((2, 3, 3, 4, 4, 5))
    found: dict[tuple[str, ...], Offer] = {}
    shelf = rng.sample(SHELF[:9], k=3) + ([rng.choice(SHELF[9:])] if rng.random() < 0.2 else [])
    while len(found) < wanted:
        place, machine, _, dollars, _ = rng.choice(shelf)
        base = dollars * 1000 + 37 * len(place) + len(machine)  # one on-demand price a place, so that spot is below
        spot = rng.random() < 0.5 and not place.startswith("static")
        zone = f"{place.split('/')[1]}{rng.choice('ab')}" if rng.random() < 0.15 else None
        price = round(base * rng.uniform(0.2, 0.7)) if spot else base
        made = shop.offer(
            place,
            machine,
            "spot" if spot else "on_demand",
            f"{price / 1000:.3f}",
            zone=zone,
            cap=rng.choice((None, 1, 1, 1, 1, 2)),
            interruptions=rng.choice((None, 0.01, 0.1, 0.3)) if spot else None,
        )
        found.setdefault(made.key, made)
    return tuple(found.values())


def _family_of_offers(rng: Random, offers: Sequence[Offer]) -> list[tuple[str, int]]:
    """Gang options that somebody sells, the ones of most offers first."""
    shelf = {(place, machine): accelerator for place, machine, accelerator, _, _ in SHELF}
    options: dict[tuple[str, int], int] = {}
    for item in offers:
        accelerator = shelf[str(item.region_id), item.instance_type]
        size = PER_MACHINE.get(item.instance_type, 8)
        options[accelerator, size] = options.get((accelerator, size), 0) + 3
        options[accelerator, 2 * size] = options.get((accelerator, 2 * size), 0) + 1
    return sorted(options, key=lambda option: (-options[option], rng.random()))


def _job(
    rng: Random,
    index: int,
    offers: Sequence[Offer],
    families: Sequence[tuple[str, int]],
    now: datetime,
    slot: timedelta,
    base: int,
    edges: int,
) -> tuple[Job, int]:
    options = [families[0] if rng.random() < 0.9 else rng.choice(families)]
    shelf = {(place, machine): accelerator for place, machine, accelerator, _, _ in SHELF}
    extra = rng.choice(families)
    candidates = sum(
        shelf[str(o.region_id), o.instance_type] == accelerator and count % PER_MACHINE.get(o.instance_type, 8) == 0
        for o in offers
        for accelerator, count in {options[0], extra}
    )
    if rng.random() < 0.4 and (candidates + 2) ** SLOTS <= PATTERNS:
        options = sorted({*options, extra})
    last, edges = _moment(rng, now, slot, base, rng.choice((base, base, base, base - 1)), edges)
    first = None
    if rng.random() < 0.25:
        first, edges = _moment(rng, now, slot, base, 1, edges)
    accelerator, count = options[0]
    speed = SPEED[accelerator] * count * 10
    window = (last - (first or now)) / timedelta(hours=1)
    steps = max(10, int(speed * window * rng.uniform(0.25, 0.55)))
    fields: dict[str, Any] = {
        "name": f"job-{index}",
        "team": rng.choice(("red", "blue")),
        "steps": steps,
        "deadline": last,
        "earliest_start": first,
        "confidence": rng.choice((0.6, 0.9, 0.95)),
        "priority": rng.choice((0, 0, 0, 1)),
        "startup_minutes": rng.choice((0, 5, 10)) * (2 if slot >= timedelta(hours=1) else 1),
        "options": options,
        "profile": _profile(rng, options),
        "min_saving": rng.choice(("0", "1", "5")),
        "spot": rng.choice(("allowed",) * 14 + ("never", "only")),
        "regions": rng.choice((1, 1, 1, 2)),
        "on_demand_share": rng.choice((0.0,) * 8 + (0.5,)),
        "rdma": rng.choice(("optional",) * 7 + ("required",)),
    }
    if fields["spot"] == "only":
        fields["on_demand_share"] = 0.0
    if rng.random() < 0.8:
        fields["checkpoint"] = {
            "size_gib": 1e-6 if fields["regions"] == 2 else rng.choice((40.0, 300.0)),
            "write_gib_per_s": 4.0,
        }
    if rng.random() < 0.25:
        # About 4 dollars an H100-hour on spot, 8 on demand.
        fields["budget"] = f"{rng.uniform(3, 9) * count * steps / speed:.2f}"
    if rng.random() < 0.35:
        fields["data"] = _data(rng)
    if rng.random() < 0.05:
        fields["residency"] = rng.choice(
            (
                {"allow": ["US"]},
                {"allow": ["EEA"]},
                {"deny": ["aws/north-1"]},
                {"deny": ["gcp"]},
                {"allow": ["EU", "aws"]},
            )
        )
    if rng.random() < 0.25:
        fields["status"] = _status(rng, offers, options, fields, steps)
    return make_job(fields), edges


def _in_shape(rng: Random, job: Job) -> Job:
    """The job, one of six with a number of machines that somebody may or may not sell."""
    if rng.random() > 1 / 6:
        return job
    machines = rng.choice([n for n in (1, 1, 2, 4) if all(option.count % n == 0 for option in job.gang.options)])
    return job.model_copy(update={"gang": job.gang.model_copy(update={"machines": machines})})


def _moment(rng: Random, now: datetime, slot: timedelta, base: int, index: int, edges: int) -> tuple[datetime, int]:
    """About the slot edge ``index``; off it while the number of slots allows."""
    if edges > 0 and rng.random() < 0.5 and index <= base:
        return now + slot * (index - rng.choice((0.25, 0.5, 0.7))), edges - 1
    return now + slot * index, edges


def _profile(rng: Random, options: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    error = rng.choice((0.0, 0.0, 0.05))
    return [
        {
            "accelerator": accelerator,
            "count": count,
            "steps_per_hour": round(SPEED[accelerator] * count * 10 * rng.uniform(0.8, 1.1) * 0.97 ** (count / 8), 2),
            "relative_error": error,
            **({"fabric": "ethernet"} if fabric == "ethernet" else {}),
        }
        for accelerator, count in options
        for fabric in (None, "ethernet")
    ]


def _data(rng: Random) -> dict[str, Any]:
    mode = rng.choice(("copy", "copy", "stream"))
    place = rng.choice(
        (
            "aws/north-1",
            "aws/north-1",
            "aws/south-1",
            "aws/alps-1",
            "gcp/lake-1",
            "gcp/rhine-1",
            "aws/alps-1",
            "azure/fjord-1",
            "cloudflare-r2/auto",
        )
    )
    data: dict[str, Any] = {
        "uri": "s3://made-up",
        "at": place,
        "gib": rng.choice((20.0, 90.0, 250.0, 700.0)),
        "mode": mode,
    }
    if mode == "stream":
        data["passes"] = rng.choice((1.0, 2.0))
    if rng.random() < 0.2:
        data["egress_cap"] = rng.choice(({"gib": 300.0}, {"usd": "20"}))
    return data


def _status(
    rng: Random,
    offers: Sequence[Offer],
    options: Sequence[tuple[str, int]],
    fields: dict[str, Any],
    steps: int,
) -> dict[str, Any]:
    here = rng.choice(offers)
    shelf = {(place, machine): accelerator for place, machine, accelerator, _, _ in SHELF}
    status: dict[str, Any] = {"steps_done": rng.choice((0, steps // 4, steps // 2))}
    if rng.random() < 0.3:
        status["data_in"] = [str(here.region_id)]
    count = next((n for a, n in options if a == shelf[str(here.region_id), here.instance_type]), None)
    if count is not None and rng.random() < 0.7:
        status["running"] = {
            "cloud": here.cloud,
            "region": here.region,
            "zone": here.zone,
            "instance_type": here.instance_type,
            "market": here.market.value,
            "accelerators": count,
        }
    if status["steps_done"] and "checkpoint" in fields:
        # Often beside the data: then both move on one meter.
        home = fields.get("data", {}).get("at", "cloudflare-r2")
        beside = not home.startswith("cloudflare-r2") and rng.random() < 0.5
        status["checkpoint_in"] = home if beside else str(here.region_id)
    if "checkpoint" not in fields and "running" not in status:
        status["steps_done"] = 0
    if "checkpoint" not in fields and fields.get("data", {}).get("mode") == "stream":
        status["steps_done"] = 0
    return status


def _dated(limits: Limits, seed: int, now: datetime, horizon: timedelta) -> Limits:
    """Two of three reservations with dates, within the horizon and beyond, on slot edges and off; one of four without a
    price. Drawn apart, so that everything else of a seed stays as it was."""
    rng = Random(f"dates of {seed}")
    marks = [now + horizon * k / 8 for k in range(-1, 10)]

    def dated(item: Reservation) -> Reservation:
        first, second = sorted(rng.sample(marks, 2))
        choices: tuple[dict[str, Any], ...] = (
            {},
            {"start": first},
            {"until": second},
            {"start": first, "until": second},
        )
        prices: tuple[dict[str, Any], ...] = ({}, {}, {"usd_per_hour": None}, {"usd_per_hour": None, "sunk": True})
        dates, price = rng.choice(choices), rng.choice(prices)
        return item.model_copy(update={**dates, **price})

    return limits.model_copy(update={"reservations": tuple(map(dated, limits.reservations))})


def _limits(rng: Random, offers: Sequence[Offer], base: int) -> Limits:
    fields: dict[str, Any] = {"limits": [], "reservations": [], "discounts": [], "teams": []}
    for index in range(rng.choice((1, 1, 2, 2))):
        here = rng.choice(offers)
        unit, amount = rng.choice(
            (
                ("accelerators", 8),
                ("accelerators", 16),
                ("machines", 1),
                ("machines", 1),
                ("machines", 2),
                ("vcpus", 208),
            )
        )
        limit: dict[str, Any] = {
            "name": f"quota-{index}",
            "cloud": here.cloud,
            "unit": unit,
            "amount": amount,
        }
        limit |= rng.choice(
            (
                {},
                {"region": here.region},
                {"instance_type": here.instance_type},
                {"market": here.market.value},
                {"region": here.region, "market": here.market.value},
            )
        )
        fields["limits"].append(limit)
    if rng.random() < 0.2:
        here = rng.choice(offers)
        fields["reservations"].append(
            {
                "name": "paid",
                "cloud": here.cloud,
                "region": here.region,
                "zone": here.zone,
                "instance_type": here.instance_type,
                "machines": rng.choice((1, 2)),
                "usd_per_hour": "21.5",
            }
        )
    if rng.random() < 0.2:
        here = rng.choice(offers)
        fields["discounts"].append({"cloud": here.cloud, "percent": "12.5"})
        fields["discounts"].append({"cloud": here.cloud, "market": here.market.value, "percent": "7"})
    if rng.random() < 0.2:
        fields["teams"].append({"team": "red", "budget": f"{rng.uniform(80, 400):.2f}", "spent": "10"})
    if rng.random() < 0.3:
        fields["egress_month_to_date_gb"] = {"aws": rng.choice(("40", "90", "380")), "gcp": "150"}
    if rng.random() < 0.2:
        fields["default_cap_machines"] = rng.choice((1, 2))
    if rng.random() < 0.05:
        fields["clouds"] = sorted({o.cloud for o in offers[:3]})
    return make_limits(fields)
