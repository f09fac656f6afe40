"""What a state says of earlier runs: speeds, time in pools, and what a person told to ignore."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.places import Market
from pricing.pool_experience import LossReason
from router.agent import protocol
from router.controller.history.attempt_history import AttemptHistory
from router.controller.history.run_records import (
    ForgottenRuns,
    forget_runs,
    forgotten_runs,
    job_as_measured,
    measure_speed,
    pool_name,
    read_runs,
    recall_runs,
)
from router.jobs.experience import LONGEST_MEMORY, RunRecords, job_signature, learn_pools
from router.jobs.job_json import job_json
from router.jobs.measured_speed import MeasuredSpeed
from router.jobs.speed import Speed, gang_speed
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.made_up_jobs import simple_job
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt, node

JOB = simple_job("llama", ("H100", 8), steps=5000, steps_per_hour=1000)
LATER = NOW + timedelta(days=1)


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return embedded_book()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as opened:
        opened.plans.put_jobs({JOB.digest: job_json(JOB)}, NOW)
        yield opened


def ran(store: StateStore, name: str, *, reason: str = "finished", hours: float = 2, **more: Any) -> None:
    """An attempt of two hours, of which a half was start-up, at ten seconds a step."""
    zone, market = more.pop("zone", "us-east-1a"), more.pop("market", Market.SPOT)
    met = NOW + timedelta(hours=hours / 4)
    gone = NOW + timedelta(hours=hours)
    fields: dict[str, Any] = {
        "job_digest": JOB.digest,
        "machines": 1,
        "made_at": NOW,
        "met_at": met,
        "gone_at": gone,
        "phase": Phase.FINISHED if reason == "finished" else Phase.FAILED,
        "reason": reason,
    }
    steps = int((gone - met).total_seconds() / 10)
    told = node(name, zone=zone, market=market, made_at=NOW, gone_at=gone, heard_at=gone, step=steps, step_seconds=10.0)
    store.attempts.add(attempt(name, **{**fields, **more}), [told])


def notice(
    store: StateStore, attempt_id: str, kind: str, hours: float, seconds: float | None = 120.0, what: str = ""
) -> None:
    store.notices.add(NoticeRecord(attempt_id, 0, kind, kind, "cloud", seconds, what, NOW + timedelta(hours=hours)))


def names(records: RunRecords) -> tuple[list[str], list[str]]:
    return [run.attempt for run in records.speeds], [run.attempt for run in records.pools]


def test_attempts_say_how_fast_they_were_and_how_long_their_pool_lasted(store: StateStore, book: PriceBook) -> None:
    ran(store, "done")
    ran(store, "lost", reason="interrupted", hours=4)
    ran(store, "crashed", reason="failed", job_digest="not stored")
    ran(store, "never-met", met_at=None, reason="short")
    running = attempt("runs", job_digest=JOB.digest, machines=1, made_at=NOW, met_at=NOW, phase=Phase.RUNNING)
    store.attempts.add(running, [node("runs", heard_at=NOW + HOUR, step=180, step_seconds=20.0)])
    store.attempts.add(attempt("planned"), [node("planned")])
    found = read_runs(store, book, LATER)
    assert names(found) == (["done", "lost", "runs"], ["crashed", "done", "lost", "never-met", "runs"])
    done, _, runs = found.speeds
    assert (done.job, done.signature, done.steps_per_hour) == ("llama", job_signature(JOB), 360.0)
    assert (done.accelerator, done.accelerators, done.machines, done.fabric) == ("H100", 8, 1, None)
    assert runs.steps_per_hour == 180
    assert {run.attempt: (run.hours, run.interrupted) for run in found.pools} == {
        "crashed": (2, False),
        "done": (2, False),
        "lost": (4, True),
        "never-met": (2, False),
        "runs": (1, False),
    }
    assert pool_name(found.pools[0]) == "aws/us-east-1a/p5.48xlarge/spot"


def test_only_what_was_known_by_then_and_is_not_too_old_counts(store: StateStore, book: PriceBook) -> None:
    ran(store, "one")
    for now in (NOW + HOUR, NOW + 3 * HOUR + LONGEST_MEMORY):
        assert read_runs(store, book, now) == RunRecords()
    assert names(read_runs(store, book, NOW + 2 * HOUR + LONGEST_MEMORY)) == (["one"], ["one"])


def test_gangs_of_several_places_say_nothing_of_one(store: StateStore, book: PriceBook) -> None:
    both = [
        node("wide", rank, zone=zone, heard_at=NOW + HOUR, step=360, step_seconds=10.0)
        for rank, zone in enumerate("ab")
    ]
    store.attempts.add(attempt("wide", job_digest=JOB.digest, made_at=NOW, met_at=NOW, gone_at=NOW + HOUR), both)
    found = read_runs(store, book, LATER)
    assert names(found) == (["wide"], [])
    assert (found.speeds[0].machines, found.speeds[0].fabric) == (2, "rdma")


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("llama", ([], ["one", "two"])),
        ("one", (["two"], ["two"])),
        ("aws/us-east-1a/p5.48xlarge/spot", (["one", "two"], ["two"])),
    ],
)
def test_what_is_forgotten_does_not_count_until_it_is_recalled(
    store: StateStore, book: PriceBook, name: str, left: tuple[list[str], list[str]]
) -> None:
    ran(store, "one")
    ran(store, "two", market=Market.ON_DEMAND)
    forget_runs(store, ForgottenRuns(name, LATER, "mira@desk"))
    assert names(read_runs(store, book, LATER)) == left
    assert [mark.name for mark in forgotten_runs(store)] == [name]
    assert recall_runs(store, name)
    assert not recall_runs(store, name)
    assert names(read_runs(store, book, LATER)) == (["one", "two"], ["one", "two"])


def test_runs_after_it_was_forgotten_count_again(store: StateStore, book: PriceBook) -> None:
    ran(store, "one", hours=2)
    ran(store, "two", hours=6)
    when: datetime = NOW + 3 * HOUR
    forget_runs(store, ForgottenRuns("llama", when, "mira@desk"))
    forget_runs(store, ForgottenRuns("llama", when, "someone@else"))
    assert [mark.who for mark in forgotten_runs(store)] == ["someone@else"]
    assert names(read_runs(store, book, LATER))[0] == ["two"]


def test_a_loss_has_the_reason_that_its_notices_tell(store: StateStore, book: PriceBook) -> None:
    preempted, maintenance, health = protocol.INTERRUPTION, protocol.MAINTENANCE, protocol.HEALTH
    cases: dict[str, tuple[str, list[tuple[Any, ...]], LossReason | None]] = {
        "no-notice": ("lost", [], None),
        "preempted": ("interrupted", [(preempted, 1.99)], None),
        "price": ("interrupted", [(preempted, 1.99, 120.0, "instance-terminated-by-price")], LossReason.PRICE),
        "capacity": ("interrupted", [(preempted, 1.99, 9.0, "instance-terminated-no-capacity")], LossReason.CAPACITY),
        "maintained": ("lost", [(maintenance, 1.9, None)], LossReason.MAINTENANCE),
        "maintained-on-time": ("lost", [(maintenance, 0.1, 6900.0)], LossReason.MAINTENANCE),
        "stopped-then": ("interrupted", [(maintenance, 1.9, 300.0), (preempted, 1.99, 0.0)], LossReason.MAINTENANCE),
        "preempted-all-the-same": ("interrupted", [(maintenance, 1.9, 300.0), (preempted, 1.99)], None),
        "maintenance-to-come": ("lost", [(maintenance, 1.0, 86400.0)], None),
        "maintenance-long-over": ("lost", [(maintenance, 0.1, 60.0)], None),
        "broken": ("lost", [(health, 1.9, None)], LossReason.HOST),
        "left-broken": ("moved", [(health, 1.9, None)], LossReason.HOST),
        "moved-away": ("moved", [(maintenance, 1.9, 600.0)], None),
        "done": ("finished", [(health, 1.9, None)], None),
    }
    for name, (reason, notices, _) in cases.items():
        ran(store, name, reason=reason)
        for each in notices:
            notice(store, name, *each)
    found = {run.attempt: run for run in read_runs(store, book, LATER).pools}
    assert {name: run.reason for name, run in found.items()} == {name: case[2] for name, case in cases.items()}
    whole = {
        "no-notice",
        "preempted",
        "capacity",
        "preempted-all-the-same",
        "maintenance-to-come",
        "maintenance-long-over",
    }
    assert {name for name, run in found.items() if run.lost_capacity} == whole
    assert {name for name, run in found.items() if not run.interrupted} == {"moved-away", "done"}
    (row,) = learn_pools(found.values(), LATER)
    (everything,) = learn_pools((replace(run, reason=None) for run in found.values()), LATER)
    assert row.interruptions == pytest.approx(len(whole) / 12 * everything.interruptions)
    assert (row.hours, row.exposure) == (everything.hours, everything.exposure)


def gang(hours: float, steps: int, *seconds: float | None, **more: Any) -> tuple[Attempt, list[NodeRecord]]:
    """An attempt that ran for so long and came so far from step 100 on, with each rank's time of a step."""
    one = attempt(met_at=NOW, first_step=100, machines=len(seconds), **more)
    heard = NOW + timedelta(hours=hours)
    return one, [node(rank=n, heard_at=heard, step=100 + steps, step_seconds=s) for n, s in enumerate(seconds)]


