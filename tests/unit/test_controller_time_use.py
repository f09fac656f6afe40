"""Every microsecond of a machine's life went into one thing, and its money is split without remainder."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from router.controller.history.metering import (
    TrainingRecord,
    cost_so_far,
    metered_entries,
    split_machine_time,
    training_record_of,
)
from router.ledger.entry import MachineUse
from router.ledger.month import Month
from router.state.records import Attempt, NodeRecord
from tests.support.state_values import NOW, attempt, node

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
COURSE = TrainingRecord(
    met_at=NOW + 5 * MINUTE,
    ended_at=NOW + 65 * MINUTE,
    finished=False,
    told=True,
    first_step=100,
    last_step=160,
    kept_step=140,
    step_seconds=30.0,
)
_AT = st.none() | st.integers(-(10**10), 4 * 10**12).map(lambda us: NOW + timedelta(microseconds=us))
_REALS = st.none() | st.floats(0, 1e12) | st.sampled_from([float("inf"), float("nan"), 1e308])
_COURSES = st.builds(
    TrainingRecord,
    met_at=_AT,
    ended_at=_AT,
    finished=st.booleans(),
    told=st.booleans(),
    first_step=st.integers(0, 9),
    last_step=st.integers(0, 10**9),
    kept_step=st.integers(0, 99),
    step_seconds=_REALS,
    saving=st.sampled_from([timedelta(0), -MINUTE, MINUTE, timedelta(days=99), timedelta.max]),
    deadline=_AT,
)


def minutes(course: TrainingRecord, life: timedelta = 70 * MINUTE) -> dict[str, float]:
    """What a life of 70 minutes went into."""
    return {str(part.use): (part.end - part.start) / MINUTE for part in split_machine_time(NOW, NOW + life, course)}


def test_a_life_with_everything_in_it() -> None:
    assert minutes(COURSE) == {"startup": 5, "work": 50, "restart_lost_work": 10, "idle_allocated": 5}
    uses = [part.use for part in split_machine_time(NOW, NOW + 70 * MINUTE, replace(COURSE, saving=MINUTE))]
    assert uses == [
        MachineUse.STARTUP,
        MachineUse.WORK,
        MachineUse.CHECKPOINT_OVERHEAD,
        MachineUse.RESTART_LOST_WORK,
        MachineUse.IDLE_ALLOCATED,
    ]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"met_at": None}, {"failed_launch": 70}),
        ({"ended_at": None}, {"startup": 5, "work": 55, "restart_lost_work": 10}),
        ({"finished": True}, {"startup": 5, "work": 60, "idle_allocated": 5}),
        (
            {"saving": 7 * MINUTE},
            {"startup": 5, "work": 43, "checkpoint_overhead": 7, "restart_lost_work": 10, "idle_allocated": 5},
        ),
        ({"saving": HOUR * 9}, {"startup": 5, "checkpoint_overhead": 50, "restart_lost_work": 10, "idle_allocated": 5}),
        ({"step_seconds": 1e9}, {"startup": 5, "restart_lost_work": 60, "idle_allocated": 5}),
        ({"step_seconds": None}, {"startup": 5, "work": 40, "restart_lost_work": 20, "idle_allocated": 5}),
        ({"kept_step": 100}, {"startup": 5, "restart_lost_work": 60, "idle_allocated": 5}),
        ({"kept_step": 160}, {"startup": 5, "work": 60, "idle_allocated": 5}),
        ({"told": False}, {"startup": 5, "None": 60, "idle_allocated": 5}),
        ({"told": False, "finished": True}, {"startup": 5, "work": 60, "idle_allocated": 5}),
        (
            {"deadline": NOW + 25 * MINUTE},
            {"startup": 5, "work": 20, "overrun": 30, "restart_lost_work": 10, "idle_allocated": 5},
        ),
        ({"deadline": NOW}, {"startup": 5, "overrun": 50, "restart_lost_work": 10, "idle_allocated": 5}),
        ({"met_at": NOW - HOUR}, {"work": 55, "restart_lost_work": 10, "idle_allocated": 5}),
        ({"met_at": NOW + 9 * HOUR}, {"startup": 70}),
        ({"ended_at": NOW - HOUR}, {"startup": 5, "idle_allocated": 65}),
    ],
)
def test_the_rules_of_docs_ledger_md(changes: dict[str, Any], wanted: dict[str, float]) -> None:
    assert minutes(replace(COURSE, **changes)) == wanted


@given(_COURSES, st.integers(-(10**6), 5 * 10**12))
def test_the_stretches_partition_the_life_whatever_was_written_down(course: TrainingRecord, length: int) -> None:
    gone = NOW + timedelta(microseconds=length)
    parts = split_machine_time(NOW, gone, course)
    assert sum(part.ticks for part in parts) == max(0, length)
    edges = [NOW, *(part.end for part in parts)]
    assert [part.start for part in parts] == edges[:-1] if parts else length <= 0
    assert all(part.ticks > 0 for part in parts)
    assert all(part.start >= Month.of(part.start).begins and part.end <= Month.of(part.start).ends for part in parts)


@given(
    _COURSES,
    st.lists(st.tuples(_AT, _AT, st.integers(0, 10**14)), max_size=4),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_money_and_steps_of_the_stretches_add_up_to_the_last_nano(
    course: TrainingRecord, lives: list[tuple[datetime | None, datetime | None, int]], kept: int, lost: int
) -> None:
    nodes = [
        node(rank=rank, made_at=made, gone_at=gone, usd_per_hour=UsdPerHour(nanos))
        for rank, (made, gone, nanos) in enumerate(lives)
    ]
    one = attempt(first_step=7, kept_step=7 + kept, last_step=7 + kept + lost)
    entries = metered_entries(one, nodes, NOW, course)
    far = NOW + timedelta(days=999)
    gone_ones = [machine for machine in nodes if machine.gone_at is not None]
    assert Usd.total(entry.usd for entry in entries) == cost_so_far(gone_ones, far)
    assert len({entry.key for entry in entries}) == len(entries)
    first = any(entry.rank == 0 for entry in entries)
    assert sum(entry.steps for entry in entries) == (kept if first else 0)
    assert sum(entry.lost_steps for entry in entries) == (lost if first else 0)
    for entry in entries:
        assert entry.usd_per_hour is not None
        assert abs(entry.usd.nanos - entry.usd_per_hour.nanos * entry.hours) < 1 + 1e-9


def test_over_the_end_of_a_month_each_has_its_part() -> None:
    made = datetime(2026, 10, 31, 23, 0, tzinfo=UTC)
    machine = node(made_at=made, gone_at=made + 3 * HOUR, usd_per_hour=UsdPerHour(10))
    done = attempt(met_at=made + HOUR / 2, result_at=made + 3 * HOUR, result="finished", kept_step=90, last_step=90)
    entries = metered_entries(done, [machine], NOW)
    assert [(str(e.period), e.use, float(e.hours), e.steps) for e in entries] == [
        ("2026-10", MachineUse.STARTUP, 0.5, 0),
        ("2026-10", MachineUse.WORK, 0.5, 18),
        ("2026-11", MachineUse.WORK, 2.0, 72),
    ]
    assert Usd.total(e.usd for e in entries) == Usd(30)


def test_what_is_written_down_of_a_training() -> None:
    one = attempt(first_step=10, last_step=30, kept_step=20, met_at=NOW, result="crashed", result_at=NOW + HOUR)
    ranks = [node(step=30, step_seconds=1.5), node(rank=1, step_seconds=2.5)]
    saved: list[dict[str, object]] = [
        {"saved_step": 15, "seconds": 2.0, "rank": 0},
        {"saved_step": 15, "seconds": 3.0, "rank": 1},
        {"saved_step": 20, "seconds": 4},
        {"saved_step": 20, "seconds": None},
    ]
    course = training_record_of(one, ranks, saved, None)
    assert course == TrainingRecord(NOW, NOW + HOUR, False, True, 10, 30, 20, 2.5, timedelta(seconds=7), None)
    silent = training_record_of(attempt(met_at=NOW), [node()], [{"saved_step": 1, "seconds": 1e300}], None)
    assert (silent.told, silent.step_seconds, silent.saving) == (False, None, timedelta.max)


def test_of_a_gang_that_lost_a_rank_the_training_ended_when_that_rank_was_last_heard_of() -> None:
    one = attempt(met_at=NOW, last_step=90, kept_step=90)
    heard = [
        node(heard_at=NOW + 50 * MINUTE, ended_reason="stopped", step=90),
        node(rank=1, heard_at=NOW + 40 * MINUTE),
        node(rank=2, heard_at=NOW + 45 * MINUTE),
    ]
    assert training_record_of(one, heard, (), None).ended_at == NOW + 40 * MINUTE
    assert minutes(training_record_of(one, heard, (), None), HOUR) == {"work": 40, "idle_allocated": 20}
    said = replace(one, result="crashed", result_at=NOW + 44 * MINUTE)
    assert training_record_of(said, heard, (), None).ended_at == said.result_at
    assert training_record_of(one, [node(step=90)], (), None).ended_at is None


class TestPublicComplaints:
    """What people complained about in the threads of other tools."""

    def test_a_launch_that_never_got_its_gang_costs_what_was_billed(self) -> None:
        """SkyPilot #1751: launches that never got capacity showed as 880 dollars."""
        refused, lonely = node(rank=0), node(rank=1, made_at=NOW, gone_at=NOW + 90 * timedelta(seconds=1))
        entries = metered_entries(attempt(), [refused, lonely], NOW + timedelta(days=30))
        assert [(e.rank, e.use, e.usd) for e in entries] == [
            (1, MachineUse.FAILED_LAUNCH, lonely.usd_per_hour.over(90 * MINUTE / 60))
        ]

    def test_machines_that_are_gone_cost_nothing_more_however_late_it_is_asked(self) -> None:
        """SkyPilot #2769, #1645: stopped clusters went on costing in the report."""
        machine = node(made_at=NOW, gone_at=NOW + HOUR)
        soon, late = (metered_entries(attempt(), [machine], NOW + timedelta(days=days)) for days in (1, 400))
        assert [replace(e, recorded_at=NOW) for e in soon] == [replace(e, recorded_at=NOW) for e in late]
        assert metered_entries(attempt(), [replace(machine, gone_at=None)], NOW + timedelta(days=400)) == ()

    def test_a_job_over_all_its_preemptions_is_the_sum_of_its_attempts(self) -> None:
        """SkyPilot #1670: the cost of a spot job over its recoveries, and which of them it was."""
        lives: list[tuple[Attempt, NodeRecord]] = []
        for number in range(4):
            at = NOW + number * 2 * HOUR
            one = attempt(
                f"a{number}",
                met_at=at + 6 * MINUTE,
                first_step=number * 10,
                kept_step=number * 10 + 10,
                last_step=number * 10 + 12,
            )
            lives.append((one, node(one.id, made_at=at, gone_at=at + HOUR, step=one.last_step, step_seconds=60.0)))
        entries = [entry for one, machine in lives for entry in metered_entries(one, [machine], NOW)]
        by_attempt = {one.id: Usd.total(e.usd for e in entries if e.attempt == one.id) for one, _ in lives}
        assert by_attempt == {one.id: machine.usd_per_hour.over(HOUR) for one, machine in lives}
        waste = {use: sum(e.hours for e in entries if e.use is use) * 60 for use in MachineUse}
        assert {use: m for use, m in waste.items() if m} == {
            MachineUse.STARTUP: 24,
            MachineUse.WORK: 208,
            MachineUse.RESTART_LOST_WORK: 8,
        }
        assert (sum(e.steps for e in entries), sum(e.lost_steps for e in entries)) == (40, 8)
