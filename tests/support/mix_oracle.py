"""Judge gangs of two machine types, from the words of rules-of-the-plan.md. Shares no code with the planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pricing.book import PriceBook
from pricing.machines import RDMA_FABRICS, Machine
from pricing.offers import Offer
from pricing.places import Market
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Line
from tests.support.shared_limits import Holding, shared_things

# What joins machines of two types on each cloud whose machines we make.
JOINED = {
    "aws": {"ethernet", "efa"},
    "azure": {"ethernet"},
    "gcp": {"ethernet"},
    "sandbox": {"ethernet", *RDMA_FABRICS},
    "static": {"ethernet", *RDMA_FABRICS},
}
RELATIVE = 1e-9


def unmixable(one: Machine, two: Machine) -> str:
    """Why no gang may have machines of both types; empty where one may."""
    if one.cloud != two.cloud or one.instance_type == two.instance_type:
        return "not two types of one cloud"
    if family(one.accelerator) != family(two.accelerator):
        return f"{one.accelerator} and {two.accelerator} are of two families"
    if one.accelerator_count != two.accelerator_count:
        return f"{one.accelerator_count} and {two.accelerator_count} accelerators a machine"
    if one.fabric != two.fabric or one.fabric not in JOINED.get(one.cloud, set()):
        return f"fabrics {one.fabric} and {two.fabric} of {one.cloud}"
    return ""


def family(accelerator: str) -> str:
    """The name up to a size of memory or a form."""
    head, _, tail = accelerator.rpartition("-")
    return head if tail.endswith("GB") or tail in {"PCIe", "NVL", "SXM", "SXM4", "SXM5"} else accelerator


def mix_problems(job: Job, book: PriceBook, lines: Sequence[Line]) -> Iterator[str]:
    """What is wrong with a gang of several machine types."""
    types = sorted({line.instance_type for line in lines})
    if not job.gang.mixed:
        yield f"{types} in one gang, which the job does not allow"
    if len(types) > 2:
        yield f"{len(types)} machine types in one gang"
    if len({(line.zone, line.market) for line in lines}) > 1:
        yield f"{types} of several zones or markets in one gang"
    machines = [book.machine(lines[0].cloud, name) for name in types]
    known = [machine for machine in machines if machine is not None]
    for second in known[1:]:
        why = unmixable(known[0], second)
        if why:
            yield f"a mix of {why}"
    count = sum(line.accelerators for line in lines)
    speeds = [speed for machine in known if (speed := measured_speed(job, machine, count)) is not None]
    for line in lines:
        if speeds and line.steps_per_hour > min(speeds) * (1 + RELATIVE):
            yield f"{line.steps_per_hour} steps an hour, the slower type alone does {min(speeds)}"


def measured_speed(job: Job, machine: Machine, count: int) -> float | None:
    """The speed that the job's profile states for so many accelerators on that network; None where it states none."""
    network = "rdma" if machine.fabric in RDMA_FABRICS else "ethernet"
    alone = count == machine.accelerator_count
    return next(
        (
            point.steps_per_hour
            for point in job.workload.profile
            if (point.accelerator, point.count) == (machine.accelerator, count)
            and (alone or (point.fabric or "rdma") == network)
        ),
        None,
    )


def possible_mixes(job: Job, book: PriceBook, limits: Limits) -> set[frozenset[tuple[str, int]]]:
    """Every gang of two types that sells, keeps all limits by itself, and that the job's gang and market allow.

    Reservations, residency, placement and moves are left out. A gang is the names of its offers with their machines.
    """
    found = set()
    for option in job.gang.options if job.gang.mixed else ():
        for one in book.offers:
            for two in book.offers:
                first, second = (book.machine(offer.cloud, offer.instance_type) for offer in (one, two))
                if first is None or second is None or not _beside(one, two) or unmixable(first, second):
                    continue
                asked = {(o.accelerator, o.count) for o in job.gang.options}
                if {(m.accelerator, option.count) for m in (first, second)} - asked:
                    continue
                if one.market is Market.SPOT and (job.market.spot == "never" or job.gang.on_demand_share > 0):
                    continue
                if one.market is Market.ON_DEMAND and job.market.spot == "only":
                    continue
                if option.count % first.accelerator_count or (
                    job.gang.rdma == "required" and first.fabric not in RDMA_FABRICS
                ):
                    continue
                machines = option.count // first.accelerator_count
                if job.gang.machines not in (None, machines):
                    continue
                for number in range(1, machines):
                    held = ((one, first, number), (two, second, machines - number))
                    if _fits(held, limits):
                        found.add(frozenset((str(offer.key), count) for offer, _, count in held))
    return found


def _beside(one: Offer, two: Offer) -> bool:
    places = [(offer.cloud, offer.region, offer.zone, offer.market) for offer in (one, two)]
    return places[0] == places[1] and one.instance_type != two.instance_type


def _fits(held: Sequence[tuple[Offer, Machine, int]], limits: Limits) -> bool:
    names = [(o.cloud, o.region, o.zone, o.instance_type, o.market.value) for o, _, _ in held]
    caps = {name: offer.machines_cap for name, (offer, _, _) in zip(names, held, strict=True)}
    try:
        return all(
            sum(thing.use(Holding(name, machine, n)) for name, (_, machine, n) in zip(names, held, strict=True))
            <= thing.amount
            for thing in shared_things(limits, caps)
        )
    except ValueError:
        return False
