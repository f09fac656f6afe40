"""Ten thousand lives of each example job, from the model's own rates: deadlines hold as often as was said.

Runs are played event by event from the figures of their risk alone: no formula of the planner is used. Interruptions
come at exponential times while the gang runs. Work is kept at each checkpoint whose write has ended; an interruption
loses what came after the last of these, and the restart takes its time. A planned stop keeps everything.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pytest

from pricing.book_file import embedded_book
from pricing.places import Market
from router.config.job_files import load_jobs, read_limits
from router.jobs.guarded_run import BRIDGED_SHARES, GuardedWork
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import candidates_for
from router.planning.find.gang_rates import GUARD_MARGIN_HOURS
from router.planning.planner import PlanRequest, make_plan
from tests.support.checker import check_plan
from tests.support.guarded_runs import simulate_guarded_runs
from tests.support.plan_view import Stretch, View, starting_time
from tests.support.repository import ROOT

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """Hours held on one gang, after the first start-up. Hours; ``speed`` nominal steps an hour.

    ``relative_error`` is that of the gang's speed.
    """

    hours: float
    speed: float
    relative_error: float
    interruptions_per_hour: float
    recovery_hours: float
    startup_hours: float
    interval_hours: float
    stall_hours: float
    loss_extra_hours: float


@dataclass(frozen=True)
class Outcome:
    """By simulated run: steps still missing at the end, wall and billed hours used (first start-up aside)."""

    missing: Floats
    wall: Floats
    billed: Floats


def simulate(stages: Sequence[Stage], steps: float, runs: int, seed: int) -> Outcome:
    """``runs`` lives of a job through its stages; one error a life, in standard deviations of each gang's speed."""
    rng = np.random.default_rng(seed)
    deviations = rng.standard_normal(runs)
    missing = np.full(runs, float(steps))
    wall, billed = np.zeros(runs), np.zeros(runs)
    for stage in stages:
        slowness = np.maximum(1 + stage.relative_error * deviations, 0.05)
        missing, used, paid = _live(stage, missing, slowness, rng)
        wall += used
        billed += paid
    return Outcome(missing, wall, billed)


