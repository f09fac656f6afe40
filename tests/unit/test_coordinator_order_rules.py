"""The order to save: where it comes from, who is told and for how long, and who answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.controller.history.attempt_history import history_of
from router.coordinator.bounds import MAX_SPEEDUP, MIN_ELAPSED_SECONDS, ReportBounds
from router.coordinator.metrics import StateCounters
from router.coordinator.saves import save_answers
from router.deploy.deploy_settings import Deploy
from router.state.errors import BusyError
from router.state.records import Attempt, Phase
from tests.support.coordinations import ATTEMPT, NOW, TOKEN, Clock, Scene, gang_records, scene
from tests.support.narrowed import present

CONTINUE: tuple[int, dict[str, Any]] = (200, {"order": "continue"})
STOP = (200, {"order": "stop"})
GO = (200, {"go": True, "master_address": "10.0.0.1", "master_port": 29500, "addresses": ["10.0.0.1"]})
WAIT = (200, {"go": False, "retry_seconds": 0.05})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wall() -> Clock:
    return Clock(NOW + timedelta(days=400))


@pytest.fixture
def pair(tmp_path: Path, clock: Clock, wall: Clock) -> Iterator[Scene]:
    with scene(tmp_path, 2, clock=clock, fresh_seconds=0, wall_clock=wall) as made:
        yield made


def _running(gang: Scene) -> None:
    for rank in range(gang.nodes):
        gang.say(rank, "hello")
        gang.say(rank, "heartbeat")
    gang.phase(Phase.RUNNING)


def _checkpoint(seconds: float, name: str = "n-1", reason: str = "interruption") -> tuple[int, dict[str, Any]]:
    return 200, {"order": "checkpoint", "id": name, "seconds": seconds, "reason": reason}


def _set(gang: Scene, **changes: Any) -> None:
    gang.store.attempts.update(ATTEMPT, lambda attempt: replace(attempt, **changes))


def test_what_one_machine_is_told_is_an_order_to_all(pair: Scene, wall: Clock, clock: Clock) -> None:
    _running(pair)
    pair.say(1, "notice")
    attempt = pair.attempt
    assert (attempt.phase, attempt.order_id, attempt.order_reason) == (Phase.NOTICED, "n-1", "interruption")
    assert (attempt.order_seconds, attempt.ordered_at) == (28.0, wall())
    for message in ("orders", "heartbeat"):
        assert pair.say(0, message) == _checkpoint(28.0)
        assert pair.say(1, message) == _checkpoint(28.0)
    # The cloud's clock may run fast; an order's does not.
    clock.move(3600)
    wall.move(10)
    assert pair.say(0, "orders") == _checkpoint(18.0)
    assert pair.say(0, "orders", seen="n-1") == CONTINUE
    wall.move(-60)
    assert pair.say(0, "orders") == _checkpoint(28.0)
    wall.move(60 + 18)
    assert pair.say(0, "orders") == pair.say(0, "heartbeat") == CONTINUE


@pytest.mark.parametrize(("said", "given"), [(None, 28.0), (120.0, 118.0), (3.0, 1.5), (0.0, 1.0)])
def test_how_long_there_is(pair: Scene, said: float | None, given: float) -> None:
    _running(pair)
    pair.say(0, "notice", seconds=said)
    assert pair.say(1, "orders") == _checkpoint(given)


@pytest.mark.parametrize("phase", [Phase.PROVISIONING, Phase.MIGRATING, Phase.NOTICED])
def test_where_nothing_runs_yet_or_somebody_decided_a_notice_is_only_kept(pair: Scene, phase: Phase) -> None:
    _running(pair)
    pair.phase(phase)
    assert pair.say(1, "notice") == (200, {})
    assert (pair.attempt.phase, pair.attempt.order_id) == (phase, "")
    assert len(pair.store.notices.find()) == 1
    assert pair.say(1, "orders") == CONTINUE


@pytest.mark.parametrize("kind", ["rebalance", "maintenance", "health"])
def test_what_is_no_interruption_is_for_others_to_decide(pair: Scene, kind: str) -> None:
    _running(pair)
    pair.say(1, "notice", kind=kind)
    assert (pair.attempt.phase, pair.attempt.order_id) == (Phase.RUNNING, "")


def test_the_first_of_several_notices_orders(pair: Scene, wall: Clock) -> None:
    _running(pair)
    pair.say(1, "notice")
    wall.move(5)
    for _ in range(2):
        pair.say(0, "notice", id="n-2", seconds=120)
        pair.say(1, "notice")
    assert pair.attempt.order_id == "n-1"
    assert pair.say(0, "orders") == _checkpoint(23.0)
    assert len(pair.store.notices.find()) == 2


def test_one_after_the_time_of_the_first_is_a_new_order(pair: Scene, wall: Clock) -> None:
    _running(pair)
    pair.say(1, "notice")
    pair.phase(Phase.RUNNING)
    wall.move(10)
    pair.say(0, "notice", id="n-2")
    assert (pair.attempt.order_id, pair.attempt.phase) == ("n-1", Phase.RUNNING)
    wall.move(20)
    pair.say(0, "notice", id="n-3")
    assert (pair.attempt.order_id, pair.attempt.phase) == ("n-3", Phase.NOTICED)


def test_an_interruption_passes_a_hint(pair: Scene, wall: Clock) -> None:
    _running(pair)
    hint = {"order_id": "w-1", "order_reason": "rebalance", "order_seconds": 300.0, "ordered_at": wall()}
    _set(pair, phase=Phase.CHECKPOINTING, **hint)
    assert pair.say(0, "orders") == _checkpoint(300.0, "w-1", "rebalance")
    pair.say(1, "notice")
    assert (pair.attempt.phase, pair.attempt.order_id) == (Phase.NOTICED, "n-1")
    assert pair.say(0, "orders", seen="w-1") == _checkpoint(28.0)


def test_once_it_answered_a_rank_is_not_asked_again(pair: Scene) -> None:
    _running(pair)
    pair.say(1, "notice")
    pair.say(0, "saved", id="n-1")
    pair.say(0, "saved", id="", step=200, manifest="/b/200.json")
    assert pair.say(0, "orders") == pair.say(0, "heartbeat") == CONTINUE
    assert pair.say(1, "orders") == _checkpoint(28.0)
    pair.say(1, "saved", id="n-1", failed="late")
    assert pair.say(1, "heartbeat") == CONTINUE


def test_notice_and_order_are_there_both_or_neither(pair: Scene) -> None:
    _running(pair)
    with patch.object(pair.store.joint, "add_notice", side_effect=BusyError("locked")):
        assert pair.say(1, "notice") == (503, {})
    assert pair.store.notices.find() == ()
    assert pair.attempt.order_id == ""
    assert pair.say(1, "notice") == (200, {})
    assert pair.attempt.order_id == "n-1"


def test_a_new_coordinator_goes_on_with_the_order(pair: Scene) -> None:
    _running(pair)
    pair.say(1, "notice")
    pair.attendance = pair.fresh()
    assert pair.say(0, "heartbeat") == _checkpoint(28.0)


def test_stop_comes_before_everything(pair: Scene) -> None:
    _running(pair)
    pair.say(1, "notice")
    pair.phase(Phase.RELEASING)
    assert pair.say(0, "orders") == pair.say(0, "heartbeat") == STOP
    pair.phase(Phase.FAILED)
    assert pair.say(0, "orders") == (410, {"error": "attempt_over"})


@pytest.mark.parametrize(
    "wrong", [{"seen": None}, {"seen": 3}, {"wait": -1}, {"wait": "3"}, {"wait": None}, {"protocol": 2}]
)
def test_a_question_that_is_none(pair: Scene, wrong: dict[str, Any]) -> None:
    assert pair.say(0, "orders", **wrong) == (400, {"error": "body"})


def test_only_the_life_that_has_the_rank_is_told(pair: Scene) -> None:
    _running(pair)
    assert pair.say(0, "orders", incarnation="another") == (409, {"error": "rank_taken"})
    assert pair.say(0, "orders", token="wrong") == (401, {"error": "token"})


def test_whoever_listens_hears_what_this_process_changes_and_what_others_do(pair: Scene) -> None:
    heard: list[str] = []
    pair.attendance.changed = heard.append
    _running(pair)
    assert pair.attendance.look_again() == [ATTEMPT]
    assert pair.attendance.look_again() == heard == []
    pair.say(1, "notice")
    assert heard == [ATTEMPT]
    assert pair.attendance.look_again() == []
    pair.phase(Phase.CHECKPOINTING)
    assert pair.attendance.look_again() == [ATTEMPT]
    pair.failed(0)
    assert heard == [ATTEMPT, ATTEMPT]
    pair.phase(Phase.FAILED)
    assert pair.attendance.look_again() == [ATTEMPT]
    assert pair.attendance.look_again() == []
    assert set(pair.attendance._sessions._sessions) == set()


def test_what_is_in_memory_can_be_told_without_waiting_for_anybody(pair: Scene, wall: Clock) -> None:
    attendance = pair.attendance
    assert attendance.peek(ATTEMPT, "0", "") is None
    _running(pair)
    attendance.look_again()
    assert attendance.peek(ATTEMPT, "0", "") == CONTINUE
    pair.say(1, "notice")
    assert attendance.peek(ATTEMPT, "0", "") == _checkpoint(28.0)
    assert attendance.peek(ATTEMPT, "0", "n-1") == CONTINUE
    pair.say(0, "saved", id="n-1")
    assert attendance.peek(ATTEMPT, "0", "") == CONTINUE
    wall.move(3)
    assert attendance.peek(ATTEMPT, "1", "") == _checkpoint(25.0)
    roll = present(attendance._sessions.of(ATTEMPT))
    with ThreadPoolExecutor(1) as pool, roll.lock:
        assert pool.submit(attendance.peek, ATTEMPT, "1", "").result() is None
    pair.phase(Phase.RELEASING)
    attendance.look_again()
    assert attendance.peek(ATTEMPT, "1", "") == STOP
    pair.phase(Phase.FAILED)
    attendance.look_again()
    assert attendance.peek(ATTEMPT, "1", "") is None


def test_whoever_looks_saves_others_the_reading(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(tmp_path, 1, clock=clock, fresh_seconds=1.0) as gang:
        _running(gang)
        clock.move(5)
        gang.attendance.look_again()
        reads: list[str] = []
        monkeypatch.setattr(gang.store.attempts, "get", reads.append)
        clock.move(0.9)
        assert gang.attendance.look_again() == []
        clock.move(0.9)
        assert gang.say(0, "heartbeat") == CONTINUE
        assert reads == []


def test_a_database_that_is_away_is_looked_at_later(pair: Scene) -> None:
    _running(pair)
    with patch.object(pair.store.attempts, "versions", side_effect=BusyError("locked")):
        assert pair.attendance.look_again() == []
    assert pair.attendance.look_again() == [ATTEMPT]


def test_what_came_of_an_order(pair: Scene, clock: Clock) -> None:
    _running(pair)
    pair.say(0, "saved", id="n-0", step=90)
    pair.say(0, "saved", id="", step=100)
    assert not save_answers(pair.store, ATTEMPT, "n-1").is_saved
    pair.say(0, "saved", id="n-1", failed="late")
    assert dict(save_answers(pair.store, ATTEMPT, "n-1").failed) == {0: "late"}
    clock.move(3)
    pair.say(1, "saved", id="n-1", seconds=2.25)
    found = save_answers(pair.store, ATTEMPT, "n-1")
    assert (found.step, found.is_saved, set(found.ranks), dict(found.failed)) == (120, True, {1}, {0: "late"})
    clock.move(3)
    pair.say(0, "saved", id="n-1", step=121, manifest="/b/121.json", seconds=None)
    found = save_answers(pair.store, ATTEMPT, "n-1")
    assert (found.step, set(found.ranks), dict(found.failed)) == (121, {0, 1}, {})


def _successor(gang: Scene, name: str, resumes: str) -> None:
    attempt, nodes = gang_records(1, name=name)
    gang.store.attempts.add(replace(attempt, resumes=resumes), nodes)


def _hello(gang: Scene, name: str) -> tuple[int, dict[str, Any]]:
    return gang.attendance.answer(name, 0, "hello", f"Bearer {TOKEN}", gang.body(0, "hello", nodes=1))


def test_who_goes_on_from_another_waits_until_it_is_over(pair: Scene) -> None:
    _running(pair)
    _successor(pair, "attempt-2", ATTEMPT)
    assert _hello(pair, "attempt-2") == WAIT
    found = present(pair.store.attempts.get("attempt-2"))
    assert found.met_at == NOW
    pair.failed(0)
    pair.phase(Phase.RELEASING)
    assert _hello(pair, "attempt-2") == WAIT
    pair.phase(Phase.FAILED)
    assert _hello(pair, "attempt-2") == GO


def test_or_until_every_rank_of_it_has_ended(pair: Scene) -> None:
    _running(pair)
    _successor(pair, "attempt-2", ATTEMPT)
    pair.say(0, "ended")
    assert _hello(pair, "attempt-2") == WAIT
    pair.say(1, "ended")
    assert _hello(pair, "attempt-2") == GO


def test_one_in_between_that_never_ran_does_not_hide_the_first(pair: Scene) -> None:
    _running(pair)
    _successor(pair, "attempt-2", ATTEMPT)
    pair.store.attempts.update("attempt-2", lambda attempt: replace(attempt, phase=Phase.FAILED))
    _successor(pair, "attempt-3", "attempt-2")
    assert _hello(pair, "attempt-3") == WAIT
    pair.phase(Phase.FINISHED)
    assert _hello(pair, "attempt-3") == GO


def test_what_goes_on_from_nothing_known_or_from_itself_starts(pair: Scene) -> None:
    for name, resumes in (("attempt-2", "gone"), ("attempt-3", "attempt-3")):
        _successor(pair, name, resumes)
        assert _hello(pair, name) == GO


def test_that_the_way_is_clear_is_remembered(pair: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.phase(Phase.FAILED)
    _successor(pair, "attempt-2", ATTEMPT)
    assert _hello(pair, "attempt-2") == GO
    asked: list[str] = []
    plain = pair.store.attempts.get

    def attempt(name: str) -> Attempt | None:
        asked.append(name)
        return plain(name)

    monkeypatch.setattr(pair.store.attempts, "get", attempt)
    assert _hello(pair, "attempt-2") == GO
    assert ATTEMPT not in asked


STEPS, PER_HOUR = 100_000, 3600.0
STORE = "s3://bucket/ckpt/job-1"
TAKEN: tuple[int, dict[str, Any]] = (200, {})


@pytest.fixture
def gang(tmp_path: Path, clock: Clock) -> Iterator[Scene]:
    """Its job has 100,000 steps, planned at one a second."""
    with scene(tmp_path, 2, clock=clock, fresh_seconds=0, stores=lambda job: {f"s3://bucket/ckpt/{job}"}) as made:
        job = {"steps": STEPS, "workload": {"profile": [{"steps_per_hour": PER_HOUR / 2}]}}
        made.store.plans.put_jobs({"d": json.dumps(job)}, NOW)
        lines = [{"job": "job-1", "steps_per_hour": PER_HOUR}, {"job": "other", "steps_per_hour": 1e12}]
        made.store.plans.put_plan("p", json.dumps({"lines": lines}), NOW)
        made.store.attempts.update(ATTEMPT, lambda attempt: replace(attempt, met_at=NOW))
        made.say(0, "heartbeat")
        made.say(1, "heartbeat")
        yield made


def manifest(step: int) -> str:
    return f"{STORE}/step-{step:08d}.manifest.json"


def saved(gang: Scene, step: int, **more: Any) -> tuple[int | None, str | None]:
    assert (
        gang.say(0, "saved", **{"id": "c-1", "step": step, "manifest": manifest(step), "seconds": 1.0, **more}) == TAKEN
    )
    return gang.records[0].saved_step, gang.records[0].saved_manifest


def test_what_can_be_true_is_taken(gang: Scene, clock: Clock) -> None:
    clock.move(600)
    assert saved(gang, 600) == (600, manifest(600))
    clock.move(6000)
    assert saved(gang, 90_000, id="c-2") == (90_000, manifest(90_000))
    assert gang.journal("not_believed") == []
    assert history_of(gang.store, gang.attempt).before.step == 90_000


@pytest.mark.parametrize(
    ("step", "more", "why"),
    [
        (2**62, {}, f"is more than the job's {STEPS}"),
        (STEPS + 1, {}, f"is more than the job's {STEPS}"),
        (STEPS, {}, "as fast as was planned"),
        (10, {"manifest": "/etc/passwd"}, "no JSON file"),
        (10, {"manifest": "/etc/passwd.json"}, "not below the job's store"),
        (10, {"manifest": f"{STORE}/../other/step-00000010.manifest.json"}, "no absolute path or URL"),
        (10, {"manifest": f"{STORE}-2/step-00000010.manifest.json"}, "not below the job's store"),
        (10, {"manifest": f"http://bucket/ckpt/job-1/{10}.json"}, "no absolute path or URL"),
        (10, {"manifest": "ckpt/job-1/10.json"}, "no absolute path or URL"),
        (10, {"manifest": f"{manifest(10)}?endpoint_override=elsewhere"}, "no plain URL"),
    ],
)
def test_what_cannot_be_true_is_noted_and_ends_nothing(
    gang: Scene, clock: Clock, step: int, more: dict[str, Any], why: str
) -> None:
    """It would be the resume point of the next gang, and stand in the ledger for ever."""
    clock.move(60)
    assert saved(gang, 50, id="c-0") == (50, manifest(50))
    for _ in range(3):
        assert saved(gang, step, **more) == (50, manifest(50))
    beat = {"saved_step": step, "saved_manifest": more.get("manifest", manifest(step)), "step": step}
    assert gang.say(0, "heartbeat", **beat)[0] == 200
    gang.attendance.flush()
    node = gang.records[0]
    assert (node.saved_step, node.saved_manifest, node.heard_at) == (50, manifest(50), clock())
    assert (node.step or 0) <= STEPS
    (said,) = gang.journal("not_believed")
    assert (said["rank"], why in str(said["why"])) == (0, True), said
    before = history_of(gang.store, gang.attempt).before
    assert (before.step, before.manifest) == (50, manifest(50))
    # Whoever waits for the checkpoint hears that there is none, and the next order is answered as ever.
    answers = save_answers(gang.store, ATTEMPT, "c-1")
    assert (answers.is_saved, why in answers.failed[0]) == (False, True)
    assert saved(gang, 55, id="c-2") == (55, manifest(55))
    counters = StateCounters(gang.store)
    counters.look()
    assert (counters.totals.not_believed, counters.totals.failed_saves) == (1, 1)


def test_a_rank_cannot_fill_the_journal_with_what_nobody_believes(gang: Scene) -> None:
    for step in range(2**50, 2**50 + 50):
        assert gang.say(0, "heartbeat", step=step)[0] == 200
        assert gang.say(0, "heartbeat", saved_step=5, saved_manifest=f"/etc/{step}")[0] == 200
    assert [sorted(entry) for entry in gang.journal("not_believed")] == [["rank", "why"]] * 2


def test_where_nothing_is_known_of_the_job_steps_are_believed(tmp_path: Path, clock: Clock) -> None:
    """As plans and jobs from before they were kept."""
    with scene(tmp_path, 1, clock=clock, fresh_seconds=0) as gang:
        assert gang.say(0, "saved", id="", step=10**9, manifest="/mnt/b/1.json") == TAKEN
        assert gang.records[0].saved_step == 10**9
        assert gang.say(0, "saved", id="", step=10**9 + 1, manifest="/etc/passwd") == TAKEN
        assert gang.records[0].saved_step == 10**9


@given(since=st.integers(0, STEPS), seconds=st.floats(-1e6, 1e7), rate=st.floats(1e-3, 100), share=st.floats(0, 1))
def test_an_honest_training_is_believed(since: int, seconds: float, rate: float, share: float) -> None:
    """However far it came at up to its planned speed since it last saved."""
    bounds = ReportBounds(STEPS, rate)
    step = min(STEPS, since + int(share * rate * max(seconds, 0.0)))
    assert bounds.of_step(step, since, seconds) == ""
    most = since + MAX_SPEEDUP * rate * max(seconds, MIN_ELAPSED_SECONDS)
    assert (bounds.of_step(int(most) + 1, since, seconds) == "") is False


def test_stores_of_every_region_of_a_job() -> None:
    regions = {"us-east-1": {"checkpoint_url": "s3://east/x"}, "us-west-2": {}}
    deploy = Deploy.model_validate(
        {
            "clouds": {
                "aws": {"checkpoint_url": "s3://all/y", "regions": regions},
                "gcp": {},
                "sandbox": {"checkpoint_url": "file:///mnt/z"},
            }
        }
    )
    assert deploy.stores_of("job-1") == {"s3://east/x/job-1", "s3://all/y/job-1", "file:///mnt/z/job-1"}
    (bounds,) = [ReportBounds(stores=tuple(deploy.stores_of("job-1")))]
    assert bounds.of_manifest("/mnt/z/job-1/step-00000001.manifest.json") == ""
    assert bounds.of_manifest("file:///mnt/z/job-1/step-00000001.manifest.json") == ""
    assert bounds.of_manifest("file:///mnt/z/job-2/step-00000001.manifest.json") != ""