def rate(measured: MeasuredSpeed | None) -> float | None:
    return None if measured is None else measured.steps_per_hour


def test_the_trainings_own_time_of_a_step_counts_where_the_clock_agrees(book: PriceBook) -> None:
    found = measure_speed(*gang(1, 300, 9.0, 10.0), book)
    assert found is not None
    assert (found.machines, found.steps_per_hour) == (2, 360.0)
    assert (found.machine.instance_type, found.accelerators, found.fabric) == ("p5.48xlarge", 16, "rdma")


@pytest.mark.parametrize("seconds", [None, 0.05, 500.0], ids=["not told", "a fast clock", "one slow step"])
def test_else_it_is_steps_by_the_clock(book: PriceBook, seconds: float | None) -> None:
    assert rate(measure_speed(*gang(2, 600, seconds), book)) == pytest.approx(300.0)
    assert measure_speed(*gang(0.5, 150, seconds), book) is None


def test_a_gang_that_is_over_is_measured_until_it_was_gone(book: PriceBook) -> None:
    assert rate(measure_speed(*gang(4, 600, None, gone_at=NOW + 2 * HOUR), book)) == pytest.approx(300.0)


def test_too_little_is_no_measure(book: PriceBook) -> None:
    assert measure_speed(*gang(0.1, 300, 1.0), book) is None
    assert measure_speed(*gang(3, 9, 1000.0), book) is None
    one, nodes = gang(1, 300, 10.0, 10.0)
    assert measure_speed(attempt(), nodes, book) is None
    assert measure_speed(one, [node(), node(rank=1)], book) is None


