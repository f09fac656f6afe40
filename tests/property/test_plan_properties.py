"""What must hold of any plan: more choice never hurts, order does not matter, sums add up, a second look agrees."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, TypeVar

import pytest

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.offers import Offer
from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job, Placement, Status
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_to_json
from router.planning.planner import make_plan
from tests.support import made_up_book as shop
from tests.support.checker import check_plan
from tests.support.instances import Instance, make_instance
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.plan_view import HOUR, Stretch, View, starting_time
from tests.support.solved_instances import request_of

NOW = datetime(2026, 11, 12, 18, tzinfo=UTC)
SLOT = timedelta(hours=1)
PLACES = ("aws/north-1", "aws/south-1", "aws/alps-1")


def steady_instance(seed: int) -> Instance:
    """Three to five jobs over two to four offers, most of which have room for one or two of them at a time."""
    rng = Random(seed)
    slots = rng.choice((5, 6, 7))
    deadlines = seed % 2 == 0
    offers = [
        shop.offer(
            place,
            "p9.48xlarge",
            market,
            f"{(60 if market == 'on_demand' else 22) + rng.uniform(0, 9):.3f}",
            cap=rng.choice((1, 1, 2)),
            interruptions=0.0,
        )
        for place in PLACES
        for market in ("on_demand", "spot")
        if rng.random() < 0.6 or (place, market) == (PLACES[0], "on_demand")
    ]
    jobs = []
    for index in range(rng.choice((3, 4, 5))):
        speed = rng.uniform(0.8e6, 1.2e6)
        more: dict[str, Any] = (
            {"deadline": NOW + SLOT * rng.choice((slots, slots, slots - 1))}
            if deadlines
            else {"max_wait": timedelta(hours=2)}
        )
        if rng.random() < 0.5:
            more["data"] = {"uri": "s3://x", "at": rng.choice(PLACES), "gib": rng.choice((50.0, 150.0))}
        if rng.random() < 0.75:
            # Several regions, or a second look would be freer than the first: it counts regions anew.
            more |= {"checkpoint": {"size_gib": 1e-6}, "regions": len(PLACES)}
        jobs.append(
            simple_job(
                f"job-{index}",
                ("H100", 8),
                steps=round(speed * rng.uniform(0.4, 2.6)),
                steps_per_hour=speed,
                startup_minutes=rng.choice((3, 5, 15)),  # never 0: then a pause would cost nothing
                min_saving=rng.choice(("0", "1")),
                priority=rng.choice((0, 0, 1)),
                **more,
            )
        )
    limits: Limits = make_limits(
        {"limits": [{"name": "spot", "cloud": "aws", "market": "spot", "unit": "machines", "amount": 2}]}
        if rng.random() < 0.5
        else {}
    )
    tariffs = tuple(tariff for tariff in shop.TARIFFS if len(tariff.tiers) == 1)
    tariffs += (shop.tariff("aws", shop.CROSS, "any", "any", (None, "0.03")),)
    made = shop.book(offers)
    book = PriceBook(made.as_of, made.offers, made.machines, made.accelerators, made.regions, tariffs, made.priors)
    return Instance(seed, tuple(jobs), book, limits, NOW, slots * SLOT, SLOT)


@dataclass(frozen=True)
class Later:
    """Return the jobs and costs at a moment, had the plan gone as expected: jobs not yet done, dollars spent.

    ``going_on``: the region of each job that the plan has running there right before and right after.
    """

    jobs: tuple[Job, ...]
    spent: float
    going_on: Mapping[str, RegionId]


def later(instance: Instance, plan: Plan, at: datetime) -> Later:
    """The plan carried out until ``at``; jobs that it left out are no longer asked for."""
    view = View(plan, instance.jobs, instance.book, instance.limits, False, None)
    jobs: list[Job] = []
    spent = 0.0
    going_on: dict[str, RegionId] = {}
    for job in instance.jobs:
        stretches = view.stretches(job)
        if not stretches:
            continue
        begun = [stretch for stretch in stretches if stretch.head.start < at]
        done = float(job.status.steps_done) if job.status is not None else 0.0
        for stretch in begun:
            steps, dollars = _progress(job, stretch, at)
            done += steps
            spent += dollars
        regions = {str(stretch.region) for stretch in begun}
        spent += sum(move.cost_usd.dollars() for move in plan.moves if move.job == job.name and move.to in regions)
        if done >= job.steps - 1:
            continue
        # Steps are whole: in favour of what is left, or a slot that is just enough would not be.
        jobs.append(_with_status(job, begun, min(int(done) + 2, job.steps - 1), instance.now, at))
        if any(stretch.head.start < at < stretch.head.end for stretch in begun):
            going_on[job.name] = begun[-1].region
    return Later(tuple(jobs), spent, going_on)


def _progress(job: Job, stretch: Stretch, at: datetime) -> tuple[float, float]:
    """Steps done and dollars spent by then."""
    line = stretch.head
    elapsed = (at - line.start) / HOUR
    startup = min(elapsed, starting_time(job) / HOUR) if line.startup else 0.0
    steps = sum(part.steps for part in stretch.lines)
    worked = min(elapsed - startup, steps / line.steps_per_hour)
    price = sum(part.usd_per_hour.dollars() for part in stretch.lines)
    return worked * line.steps_per_hour, price * (startup + line.billed_share * worked)


def _with_status(job: Job, begun: list[Stretch], done: int, now: datetime, at: datetime) -> Job:
    wait = max(timedelta(0), job.max_wait - (at - now))  # it began then, and does not begin anew
    if not begun:
        return job.model_copy(update={"max_wait": wait})
    last = begun[-1].head
    running = None
    if at <= last.end:
        running = Placement(
            cloud=last.cloud,
            region=last.region,
            zone=last.zone,
            instance_type=last.instance_type,
            market=Market(last.market),
            accelerators=last.accelerators,
        )
    status = Status(
        steps_done=done,
        running=running,
        checkpoint_in=begun[-1].region if job.checkpoint is not None else None,
        data_in=tuple({stretch.region for stretch in begun}),
    )
    return job.model_copy(update={"status": status, "max_wait": wait})


FEW = range(4, 40, 6)
MANY = range(300, 380)
SOLVER = 1e-6
T = TypeVar("T")
Worth = tuple[tuple[int, ...], float]


def plan_of(instance: Instance, gap: float = 0.0, resolve_limits: int = 0) -> Plan:
    """The planner's answer with its usual settings; shadow prices are re-solved only when asked for."""
    return make_plan(request_of(instance, gap=gap, resolve_limits=resolve_limits))


