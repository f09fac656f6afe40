"""Plans with gangs of two machine types against every possible plan: by the compact program and by columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from router.planning.document.plan import Plan
from router.planning.find.candidates import candidates_for
from router.planning.find.machine_mixes import MOST_SPLITS
from tests.support.brute_force import optimum
from tests.support.mix_oracle import possible_mixes
from tests.support.mixed_instances import make_mixed_instance, mixing_book
from tests.support.solved_instances import differences, exact_plan, false_claims, problem_of, solve

FEW = range(0, 120, 10)


def is_mixed(plan: Plan) -> bool:
    """Whether some gang of the plan has two machine types."""
    types: dict[str, set[str]] = {}
    for line in plan.lines:
        types.setdefault(line.gang, set()).add(line.instance_type)
    return any(len(found) > 1 for found in types.values())


def wrong_plans(seeds: Iterable[int]) -> tuple[dict[str, list[str]], int]:
    """Errors by planner and seed, and the number of plans with a mixed gang."""
    found, mixed = {}, 0
    for seed in seeds:
        solved = solve(seed, make_mixed_instance)
        compact = exact_plan(solved.instance)
        mixed += is_mixed(compact)
        found[f"compact {seed}"] = differences(solved, compact)
        found[f"columns {seed}"] = false_claims(solved, exact_plan(solved.instance, compact_jobs=0))
    return {name: words for name, words in found.items() if words}, mixed


def test_no_plan_is_better_than_one_with_mixed_gangs() -> None:
    found, mixed = wrong_plans(FEW)
    assert found == {}
    assert mixed >= 3


@pytest.mark.slow
def test_no_plan_is_better_than_one_with_mixed_gangs_in_100_instances() -> None:
    found, mixed = wrong_plans(range(100))
    assert found == {}
    assert mixed >= 30


def test_mixes_are_possible_ones_and_few_and_none_of_few_is_missing() -> None:
    offered_in_all = 0
    for seed in range(150):
        instance = make_mixed_instance(seed)
        for job in instance.jobs:
            kept, _ = candidates_for(job, instance.book, instance.limits, instance.now, False)
            mixes = [
                frozenset((str(part.offer.key), part.machines) for part in c.parts)
                for c in kept
                if len({part.offer.instance_type for part in c.parts}) > 1 and c.market != "reserved"
            ]
            assert len(set(mixes)) == len(mixes)
            possible = possible_mixes(job, instance.book, instance.limits)
            assert set(mixes) <= possible, seed
            offered_in_all += len(mixes)
            # The cheaper type of each instance is bounded where it has a cap.
            bounded = all(offer.machines_cap is not None for offer in instance.book.offers)
            if bounded and job.gang.options[0].count <= 8 * (MOST_SPLITS + 1):
                assert set(mixes) == possible, seed
    assert offered_in_all > 100


def test_where_nothing_bounds_the_cheaper_type_no_mix_would_be_better() -> None:
    """With caps that never bind, every possible split is a candidate: the optimum stays."""
    compared = 0
    for seed in range(200):
        instance = make_mixed_instance(seed)
        if all(offer.machines_cap is not None for offer in instance.book.offers):
            continue
        offers = tuple(replace(o, machines_cap=o.machines_cap or 99) for o in instance.book.offers)
        every, few = replace(instance, book=mixing_book(offers)), instance
        best, best_of_few = optimum(problem_of(every)), optimum(problem_of(few))
        assert best.unplaced == best_of_few.unplaced, seed
        assert best.value == pytest.approx(best_of_few.value, rel=1e-9), seed
        compared += 1
        if compared == 20:
            break
    assert compared == 20