def test_machines_of_several_types_or_of_none_that_is_known_are_no_measure(book: PriceBook) -> None:
    one, nodes = gang(1, 300, 10.0)
    assert measure_speed(one, [*nodes, node(rank=1, instance_type="p4d.24xlarge")], book) is None
    assert (
        measure_speed(one, [node(instance_type="x9", heard_at=NOW + HOUR, step=400, step_seconds=10.0)], book) is None
    )


def test_a_job_has_the_speed_of_its_newest_gang_that_was_measured(book: PriceBook) -> None:
    job = simple_job("llama", ("H100", 8), steps=5000, steps_per_hour=1000)
    lives = [gang(2, 600, 11.0), gang(2, 1000, 7.0), gang(0.1, 1, None)]
    chain = AttemptHistory(
        tuple(one for one, _ in lives), (0, 0, 0), ("", "", ""), nodes=tuple(tuple(nodes) for _, nodes in lives)
    )
    machine, accelerator = book.machine("aws", "p5.48xlarge"), book.accelerator("H100")
    assert machine is not None
    assert accelerator is not None
    found = gang_speed(job_as_measured(job, chain, book).workload, machine, 1, accelerator)
    assert isinstance(found, Speed)
    newest = 3600 / 7
    assert found.steps_per_hour == pytest.approx(newest * (1000 / newest) ** (16 / 40_016))
    unmeasured = AttemptHistory((attempt(),), (0,), ("",), nodes=((node(),),))
    assert job_as_measured(job, unmeasured, book) is job