def worth(instance: Instance) -> Worth:
    """Unplaced by priority, highest first; then what is minimised: cost and thresholds."""
    plan = plan_of(instance)
    count = Counter(item.priority for item in plan.unplaced)
    tiers = sorted({job.priority for job in instance.jobs}, reverse=True)
    return tuple(count[tier] for tier in tiers), plan.cost_usd.dollars() + plan.threshold_usd.dollars()


def worse(one: Worth, other: Worth) -> bool:
    if one[0] != other[0]:
        return one[0] > other[0]
    return one[1] > other[1] * (1 + SOLVER) + 1e-6


def with_offers(instance: Instance, offers: Sequence[Offer]) -> Instance:
    return replace(instance, book=instance.book.with_offers(offers))


def looser(limits: Limits, rng: Random) -> Limits:
    """One limit, reservation or budget of the file a little larger; the file as it is when it has none."""
    found = list(limits.limits)
    index = rng.randrange(len(found))
    found[index] = found[index].model_copy(update={"amount": found[index].amount + rng.choice((1, 8, 192))})
    return limits.model_copy(update={"limits": tuple(found)})


def without_thresholds(instance: Instance) -> Instance:
    """The same where any saving is worth a move: what is minimised is then the cost alone."""
    free = [job.gang.model_copy(update={"min_saving": Usd(0)}) for job in instance.jobs]
    jobs = [job.model_copy(update={"gang": gang}) for job, gang in zip(instance.jobs, free, strict=True)]
    return replace(instance, jobs=tuple(jobs))


def broken_monotony(seed: int) -> list[str]:
    """Which of the three changes made the plan move the wrong way; for seeds divisible by four by cost alone."""
    rng = Random(seed)
    instance = calm(make_instance(seed))
    if seed % 4 == 0:
        instance = without_thresholds(instance)
    base = worth(instance)
    offers = instance.book.offers
    found = []
    fewer = with_offers(instance, [o for o in offers if o is not rng.choice(offers)])
    if worse(base, worth(fewer)):
        found.append(f"seed {seed}: an offer more made it worse")
    if worse(worth(replace(instance, limits=looser(instance.limits, rng))), base):
        found.append(f"seed {seed}: a looser limit made it worse")
    dear = rng.randrange(len(offers))
    price = offers[dear].usd_per_hour.scaled(Fraction(rng.choice((11, 15, 30)), 10))
    raised = [replace(o, usd_per_hour=price) if i == dear else o for i, o in enumerate(offers)]
    if worse(base, worth(with_offers(instance, raised))):
        found.append(f"seed {seed}: a higher price made it better")
    return found


@pytest.mark.slow
def test_more_choice_never_hurts() -> None:
    """An offer more or a looser limit never makes it worse, a higher price never better (gap 0)."""
    assert [words for seed in FEW for words in broken_monotony(seed)] == []


@pytest.mark.slow
def test_more_choice_never_hurts_in_many_instances() -> None:
    """The same on more of them."""
    assert [words for seed in MANY for words in broken_monotony(seed)] == []


