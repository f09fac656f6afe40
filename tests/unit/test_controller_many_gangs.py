"""Many gangs at once: what is read, remembered and decided for all of them together is as it is for each alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from router.agent import protocol
from router.controller.context import ControllerContext, apply_lock
from router.controller.history.attempt_history import (
    ResumePoint,
    histories_of,
    history_of,
    order_history,
    resumable_histories,
)
from router.controller.history.heartbeats import take_snapshot
from router.controller.plans import limits_json, store_limits
from router.controller.provision.quarantine import UNHEALTHY, ShortPools, current_shortages, quarantine, quarantine_all
from router.controller.supervise.policy_runner import Adviser
from router.controller.supervise.replanner import Replanner
from router.controller.supervise.supervisor import Supervisor
from router.coordinator.saves import save_answers, save_answers_by_attempt
from router.jobs.job_json import job_json
from router.jobs.limits import Limits
from router.spot.live.selection import build_named_policy
from router.spot.policies import Rule
from router.spot.policies.interface import PolicyEvent, SaveDecision, StayDecision
from router.state.records import Attempt, NoticeRecord, Phase, Shortage
from router.state.store import StateStore
from tests.bench.storm import HERE, book, checked, fill, pretended, site_of
from tests.support.bare_site import bare_site
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import simple_job
from tests.support.new_state import open_state
from tests.support.scenes import a_job as simple
from tests.support.scenes import found_for
from tests.support.state_values import HOUR, NOW, attempt, node, shortage

GANGS = 12
MINUTE = timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with open_state(tmp_path / "state.db", NOW) as made:
        yield made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with bare_site(tmp_path, clock=lambda: NOW) as made:
        yield made


def later(site: ControllerContext, by: timedelta) -> None:
    moment = NOW + by
    object.__setattr__(site, "clock", lambda: moment)


def test_chains_of_many_are_those_of_each(store: StateStore) -> None:
    for job in ("one", "two"):
        for number in (1, 2, 3):
            name = f"{job}-{number}"
            over = {"phase": Phase.FAILED, "reason": "lost", "gone_at": NOW, "met_at": NOW} if number < 3 else {}
            one = attempt(name, job=job, number=number, created_at=NOW + number * MINUTE, first_step=number, **over)
            saved = {"saved_step": 10 * number, "saved_manifest": f"/m/{number}"} if number == 2 else {}
            store.attempts.add(one, [node(name), node(name, 1, **saved)])
    store.attempts.add(attempt("one-b", job="one", gang="g1"), [])
    asked = store.attempts.find()
    assert histories_of(store, asked) == {one.id: history_of(store, one) for one in asked}
    assert histories_of(store, asked)["two-3"].steps == (1, 20, 3)
    assert histories_of(store, []) == {}


def test_answers_of_many_are_those_of_each(store: StateStore) -> None:
    store.attempts.add_all([(attempt(name), []) for name in ("a1", "a2", "a3")])
    said = {"saved_step": 7, "saved_manifest": "/m/7", "seconds": 2.0}
    for name, order, rank in (("a1", "n1", 1), ("a1", "n1", 0), ("a1", "n0", 0), ("a1", "", 0), ("a2", "n1", 0)):
        store.journal.note(name, "saved", NOW, rank=rank, id=order, **said)
    store.journal.note("a3", "not_saved", NOW, rank=0, id="n3", failed="no room")
    orders = {"a1": "n1", "a2": "n2", "a3": "n3"}
    found = save_answers_by_attempt(store, orders)
    assert found == {name: save_answers(store, name, order) for name, order in orders.items()}
    assert found["a1"].ranks == {0, 1}
    assert (found["a2"].is_saved, dict(found["a3"].failed)) == (False, {0: "no room"})
    assert save_answers_by_attempt(store, {}) == {}


def test_specifications_of_many_jobs(store: StateStore) -> None:
    store.plans.put_jobs({f"d{n}": str(n) for n in range(700)}, NOW)
    assert store.plans.jobs([f"d{n}" for n in range(0, 1400, 2)]) == {f"d{n}": str(n) for n in range(0, 700, 2)}
    assert store.plans.jobs([]) == {}


def test_a_zone_that_goes_with_many_gangs_goes_once(site: ControllerContext) -> None:
    def zone_goes(at: timedelta) -> None:
        later(site, at)
        taken = [(attempt(f"a{n}"), [node(f"a{n}"), node(f"a{n}", 1)], (0, 1), "interrupted") for n in range(40)]
        quarantine_all(site, taken)
        later(site, at + timedelta(seconds=1))
        quarantine_all(site, taken[:3])

    zone_goes(timedelta(0))
    (first,) = site.store.shortages.in_force(NOW)
    assert first.until - first.at == 10 * MINUTE
    # Lost while the pool is left alone: it was there before.
    later(site, 6 * MINUTE)
    site.store.attempts.add(attempt("b"), [node("b")])
    quarantine(site, attempt("b"), (0,), "lost")
    assert [s.until - s.at for s in site.store.shortages.found_since(NOW)] == [10 * MINUTE, 10 * MINUTE]
    zone_goes(HOUR)
    (second,) = site.store.shortages.in_force(NOW + HOUR)
    assert second.until - second.at == 20 * MINUTE
    zone_goes(2 * HOUR)
    (third,) = site.store.shortages.in_force(NOW + 2 * HOUR)
    assert third.until - third.at == 40 * MINUTE


def test_nobody_taken_is_nothing_remembered(site: ControllerContext) -> None:
    quarantine_all(site, [(attempt(), [node()], (), "lost"), (attempt("a2"), [], (0,), "lost")])
    assert site.store.shortages.found_since(NOW - HOUR) == ()


@pytest.mark.parametrize(
    ("why", "rule", "minutes"),
    [
        ("no capacity", Rule.GREEDY, 60),
        ("no capacity", Rule.SKYNOMAD, 60),
        ("no capacity", Rule.FORESIGHT, 10),
        ("interrupted", Rule.FORESIGHT, 10),
        (UNHEALTHY, Rule.FORESIGHT, 60),
    ],
)
def test_who_models_availability_decides_when_to_try_again(
    site: ControllerContext, why: str, rule: Rule, minutes: int
) -> None:
    """A pool is closed to it as long as the first time to anybody; one with machines that are not well longer."""
    found, _ = found_for(simple(), [offer("aws/north-1", "p9.48xlarge", "spot", "24", zone="a")])
    (candidate,) = found.values()
    pool = replace(shortage(), cloud="aws", region="north-1", zone="a", instance_type="p9.48xlarge", why=why)
    site.store.shortages.remember(replace(pool, at=NOW, until=NOW + HOUR))
    closed = {}
    for minute in (minutes - 1, minutes):
        later(site, minute * MINUTE)
        closed[minute] = current_shortages(site).under(build_named_policy(rule)).has(candidate)
    assert closed == {minutes - 1: True, minutes: False}


@pytest.mark.parametrize(
    ("zone", "offered", "is_short"),
    [("a", "a", True), ("a", "b", False), (None, "a", True), ("a", None, True), (None, None, True)],
)
def test_what_is_short(zone: str | None, offered: str | None, is_short: bool) -> None:
    found, _ = found_for(simple(), [offer("aws/north-1", "p9.48xlarge", "spot", "24", zone=offered)])
    (candidate,) = found.values()
    known = replace(shortage(), cloud="aws", region="north-1", zone=zone, instance_type="p9.48xlarge")
    others: list[Shortage] = [replace(known, region="south-1"), replace(known, instance_type="g9.48xlarge")]
    assert ShortPools([*others, known]).has(candidate) is is_short
    assert not ShortPools(others).has(candidate)
    assert not ShortPools([]).has(candidate)


@pytest.fixture
def stormy(store: StateStore, tmp_path: Path) -> ControllerContext:
    """Gangs in one zone, with jobs, plan and limits."""
    fill(store, GANGS, 2)
    return site_of(store, tmp_path)


def notice(site: ControllerContext, name: str, kind: str = protocol.REBALANCE) -> None:
    site.store.notices.add(NoticeRecord(name, 0, "n1", kind, "sandbox", None, "hint", site.clock()))


def test_what_takes_long_to_think_about_is_left_for_the_next_pass_hints_first(stormy: ControllerContext) -> None:
    adviser = Adviser(Replanner(stormy, book), most_s=0.0)
    now = take_snapshot(stormy.store)
    assert adviser.advise(now.alive, now) == ()
    hinted = [f"gang-{number:03}" for number in (5, 7)]
    for name in hinted:
        notice(stormy, name)
    moment: datetime = stormy.clock() + HOUR
    object.__setattr__(stormy, "clock", lambda: moment)
    now = take_snapshot(stormy.store)
    # Something is being done about the second just now: it is asked about afterwards.
    first = adviser.advise([one for one in now.alive if one.id != hinted[1]], now)
    assert [advice.attempt.id for advice in first] == hinted[:1]
    found = [first] + [adviser.advise(now.alive, now) for _ in range(GANGS)]
    assert [(a.attempt.id, a.event) for advices in found[:2] for a in advices] == [
        (n, PolicyEvent.REBALANCE) for n in hinted
    ]
    assert all(isinstance(a.decision, SaveDecision | StayDecision) for advices in found for a in advices)
    # One in three has a deadline: about the others a tick has nothing to ask.
    ticks = [a.attempt.id for advices in found for a in advices if a.event is PolicyEvent.TICK]
    assert ticks == [f"gang-{number:03}" for number in range(0, GANGS, 3)]
    assert adviser.advise(now.alive, now) == ()


def test_gangs_that_lose_their_zone_have_other_places_at_once(
    stormy: ControllerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.controller.supervise.supervisor.provision_recorded", pretended)
    replanner = Replanner(stormy, book)
    watcher = Supervisor(stormy, replanner, Adviser(replanner), lambda: apply_lock(stormy))
    store = stormy.store

    def ordered(one: Attempt) -> Attempt:
        now = stormy.wall_clock()
        return replace(one, phase=Phase.NOTICED, order_id="n1", order_seconds=30.0, ordered_at=now)

    try:
        assert watcher.reconcile()
        for number in range(GANGS):
            name = f"gang-{number:03}"
            notice(stormy, name, protocol.INTERRUPTION)
            store.attempts.update(name, ordered)
            store.journal.note(
                name,
                "saved",
                stormy.clock(),
                rank=0,
                id="n1",
                saved_step=1000,
                saved_manifest=f"/m/{name}",
                seconds=1.0,
            )
            store.attempts.set_node(name, 0, saved_step=1000, saved_manifest=f"/m/{name}", step=1000)
        ends = time.monotonic() + 30
        while len(store.attempts.find()) < 2 * GANGS:
            assert time.monotonic() < ends
            watcher.reconcile()
            time.sleep(0.05)
    finally:
        watcher.close()
    limits = replanner.limits_of(store.attempts.find()[0])
    assert "every limit kept" in checked(store, GANGS, limits)
    assert {s.zone for s in store.shortages.in_force(stormy.clock())} == {HERE[2]}


SECOND = timedelta(seconds=1)


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
