"""The attempts of one order: what the next goes on from, how often it was in vain, whether there is to be a next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from router.agent import protocol
from router.controller.history.attempt_history import ResumePoint, history_of, order_history, resumable_histories
from router.controller.plans import limits_json, store_limits
from router.jobs.job_json import job_json
from router.jobs.limits import Limits
from router.state.records import Attempt, Phase
from router.state.store import StateStore
from tests.support.made_up_jobs import simple_job
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt, node

SECOND = timedelta(seconds=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as made:
        yield made


def kept(
    store: StateStore, name: str, number: int, *, saved: int | None = None, exit_code: int = 1, **changes: Any
) -> Attempt:
    """An attempt that came up, lost its machines and saved so much."""
    fields: dict[str, Any] = {
        "number": number,
        "phase": Phase.FAILED,
        "reason": "interrupted",
        "met_at": NOW,
        "created_at": NOW + number * SECOND,
        "gone_at": NOW + HOUR,
    }
    one = attempt(name, **{**fields, **changes})
    reason = protocol.CRASHED if one.result == protocol.CRASHED else ""
    manifest = None if saved is None else f"/m/{saved}"
    last = node(name, ended_reason=reason, exit_code=exit_code, saved_step=saved, saved_manifest=manifest)
    store.attempts.add(one, [last])
    return one


def test_the_next_goes_on_from_the_last_step_that_any_has_saved(store: StateStore) -> None:
    kept(store, "a1", 1, saved=40)
    last = kept(store, "a2", 2, first_step=40, first_manifest="/m/40")
    assert history_of(store, last).before == ResumePoint("a2", 40, "/m/40")
    third = kept(store, "a3", 3, first_step=40, first_manifest="/m/40", saved=55)
    assert history_of(store, third).before == ResumePoint("a3", 55, "/m/55")


def test_what_may_still_be_training_is_what_the_next_has_to_wait_for(store: StateStore) -> None:
    kept(store, "a1", 1, saved=40, phase=Phase.MIGRATING, gone_at=None)
    last = kept(store, "a2", 2, first_step=30, reason="crashed")
    assert history_of(store, last).before == ResumePoint("a1", 40, "/m/40")


def test_an_order_without_attempts_has_no_chain(store: StateStore) -> None:
    one = kept(store, "a1", 1)
    assert order_history(store, one.plan, one.job, one.gang, one.start + HOUR) is None
    assert order_history(store, one.plan, one.job, one.gang, one.start) is not None


def test_the_more_were_in_vain_the_longer_the_pause(store: StateStore) -> None:
    kept(store, "a0", 0, saved=5)
    pauses = []
    for number in range(1, 12):
        last = kept(store, f"a{number}", number, first_step=5, first_manifest="/m/5")
        chain = history_of(store, last)
        assert chain.in_vain == number
        pauses.append((chain.again_at - (NOW + HOUR)).total_seconds())
    assert pauses == [0, 15, 30, 60, 120, 240, 480, 900, 900, 900, 900]
    progressed = kept(store, "a12", 12, first_step=5, saved=6)
    assert history_of(store, progressed).in_vain == 0
    assert history_of(store, progressed).again_at == NOW + HOUR


@pytest.mark.parametrize(
    ("reason", "goes_on"),
    [
        ("interrupted", True),
        ("lost", True),
        ("moved", True),
        ("short", True),
        ("quota", True),
        ("crashed", True),
        ("here", True),
        ("put_off", True),
        ("stopped", False),
        ("given_up", False),
        ("credentials", False),
        ("failed", False),
        ("finished", False),
    ],
)
def test_a_job_goes_on_unless_somebody_stopped_it_or_it_was_its_own_fault(
    store: StateStore, reason: str, goes_on: bool
) -> None:
    last = kept(store, "a1", 1, reason=reason)
    assert bool(resumable_histories(store, [last], crashes=3)) is goes_on


def test_what_never_came_up_is_for_whoever_applied_the_plan(store: StateStore) -> None:
    first = kept(store, "a1", 1, reason="short", met_at=None)
    assert resumable_histories(store, [first], crashes=3) == ()
    kept(store, "b1", 1, job="other")
    again = kept(store, "b2", 2, job="other", reason="short", met_at=None)
    assert [chain.last.id for chain in resumable_histories(store, [again], crashes=3)] == ["b2"]


def test_what_is_not_all_over_does_not_wait_yet(store: StateStore) -> None:
    kept(store, "a1", 1, phase=Phase.MIGRATING, gone_at=None)
    assert resumable_histories(store, [kept(store, "a2", 2, reason="crashed")], crashes=3) == ()


def test_a_crash_is_tried_again_a_few_times_and_no_more_unless_it_gets_on(store: StateStore) -> None:
    crash: dict[str, Any] = {"reason": "failed", "result": protocol.CRASHED}
    assert resumable_histories(store, [kept(store, "a1", 1, **crash)], crashes=3) == ()
    got_on = kept(store, "a2", 2, saved=9, **crash)
    assert resumable_histories(store, [got_on], crashes=3) != ()
    for number in (3, 4):
        last = kept(store, f"a{number}", number, first_step=9, exit_code=137, **crash)
        assert resumable_histories(store, [last], crashes=3) != ()
    assert resumable_histories(store, [kept(store, "a5", 5, first_step=9, exit_code=137, **crash)], crashes=3) == ()


@pytest.mark.parametrize(("retries", "runs"), [(None, 1), (0, 1), (1, 2), (4, 5)])
def test_a_crash_is_tried_again_as_often_as_the_job_says(store: StateStore, retries: int | None, runs: int) -> None:
    job = simple_job("a", ("H100", 8), steps=100, steps_per_hour=10, retries=retries)
    store.plans.put_jobs({"j1": job_json(job)}, NOW)
    crash: dict[str, Any] = {"reason": "failed", "result": protocol.CRASHED, "job_digest": "j1"}
    for number in range(1, runs):
        assert resumable_histories(store, [kept(store, f"a{number}", number, **crash)], crashes=3) != ()
    assert resumable_histories(store, [kept(store, "a9", 9, **crash)], crashes=3) == ()


@pytest.mark.parametrize(("retries", "goes_on"), [(None, True), (0, False), (1, True)])
def test_a_crash_with_progress_is_tried_again_unless_the_job_says_never(
    store: StateStore, retries: int | None, goes_on: bool
) -> None:
    job = simple_job("a", ("H100", 8), steps=100, steps_per_hour=10, retries=retries)
    store.plans.put_jobs({"j1": job_json(job)}, NOW)
    last = kept(store, "a1", 1, saved=9, reason="failed", result=protocol.CRASHED, job_digest="j1")
    assert bool(resumable_histories(store, [last], crashes=3)) is goes_on


def test_a_next_gang_that_could_not_be_made_is_made_later_whatever_was_wrong(store: StateStore) -> None:
    kept(store, "a1", 1)
    assert resumable_histories(store, [kept(store, "a2", 2, reason="failed", met_at=None)], crashes=3) != ()


def test_machines_that_were_lost_are_no_crashes(store: StateStore) -> None:
    for number in (1, 2, 3):
        kept(store, f"a{number}", number, reason="lost")
    for number in (4, 5):
        last = kept(store, f"a{number}", number, exit_code=137, reason="failed", result=protocol.CRASHED)
        assert resumable_histories(store, [last], crashes=3) != ()
    kept(store, "a6", 6, reason="interrupted")
    assert (
        resumable_histories(
            store, [kept(store, "a7", 7, exit_code=137, reason="failed", result=protocol.CRASHED)], crashes=3
        )
        == ()
    )


def test_a_plan_keeps_the_limits_that_it_was_accepted_with(store: StateStore) -> None:
    limits = Limits.model_validate({"clouds": ["sandbox"], "default_cap_machines": 3})
    store_limits(store, "p1", limits)
    assert Limits.model_validate_json(limits_json(store, "p1")) == limits
    assert Limits.model_validate_json(limits_json(store, "p2")) == Limits.none()


def test_places_without_machines_are_no_gangs_in_vain(store: StateStore) -> None:
    """A region that is down must not make its job wait for longer with every place that is tried."""
    kept(store, "a1", 1, saved=5)
    refused: dict[str, Any] = {"first_step": 5, "reason": "short", "met_at": None}
    last = [kept(store, f"a{number}", number, **refused) for number in range(2, 9)][-1]
    chain = history_of(store, last)
    assert (chain.in_vain, chain.again_at) == (0, last.gone_at)
    lost = history_of(store, kept(store, "a9", 9, first_step=5))
    assert lost.in_vain == 1
