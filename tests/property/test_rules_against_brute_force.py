"""Plans under one more rule against every possible plan: by the compact program and by columns.

The same seed and rule give the same instance; rules are drawn apart from it, so that it stays as it was without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from random import Random

import pytest

from router.jobs.limits import Maintenance
from router.jobs.spec import Data, Job
from router.planning.planner import PlanRequest
from tests.bench.nights import mid_size_request
from tests.support.brute_force import greedy_in_turn, optimum
from tests.support.instances import Instance, make_instance
from tests.support.plan_agreement import compare_planners
from tests.support.running_instances import make_running_instance
from tests.support.solved_instances import Solved, judge_both, problem_of, solve_instance


def with_max_moves(instance: Instance, rng: Random) -> Instance:
    """Most jobs may start no more than so often; more of them resume at once, so that they would."""

    def bounded(job: Job) -> Job:
        most = rng.choice((None, 0, 0, 0, 1))
        gang = job.gang.model_copy(update={"max_moves": most})
        return job.model_copy(update={"gang": gang})

    return replace(instance, jobs=tuple(map(bounded, instance.jobs)))


def with_maintenance(instance: Instance, rng: Random) -> Instance:
    """One or two windows over offers that are sold, inside the horizon or over its edges; jobs are a little shorter."""
    windows = []
    # Every edge off the grid adds a slot, and the enumeration has room for few.
    slots = len(problem_of(instance).edges) - 1
    step = instance.slot if slots > 4 else instance.slot / 2
    marks = [instance.now + step * k for k in range(-1, int(instance.horizon / step) + 2)]
    for number in range(rng.choice((1, 1, 2))):
        here = rng.choice(instance.book.offers)
        wide = rng.choice(
            (
                {},
                {"region": here.region},
                {"region": here.region, "zone": here.zone},
                {"instance_type": here.instance_type},
                {"family": here.instance_type.split(".")[0]},
            )
        )
        place = rng.randrange(len(marks) - 1)
        start, until = marks[place], marks[min(place + rng.choice((1, 2, 3)), len(marks) - 1)]
        fields = {"name": f"work-{number}", "cloud": here.cloud, "from": start.isoformat(), "until": until.isoformat()}
        windows.append(Maintenance.model_validate({**fields, **wide}))
    jobs = tuple(job.model_copy(update={"steps": max(job.steps * 3 // 4, 10)}) for job in instance.jobs)
    jobs = tuple(job if job.status is None else before for job, before in zip(jobs, instance.jobs, strict=True))
    return replace(instance, jobs=jobs, limits=instance.limits.model_copy(update={"maintenance": tuple(windows)}))


def with_egress_caps(instance: Instance, rng: Random) -> Instance:
    """A cap on each cloud about where one or two of the jobs' data fit; more jobs have data to move."""
    homes = ("aws/north-1", "aws/south-1", "gcp/lake-1", "gcp/rhine-1", "cloudflare-r2/auto")

    def moving(job: Job) -> Job:
        if job.data is not None or job.status is not None or rng.random() < 0.3:
            return job
        data = Data.model_validate({"uri": "s3://made-up", "at": rng.choice(homes), "gib": rng.choice((20, 90, 250))})
        return job.model_copy(update={"data": data})

    jobs = tuple(map(moving, instance.jobs))
    caps = {cloud: Decimal(rng.choice((60, 120, 250, 300, 500))) for cloud in ("aws", "gcp", "cloudflare-r2")}
    moved = instance.limits.egress_month_to_date_gb
    caps = {cloud: cap + moved.get(cloud, 0) for cloud, cap in caps.items() if rng.random() < 0.8}
    return replace(instance, jobs=jobs, limits=instance.limits.model_copy(update={"egress_caps_gb": caps}))


def with_groups(instance: Instance, rng: Random) -> Instance:
    """Two groups, in which most jobs are; each uses one region."""

    def grouped(job: Job) -> Job:
        gang = job.gang.model_copy(update={"regions": 1})
        return job.model_copy(update={"group": rng.choice((None, "one", "one", "one", "two", "two")), "gang": gang})

    return replace(instance, jobs=tuple(map(grouped, instance.jobs)))


RULES: dict[str, Callable[[Instance, Random], Instance]] = {
    "max_moves": with_max_moves,
    "maintenance": with_maintenance,
    "egress_caps": with_egress_caps,
    "groups": with_groups,
}


