"""Quantities stated in the job file: refused where they cannot be, used by the planner, named beside the terms."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pricing.hazard import Hazard
from pricing.money import Usd
from pricing.places import Market
from pricing.pool_experience import PoolExperience
from pricing.problems import InvalidInputError
from router.config.job_files import load_jobs
from router.jobs.goodput import (
    GangRunRisk,
    billed_share,
    billed_shares,
    expected_steps_per_hour,
    hours_with_probability,
    on_time_probability,
    useful_share,
)
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.find.candidates import candidates_for
from router.render.cost_terms_text import job_terms_table, job_terms_text
from router.render.plan_text import wide
from router.render.tables import Screen
from router.render.tonight_page import tonight_page
from tests.support.checker import check_plan
from tests.support.made_up_book import book
from tests.support.made_up_jobs import make_limits
from tests.support.night import nightly_plan
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, a_job, found_for, plan_of

SPOT_KEY = "aws/north-1/p9.48xlarge/spot"
SAVING = {"size_gib": 90, "asynchronous": True, "interval": "1h", "stall": "40s"}
LOSING = GangRunRisk(100.0, 0.05, 0.4, 0.5, 0.25, 1.0, 0.05, 0.0, True, lost_work_hours=0.25)
FILE = """name: a
team: red
steps: 300
workload: {profile: {accelerators: "H100:8", steps_per_hour: 100}}
gang: {accelerators: "H100:8"}
"""


def stating(**more: Any) -> Job:
    """A job whose file states something of its costs."""
    return Job.model_validate(a_job().model_dump(mode="json") | {"checkpoint": SAVING} | more)


def night_of(job: Job) -> Plan:
    return plan_of([job], [NORTH_SPOT])


def problems_of(folder: Path, text: str) -> str:
    file = folder / "job.yaml"
    file.write_text(FILE + text, encoding="utf-8")
    with pytest.raises(InvalidInputError) as refused:
        load_jobs([file], NOW)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "where", "field", "why"),
    [
        ("interruptions: {per_hour: -0.1}", "6", "interruptions.per_hour", "-0.1 is no rate of interruptions"),
        ("interruptions: {per_hour: 0}", "6", "interruptions.per_hour", "0 is no rate of interruptions"),
        ("interruptions: {restart: 25h}", "6", "interruptions.restart", "1d1h is too long"),
        ("interruptions: {restart: 12}", "6", "interruptions.restart", "12 has no unit of time"),
        ("interruptions: {lost_work: 5m}", "6", "interruptions.lost_work", "without a checkpoint all work is lost"),
        ("interruptions: {}", "6", "interruptions", "states nothing"),
        (
            "checkpoint: {size_gib: 1}\ninterruptions: {per_hour: 2, lost_work: 29m}",
            "7",
            "interruptions.lost_work",
            "losing 29m 2 times an hour repeats 97% of the work",
        ),
        ("market: {spot: never}\ninterruptions: {per_hour: 0.1}", "7", "interruptions.per_hour", "no spot machines"),
        ("checkpoint: {size_gib: 1, stall: 9s}", "6", "checkpoint.stall", "a synchronous checkpoint stops"),
        ("checkpoint: {size_gib: 1, asynchronous: true, stall: 2h}", "6", "checkpoint.stall", "2h is too long"),
        ("idle: -2m", "6", "idle", "'-2m' is no duration"),
    ],
)
def test_bad_values_are_refused_with_line_and_field(
    tmp_path: Path, text: str, where: str, field: str, why: str
) -> None:
    words = problems_of(tmp_path, text)
    assert f"job.yaml:{where}:" in words
    assert field in words
    assert why in words


def simulate_lives(risk: GangRunRisk, lives: int) -> tuple[list[float], list[float], float]:
    """Wall and billed hours of jobs of 20 segments, each interruption repeating the stated loss, and the restarts."""
    rng, walls, billed, restarts = Random(11), [], [], 0
    assert risk.lost_work_hours is not None
    for _ in range(lives):
        left, wall, paid = 20 * (risk.interval_hours + risk.stall_hours), 0.0, 0.0
        while True:
            life = rng.expovariate(risk.interruptions_per_hour)
            if life >= left:
                break
            left += risk.lost_work_hours - life
            wall += life + risk.restart_hours
            paid += life + risk.startup_hours
            restarts += 1
        walls.append(wall + left)
        billed.append(paid + left)
    return walls, billed, restarts


def test_speed_and_bill_at_a_stated_loss_are_those_of_simulated_lives() -> None:
    walls, billed, restarts = simulate_lives(LOSING, 4000)
    steps = 20 * LOSING.nominal_steps_per_hour
    assert steps / float(np.mean(walls)) == pytest.approx(expected_steps_per_hour(LOSING), rel=0.01)
    assert sum(billed) / sum(walls) == pytest.approx(billed_share(LOSING), rel=0.01)
    shares = billed_shares(LOSING)
    assert restarts * 0.25 / sum(billed) == pytest.approx(shares.restarts, rel=0.02)
    assert shares.compute == pytest.approx(useful_share(LOSING) / billed_share(LOSING), rel=1e-9)


def test_chances_at_a_stated_loss_are_those_of_simulated_lives() -> None:
    sure = replace(LOSING, relative_error=0.0)
    walls, steps = np.array(simulate_lives(sure, 4000)[0]), 2000.0
    for hours in (30.0, 36.0, 45.0):
        assert on_time_probability(sure, steps, hours) == pytest.approx(float(np.mean(walls <= hours)), abs=0.025)
    hours = hours_with_probability(sure, steps, 0.95)
    assert float(np.mean(walls <= hours)) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("loss", [0.0, 0.1, 2.2, 3.0])
def test_chances_at_any_loss_add_up_or_the_work_is_never_done(loss: float) -> None:
    risk = replace(LOSING, lost_work_hours=loss)
    assert on_time_probability(risk, 500.0, 1e6) == pytest.approx(1.0 if loss < 2.5 else 0.0)
    assert (useful_share(risk) > 0) == (loss < 2.5)


def test_what_is_stated_replaces_what_is_modelled() -> None:
    known = {"per_hour": 0.02, "lost_work": "5m", "restart": "30m"}
    job = stating(interruptions=known, idle="2m")
    candidates, _ = found_for(job, [NORTH_SPOT, NORTH])
    spot = next(c for c in candidates.values() if c.market == "spot")
    sure = next(c for c in candidates.values() if c.market == "on_demand")
    assert (spot.gang_risk.hazard, spot.gang_risk.hardware_per_hour) == (Hazard.known(0.02), 0)
    assert (spot.gang_risk.evidence, spot.weak, spot.startup) == ((), "", timedelta(minutes=14))
    assert spot.risk.startup_hours == pytest.approx(32 / 60)
    assert spot.risk.stall_hours == pytest.approx(40 / 3600)
    assert spot.risk.lost_work_hours == pytest.approx(5 / 60)
    assert spot.risk_basis == "interrupted 0.02 times an hour: the job file"
    # Hardware fails as published: a rate is stated of spot machines alone.
    assert sure.risk.interruptions_per_hour == pytest.approx(8 / 30_000)
    assert sure.gang_risk.hazard.mean == 0


@pytest.mark.parametrize("steps", [300, 1500])
@pytest.mark.parametrize("per_hour", [0.02, 0.3, 1.5])
def test_a_guarded_gang_is_interrupted_as_often_as_is_stated(per_hour: float, steps: int) -> None:
    """The first 30 + 2 + 5 minutes of each life leave nothing, of the first one too."""
    job = stating(interruptions={"per_hour": per_hour, "lost_work": "5m", "restart": "30m"}, idle="2m", steps=steps)
    spot = found_for(job, [NORTH_SPOT])[0][SPOT_KEY + "x8"]
    assert spot.guard is not None
    billed, restart, loss = steps / spot.steps_per_hour * spot.billed_share, 32 / 60, 5 / 60
    assert spot.guard.interruptions == pytest.approx(per_hour * (billed + restart), rel=0.04)
    wasted = (billed + restart) * -np.expm1(-per_hour * (restart + loss))
    shares = spot.guard.shares
    assert (shares.restarts + shares.lost_work) * billed == pytest.approx(wasted, rel=0.04)
    assert shares.restarts / shares.lost_work == pytest.approx(restart / loss)
    assert shares.compute + shares.checkpoints == pytest.approx(1 - wasted / billed, abs=0.03)
    assert shares.checkpoints / shares.compute == pytest.approx(spot.risk.stall_hours / spot.risk.interval_hours)


def test_a_stated_rate_goes_before_what_was_counted_and_before_an_offer() -> None:
    pool = ("aws", "north-1", None, "p9.48xlarge", Market.SPOT)
    known = replace(
        book([replace(NORTH_SPOT, interruptions_per_hour=0.5)]),
        records=(PoolExperience(*pool, 1, 9.0, 3.0, 9.0, 9, NOW, NOW),),
    )
    (spot,) = candidates_for(stating(interruptions={"per_hour": 0.02}), known, make_limits({}), NOW, False)[0]
    assert spot.gang_risk.hazard == Hazard.known(0.02)


@pytest.mark.parametrize(
    ("more", "term"),
    [
        ({"interruptions": {"per_hour": 0.5}}, "lost_work_usd"),
        ({"interruptions": {"per_hour": 0.5}}, "restarts_usd"),
        ({"interruptions": {"lost_work": "3h"}}, "lost_work_usd"),
        ({"interruptions": {"restart": "3h"}}, "restarts_usd"),
        ({"checkpoint": SAVING | {"stall": "10m"}}, "checkpoints_usd"),
        ({"idle": "20m"}, "idle_usd"),
        ({"startup": "40m"}, "startups_usd"),
    ],
)
def test_each_term_follows_what_is_stated_of_it(more: dict[str, Any], term: str) -> None:
    before, after = night_of(stating()), night_of(stating(**more))
    assert before.usage is not None
    assert after.usage is not None
    old, new = before.usage.cost_terms[0], after.usage.cost_terms[0]
    assert getattr(new, term).nanos > 1.2 * getattr(old, term).nanos
    assert term in {each.term for each in new.stated}
    assert after.cost_usd > before.cost_usd


def test_the_cheapest_market_changes_with_a_stated_rate() -> None:
    calm = plan_of([stating(interruptions={"per_hour": 0.01})], [NORTH, NORTH_SPOT])
    rough = plan_of([stating(interruptions={"per_hour": 4, "lost_work": "10m"})], [NORTH, NORTH_SPOT])
    assert {line.market for line in calm.lines} == {"spot"}
    assert {line.market for line in rough.lines} == {"on_demand"}
    assert rough.usage is not None
    assert "interruptions.per_hour" not in {each.field for each in rough.usage.cost_terms[0].stated}


def test_the_checker_finds_terms_that_are_not_what_is_stated() -> None:
    job = stating(interruptions={"per_hour": 0.3, "lost_work": "9m", "restart": "20m"}, idle="2m")
    plan = night_of(job)
    assert plan.usage is not None
    rest = (book([NORTH_SPOT]), make_limits({}))
    assert check_plan(plan, [job], *rest) == []
    terms = plan.usage.cost_terms[0]
    moved = Usd(10**8)
    for name in ("lost_work_usd", "restarts_usd", "idle_usd"):
        change = {name: getattr(terms, name) + moved, "compute_usd": terms.compute_usd - moved}
        usage = replace(plan.usage, cost_terms=(replace(terms, **change),))
        assert check_plan(replace(plan, usage=usage), [job], *rest)
    usage = replace(plan.usage, cost_terms=(replace(terms, stated=()),))
    assert any("are stated" in words for words in check_plan(replace(plan, usage=usage), [job], *rest))


def test_texts_and_page_name_what_is_stated() -> None:
    plan = night_of(stating(interruptions={"restart": "20m"}, idle="2m"))
    text = job_terms_text(plan, "a")
    assert "restarts after interruptions" in text
    assert "stated in the job file: interruptions.restart 20m" in " ".join(text.split())
    assert "stated in the job file: idle 2m" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "interruptions.restart 20m" in tonight_page(plan)
    assert job_terms_table(plan) in wide(plan)
    assert "* by values stated in the job file" in job_terms_table(plan)
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_terms_of_each_job_fit_the_screen(width: int) -> None:
    plan = nightly_plan()
    lines = job_terms_table(plan, Screen(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    # Nine terms, of which one is the fallback, need a hundred columns.
    assert ("RESTARTS" in lines[0]) == ("FALLBACK" in lines[0]) == (width >= 100)
    assert "FALLB" in lines[0]
    assert sum(line.startswith("all ") for line in lines) == 1
    assert len(lines) - lines[-1].startswith("*") == 2 + sum(job.finish is not None for job in plan.jobs)


def test_quantities_that_are_not_stated_are_not_in_the_digest() -> None:
    plain = a_job()
    content = plain.model_dump(mode="json")
    assert (content.pop("idle"), content.pop("interruptions"), content["checkpoint"].pop("stall")) == (None,) * 3
    assert Job.model_validate(content).digest == plain.digest
    stated = {stating().digest, stating(idle="1m").digest, stating(interruptions={"restart": "1m"}).digest}
    assert len(stated | {plain.digest}) == 4
