"""What earlier runs say of speeds and interruptions, how it fades, and what a plan makes of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pricing.pool_experience import HALF_LIFE as POOL_HALF_LIFE
from pricing.problems import InvalidInputError
from router.app.learned import describe_experience, runs_from_file, runs_to_json
from router.jobs.experience import (
    HALF_LIFE,
    LONGEST_MEMORY,
    Experience,
    PoolRun,
    RunRecords,
    SpeedRun,
    job_signature,
    learn,
    learn_pools,
)
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.document.plan_schema import plan_schema
from router.planning.planner import make_plan
from router.render.explain_text import job_text
from tests.support.made_up_book import book
from tests.support.narrowed import present, typed
from tests.support.scenes import ALPS, NORTH, NORTH_SPOT, NOW, a_job, a_request

BOOK = book([NORTH, NORTH_SPOT, ALPS])
DAY = timedelta(days=1)


def a_run(job: Job, speed: float, at: datetime = NOW, name: str = "a-1", **more: Any) -> SpeedRun:
    """One machine of eight that ran the job at this speed."""
    fields: dict[str, Any] = {
        "attempt": name,
        "job": job.name,
        "signature": job_signature(job),
        "cloud": "aws",
        "instance_type": "p9.48xlarge",
        "accelerator": "H100",
        "accelerators": 8,
        "machines": 1,
        "fabric": None,
        "steps_per_hour": speed,
        "at": at,
    }
    return SpeedRun(**{**fields, **more})


def a_stay(hours: float, interrupted: bool, at: datetime = NOW, name: str = "a-1", machines: int = 1) -> PoolRun:
    """One gang held in the pool of ``NORTH_SPOT``."""
    return PoolRun(name, "aws", "north-1", None, "p9.48xlarge", "spot", machines, hours, interrupted, at)


def known_speed(job: Job, *runs: SpeedRun) -> Speed:
    """The speed on one machine of eight that is planned with."""
    experience = learn(RunRecords(runs), [job], BOOK, NOW)
    machine, accelerator = BOOK.machine("aws", "p9.48xlarge"), BOOK.accelerator("H100")
    assert experience is not None
    assert machine is not None
    assert accelerator is not None
    return typed(Speed, gang_speed(experience.job(job, BOOK).workload, machine, 1, accelerator))


def test_a_run_moves_the_speed_nearly_to_what_was_measured_and_more_runs_further() -> None:
    """The stated 100 weighs 1/.25^2 = 16 and a run 1/.05^2 = 400, on logarithms."""
    job = a_job()
    one = known_speed(job, a_run(job, 50))
    assert one.steps_per_hour == pytest.approx(50 * 2 ** (16 / 416))
    assert one.relative_error == pytest.approx(math.sqrt(0.05**2 + 1 / 416))
    assert one.basis == "measured: 1 earlier run, last 2026-11-21"
    many = known_speed(job, *(a_run(job, 50, NOW, f"a-{n}") for n in range(9)))
    assert many.steps_per_hour == pytest.approx(50, rel=0.01)
    assert 0.02 < many.relative_error < one.relative_error


def test_runs_count_half_after_a_half_life_and_not_at_all_much_later() -> None:
    job = a_job()
    new, old = a_run(job, 50, NOW), a_run(job, 100, NOW - HALF_LIFE, "a-2")
    (row,) = (learn(RunRecords((new, old)), [job], BOOK, NOW) or Experience()).speeds
    assert row.steps_per_hour == pytest.approx(math.exp((math.log(50) + math.log(100) / 2) / 1.5))
    assert row.weight == pytest.approx(1.5)
    assert (row.runs, row.attempts) == (2, ("a-1", "a-2"))
    assert known_speed(job, replace(new, at=NOW - 5 * HALF_LIFE)).steps_per_hour > known_speed(job, new).steps_per_hour
    for at in (NOW - LONGEST_MEMORY - DAY, NOW + DAY):
        assert learn(RunRecords((replace(new, at=at),)), [job], BOOK, NOW) is None


def test_runs_that_differ_leave_a_wider_interval() -> None:
    job = a_job()
    equal = known_speed(job, *(a_run(job, 50, NOW, f"a-{n}") for n in range(4)))
    uneven = known_speed(job, *(a_run(job, speed, NOW, f"a-{n}") for n, speed in enumerate((40, 60, 42, 58))))
    assert uneven.relative_error > 2 * equal.relative_error


def test_a_job_learns_from_runs_of_its_own_shape_and_of_its_own_name_first() -> None:
    job, twin = a_job("mine"), a_job("yours", steps=900, deadline="+4h", priority=3)
    assert job_signature(job) == job_signature(twin)
    assert known_speed(job, a_run(twin, 50)).steps_per_hour < 53
    assert known_speed(job, a_run(twin, 50), a_run(job, 80, name="a-2")).steps_per_hour > 79
    other = job.model_copy(update={"workload": a_job().workload.model_copy(update={"profile": ()})})
    assert job_signature(other) != job_signature(job)
    assert learn(RunRecords((replace(a_run(job, 50), signature=job_signature(other)),)), [job], BOOK, NOW) is None


def test_other_sizes_of_the_accelerator_are_corrected_alike_and_other_accelerators_are_not() -> None:
    job = a_job()
    points = [
        *job.workload.profile,
        job.workload.profile[0].model_copy(update={"count": 16, "steps_per_hour": 180.0}),
        job.workload.profile[0].model_copy(update={"accelerator": "A100-80GB", "steps_per_hour": 40.0}),
    ]
    job = job.model_copy(update={"workload": job.workload.model_copy(update={"profile": tuple(points)})})
    experience = present(learn(RunRecords((a_run(job, 50),)), [job], BOOK, NOW))
    learned = {(p.accelerator, p.count): p.steps_per_hour for p in experience.job(job, BOOK).workload.profile}
    assert learned["H100", 16] == pytest.approx(90)
    assert learned["A100-80GB", 8] == 40
    assert experience.job(a_job("another"), BOOK) == a_job("another")


def lived(*hours: float) -> float:
    """Operational time of lives, each from its own begin."""
    return sum(math.log1p(each / 0.6) for each in hours)


def test_lives_in_a_pool_are_summed_by_size_and_fade() -> None:
    stays = (
        a_stay(100, True),
        a_stay(50, True, name="a-2", machines=4),
        a_stay(9, True, NOW - POOL_HALF_LIFE, "a-3"),
        a_stay(30, False, NOW - 2 * POOL_HALF_LIFE, "a-4"),
    )
    one, four = learn_pools(stays, NOW)
    assert (one.machines, one.runs, four.machines, four.runs) == (1, 3, 4, 1)
    assert one.hours == pytest.approx(100 + 9 / 2 + 30 / 4)
    assert one.interruptions == pytest.approx(1.5)
    assert one.exposure == pytest.approx(lived(100) + lived(9) / 2 + lived(30) / 4)
    assert (four.hours, four.interruptions) == (50, 1)
    assert four.exposure == pytest.approx(lived(50))
    assert (one.first_at, one.last_at) == (NOW - 2 * POOL_HALF_LIFE, NOW)
    assert learn_pools([a_stay(9, True, NOW - LONGEST_MEMORY - DAY), a_stay(9, True, NOW + DAY)], NOW) == ()


def test_the_risk_of_a_pool_lies_between_the_books_and_what_was_counted() -> None:
    machine = present(BOOK.machine("aws", "p9.48xlarge"))
    stays = tuple(a_stay(1, True, name=f"a-{n}") for n in range(12))
    experience = present(learn(RunRecords((), stays), [a_job()], BOOK, NOW))
    counted = 12 / lived(*[1.0] * 12)
    for machines in (1, 4):
        before = BOOK.risk.gang(NORTH_SPOT, machine, machines)
        after = experience.gang_risk(NORTH_SPOT, machine, machines, BOOK)
        assert before.machine.quantile(0.5) < after.machine.quantile(0.5) < counted
        assert after.hazard.quantile(0.5) > 2 * before.hazard.quantile(0.5)
        assert after.machine.interval[1] / after.machine.interval[0] < 0.7 * (
            before.machine.interval[1] / before.machine.interval[0]
        )
        assert (before.weak, after.weak) == ("made up", "")
        # Nothing of it concerns machines that no cloud interrupts.
        assert experience.gang_risk(NORTH, machine, machines, BOOK) == BOOK.risk.gang(NORTH, machine, machines)
        assert after.evidence[0].level == "own gangs"
        assert after.evidence[0].text == "12 interruptions in 12.0 h of 12 lives"
    a100 = a_job().model_copy(update={"gang": a_job().gang.model_copy(update={"options": ()})})
    assert learn(RunRecords((), stays), [a100], BOOK, NOW) is None


def test_what_was_counted_in_a_pool_moves_pools_like_it_less() -> None:
    machine = present(BOOK.machine("aws", "p9.48xlarge"))
    neighbour = replace(NORTH_SPOT, region="south-1")
    for stays in (
        [a_stay(1, True, name=f"a-{n}") for n in range(12)],
        [a_stay(900, False, name=f"a-{n}") for n in range(4)],
    ):
        experience = present(learn(RunRecords((), tuple(stays)), [a_job()], BOOK, NOW))
        before = BOOK.risk.gang(NORTH_SPOT, machine, 1).hazard.quantile(0.5)
        own, near = (
            math.log(experience.gang_risk(offer, machine, 1, BOOK).hazard.quantile(0.5) / before)
            for offer in (NORTH_SPOT, neighbour)
        )
        assert own * near > 0, "to the same side"
        assert 0.1 < abs(near) < abs(own)


def test_a_gang_that_lived_long_says_less_than_as_many_hours_of_young_ones() -> None:
    machine = present(BOOK.machine("aws", "p9.48xlarge"))
    levels = []
    for stays in ((a_stay(64, False),), tuple(a_stay(2, False, name=f"a-{n}") for n in range(32))):
        experience = present(learn(RunRecords((), stays), [a_job()], BOOK, NOW))
        assert experience.pools[0].hours == 64
        levels.append(experience.gang_risk(NORTH_SPOT, machine, 1, BOOK).hazard.quantile(0.5))
    assert levels[1] < 0.6 * levels[0]


def test_a_plan_is_made_with_what_was_learned_and_says_so() -> None:
    job = a_job()
    runs = (a_run(job, 50, NOW - DAY), a_run(job, 51, NOW - 2 * DAY, "a-2"))
    records = RunRecords(runs, (a_stay(40, True), a_stay(40, False, name="a-2")))
    request = a_request([job], [NORTH_SPOT])
    plain, learned = make_plan(request), make_plan(replace(request, experience=learn(records, [job], BOOK, NOW)))
    assert "learned" not in plan_to_json(plain)
    text = plan_to_json(learned)
    again = plan_from_json(text)
    assert list(Draft202012Validator(plan_schema()).iter_errors(json.loads(text))) == []
    assert again == learned
    assert plan_to_json(again) == text
    assert learned.jobs[0].job_digest == plain.jobs[0].job_digest == job.digest
    assert learned.cost_usd.dollars() > 1.7 * plain.cost_usd.dollars()
    told = " ".join(job_text(learned, "a").split())
    assert "speed on 8 H100 measured on 2 earlier runs, last 2026-11-20: 50.49" in told
    assert {speed.speed_evidence for speed in learned.usage.speeds} == {"learned"}
    assert "1.0 interruptions counted in 80.0 hours of 2 gangs" in told
    assert "earlier run" not in job_text(plain, "a")
    assert make_plan(replace(request, experience=again.learned)) == learned
    (words,) = describe_experience(learned.learned)
    assert words.startswith("speeds of 1 job measured on 2 earlier runs, last 2026-11-20; interruptions counted on 2")


def test_runs_in_a_file_come_back_and_what_holds_none_is_refused(tmp_path: Path) -> None:
    records = RunRecords((a_run(a_job(), 50),), (a_stay(4, True),))
    path = tmp_path / "runs.json"
    path.write_text(runs_to_json(records), encoding="utf-8")
    assert runs_from_file(path) == records
    for old, new in (('"schema_version": 1', '"schema_version": 2'), ("50", "-5"), ('"job"', '"jobs"'), ("}", "")):
        path.write_text(runs_to_json(records).replace(old, new), encoding="utf-8")
        with pytest.raises(InvalidInputError, match="holds no runs"):
            runs_from_file(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        runs_from_file(tmp_path / "none.json")
