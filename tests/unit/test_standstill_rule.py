"""When a training stands still, by times and steps alone; and what follows for its gang, its report and its order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history.events import EventLevel, find_events
from router.controller.history.heartbeats import agreed_cost, find_gang_standstill
from router.controller.history.lifecycle import GangStatus, ReleaseDecision, ReleaseReason, next_transition
from router.controller.report.report import build_status_report
from router.controller.supervise.standstill_monitor import OBSERVED_S, StandstillMonitor
from router.deploy.deploy_settings import Deploy, Timeouts
from router.deploy.notify_settings import EventKind
from router.jobs.job_json import job_json
from router.jobs.standstill import (
    FIRST_STEP_MARGIN,
    Standstill,
    StandstillFinding,
    TrainingSigns,
    TrainingTerms,
    find_standstill,
    step_time,
)
from router.render.status_text import as_json, as_table, as_wide
from router.state.records import Attempt, NodeRecord, Phase
from tests.support.bare_site import bare_site
from tests.support.drilled import Ticks
from tests.support.narrowed import present
from tests.support.scenes import a_job
from tests.support.state_values import HOUR, NOW, attempt, node

MINUTE = timedelta(minutes=1)
RULE = Standstill()
START = 10 * MINUTE


def stepped(minutes: float, *, step: int = 7, step_seconds: float | None = None) -> TrainingSigns:
    """A training whose last step came so many minutes before its gang was last heard."""
    heard = NOW + 5 * HOUR
    return TrainingSigns(NOW, heard, step, heard - minutes * MINUTE, step_seconds)


@pytest.mark.parametrize(
    ("planned", "measured", "seconds"),
    [
        (None, None, None), (2.0, None, 2.0), (None, 3.0, 3.0), (2.0, 0.5, 2.0), (2.0, 5.0, 5.0),
        # Steps that come ever later do not move the limit with them.
        (2.0, 500.0, 8.0), (0.0, 3.0, 3.0),
    ],
)  # fmt: skip
def test_a_step_takes_as_long_as_planned_or_measured(
    planned: float | None, measured: float | None, seconds: float | None
) -> None:
    assert step_time(planned, measured) == seconds


@pytest.mark.parametrize(
    ("signs", "planned", "limit"),
    [
        (stepped(10), 1.0, None), (stepped(10.1), 1.0, 10), (stepped(10.1), None, 10),
        # Ten times the step time, where that is longer.
        (stepped(19), 120.0, None), (stepped(21), 120.0, 20), (stepped(40), 60.0, 10),
        (stepped(39, step_seconds=900.0), 60.0, None), (stepped(41, step_seconds=900.0), 60.0, 40),
        (stepped(100, step_seconds=900.0), None, None), (stepped(151, step_seconds=900.0), None, 150),
        # All steps are done: what follows reports none.
        (stepped(100, step=60), 1.0, None),
    ],
)  # fmt: skip
def test_no_step_for_too_long_is_a_standstill(signs: TrainingSigns, planned: float | None, limit: int | None) -> None:
    found = find_standstill(signs, TrainingTerms(START, timedelta(0), planned, 60), RULE)
    assert (None if found is None else found.limit) == (None if limit is None else limit * MINUTE)


def test_a_pause_to_save_counts_on_top() -> None:
    terms = TrainingTerms(START, 5 * MINUTE, 1.0, 60)
    assert find_standstill(stepped(14), terms, RULE) is None
    assert find_standstill(stepped(16), terms, RULE) == StandstillFinding(7, 16 * MINUTE, 15 * MINUTE)


@pytest.mark.parametrize(
    ("up", "printed_before", "certain"),
    [(24, 24, None), (26, 26, True), (26, 1, False), (200, 14, False), (200, 16, True)],
)
def test_one_that_reports_no_step_is_certain_only_when_it_prints_nothing_either(
    up: int, printed_before: int, certain: bool | None
) -> None:
    """Trainings need not report steps: one that still prints is named, and left alone."""
    heard = NOW + up * MINUTE
    signs = TrainingSigns(NOW, heard, None, heard - printed_before * MINUTE)
    found = find_standstill(signs, TrainingTerms(START), RULE)
    assert (None if found is None else found.is_certain) == certain
    assert found is None or (found.step, found.limit) == (None, START + FIRST_STEP_MARGIN)


def test_what_stands_still_is_said_in_words() -> None:
    assert StandstillFinding(1200, 90 * MINUTE, 10 * MINUTE).text == (
        "stands still: no step after 1,200 for 1h30m (10m at most)"
    )
    assert StandstillFinding(None, 26 * MINUTE, 25 * MINUTE).text == (
        "reports no step, 26m after all ranks met (25m were expected at most)"
    )


def gang(stands: timedelta, *, heard: datetime = NOW + 4 * HOUR, **more: Any) -> tuple[Attempt, list[NodeRecord]]:
    """A gang of two that runs, whose last step came so long before it was heard."""
    machines = [
        node(rank=rank, agent=protocol.RUNNING, heard_at=heard, progress_at=heard - stands, step=7, made_at=NOW)
        for rank in (0, 1)
    ]
    return attempt(phase=Phase.RUNNING, met_at=NOW, made_at=NOW, end=NOW + 5 * HOUR, **more), machines


def test_a_gang_stands_still_only_while_all_of_its_ranks_are_heard() -> None:
    """A coordinator that was away for an hour heard no step, and that is no standstill."""
    one, machines = gang(HOUR)
    assert find_gang_standstill(one, machines, None, RULE) is not None
    behind = [machines[0], replace(machines[1], heard_at=machines[1].progress_at)]
    assert find_gang_standstill(one, behind, None, RULE) is None
    assert find_gang_standstill(replace(one, result="finished"), machines, None, RULE) is None
    assert find_gang_standstill(replace(one, phase=Phase.RELEASING), machines, None, RULE) is None


def test_the_jobs_own_rule_goes_before_the_deploy_files() -> None:
    one, machines = gang(HOUR)
    job = a_job(steps=1000, standstill={"action": "name", "at_least": "30m"})
    found = present(find_gang_standstill(one, machines, job_json(job), RULE))
    # Beside the half hour, the ten seconds that saving takes.
    assert (found.rule.action, found.finding.limit, found.is_to_leave) == ("name", timedelta(seconds=1810), False)
    patient = a_job(steps=1000, standstill={"at_least": "2h"})
    assert find_gang_standstill(one, machines, job_json(patient), RULE) is None


@pytest.mark.parametrize("answer", [{"saved": 7}, {"refused": "rank 0: late"}, {"ordered_s": 99.0}])
@pytest.mark.parametrize("last", [False, True])
def test_a_gang_that_saved_for_it_leaves_and_its_pools_are_avoided(answer: dict[str, Any], last: bool) -> None:
    one, machines = gang(HOUR, order_id="s", order_reason=protocol.STANDSTILL, order_seconds=60.0)
    status = GangStatus(replace(one, phase=Phase.CHECKPOINTING), machines, ordered_s=1.0, last_move=last)
    step = next_transition(replace(status, **answer))
    assert isinstance(step, ReleaseDecision)
    assert step.reason is (ReleaseReason.GIVEN_UP if last else ReleaseReason.STANDSTILL)
    assert step.ranks == (() if last else (0, 1))
    assert "stood still" in step.message


def test_a_training_that_crashes_when_it_is_to_save_stood_still() -> None:
    one, machines = gang(HOUR, order_id="s", order_reason=protocol.STANDSTILL, result=protocol.CRASHED)
    ended = [replace(each, ended_reason=protocol.CRASHED, exit_code=1) for each in machines]
    step = next_transition(GangStatus(replace(one, phase=Phase.CHECKPOINTING), ended))
    assert isinstance(step, ReleaseDecision)
    assert step.reason is ReleaseReason.STANDSTILL


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def site(tmp_path: Path, told: list[str]) -> Iterator[ControllerContext]:
    with bare_site(tmp_path, told, clock=lambda: NOW + 4 * HOUR) as made:
        yield made


def test_a_standstill_is_named_once_and_ordered_to_save_once_it_was_seen(
    site: ControllerContext, told: list[str]
) -> None:
    one, machines = gang(HOUR)
    site.store.attempts.add(one, machines)
    ticks = Ticks()
    monitor = StandstillMonitor(site, ticks)
    for _ in range(2):
        monitor.reconcile([one], {one.id: machines})
    assert told == []
    ticks.now += OBSERVED_S
    for _ in range(2):
        monitor.reconcile([one], {one.id: machines})
    said = "llama: a1 stands still: no step after 7 for 1h (10m at most)"
    assert told == [f"{said}; it is to save, stop and go on elsewhere"]
    after = present(site.store.attempts.get("a1"))
    assert (after.phase, after.order_reason, after.order_seconds) == (Phase.CHECKPOINTING, protocol.STANDSTILL, 60.0)
    (note,) = site.store.journal.entries("a1", what=(protocol.STANDSTILL,))
    (event,) = [e for e in find_events([one], {}, (), [note], NOW) if e.what is EventKind.STANDSTILL]
    assert (event.level, "no step after 7" in event.text) == (EventLevel.WARNING, True)


def test_one_that_is_only_named_goes_on(site: ControllerContext, told: list[str]) -> None:
    named = replace(site, deploy=Deploy.model_validate({"standstill": {"action": "name"}}))
    one, machines = gang(HOUR)
    site.store.attempts.add(one, machines)
    ticks = Ticks()
    monitor = StandstillMonitor(named, ticks)
    monitor.reconcile([one], {one.id: machines})
    ticks.now += OBSERVED_S
    monitor.reconcile([one], {one.id: machines})
    assert told == ["llama: a1 stands still: no step after 7 for 1h (10m at most)"]
    assert site.store.attempts.get("a1") == one


def test_the_move_after_the_last_one_that_the_job_allows_fails_it(site: ControllerContext) -> None:
    monitor = StandstillMonitor(site)
    for number in (1, 2, 3):
        one = attempt(f"a{number}", number=number, phase=Phase.FAILED, reason=protocol.STANDSTILL)
        site.store.attempts.add(replace(one, phase=Phase.RUNNING, reason=""), [])
        assert monitor.is_last_move(one) == (number == 3)
        site.store.attempts.update(one.id, lambda a: replace(a, phase=Phase.FAILED, reason=protocol.STANDSTILL))


def test_gangs_that_are_late_or_too_dear_are_said_once(site: ControllerContext, told: list[str]) -> None:
    one, machines = gang(timedelta(0))
    late = replace(one, end=NOW + 3 * HOUR, at_risk_usd=Usd.parse("100"))
    site.store.attempts.add(late, machines)
    ticks = Ticks()
    monitor = StandstillMonitor(site, ticks)
    for _ in range(3):
        monitor.reconcile([late], {late.id: machines})
        ticks.now += 60
    assert len(told) == 2
    assert "runs past its planned end" in told[0]
    assert "has cost 220.16 USD of the 100.00 USD" in told[1]


def test_status_says_planned_end_agreed_cost_and_what_is_over_either(site: ControllerContext) -> None:
    """The agreed cost is the order's, whose first attempt cost something already."""
    first, _ = gang(timedelta(0), at_risk_usd=Usd.parse("150"))
    gone = [node("a1", 0, made_at=NOW, gone_at=NOW + HOUR, usd_per_hour=UsdPerHour.parse("100"))]
    site.store.attempts.add(replace(first, phase=Phase.FAILED, reason="lost", gone_at=NOW + HOUR), gone)
    second, machines = gang(HOUR, resumes="a1", at_risk_usd=Usd.parse("900"))
    machines = [replace(each, attempt="a2", made_at=NOW + 3 * HOUR) for each in machines]
    site.store.attempts.add(replace(second, id="a2", number=2, created_at=NOW + HOUR, end=NOW + 3 * HOUR), machines)
    report = build_status_report(site.store, (), NOW + 4 * HOUR, Timeouts(), everything=False)
    (found,) = report.gangs
    assert (found.order.agreed_usd, found.order.spent_usd) == (Usd.parse("150"), Usd.parse("155.04"))
    assert (found.is_late, found.order.is_over, found.standstill is not None) == (True, True, True)
    for text in (as_table(report), as_wide(report)):
        assert "11-21 21:00Z" in text
        assert "a2: late: its planned end was 2026-11-21 21:00Z" in text
        assert "a2: over the agreed cost: $155.04 of $150.00" in text
        assert "a2: stands still: no step after 7 for 1h" in text
    for fact in ('"late": true', '"over_agreed": true', '"agreed_usd": "150.00"', '"limit_minutes": 10.0'):
        assert fact in as_json(report)


def test_what_was_agreed_to_is_the_dearest_place_where_it_was_to_begin() -> None:
    costs = [Usd.parse("10"), Usd.parse("12"), Usd.parse("40")]
    tries = [attempt(f"a{i}", at_risk_usd=usd, resumes="a1" if i == 2 else "") for i, usd in enumerate(costs)]
    assert agreed_cost(tries) == Usd.parse("12")