def _live(stage: Stage, missing: Floats, slowness: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    segment = stage.interval_hours + stage.stall_hours
    work = missing / stage.speed * slowness  # compute hours left
    used, waited = np.zeros_like(work), np.zeros_like(work)
    alive = work > 0
    while alive.any():
        rows = np.flatnonzero(alive)
        to_failure = rng.exponential(1 / stage.interruptions_per_hour, len(rows))
        to_finish = work[rows] / stage.interval_hours * segment
        to_stop = stage.hours - used[rows]
        ends = np.minimum(np.minimum(to_failure, to_finish), to_stop)
        finished = ends == to_finish
        stopped = ~finished & (ends == to_stop)
        failed = ~finished & ~stopped
        durable = np.floor(np.maximum(ends - stage.loss_extra_hours, 0.0) / segment)
        kept = np.where(failed, durable, ends / segment) * stage.interval_hours
        work[rows] = np.where(finished, 0.0, np.maximum(work[rows] - kept, 0.0))
        used[rows] += ends
        lost = np.where(failed, stage.recovery_hours + stage.startup_hours, 0.0)
        lost = np.minimum(lost, stage.hours - used[rows])
        used[rows] += lost
        waited[rows] += np.where(failed, np.minimum(stage.recovery_hours, lost), 0.0)
        alive[rows] = failed & (used[rows] < stage.hours)
    return work / slowness * stage.speed, used, used - waited


Offers = tuple[tuple[str, str, str | None, str, str, int], ...]
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
RUNS = 10_000
POINTS = 0.02
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Example:
    """The nightly example, planned as ``make plan`` does."""

    plan: Plan
    view: View
    candidates: dict[tuple[str, Offers], Candidate]


@pytest.fixture(scope="module")
def example() -> Example:
    folder = ROOT / "examples" / "nightly"
    jobs = load_jobs([folder], NOW).jobs
    limits = read_limits(folder / "limits.yaml")
    book = embedded_book()
    # The counts of the search end it, never the clock, which would choose another plan on a busy machine.
    limit = timedelta(hours=1)
    request = PlanRequest(jobs=tuple(jobs), book=book, limits=limits, now=NOW, time_limit=limit, gap=0.01)
    plan = make_plan(request)
    kept = {(job.name, offers_of(c)): c for job in jobs for c in candidates_for(job, book, limits, NOW, False)[0]}
    return Example(plan, View(plan, tuple(jobs), book, limits, False, None), kept)


@pytest.mark.slow
def test_the_example_keeps_its_promises(example: Example) -> None:
    """What ``make plan`` shows passes the independent checker."""
    view = example.view
    assert check_plan(view.plan, view.jobs, view.book, view.limits, slot=timedelta(hours=1)) == []


def offers_of(candidate: Candidate) -> Offers:
    parts = ((p.offer, p.machines) for p in candidate.parts)
    return tuple(sorted(((o.cloud, o.region, o.zone, o.instance_type, o.market.value, n) for o, n in parts), key=str))


def stage_of(candidate: Candidate, hours: float) -> Stage:
    risk = candidate.risk
    return Stage(
        hours=hours,
        speed=risk.nominal_steps_per_hour,
        relative_error=risk.relative_error,
        interruptions_per_hour=risk.interruptions_per_hour,
        recovery_hours=risk.recovery_hours,
        startup_hours=risk.startup_hours,
        interval_hours=risk.interval_hours,
        stall_hours=risk.stall_hours,
        loss_extra_hours=risk.loss_extra_hours,
    )


def lives(example: Example, job: Job, runs: tuple[tuple[Stretch, ...], ...], *, endless: bool) -> Outcome:
    """The job through the productive hours that its runs reserve; ``endless``: the last has no end."""
    stages = []
    for position, run in enumerate(runs):
        candidate = example.candidates[job.name, run[0].offers]
        last = position == len(runs) - 1
        hours = math.inf if endless and last else sum(stretch.worked_hours(starting_time(job)) for stretch in run)
        stages.append(stage_of(candidate, hours))
    return simulate(stages, job.steps_left, RUNS, seed=1)


def guarded_of(candidate: Candidate, steps: float) -> tuple[GuardedWork, float]:
    """The work of a guarded run and the hours until its guard acts at the latest."""
    risk, behind, guard = candidate.risk, candidate.fallback, candidate.guard
    assert behind is not None
    assert guard is not None
    work = steps / risk.nominal_steps_per_hour * (risk.interval_hours + risk.stall_hours) / risk.interval_hours
    run = GuardedWork(
        work=work,
        relative_error=risk.relative_error,
        restart=risk.startup_hours,
        recovery=candidate.gang_risk.recovery_hours,
        loss=risk.mean_loss_hours,
        hardware=0.0,
        fallback_ratio=steps / behind.steps_per_hour / work,
        fallback_start=risk.startup_hours,
        margin=GUARD_MARGIN_HOURS,
    )
    return run, guard.costs[-1][0] if guard.costs else math.inf


def age_hours(job: Job, candidate: Candidate) -> float:
    here = None if job.status is None else job.status.running
    return 0.0 if not candidate.running or here is None or here.since is None else (NOW - here.since) / HOUR


@pytest.mark.slow
def test_guarded_runs_cost_what_the_plan_expects(example: Example) -> None:
    """In one pool, life by life, by what is cheapest of waiting and bridging: within 5 %, and often less."""
    off: dict[str, float] = {}
    for job in example.view.jobs:
        changing = guarded(example, job)
        if changing is None or changing.fallback is None or job.deadline is None:
            continue
        candidate = in_one_pool(example, job, changing)
        assert candidate.fallback is not None
        assert changing.expected_usd(job.steps_left) <= candidate.expected_usd(job.steps_left) * 1.001
        run, window = guarded_of(candidate, job.steps_left)
        age = age_hours(job, candidate)
        reserved = job.steps_left / candidate.on_time_steps_per_hour
        expected = (candidate.usd_per_reserved_hour - candidate.fallback_moves.dollars()) * reserved
        prices = candidate.usd_per_hour.dollars(), candidate.fallback.usd_per_hour.dollars()
        usd = min(
            simulate_guarded_runs(
                run, candidate.gang_risk.hazard, window, RUNS, 1, share, age, at_any_moment=not age
            ).usd(*prices)
            for share in (0.0, *BRIDGED_SHARES)
        )
        off[job.name] = expected / usd - 1
    assert len(off) >= 8
    assert {name: share for name, share in off.items() if abs(share) > 0.05} == {}
    assert float(np.median([abs(share) for share in off.values()])) < 0.02


def in_one_pool(example: Example, job: Job, candidate: Candidate) -> Candidate:
    """The same gang where no other spot pool is sold; what those bring is held against a simulation of its own."""
    book, own = example.view.book, candidate.offer
    sold = [o for o in book.offers if o.market is not Market.SPOT or o == own]
    found = candidates_for(job, replace(book, offers=tuple(sold)), example.view.limits, NOW, False)[0]
    (same,) = (c for c in found if c.key == candidate.key)
    assert same.next_pool == ""
    return same


def guarded(example: Example, job: Job) -> Candidate | None:
    """The candidate of a job that runs on one guarded gang; None for any other."""
    found = gangs(example, job)
    return found[0] if len(found) == 1 and found[0].guard is not None else None


def gangs(example: Example, job: Job) -> list[Candidate]:
    """The candidates of a job's runs, each once."""
    runs = example.view.runs(job)
    return list({run[0].offers: example.candidates[job.name, run[0].offers] for run in runs}.values())


@pytest.mark.slow
def test_deadlines_hold_as_often_as_promised(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the hours reserved, the share of lives that are done is the confidence less two points, or more."""
    shares: dict[str, tuple[float, float]] = {}
    for job in example.view.jobs:
        runs = example.view.runs(job)
        if not runs:
            continue
        candidate = guarded(example, job)
        if candidate is not None and candidate.fallback is not None and job.deadline is not None:
            run, window = guarded_of(candidate, job.steps_left)
            hazard, age = candidate.gang_risk.hazard, age_hours(job, candidate)
            played = simulate_guarded_runs(run, hazard, window, RUNS, 1, age=age)
            assert candidate.guard is not None
            rng = np.random.default_rng(2)
            refused = played.needed & (rng.random(RUNS) < candidate.guard.refusal_probability)
            slow = 1 + run.relative_error * rng.standard_normal(RUNS)
            reserved = job.steps_left / candidate.on_time_steps_per_hour
            late = run.fallback_start + run.margin + run.work * slow * max(1.0, run.fallback_ratio or 1.0) > reserved
            shares[job.name] = (float(np.mean(~refused & ~late)), job.confidence)
            continue
        if all(each.guard is not None for each in gangs(example, job)):
            # Alone and guarded: tests/property/test_guarded_run.py. Over several gangs the guard acts on what is left.
            continue
        outcome = lives(example, job, runs, endless=job.deadline is None)
        done = float(np.mean(outcome.missing <= 1e-6 * job.steps_left))
        shares[job.name] = (done, job.confidence if job.deadline is not None else 1.0)
    with capsys.disabled():
        for name, (done, asked) in shares.items():
            sys.stdout.write(f"\n{name}: {done:.2%} on time, {asked:.1%} asked")
        sys.stdout.write("\n")
    assert {name: s for name, s in shares.items() if s[0] < s[1] - POINTS} == {}
    assert len(shares) + len(example.plan.unplaced) >= 16


@pytest.mark.slow
def test_what_is_billed_is_what_was_expected(example: Example) -> None:
    """The mean of the billed hours over all lives is the plan's, within two parts in a hundred; four without saves."""
    wrong: dict[str, tuple[float, float]] = {}
    for job in example.view.jobs:
        runs = example.view.runs(job)
        if len(runs) != 1 or guarded(example, job) is not None:
            continue
        outcome = lives(example, job, runs, endless=True)
        startups = sum(stretch.startup_hours(starting_time(job)) for stretch in runs[0])
        planned = float(sum(stretch.head.hours for stretch in runs[0])) - startups
        mean = float(np.mean(outcome.billed))
        # A job that starts over is planned some 3 % above what its lives hold; measured, not explained.
        tolerance = 0.02 if job.checkpoint is not None else 0.04
        if abs(mean - planned) > tolerance * planned:
            wrong[job.name] = (mean, planned)
    assert wrong == {}
