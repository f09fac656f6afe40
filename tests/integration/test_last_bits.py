"""The last bits of a rate, in which libraries of mathematics differ, change no plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from router.jobs import goodput
from router.jobs.speed import UnknownSpeed, gang_speed
from router.planning.document.plan_json import plan_to_json
from router.planning.planner import make_plan
from tests.support.instances import make_instance
from tests.support.scenes import ALPS, LAKE, NORTH, NORTH_SPOT, SOUTH, a_job, a_request
from tests.support.solved_instances import request_of


class Nudged:
    """Calls a function and moves what it returns by one unit in the last place, up and down in turn."""

    def __init__(self, function: Callable[..., float]) -> None:
        self._function = function
        self.calls = 0

    def __call__(self, *arguments: Any) -> float:
        self.calls += 1
        return math.nextafter(self._function(*arguments), math.inf if self.calls % 3 else -math.inf)


def nudge(patch: pytest.MonkeyPatch) -> list[Nudged]:
    """Every figure that a logarithm or an exponential goes into, and the speed of every gang."""
    functions = []
    for name in ("useful_share", "billed_share", "best_interval_hours"):
        nudged = Nudged(getattr(goodput, name))
        patch.setattr(goodput, name, nudged)
        functions.append(nudged)

    def faster(*arguments: Any) -> Any:
        speed = gang_speed(*arguments)
        if isinstance(speed, UnknownSpeed):
            return speed
        return replace(speed, steps_per_hour=speed.steps_per_hour * (1 + 2e-16))

    patch.setattr("router.planning.find.candidates.gang_speed", faster)
    goodput.hours_with_probability.cache_clear()
    return functions


def mixed() -> Any:
    """Eight jobs with and without deadlines that want the same few machines, on spot and on demand."""
    jobs = [
        a_job(f"j{n}", steps=170 + 35 * n, deadline=f"+{9 + n}h" if n % 3 else None, priority=n % 2) for n in range(8)
    ]
    limits = {"limits": [{"name": "north", "cloud": "aws", "region": "north-1", "amount": 2, "unit": "machines"}]}
    return a_request(jobs, [NORTH, NORTH_SPOT, SOUTH, ALPS, LAKE], limits, gap=0.005, resolve_limits=1)


def check_same(request: Any) -> None:
    before = plan_to_json(make_plan(request))
    with pytest.MonkeyPatch.context() as patch:
        functions = nudge(patch)
        after = plan_to_json(make_plan(request))
        assert all(function.calls for function in functions[:2])
    goodput.hours_with_probability.cache_clear()
    assert after == before


def test_one_unit_in_the_last_place_of_every_rate_changes_no_byte() -> None:
    check_same(mixed())


@pytest.mark.parametrize("seed", [3, 14, 15, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (92, 65))])
def test_nor_in_made_up_nights(seed: int) -> None:
    check_same(request_of(make_instance(seed), gap=0.005, resolve_limits=0))
