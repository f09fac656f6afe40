"""Rows that say how many large jobs a limit lets run at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from router.jobs.spec import Job
from router.planning.columns.clique_rows import CliqueRow, find_clique_rows
from router.planning.columns.table import build_table
from router.planning.problem.problem import PlacementProblem
from tests.support.made_up_jobs import simple_job
from tests.support.scenes import NORTH, SOUTH, a_request, plan_of, problem_of


def big_jobs(*machines: int, **more: object) -> list[Job]:
    """Jobs of that many machines of eight H100, three slots each."""
    return [
        simple_job(
            f"j{number}",
            ("H100", 8 * count),
            steps=285,
            steps_per_hour=100,
            checkpoint={"size_gib": 10},
            startup_minutes=6,
            deadline="+6h",
            **more,
        )
        for number, count in enumerate(machines)
    ]


def problem(machines: Sequence[int], cap: int) -> PlacementProblem:
    return problem_of(a_request(big_jobs(*machines), [replace(NORTH, machines_cap=cap)]))


def cliques(machines: Sequence[int], cap: int) -> set[tuple[int, int]]:
    return {(clique.jobs, clique.least) for clique in find_clique_rows(problem(machines, cap))}


def test_jobs_of_more_than_half_run_one_at_a_time() -> None:
    assert cliques([2, 2, 2], 3) == {(1, 2)}


def test_what_the_limit_says_alone_is_not_said_again() -> None:
    assert cliques([3, 3], 3) == set()
    assert cliques([2, 2, 2], 4) == set()
    assert cliques([2, 1], 3) == set()


@pytest.mark.parametrize("cap", range(3, 9))
def test_every_set_that_fits_keeps_the_rows(cap: int) -> None:
    machines = [1, 2, 2, 3, 3, 4, 5]
    found = find_clique_rows(problem(machines, cap))
    assert found
    for chosen in product((False, True), repeat=len(machines)):
        taken = [count for count, held in zip(machines, chosen, strict=True) if held]
        if sum(taken) <= cap:
            assert all(sum(count >= clique.least for count in taken) <= clique.jobs for clique in found)


def test_beyond_the_horizon_jobs_share_slots() -> None:
    table = build_table(problem([2, 2, 2], 3))
    (clique,) = table.clique_limits.tolist()
    assert table.limit_names[clique] == CliqueRow("capacity aws/north-1/p9.48xlarge/on_demand", 1, 2).name
    by_slot = table.capacity_by_slot.reshape(len(table.capacity), table.slots)[clique]
    assert by_slot[: table.horizon].tolist() == [1.0] * table.horizon
    assert (by_slot[table.horizon :] == float("inf")).all()


def test_three_jobs_of_two_machines_under_a_cap_of_three_have_a_sharp_bound() -> None:
    """Two of them fit before the deadline in the cheap place; shares would be one and a half at a time."""
    plan = plan_of(big_jobs(2, 2, 2), [replace(SOUTH, machines_cap=3), NORTH], compact_jobs=0)
    assert len(plan.jobs) == 3
    assert {line.region for line in plan.lines} == {"south-1", "north-1"}
    assert plan.gap < 0.02
