"""Ten thousand lives of each example job, from the model's own rates: deadlines hold as often as was said."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from pricing.book_file import embedded_book
from router.config.job_files import read_jobs
from router.config.limits_file import read_limits
from router.jobs.spec import Job
from router.planning.candidates import Candidate, candidates_for
from router.planning.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from tests.support.checker import check_plan
from tests.support.plan_view import Stretch, View, starting_time
from tests.support.repository import ROOT
from tests.support.simulated_runs import Outcome, Stage, simulate

Offers = tuple[tuple[str, str, str | None, str, str, int], ...]
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
RUNS = 10_000
POINTS = 0.02


@dataclass(frozen=True)
class Example:
    """The nightly example, planned as ``make plan`` does."""

    plan: Plan
    view: View
    candidates: dict[tuple[str, Offers], Candidate]


@pytest.fixture(scope="module")
def example() -> Example:
    folder = ROOT / "examples" / "nightly"
    jobs = read_jobs([folder], NOW)
    limits = read_limits(folder / "limits.yaml")
    book = embedded_book()
    plan = make_plan(PlanRequest(jobs=tuple(jobs), book=book, limits=limits, now=NOW))
    kept = {(job.name, offers_of(c)): c for job in jobs for c in candidates_for(job, book, limits, NOW, False)[0]}
    return Example(plan, View(plan, tuple(jobs), book, limits, False, None), kept)


@pytest.mark.slow
def test_the_example_keeps_its_promises(example: Example) -> None:
    """What ``make plan`` shows passes the independent checker."""
    view = example.view
    assert check_plan(view.plan, view.jobs, view.book, view.limits, slot=timedelta(hours=1)) == []


def offers_of(candidate: Candidate) -> Offers:
    """What is held, as :attr:`Stretch.offers` has it."""
    parts = ((p.offer, p.machines) for p in candidate.parts)
    return tuple(sorted(((o.cloud, o.region, o.zone, o.instance_type, o.market.value, n) for o, n in parts), key=str))


def stage_of(candidate: Candidate, hours: float) -> Stage:
    risk = candidate.risk
    return Stage(
        hours=hours,
        speed=risk.nominal_steps_per_hour,
        interruptions_per_hour=risk.interruptions_per_hour,
        recovery_hours=risk.recovery_hours,
        startup_hours=risk.startup_hours,
        interval_hours=risk.interval_hours,
        stall_hours=risk.stall_hours,
        loss_extra_hours=risk.loss_extra_hours,
    )


def lives(example: Example, job: Job, runs: tuple[tuple[Stretch, ...], ...], *, endless: bool) -> Outcome:
    """The job through the productive hours that its runs reserve; ``endless``: the last has no end."""
    stages, error = [], 0.0
    for position, run in enumerate(runs):
        candidate = example.candidates[job.name, run[0].offers]
        last = position == len(runs) - 1
        hours = math.inf if endless and last else sum(stretch.worked_hours(starting_time(job)) for stretch in run)
        stages.append(stage_of(candidate, hours))
        error = max(error, candidate.risk.relative_error)
    return simulate(stages, job.steps_left, error, RUNS, seed=1)


@pytest.mark.slow
def test_deadlines_hold_as_often_as_promised(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the hours reserved, the share of lives that are done is the confidence less two points, or more."""
    shares: dict[str, tuple[float, float]] = {}
    for job in example.view.jobs:
        runs = example.view.runs(job)
        if not runs:
            continue
        outcome = lives(example, job, runs, endless=job.deadline is None)
        done = float(np.mean(outcome.missing <= 1e-6 * job.steps_left))
        shares[job.name] = (done, job.confidence if job.deadline is not None else 1.0)
    with capsys.disabled():
        for name, (done, asked) in shares.items():
            sys.stdout.write(f"\n{name}: {done:.2%} on time, {asked:.1%} asked")
        sys.stdout.write("\n")
    assert {name: s for name, s in shares.items() if s[0] < s[1] - POINTS} == {}
    assert len(shares) + len(example.plan.unplaced) == len(example.view.jobs) >= 16


@pytest.mark.slow
def test_what_is_billed_is_what_was_expected(example: Example) -> None:
    """The mean of the billed hours over all lives is the plan's, within two parts in a hundred."""
    wrong: dict[str, tuple[float, float]] = {}
    for job in example.view.jobs:
        runs = example.view.runs(job)
        if len(runs) != 1:
            continue
        outcome = lives(example, job, runs, endless=True)
        startups = sum(stretch.startup_hours(starting_time(job)) for stretch in runs[0])
        planned = float(sum(stretch.head.hours for stretch in runs[0])) - startups
        mean = float(np.mean(outcome.billed))
        if abs(mean - planned) > 0.02 * planned:
            wrong[job.name] = (mean, planned)
    assert wrong == {}
