"""The random instances under one more rule: the same seed and rule give the same instance.

Each rule is drawn apart from the instance, so that instances without it stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from router.jobs.spec import Job
from tests.support.brute_force import greedy_in_turn, optimum
from tests.support.instances import Instance, make_instance
from tests.support.solved_instances import Solved, problem_of


def with_max_moves(instance: Instance, rng: Random) -> Instance:
    """Most jobs may start no more than so often; more of them resume at once, so that they would."""

    def bounded(job: Job) -> Job:
        most = rng.choice((None, 0, 0, 0, 1))
        gang = job.gang.model_copy(update={"max_moves": most})
        return job.model_copy(update={"gang": gang})

    return replace(instance, jobs=tuple(map(bounded, instance.jobs)))


RULES: dict[str, Callable[[Instance, Random], Instance]] = {"max_moves": with_max_moves}


def ruled_instance(rule: str, seed: int) -> Instance:
    """The instance of that seed under the rule."""
    return RULES[rule](make_instance(seed), Random(f"{rule} of {seed}"))


def solve_ruled(rule: str, seed: int) -> tuple[Solved, bool]:
    """The instance with its optimum, and whether the rule makes it dearer or leaves more jobs out."""
    instance = ruled_instance(rule, seed)
    problem = problem_of(instance)
    best = optimum(problem)
    free = optimum(problem_of(make_instance(seed)))
    return Solved(instance, best, greedy_in_turn(problem), limit_binds=False), free.better_than(best)
