"""Passes over gangs: what is turned, released, planned anew and made again; and what a crash in between leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.plans import Order
from router.controller.provision.provision_order import PlacedAttempt, ProvisionResult, ProvisionStatus
from router.controller.supervise.policy_runner import Advice
from router.controller.supervise.replanner import PlacementDeferred, PlacementRejected
from router.controller.supervise.supervisor import Supervisor
from router.spot.policies.interface import MoveDecision, PolicyEvent, SaveDecision
from router.state.errors import LeaseHeldError
from router.state.lock_owner import LockOwner
from router.state.records import NoticeRecord, Phase
from tests.support.state_values import HOUR, NOW, attempt
from tests.support.watched import QUIET, SECOND, Places, noticed, now, patient_site, saved, settle, stopped_clock, up


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def site(tmp_path: Path, told: list[str]) -> Iterator[ControllerContext]:
    with patient_site(tmp_path, told) as made:
        yield made


@pytest.fixture
def places(site: ControllerContext) -> Places:
    return Places(site)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return stopped_clock(monkeypatch)


@pytest.fixture
def watcher(
    site: ControllerContext, places: Places, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Supervisor]:
    def make_placed(_site: ControllerContext, _errand: object, placed: PlacedAttempt, _when: object) -> ProvisionResult:
        places.made.append(placed.attempt.id)
        up = site.store.attempts.update(placed.attempt.id, lambda a: replace(a, phase=Phase.READY, met_at=NOW))
        order = Order(up.job, up.gang, up.start, up.end, ())
        return ProvisionResult(order, ProvisionStatus.READY, up)

    monkeypatch.setattr("router.controller.supervise.supervisor.provision_recorded", make_placed)
    made = Supervisor(site, places, QUIET, nullcontext)  # type: ignore[arg-type]
    yield made
    made.close()


def test_a_notice_is_answered_by_a_save_and_a_new_gang_that_goes_on(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float], told: list[str]
) -> None:
    one = up(site)
    assert watcher.reconcile()
    noticed(site, one)
    watcher.reconcile()
    assert now(site, one.id).phase is Phase.CHECKPOINTING
    settle(watcher, clock, 2)
    assert now(site, one.id).phase is Phase.CHECKPOINTING, "nothing is saved yet, and there is time"
    saved(site, one, 17)
    settle(watcher, clock)
    old, new = now(site, one.id), now(site, "llama-2")
    assert (old.phase, old.reason, old.kept_step) == (Phase.FAILED, "interrupted", 17)
    assert (new.phase, new.resumes, new.first_step) == (Phase.READY, one.id, 17)
    assert places.made == ["llama-2"]
    assert any("step 17 is saved" in line for line in told)
    assert [e.what for e in site.store.journal.entries(one.id)] == ["saved", "leaving", "releasing", "released"]


def test_gangs_that_leave_together_are_planned_together(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    gangs = [up(site, f"job-{number}") for number in range(5)]
    for number, one in enumerate(gangs):
        noticed(site, one, phase=Phase.CHECKPOINTING)
        saved(site, one, 10 + number)
        watcher.reconcile()
        clock[0] += 0.3
    settle(watcher, clock)
    assert places.asked == [[f"job-{number}" for number in range(5)]]
    assert [now(site, f"job-{number}-2").first_step for number in range(5)] == [10, 11, 12, 13, 14]


def test_nobody_waits_for_others_for_long(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    for number in range(20):
        one = up(site, f"job-{number:02}")
        noticed(site, one, phase=Phase.CHECKPOINTING)
        saved(site, one, 1)
        watcher.reconcile()
        clock[0] += 0.3
    assert places.asked
    assert len(places.asked[0]) == 8


def test_the_pool_that_failed_is_left_alone_longer_each_time(
    site: ControllerContext, watcher: Supervisor, clock: list[float]
) -> None:
    one = up(site)
    noticed(site, one, phase=Phase.CHECKPOINTING)
    saved(site, one, 5)
    settle(watcher, clock)
    (first,) = site.store.shortages.in_force(NOW)
    assert (first.until - first.at, first.why) == (timedelta(minutes=10), "interrupted")
    object.__setattr__(site, "clock", lambda: NOW + HOUR)
    again = now(site, "llama-2")
    site.store.attempts.set_node(again.id, 0, agent=protocol.RUNNING)
    noticed(site, again, phase=Phase.CHECKPOINTING)
    settle(watcher, clock)
    clock[0] += 100
    site.store.journal.note(again.id, "saved", NOW, rank=0, id="n1", saved_step=6, saved_manifest="/m/6", seconds=1.0)
    settle(watcher, clock)
    (second,) = site.store.shortages.in_force(NOW + HOUR)
    assert second.until - second.at == timedelta(minutes=20)


def test_a_lost_rank_needs_no_notice(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    one = up(site, "llama", protocol.RUNNING, protocol.RUNNING)
    site.store.attempts.set_node(one.id, 1, saved_step=8, saved_manifest="/m/8")
    for _ in range(3):
        watcher.reconcile()
        clock[0] += 29
    settle(watcher, clock)
    assert now(site, one.id).reason == "lost"
    assert now(site, "llama-2").first_step == 8
    assert places.asked == [["llama"]]


def test_a_training_that_ended_is_released_and_not_made_again(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    fine, bad = up(site, "fine"), up(site, "bad")
    site.store.attempts.update(fine.id, lambda a: replace(a, result=protocol.FINISHED))
    site.store.attempts.set_node(bad.id, 0, ended_reason=protocol.CRASHED, exit_code=7, agent=protocol.FAILED)
    site.store.attempts.update(bad.id, lambda a: replace(a, result=protocol.CRASHED))
    settle(watcher, clock)
    assert (now(site, fine.id).phase, now(site, bad.id).phase) == (Phase.FINISHED, Phase.FAILED)
    assert now(site, bad.id).message == "rank 0 crashed with exit code 7"
    assert places.asked == []
    assert not watcher.reconcile()


def test_a_crash_that_may_pass_is_made_again(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    one = up(site)
    site.store.attempts.set_node(
        one.id,
        0,
        ended_reason=protocol.CRASHED,
        exit_code=1,
        agent=protocol.FAILED,
        saved_step=4,
        saved_manifest="/m/4",
    )
    site.store.attempts.update(one.id, lambda a: replace(a, result=protocol.CRASHED))
    settle(watcher, clock)
    assert now(site, "llama-2").first_step == 4
    assert places.made == ["llama-2"]


def test_who_finds_no_place_is_released_and_waits(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float], told: list[str]
) -> None:
    one = up(site)
    noticed(site, one, phase=Phase.CHECKPOINTING)
    saved(site, one, 5)
    places.answer = PlacementDeferred("all is short")
    settle(watcher, clock)
    assert now(site, one.id).phase is Phase.FAILED
    assert watcher.reconcile(), "it is waited for"
    assert sum("waits for a place: all is short" in line for line in told) == 1
    places.answer = None
    settle(watcher, clock)
    assert now(site, "llama-2").first_step == 5


def test_who_never_will_is_given_up_with_a_reason(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    one = up(site)
    noticed(site, one, phase=Phase.CHECKPOINTING)
    saved(site, one, 5)
    places.answer = PlacementRejected("its budget is spent")
    settle(watcher, clock)
    last = now(site, one.id)
    assert (last.phase, last.reason, last.message) == (Phase.FAILED, "given_up", "its budget is spent")
    assert not watcher.reconcile()


def test_after_a_crash_in_the_middle_the_next_watcher_goes_on(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    """The old gang was to be released, the new one was planned: then the power went."""
    one = up(site, phase=Phase.MIGRATING, reason="interrupted", message="rank 0 is preempted")
    saved(site, one, 9)
    half = attempt("llama-2", number=2, resumes=one.id, first_step=7, created_at=NOW + 2 * SECOND)
    site.store.attempts.add(half, [])
    settle(watcher, clock, 8)
    assert (now(site, one.id).reason, now(site, half.id).reason) == ("interrupted", "crashed")
    assert (now(site, "llama-3").phase, now(site, "llama-3").first_step) == (Phase.READY, 9)


def test_while_another_applies_nothing_is_made_and_turns_are_still_seen(
    site: ControllerContext, places: Places, clock: list[float]
) -> None:
    held = Mock(side_effect=LeaseHeldError("apply", LockOwner.of_this_process(), NOW))
    watcher = Supervisor(site, places, QUIET, held)  # type: ignore[arg-type]
    one, other = up(site, phase=Phase.READY), up(site, "other")
    noticed(site, other)
    site.store.attempts.add(attempt("half", job="half", phase=Phase.PROVISIONING), [])
    settle(watcher, clock, 3)
    assert (now(site, one.id).phase, now(site, other.id).phase) == (Phase.RUNNING, Phase.CHECKPOINTING)
    saved(site, other, 3)
    settle(watcher, clock, 3)
    assert (places.asked, now(site, other.id).phase, now(site, "half").phase) == (
        [],
        Phase.CHECKPOINTING,
        Phase.PROVISIONING,
    )
    watcher.close()


def test_what_never_came_up_is_left_to_whoever_applied(
    site: ControllerContext, watcher: Supervisor, clock: list[float]
) -> None:
    site.store.attempts.add(attempt("half", job="half", phase=Phase.PLANNED), [])
    settle(watcher, clock, 3)
    assert now(site, "half").phase is Phase.PLANNED


def test_what_was_being_released_when_whoever_applied_died_is_released(
    site: ControllerContext, watcher: Supervisor, clock: list[float]
) -> None:
    site.store.attempts.add(attempt("half", job="half", phase=Phase.RELEASING, reason="short"), [])
    settle(watcher, clock, 3)
    assert (now(site, "half").phase, now(site, "half").reason) == (Phase.FAILED, "short")
    assert not watcher.reconcile()


def advising(*advices: Advice) -> Any:
    """Says each once."""
    left = list(advices)
    return SimpleNamespace(advise=lambda alive, notices: tuple([left.pop()] if left else ()))


def test_a_gang_that_moves_because_it_wants_to_goes_when_the_next_is_whole(
    site: ControllerContext, places: Places, clock: list[float], monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    one = up(site)
    seen: list[Phase] = []

    def make_placed(_site: ControllerContext, _errand: object, placed: PlacedAttempt, whole: Any) -> ProvisionResult:
        seen.append(now(site, one.id).phase)
        site.store.journal.note(
            one.id, "saved", NOW, rank=0, id="move-llama-2", saved_step=21, saved_manifest="/m/21", seconds=1
        )
        site.store.attempts.set_node(one.id, 0, saved_step=21, saved_manifest="/m/21")
        whole()
        seen.append(now(site, one.id).phase)
        new = site.store.attempts.update(placed.attempt.id, lambda a: replace(a, phase=Phase.READY, met_at=NOW))
        return ProvisionResult(Order(new.job, new.gang, new.start, new.end, ()), ProvisionStatus.READY, new)

    monkeypatch.setattr("router.controller.supervise.supervisor.provision_recorded", make_placed)
    notice = NoticeRecord(one.id, 0, "n1", protocol.REBALANCE, "sandbox", None, "maybe", NOW)
    advice = Advice(one, PolicyEvent.REBALANCE, MoveDecision(("there",), "a hint"), notice)
    watcher = Supervisor(site, places, advising(advice), nullcontext)  # type: ignore[arg-type]
    settle(watcher, clock)
    watcher.close()
    assert seen == [Phase.MIGRATING, Phase.FAILED], "the old one goes once the new one is whole, not before"
    old, new = now(site, one.id), now(site, "llama-2")
    assert (old.reason, old.kept_step, new.first_step, new.first_manifest) == ("moved", 21, 21, "/m/21")
    assert [s.why for s in site.store.shortages.in_force(NOW)] == ["rebalance"]
    assert told[-1] == "llama: llama-2 took over from llama-1 after step 21"


def test_gangs_that_want_to_move_are_planned_together(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    gangs = [up(site, f"job-{number}") for number in range(3)]
    wishes = [Advice(one, PolicyEvent.PRICE, MoveDecision(("there",), "cheaper")) for one in gangs]
    once = [(), tuple(wishes)]
    watcher.adviser = SimpleNamespace(advise=lambda alive, notices: once.pop() if once else ())  # type: ignore[assignment]
    watcher.reconcile()
    assert places.asked == [["job-0", "job-1", "job-2"]]
    settle(watcher, clock, 1)
    assert sorted(places.made) == ["job-0-2", "job-1-2", "job-2-2"]


def test_what_is_over_is_forgotten(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    """A watcher may run for months."""
    places.answer = PlacementRejected("no money")
    one = up(site)
    watcher.reconcile()
    noticed(site, one, phase=Phase.CHECKPOINTING)
    saved(site, one, 1)
    settle(watcher, clock, 8)
    assert now(site, one.id).phase is Phase.FAILED
    kept = (
        watcher._heartbeats._heard,
        watcher._heartbeats._observed_at,
        watcher._leaving,
        watcher._last_reasons,
        watcher._not_before,
    )
    assert [len(part) for part in kept] == [0, 0, 0, 0, 0]


def test_one_that_finds_no_other_place_stays(
    site: ControllerContext, places: Places, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = up(site)

    def make_placed(_site: ControllerContext, _errand: object, placed: PlacedAttempt, _whole: Any) -> ProvisionResult:
        new = site.store.attempts.update(
            placed.attempt.id, lambda a: replace(a, phase=Phase.FAILED, reason="short", gone_at=NOW)
        )
        return ProvisionResult(Order(new.job, new.gang, new.start, new.end, ()), ProvisionStatus.FAILED, new)

    monkeypatch.setattr("router.controller.supervise.supervisor.provision_recorded", make_placed)
    advice = Advice(one, PolicyEvent.PRICE, MoveDecision(("there",), "cheaper"))
    watcher = Supervisor(site, places, advising(advice), nullcontext)  # type: ignore[arg-type]
    settle(watcher, clock)
    watcher.close()
    still = now(site, one.id)
    assert (still.phase, still.reason, still.message) == (Phase.RUNNING, "", "")


def test_a_checkpoint_that_the_policy_wants_is_ordered_and_nothing_else(
    site: ControllerContext, places: Places, clock: list[float]
) -> None:
    one = up(site)
    notice = NoticeRecord(one.id, 0, "n7", protocol.REBALANCE, "sandbox", None, "maybe", NOW)
    advice = Advice(one, PolicyEvent.REBALANCE, SaveDecision("a hint"), notice)
    watcher = Supervisor(site, places, advising(advice), nullcontext)  # type: ignore[arg-type]
    settle(watcher, clock, 3)
    watcher.close()
    told = now(site, one.id)
    assert (told.phase, told.order_id, told.order_reason) == (Phase.RUNNING, "n7", "rebalance")
    assert told.ordered_at == site.wall_clock()
    assert places.asked == []


def test_machines_that_are_not_well_are_saved_and_left(
    site: ControllerContext, places: Places, watcher: Supervisor, clock: list[float]
) -> None:
    one = up(site)
    notice = NoticeRecord(one.id, 0, "n8", protocol.HEALTH, "gpu", None, "ECC", NOW)
    watcher.adviser = advising(Advice(one, PolicyEvent.HEALTH, SaveDecision("health"), notice))
    settle(watcher, clock, 2)
    assert now(site, one.id).phase is Phase.CHECKPOINTING
    site.store.journal.note(one.id, "saved", NOW, rank=0, id="n8", saved_step=3, saved_manifest="/m/3", seconds=1.0)
    site.store.attempts.set_node(one.id, 0, saved_step=3, saved_manifest="/m/3")
    settle(watcher, clock)
    assert (now(site, one.id).reason, now(site, "llama-2").first_step) == ("moved", 3)
    assert [s.why for s in site.store.shortages.in_force(NOW)] == ["unhealthy"]
