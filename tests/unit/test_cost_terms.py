"""The terms of a cost: shares of billed time against lives simulated second by second, and sums to the nano-dollar."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from pricing.money import Usd
from router.jobs.goodput import GangRunRisk, billed_share, billed_shares, useful_share
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.render.cost_terms_text import job_terms_text, team_terms_table
from router.render.tables import format_usd
from tests.support.night import nightly_plan
from tests.support.scenes import NORTH, NORTH_SPOT, a_job, found_for, plan_of

SPOT = GangRunRisk(100.0, 0.05, 0.2, 1.5, 0.25, 1.0, 0.05, 0.0, True)
WRITING = replace(SPOT, stall_hours=0.0, loss_extra_hours=0.1)


def simulate_segments(risk: GangRunRisk, segments: int) -> tuple[float, ...]:
    """Hours that last, are lost, are checkpoints, are restarts: billed time of many segments, one after the other."""
    rng = Random(7)
    lasting = lost = checkpoints = restarts = 0.0
    while lasting < segments * risk.interval_hours:
        life = rng.expovariate(risk.interruptions_per_hour)
        kept = max(0.0, life - risk.loss_extra_hours) // (risk.interval_hours + risk.stall_hours)
        lasting += kept * risk.interval_hours
        checkpoints += kept * risk.stall_hours
        lost += life - kept * (risk.interval_hours + risk.stall_hours)
        restarts += risk.startup_hours
    return lasting, lost, checkpoints, restarts


@pytest.mark.parametrize("risk", [SPOT, WRITING])
def test_shares_are_those_of_simulated_segments(risk: GangRunRisk) -> None:
    hours = simulate_segments(risk, 60_000)
    shares = billed_shares(risk)
    found = (shares.compute, shares.lost_work, shares.checkpoints, shares.restarts)
    assert found == pytest.approx(tuple(part / sum(hours) for part in hours), abs=0.003)


@pytest.mark.parametrize("risk", [SPOT, WRITING, replace(SPOT, interruptions_per_hour=1e-6)])
def test_shares_agree_with_the_useful_and_the_billed_share(risk: GangRunRisk) -> None:
    """Useful time over billed time, both as shares of the wall clock, is the share of compute."""
    shares = billed_shares(risk)
    assert shares.compute + shares.lost_work + shares.checkpoints + shares.restarts == pytest.approx(1)
    assert shares.compute == pytest.approx(useful_share(risk) / billed_share(risk), rel=1e-9)


def test_terms_of_the_example_night_add_up_to_each_cost() -> None:
    plan = nightly_plan()
    assert plan.usage is not None
    terms = {item.job: item for item in plan.usage.cost_terms}
    assert {job.job: job.cost_usd for job in plan.jobs if job.finish} == {k: t.together_usd for k, t in terms.items()}
    assert any(item.lost_work_usd.nanos for item in terms.values())
    assert any(item.moves_usd.nanos for item in terms.values())
    assert any(item.fallback_usd.nanos for item in terms.values())
    for name, item in terms.items():
        behind = [line.fallback for line in plan.lines if line.job == name and line.fallback is not None]
        assert item.fallback_usd == Usd.total(fallback.cost_usd for fallback in behind), name
        assert not behind or any(line.market == "spot" for line in plan.lines if line.job == name)
    assert plan_from_json(plan_to_json(plan)) == plan


def test_a_line_under_the_guard_has_the_shares_of_its_guard() -> None:
    """The candidate's shares are of what its own machines bill, starts apart; the fallback is a term of its own."""
    job = a_job(deadline="+8h")
    candidate = found_for(job, [NORTH, NORTH_SPOT])[0]["aws/north-1/p9.48xlarge/spotx8"]
    plan = plan_of([job], [NORTH, NORTH_SPOT])
    assert plan.usage is not None
    (terms,) = plan.usage.cost_terms
    assert candidate.guard is not None
    shares = candidate.guard.shares
    parts = (shares.compute, shares.lost_work, shares.checkpoints, shares.restarts)
    assert sum(parts) == pytest.approx(1)
    usd = (terms.compute_usd, terms.lost_work_usd, terms.checkpoints_usd, terms.restarts_usd)
    running = sum(each.nanos for each in usd)
    assert tuple(each.nanos / running for each in usd) == pytest.approx(parts, rel=1e-6)
    assert terms.fallback_usd.nanos > 0
    assert terms.together_usd == plan.cost_usd


def test_texts_name_terms_by_job_and_team() -> None:
    plan = nightly_plan()
    assert plan.usage is not None
    placed = next(terms.job for terms in plan.usage.cost_terms if terms.lost_work_usd.nanos)
    assert "work lost to interruptions" in job_terms_text(plan, placed)
    assert max(map(len, job_terms_text(plan, placed).splitlines())) <= 80
    guarded = next(terms for terms in plan.usage.cost_terms if terms.fallback_usd.nanos)
    share = guarded.fallback_usd.nanos / guarded.together_usd.nanos
    said = f"fallback on demand, expected {format_usd(guarded.fallback_usd)} ({share:.1%})"
    assert said in " ".join(job_terms_text(plan, guarded.job).split())
    assert "FALLBACK" in team_terms_table(plan)
    last = team_terms_table(plan).splitlines()[-1].split()
    assert last[0] == "all"
    assert last[-1] == f"${plan.cost_usd.dollars():,.2f}"
    bare = replace(plan, usage=replace(plan.usage, cost_terms=()))
    assert (job_terms_text(bare, placed), team_terms_table(bare)) == ("", "")