LIMITS_RULES = ("maintenance", "egress_caps")


def ruled_instance(rule: str, seed: int) -> Instance:
    """The instance of that seed under the rule."""
    return RULES[rule](make_instance(seed), Random(f"{rule} of {seed}"))


def solve_ruled(rule: str, seed: int) -> tuple[Solved, bool]:
    """The instance with its optimum, and whether the rule makes it dearer or leaves more jobs out."""
    instance = ruled_instance(rule, seed)
    problem = problem_of(instance)
    best = optimum(problem)
    unruled = replace(instance, limits=make_instance(seed).limits) if rule in LIMITS_RULES else make_instance(seed)
    free = optimum(problem_of(unruled))
    solved = Solved(instance, best, greedy_in_turn(problem), limit_binds=False, levels=problem.levels)
    return solved, free.better_than(best)


FEW = range(2, 200, 66)


def wrong_plans(rule: str, seeds: Iterable[int]) -> tuple[dict[int, list[str]], int]:
    """Describe what is wrong, by seed; and the number of instances in which the rule counts."""
    found, counts = {}, 0
    for seed in seeds:
        solved, binds = solve_ruled(rule, seed)
        counts += binds
        found[seed] = judge_both(solved)
    return {seed: words for seed, words in found.items() if words}, counts


@pytest.mark.parametrize("rule", sorted(RULES))
def test_plans_keep_the_rule_and_claim_no_more_than_is_true(rule: str) -> None:
    found, _ = wrong_plans(rule, FEW)
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(RULES))
def test_plans_of_50_instances_keep_the_rule(rule: str) -> None:
    found, counts = wrong_plans(rule, range(0, 200, 4))
    assert found == {}
    assert counts >= 4


def wrong_plans_of_running_jobs(rule: str, seeds: Iterable[int]) -> dict[int, list[str]]:
    """Describe what is wrong, by seed, where most jobs run, which decides who goes first."""
    found = {}
    for seed in seeds:
        solved = solve_instance(RULES[rule](make_running_instance(seed), Random(f"{rule} of {seed}")))
        found[seed] = judge_both(solved)
    return {seed: words for seed, words in found.items() if words}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_plans_of_running_jobs_keep_the_rule(rule: str) -> None:
    assert wrong_plans_of_running_jobs(rule, FEW) == {}


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(RULES))
def test_plans_of_running_jobs_in_50_instances_keep_the_rule(rule: str) -> None:
    assert wrong_plans_of_running_jobs(rule, range(0, 200, 4)) == {}


def ruled_night(rule: str, seed: int) -> PlanRequest:
    """A night of real offers, beyond the horizon too, under the rule."""
    request = mid_size_request(seed)
    rng, limits = Random(f"{rule} of night {seed}"), request.limits
    jobs: list[Job] = []
    for number, job in enumerate(request.jobs):
        if rule == "max_moves":
            gang = job.gang.model_copy(update={"max_moves": rng.choice((0, 0, 1, None))})
            jobs.append(job.model_copy(update={"gang": gang}))
        elif rule == "groups":
            jobs.append(job.model_copy(update={"group": f"g{number // 3}"}) if job.gang.regions == 1 else job)
        else:
            jobs.append(job)
    if rule == "egress_caps":
        caps = {cloud: Decimal(rng.choice((20, 100, 400))) for cloud in ("aws", "gcp", "azure")}
        limits = limits.model_copy(update={"egress_caps_gb": caps})
    if rule == "maintenance":
        windows = []
        for number, cloud in enumerate(("aws", "gcp", "azure", "aws")):
            start = request.now + timedelta(minutes=rng.randrange(0, 3000))
            until = start + timedelta(minutes=rng.randrange(30, 900))
            fields = {"name": f"w{number}", "cloud": cloud, "from": start.isoformat(), "until": until.isoformat()}
            windows.append(Maintenance.model_validate(fields))
        limits = limits.model_copy(update={"maintenance": tuple(windows)})
    return replace(request, jobs=tuple(jobs), limits=limits)


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(RULES))
def test_both_planners_agree_on_nights_under_the_rule(rule: str) -> None:
    assert {seed: words for seed in range(4) if (words := compare_planners(ruled_night(rule, seed)).wrong)} == {}
