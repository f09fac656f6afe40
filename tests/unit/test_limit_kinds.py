"""A kind of limit is one class: what a made-up kind counts holds in plans, mixes, replacements and words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pricing.places import Market
from router.jobs.limits import Limits
from router.planning.find import limit_kinds
from router.planning.find.candidates import candidates_for
from router.planning.find.limit_kinds import LimitPerMachine, SharedLimit
from router.planning.find.listings import OfferListing
from router.planning.improve.replacement import PlacementRequest, place_gangs
from router.planning.problem.current_use import RunningMachines, running_use
from router.planning.program.solver import PulpSolver
from tests.support.made_up_book import book
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.scenes import LAKE, NORTH, NOW, a_job, plan_of


@dataclass(frozen=True)
class TeamQuota:
    """The accelerators that the jobs of one team may hold at once."""

    team: str
    amount: int

    @property
    def limit(self) -> SharedLimit:
        return SharedLimit(f"quota of {self.team}", self.amount, "accelerators", "quota", None, None, None)

    def stated(self, limits: Limits) -> Iterator[SharedLimit]:
        yield self.limit

    def by_machine(self, limits: Limits, listing: OfferListing, team: str) -> Iterator[LimitPerMachine]:
        if team == self.team:
            yield LimitPerMachine(self.limit, listing.machine.accelerator_count)


@pytest.fixture(autouse=True)
def quota(monkeypatch: pytest.MonkeyPatch) -> TeamQuota:
    kind = TeamQuota("vision", 8)
    monkeypatch.setattr(limit_kinds, "LIMIT_KINDS", (*limit_kinds.LIMIT_KINDS, kind))
    return kind


def test_jobs_of_the_team_run_one_after_the_other_and_others_beside_them() -> None:
    teams = {"a": "vision", "b": "vision", "c": "speech"}
    jobs = [a_job(name, steps=200, team=team) for name, team in teams.items()]
    plan = plan_of(jobs, [NORTH])
    lines = {line.job: line for line in plan.lines}
    first, second = sorted((lines["a"], lines["b"]), key=lambda line: line.start)
    assert first.end <= second.start
    assert lines["c"].start == first.start
    assert [(x.limit, x.amount) for x in plan.inputs.use] == [("quota of vision", 8)] * 2
    assert ("quota of vision", 8, "accelerators") in [(x.name, x.amount, x.unit) for x in plan.inputs.limits]
    assert [(x.limit, x.kind, x.cloud, x.full) for x in plan.usage.limits] == [("quota of vision", "quota", None, True)]
    assert (first.capacity, lines["c"].capacity) == ("", "unknown")


def test_a_gang_that_is_larger_is_refused_and_the_least_increase_is_told() -> None:
    large = simple_job("a", ("H100", 16), steps=300, steps_per_hour=100, team="vision")
    _, dropped = candidates_for(large, book([NORTH]), Limits.none(), NOW, advisory=False)
    assert [(x.code, x.reason) for x in dropped] == [("limit", "quota of vision allows 8 accelerators, 16 needed")]
    (left_out,) = plan_of([large], [NORTH]).unplaced
    assert left_out.relaxations[0].change == "+8 accelerators of quota of vision"
    assert candidates_for(a_job(team="speech"), book([NORTH]), Limits.none(), NOW, advisory=False)[0]


def test_running_gangs_of_the_team_count_where_others_are_placed_again() -> None:
    offers = book([NORTH, LAKE])
    running = [RunningMachines("aws", "north-1", None, NORTH.instance_type, Market.ON_DEMAND, 1, "vision")]
    held = running_use(running, offers, make_limits({}))
    assert held == {"quota of vision": 8}
    wants = [
        PlacementRequest(job, candidates_for(job, offers, Limits.none(), NOW, advisory=False)[0])
        for job in (a_job("a", team="vision"), a_job("b", team="speech"))
    ]
    placed = place_gangs(wants, Limits.none(), [held], solver=PulpSolver())
    assert (sorted(placed.placed), placed.waiting) == (["b"], ("a",))
