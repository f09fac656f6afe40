"""Plans with late jobs against plans without them and against every possible one, by both planners."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.late_instances import judge

FEW = range(1, 120, 22)
BOTH = pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])


def wrong_plans(seeds: Iterable[int], compact_jobs: int) -> tuple[dict[int, tuple[str, ...]], int, int]:
    """Return faults by seed, the number of late jobs, and of plans with such that were compared with all others."""
    found = {seed: judge(seed, compact_jobs=compact_jobs) for seed in seeds}
    late = sum(each.late for each in found.values())
    compared = sum(each.compared for each in found.values() if each.late)
    return {seed: each.wrong for seed, each in found.items() if each.wrong}, late, compared


@BOTH
def test_late_jobs_displace_nobody_and_no_plan_with_them_is_better(compact_jobs: int) -> None:
    found, late, compared = wrong_plans(FEW, compact_jobs)
    assert found == {}
    assert (late >= 5, compared >= 3) == (True, True)


@pytest.mark.slow
@BOTH
def test_late_jobs_of_200_instances_displace_nobody(compact_jobs: int) -> None:
    found, late, compared = wrong_plans(range(200), compact_jobs)
    assert found == {}
    assert (late >= 80, compared >= 40) == (True, True)
