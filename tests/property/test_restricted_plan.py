"""A plan restricted to teams: nothing of another team is left in it, and its sums are those of what is left."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.money import Usd
from pricing.places import Market
from pricing.pool_experience import PoolExperience
from router.jobs.experience import Experience, LearnedSpeed
from router.planning.document.limit_peaks import limit_peaks
from router.planning.document.plan import CommitmentUse, JobCover, Lateness, Plan, PlanCarbon, Preemption, TeamStanding
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.document.plan_schema import plan_schema
from router.planning.document.restricted_plan import restrict_plan
from router.planning.explain.changes import plan_diff
from router.planning.explain.cost_changes import changes_by_kind
from router.render.since_view import SinceView
from router.render.tonight_page import tonight_page
from tests.support.scenes import ALPS, LAKE, NORTH, SOUTH, a_job, plan_of

TEAMS = ("quartz", "jade-labs", "onyx & co", "opal")
JOBS = {f"{stone}x-{number}": team for team, stone in zip(TEAMS, "qjno", strict=True) for number in range(1, 3)}
THEN = datetime(2026, 11, 20, tzinfo=UTC)
teams = st.sets(st.sampled_from(TEAMS), min_size=1, max_size=len(TEAMS) - 1)


@cache
def whole_plan() -> Plan:
    """A plan with every part that a plan may have, and texts that name all teams and jobs."""
    limits = {
        "limits": [
            {"name": "gcp a9", "cloud": "gcp", "family": "a9", "market": "on_demand", "amount": 1, "unit": "machines"}
        ],
        "teams": [
            {"team": team, "budget": f"${1000 + 10 * i}", "spent": f"${100 + i}"} for i, team in enumerate(TEAMS)
        ],
        "egress_caps_gb": {"aws": 5000},
    }
    jobs = [
        a_job(name, team=team, steps=200 + 7 * i, deadline="2026-11-24T00:00Z")
        for i, (name, team) in enumerate(sorted(JOBS.items()))
    ]
    late = a_job("qx-9", team="quartz", steps=90_000, deadline="2026-11-22T00:00Z")
    made = plan_of([*jobs, late], [NORTH, SOUTH, ALPS, LAKE], limits)
    said = f"after {', '.join(sorted(JOBS))} of {', '.join(TEAMS)}."
    learned = [
        LearnedSpeed(name, "aws", "p9.48xlarge", "H100", 8, 1, None, 99.0, 0.1, 1.0, 1, THEN, THEN, ()) for name in JOBS
    ]
    lines = tuple(
        replace(line, grams_co2e=1000 + i, carbon_usd=Usd(100_000 * (1000 + i))) for i, line in enumerate(made.lines)
    )
    grams = sum(line.grams_co2e or 0 for line in lines)
    pool = PoolExperience("aws", "north-1", None, "p9.48xlarge", Market.SPOT, 1, 4242.0, 31.3, 1.5, 7, THEN, THEN)
    return replace(
        made,
        lines=lines,
        carbon=PlanCarbon(Usd.parse("100"), grams, Usd(100_000 * grams)),
        jobs=tuple(
            replace(
                job,
                notes=(said,),
                preemption=Preemption("moved", tuple(sorted(JOBS)), Usd.parse("1")),
                late=Lateness(1.0, THEN, said),
                alternatives=tuple(replace(other, lacks=said) for other in job.alternatives),
            )
            for job in made.jobs
        ),
        unplaced=tuple(replace(job, reason=said) for job in made.unplaced),
        fair_share=tuple(TeamStanding(team, 0.25, Usd.parse("5.77"), 1.0, 1) for team in sorted(TEAMS)),
        commitments=(
            CommitmentUse(
                "savings", Usd.parse("901.13"), Usd.parse("801.17"), Usd.parse("99.96"), Usd.parse("80.08"),
                tuple(JobCover(name, Usd.parse("10.01")) for name in sorted(JOBS)),
            ),
        ),
        learned=Experience(tuple(learned), (pool,)),
    )  # fmt: skip


def texts_in(value: Any) -> list[str]:
    """Every text of a document, names of fields apart."""
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts_in(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    return [str(value)]


def test_the_plan_has_every_part() -> None:
    plan = whole_plan()
    assert plan.usage is not None
    assert plan.inputs is not None
    assert plan.carbon is not None
    assert plan.unplaced
    assert all((plan.lines, plan.usage.egress, plan.usage.limits, plan.usage.teams, plan.inputs.use))


@pytest.mark.slow
@given(teams)
def test_nothing_of_another_team_is_left(kept: set[str]) -> None:
    plan = whole_plan()
    part = restrict_plan(plan, kept)
    texts = texts_in(json.loads(plan_to_json(part)))
    others = [name for name, team in JOBS.items() if team not in kept] + [t for t in TEAMS if t not in kept]
    for name in others:
        assert not [text for text in texts if name in text], name
        assert f">{name}<" not in tonight_page(part)
    assert part.cost_usd == Usd.total(job.cost_usd for job in plan.jobs if job.team in kept)
    assert {"901.13", "801.17", "99.96", "4242.0", "31.3", str(plan.cost_usd), str(plan.bound_usd)}.isdisjoint(texts)
    assert {job.team for job in part.jobs} <= kept
    assert part.restricted_to == tuple(sorted(kept))


@pytest.mark.slow
@given(teams)
def test_a_part_is_a_plan_with_sums_of_its_own(kept: set[str]) -> None:
    part = restrict_plan(whole_plan(), kept)
    assert plan_from_json(plan_to_json(part)) == part
    assert not list(Draft202012Validator(plan_schema()).iter_errors(json.loads(plan_to_json(part))))
    assert part.usage is not None
    assert part.carbon is not None
    assert part.at_risk_usd == part.usage.at_risk_usd
    assert part.carbon.grams_co2e == sum(line.grams_co2e or 0 for line in part.lines)
    assert part.covered_usd == Usd(10_010_000_000 * 2 * len(kept))
    for team in part.usage.teams:
        ordered = Usd.total(
            x.cost_usd for x in part.lines if x.kind == "order" and JOBS.get(x.job, "quartz") == team.team
        )
        assert team.orders_usd == ordered
    # Restricting again, or to more teams than are left, changes nothing.
    assert restrict_plan(part, kept) == part


def test_parts_add_up_to_the_whole() -> None:
    plan = whole_plan()
    parts = [restrict_plan(plan, {team}) for team in TEAMS]
    assert Usd.total(part.cost_usd for part in parts) == plan.cost_usd
    assert Usd.total(part.orders_usd for part in parts) == plan.orders_usd
    assert Usd.total(part.at_risk_usd for part in parts) == plan.at_risk_usd
    assert sum(len(part.unplaced) for part in parts) == len(plan.unplaced)


def test_a_part_tells_what_its_own_jobs_use_of_a_limit() -> None:
    whole = {peak.limit: peak for peak in limit_peaks(whole_plan()) or ()}
    part = {peak.limit: peak for peak in limit_peaks(restrict_plan(whole_plan(), {"quartz"})) or ()}
    assert whole["gcp a9"].share == 1
    assert all(peak.price is None and peak.peak <= whole[name].peak for name, peak in part.items() if name in whole)


@given(teams)
def test_a_comparison_of_parts_names_nobody_else_and_adds_up(kept: set[str]) -> None:
    before, after = whole_plan(), _changed(whole_plan())
    old, new = restrict_plan(before, kept), restrict_plan(after, kept)
    diff = plan_diff(old, new)
    assert Usd.total(kind.together_usd for kind in changes_by_kind(diff)) == new.cost_usd - old.cost_usd
    view = SinceView(diff, old, "0" * 64, new)
    words = repr((view.sentence, view.changes, view.diff.limits, view.kinds))
    for name, team in JOBS.items():
        assert team in kept or (name not in words and team not in words)
    assert "$" not in "".join(cause.text for c in diff.changes for cause in c.causes if cause.kind == "gap")


def _changed(plan: Plan) -> Plan:
    """The plan a day later: one job is gone, and every other one costs a third more."""
    first = plan.jobs[0].job
    lines = tuple(replace(x, cost_usd=x.cost_usd + Usd(x.cost_usd.nanos // 3)) for x in plan.lines if x.job != first)
    moves = tuple(move for move in plan.moves if move.job != first)

    def cost(name: str) -> Usd:
        return Usd.total([x.cost_usd for x in lines if x.job == name] + [m.cost_usd for m in moves if m.job == name])

    jobs = tuple(replace(job, cost_usd=cost(job.job)) for job in plan.jobs if job.job != first)
    return replace(plan, lines=lines, moves=moves, jobs=jobs, cost_usd=Usd.total(job.cost_usd for job in jobs))
