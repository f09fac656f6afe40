"""Plans under one more rule against every possible plan: by the compact program and by columns."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from router.planning.planner import make_plan
from tests.property.test_columns_against_brute_force import wrong
from tests.property.test_plan_against_brute_force import differences, plan_of
from tests.support.rule_instances import RULES, solve_ruled
from tests.support.solved_instances import request_of

FEW = range(2, 200, 22)


def wrong_plans(rule: str, seeds: Iterable[int]) -> tuple[dict[str, list[str]], int]:
    """Describe what is wrong, by planner and seed; and the number of instances in which the rule counts."""
    found, counts = {}, 0
    for seed in seeds:
        solved, binds = solve_ruled(rule, seed)
        counts += binds
        found[f"compact {seed}"] = differences(solved, plan_of(solved.instance, 0.0), 0.0)
        request = request_of(solved.instance, gap=0.0, confidence_rounds=0, resolve_limits=0, compact_jobs=0)
        found[f"columns {seed}"] = wrong(solved.instance, solved.best, make_plan(request))
    return {name: words for name, words in found.items() if words}, counts


@pytest.mark.parametrize("rule", sorted(RULES))
def test_plans_keep_the_rule_and_claim_no_more_than_is_true(rule: str) -> None:
    found, _ = wrong_plans(rule, FEW)
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(RULES))
def test_plans_of_100_instances_keep_the_rule(rule: str) -> None:
    found, counts = wrong_plans(rule, range(0, 200, 2))
    assert found == {}
    assert counts >= 8
