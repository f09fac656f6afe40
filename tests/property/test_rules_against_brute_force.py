"""Plans under one more rule against every possible plan: by the compact program and by columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from random import Random

import pytest

from router.jobs.limits import Maintenance
from router.jobs.spec import Job
from router.planning.planner import PlanRequest, make_plan
from tests.bench.nights import mid_size_request
from tests.property.test_columns_against_brute_force import wrong
from tests.property.test_plan_against_brute_force import differences, plan_of
from tests.support.plan_agreement import compare_planners
from tests.support.rule_instances import RULES, solve_ruled
from tests.support.running_instances import make_running_instance
from tests.support.solved_instances import request_of, solve_instance

FEW = range(2, 200, 66)


def wrong_plans(rule: str, seeds: Iterable[int]) -> tuple[dict[str, list[str]], int]:
    """Describe what is wrong, by planner and seed; and the number of instances in which the rule counts."""
    found, counts = {}, 0
    for seed in seeds:
        solved, binds = solve_ruled(rule, seed)
        counts += binds
        found[f"compact {seed}"] = differences(solved, plan_of(solved.instance, 0.0), 0.0)
        request = request_of(
            solved.instance, gap=0.0, confidence_rounds=0, resolve_limits=0, explained=False, compact_jobs=0
        )
        found[f"columns {seed}"] = wrong(solved, make_plan(request))
    return {name: words for name, words in found.items() if words}, counts


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


def wrong_plans_of_running_jobs(rule: str, seeds: Iterable[int]) -> dict[str, list[str]]:
    """Describe what is wrong, by planner and seed, where most jobs run, which decides who goes first."""
    found = {}
    for seed in seeds:
        solved = solve_instance(RULES[rule](make_running_instance(seed), Random(f"{rule} of {seed}")))
        found[f"compact {seed}"] = differences(solved, plan_of(solved.instance, 0.0), 0.0)
        request = request_of(
            solved.instance, gap=0.0, confidence_rounds=0, resolve_limits=0, explained=False, compact_jobs=0
        )
        found[f"columns {seed}"] = wrong(solved, make_plan(request))
    return {name: words for name, words in found.items() if words}


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