def shuffled(instance: Instance, rng: Random) -> Instance:
    """The same with everything that has an order in another one."""

    def mixed(items: Sequence[T]) -> tuple[T, ...]:
        return tuple(rng.sample(items, len(items)))

    book, limits = instance.book, instance.limits
    return replace(
        instance,
        jobs=mixed(instance.jobs),
        book=PriceBook(
            book.as_of,
            mixed(book.offers),
            mixed(book.machines),
            mixed(book.accelerators),
            mixed(book.regions),
            mixed(book.tariffs),
            mixed(book.priors),
        ),
        limits=limits.model_copy(
            update={
                "limits": mixed(limits.limits),
                "reservations": mixed(limits.reservations),
                "discounts": mixed(limits.discounts),
                "teams": mixed(limits.teams),
            }
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.005])
def test_order_of_inputs_changes_nothing(gap: float) -> None:
    """Byte for byte, as long as the time limit does not cut in."""
    for seed in FEW:
        instance = make_instance(seed)
        plan = plan_of(instance, gap, resolve_limits=5)
        assert not plan.time_limit_hit
        again = plan_of(shuffled(instance, Random(seed)), gap, resolve_limits=5)
        assert plan_to_json(again) == plan_to_json(plan), seed
        assert plan_to_json(plan_of(instance, gap, resolve_limits=5)) == plan_to_json(plan), seed


def test_lines_and_moves_add_up_in_what_is_written() -> None:
    """To the nano-dollar, read from the JSON as anyone would."""
    for seed in FEW:
        plan = json.loads(plan_to_json(plan_of(make_instance(seed))), parse_float=Decimal)
        parts = [Decimal(item["cost_usd"]) for item in (*plan["lines"], *plan["moves"])]
        assert sum(parts) == Decimal(plan["cost_usd"]), seed
        jobs = {item["job"]: Decimal(item["cost_usd"]) for item in plan["jobs"]}
        assert sum(jobs.values()) == Decimal(plan["cost_usd"]), seed


def test_the_terms_of_each_cost_add_up_to_it() -> None:
    """Steps, lost work, checkpoints, restarts, start-ups, fallback and moves, to the nano-dollar."""
    for seed in FEW:
        plan = plan_of(make_instance(seed))
        assert plan.usage is not None
        placed = {job.job: job.cost_usd for job in plan.jobs if job.finish is not None}
        assert {terms.job: terms.together_usd for terms in plan.usage.cost_terms} == placed, seed


def calm(instance: Instance) -> Instance:
    """The instance without spot, whose gangs are guarded by a fallback.

    What a guarded run costs depends on when it begins, and its fallback is chosen for it alone: neither is monotone in
    what is for sale. What is judged here is the search.
    """
    offers = [offer for offer in instance.book.offers if offer.market is not Market.SPOT]
    return replace(instance, book=instance.book.with_offers(offers or instance.book.offers))


def second_looks(seed: int, gap: float) -> list[str]:
    """Plan again at each slot edge, with status from the plan: what is not as it was."""
    instance = calm(steady_instance(seed))
    plan = plan_of(instance, gap)
    found = [f"seed {seed}: {words}" for words in check_plan(plan, instance.jobs, instance.book, instance.limits)]
    total = plan.cost_usd.dollars() + plan.threshold_usd.dollars()
    for slots in range(1, instance.horizon // instance.slot):
        at = instance.now + slots * instance.slot
        there = later(instance, plan, at)
        if not there.jobs:
            break
        again = plan_of(replace(instance, jobs=there.jobs, now=at), gap)
        where = f"seed {seed} after {timedelta(hours=slots)}"
        left = again.cost_usd.dollars() + again.threshold_usd.dollars()
        if there.spent + left > total * (1 + gap) * (1 + 1e-4) + 1e-3:
            found.append(f"{where}: {there.spent} spent and {left} to come, was {total}")
        if again.unplaced:
            found.append(f"{where}: {[item.job for item in again.unplaced]} no longer placed")
        found += [f"{where}: {words}" for words in _moved(tuple(there.going_on), there.jobs, again)]
    return found


def _moved(going_on: Sequence[str], jobs: Sequence[Job], again: Plan) -> list[str]:
    """Jobs that the old plan keeps where they run and the new one does not."""
    moved = []
    for job in jobs:
        if job.name not in going_on or job.status is None or job.status.running is None:
            continue
        here = job.status.running
        own = [line for line in again.lines if line.job == job.name]
        stays = own and all(
            (line.cloud, line.region, line.instance_type, line.market)
            == (here.cloud, here.region, here.instance_type, here.market)
            for line in own[:1]
        )
        if not stays or own[0].startup or own[0].start != again.horizon_start:
            moved.append(f"{job.name} leaves {here.cloud}/{here.region} {here.market}")
    return moved


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.005])
def test_a_second_look_finds_nothing_better(gap: float) -> None:
    """No started job moves, and what is spent and still to come stays within the old total and the gap."""
    assert [words for seed in range(3) for words in second_looks(seed, gap)] == []


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.005])
def test_a_second_look_finds_nothing_better_in_many_instances(gap: float) -> None:
    """The same on more of them."""
    assert [words for seed in range(3, 40) for words in second_looks(seed, gap)] == []
