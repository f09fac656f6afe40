"""The joint placement of gangs against every assignment there is, limits worked out by code of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from pricing.places import RegionId
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.find.shared_limits import LimitCounter
from router.planning.improve.replacement import PlacementRequest, Placements, place_gangs
from router.planning.problem.remaining_work import remaining_job, remaining_usd
from router.planning.program.solver import PulpSolver
from tests.support.instances import Instance, make_instance
from tests.support.shared_limits import Holding, OfferName, Shared, shared_things

SEEDS = range(7000, 7080)
GANGS, CANDIDATES = 5, 6
SOLVER = PulpSolver()


def wants_of(instance: Instance, rng: Random) -> list[PlacementRequest]:
    """Up to five gangs: the instance's jobs, each some way on, and again under other names and priorities."""
    finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=True)
    found = []
    for round_ in range(2):
        for job in instance.jobs:
            home = RegionId.parse(rng.choice(("aws/north-1", "aws/south-1", "gcp/lake-1")))
            named = job.model_copy(update={"name": f"{job.name}-{round_}", "priority": rng.choice((0, 0, 1))})
            left = remaining_job(named, rng.randrange(job.steps), home if job.checkpoint else None, instance.now)
            candidates = list(finder.find(left)[0])
            chosen = tuple(rng.sample(candidates, min(len(candidates), CANDIDATES)))
            allowed = frozenset(c.key for c in chosen if rng.random() < 0.8) if rng.random() < 0.3 else None
            found.append(PlacementRequest(left, chosen, allowed))
    return found[:GANGS]


def used(candidate: Candidate, shared: Sequence[Shared]) -> list[int]:
    """Count of each shared thing the larger of the use of its machines and of a fallback that is kept free."""
    behind = candidate.fallback
    kept = behind is not None and candidate.guard is not None and candidate.guard.reserves_fallback
    gangs = [candidate.parts, *([behind.parts] if kept and behind is not None else [])]
    totals = []
    for parts in gangs:
        offers = [(p.offer.cloud, p.offer.region, p.offer.zone, p.offer.instance_type, p.offer.market) for p in parts]
        holdings = [Holding(name, p.machine, p.machines) for name, p in zip(offers, parts, strict=True)]
        totals.append([sum(item.use(holding) for holding in holdings) for item in shared])
    return [max(uses) for uses in zip(*totals, strict=True)]


def brute_force(
    instance: Instance, wants: Sequence[PlacementRequest], running: Sequence[Candidate]
) -> tuple[list[int], float]:
    """Gangs without a place by priority, highest first; then the least dollars."""
    everyone = [c for want in wants for c in want.candidates] + list(running)
    caps: dict[OfferName, int | None] = {
        (p.offer.cloud, p.offer.region, p.offer.zone, p.offer.instance_type, p.offer.market): p.offer.machines_cap
        for c in everyone
        for p in (*c.parts, *(() if c.fallback is None else c.fallback.parts))
    }
    shared = shared_things(instance.limits, caps)
    room = [item.amount for item in shared]
    for candidate in running:
        room = [max(0, n - u) for n, u in zip(room, used(candidate, shared), strict=True)]
    tiers = sorted({want.job.priority for want in wants}, reverse=True)
    ways = [
        [
            (remaining_usd(want.job, c, instance.limits).dollars(), used(c, shared))
            for c in want.candidates
            if want.allowed is None or c.key in want.allowed
        ]
        for want in wants
    ]
    best: list[tuple[list[int], float]] = []

    def deeper(index: int, room: list[int], left_out: list[int], cost: float) -> None:
        if index == len(wants):
            if not best or (left_out, cost) < best[0]:
                best[:] = [(left_out, cost)]
            return
        for dollars, use in ways[index]:
            if all(u <= n for u, n in zip(use, room, strict=True)):
                deeper(index + 1, [n - u for u, n in zip(use, room, strict=True)], left_out, cost + dollars)
        out = list(left_out)
        out[tiers.index(wants[index].job.priority)] += 1
        deeper(index + 1, room, out, cost)

    deeper(0, room, [0] * len(tiers), 0.0)
    return best[0]


def outcome(wants: Sequence[PlacementRequest], found: Placements) -> tuple[list[int], float]:
    tiers = sorted({want.job.priority for want in wants}, reverse=True)
    out = [sum(w.job.priority == tier and w.name in found.waiting for w in wants) for tier in tiers]
    return out, sum(usd.dollars() for usd in found.expected_usd.values())


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 20))
def test_as_good_as_every_assignment(first: int) -> None:
    waiting = placed = 0
    for seed in range(first, first + 20):
        rng = Random(seed)
        instance = make_instance(seed)
        wants = wants_of(instance, rng)
        everyone = [c for want in wants for c in want.candidates]
        held = rng.sample(everyone, min(len(everyone), rng.choice((0, 0, 1))))
        uses = [LimitCounter(instance.limits).use(c, "") for c in held]
        found = place_gangs(wants, instance.limits, uses, solver=SOLVER, gap=0.0)
        best, least = brute_force(instance, wants, held)
        out, cost = outcome(wants, found)
        assert out == best, seed
        assert cost == pytest.approx(least, rel=1e-6, abs=1e-6), seed
        assert found.fewest_waiting
        assert found.gap < 1e-6
        assert found.looked_at == found.of
        waiting += len(found.waiting)
        placed += len(found.placed)
    assert placed > 10
    assert waiting > 2


def test_the_order_of_gangs_and_candidates_does_not_matter() -> None:
    for seed in range(7100, 7112):
        rng = Random(seed)
        instance = make_instance(seed)
        wants = wants_of(instance, rng)
        first = place_gangs(wants, instance.limits, solver=SOLVER)
        for _ in range(3):
            mixed = [replace(w, candidates=tuple(rng.sample(w.candidates, len(w.candidates)))) for w in wants]
            rng.shuffle(mixed)
            assert place_gangs(mixed, instance.limits, solver=SOLVER) == first, seed


def test_with_no_time_at_all_it_still_answers_within_the_limits() -> None:
    for seed in range(7120, 7132):
        rng = Random(seed)
        instance = make_instance(seed)
        wants = wants_of(instance, rng)
        found = place_gangs(wants, instance.limits, solver=SOLVER, time_limit=timedelta(0))
        assert sorted([*found.placed, *found.waiting]) == sorted(want.name for want in wants)
        taken: dict[str, int] = {}
        for candidate in found.placed.values():
            for name, amount in LimitCounter(instance.limits).use(candidate, "").items():
                taken[name] = taken.get(name, 0) + amount
        assert all(taken.get(limit.name, 0) <= limit.amount for limit in instance.limits.limits)
        assert found.bound_usd <= found.objective_usd
