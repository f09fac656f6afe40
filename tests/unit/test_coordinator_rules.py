"""The coordinator's answers, message by message, with a clock that stands still and a real database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from router.coordinator.gang_session import gang_result
from router.state.errors import BusyError
from router.state.records import NoticeRecord, Phase
from tests.support.coordinations import ATTEMPT, NOW, TOKEN, Clock, Scene, gang_records, scene

CONTINUE, STOP = (200, {"order": "continue"}), (200, {"order": "stop"})
WAIT = (200, {"go": False, "retry_seconds": 0.05})
GO = (200, {"go": True, "master_address": "10.0.0.1", "master_port": 29500, "addresses": ["10.0.0.1", "10.0.0.2"]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(tmp_path: Path, clock: Clock) -> Iterator[Scene]:
    with scene(tmp_path, 2, clock=clock, fresh_seconds=0) as made:
        yield made


def _met(gang: Scene) -> None:
    for rank in range(gang.nodes):
        gang.say(rank, "hello")
    assert gang.attempt.met_at == NOW


def test_go_is_said_once_all_are_there_and_to_whoever_asks_again(pair: Scene, clock: Clock) -> None:
    assert pair.say(1, "hello") == WAIT
    assert pair.say(1, "hello") == WAIT
    assert pair.attempt.met_at is None
    assert pair.say(0, "hello") == GO
    clock.move(60)
    assert pair.say(1, "hello") == GO
    assert pair.say(0, "hello") == GO
    assert pair.attempt.met_at == NOW
    assert [note["rank"] for note in pair.journal("hello")] == [1, 0]
    assert pair.journal("met") == [{"ranks": 2}]


def test_the_checks_of_a_machine_are_noted_once(pair: Scene) -> None:
    checks = [{"name": "gpus", "problem": "7 of 8 accelerators are there", "what": "7 x NVIDIA H100\x1b[31m"}]
    pair.say(1, "hello", preflight=checks)
    pair.say(1, "hello", preflight=checks)
    pair.say(0, "hello")
    (note,) = pair.journal("preflight")
    assert note == {"rank": 1, "checks": [{**checks[0], "what": "7 x NVIDIA H100 [31m"}]}
    assert pair.say(0, "hello", preflight=[{"name": "gpus"}]) == (400, {"error": "body"})
    assert pair.say(0, "hello", preflight=checks * 17) == (400, {"error": "body"})


def test_a_gang_that_measures_meets_once_every_rank_has(pair: Scene) -> None:
    where = {name: value for name, value in GO[1].items() if name != "go"}
    measure = (200, {**WAIT[1], "measure": where})
    assert pair.say(1, "hello", measures=True) == WAIT
    assert pair.say(0, "hello", measures=True) == measure
    assert pair.say(1, "hello", measures=True) == measure
    # What was measured arrives on its own, and once, however often it is sent.
    said: dict[str, Any] = {
        "name": "all-reduce",
        "problem": "slow\x1b[31m",
        "what": "1 GB/s",
        "gb_per_s": 1.0,
        "assumed_gb_per_s": 4.0,
    }
    assert pair.say(0, "measured", **said) == (200, {})
    assert pair.say(0, "measured", **said) == (200, {})
    assert pair.say(0, "measured", **{**said, "gb_per_s": float("nan")}) == (400, {"error": "body"})
    assert pair.say(0, "hello", measures=False) == WAIT
    assert pair.attempt.met_at is None
    # After a restart each has to say again that it is done: another may just be giving up.
    pair.attendance = pair.fresh()
    assert pair.say(1, "hello", measures=True) == measure
    assert pair.say(1, "hello", measures=False) == WAIT
    assert pair.attempt.met_at is None
    assert pair.say(0, "hello", measures=False) == GO
    place = {"cloud": "sandbox", "region": "local", "zone": None, "instance_type": "local", "machines": 2}
    figures = {"gb_per_s": 1.0, "assumed_gb_per_s": 4.0, "problem": "slow [31m", "found": "slow [31m"}
    assert pair.journal("measured") == [{"rank": 0, **figures, **place}]


def test_the_meeting_is_in_the_database_before_anybody_is_told(pair: Scene) -> None:
    pair.say(1, "hello")
    with patch.object(pair.store.attempts, "update", side_effect=BusyError("locked")):
        assert pair.say(0, "hello") == (503, {})
    assert pair.attempt.met_at is None
    assert pair.say(0, "hello") == GO


def test_a_gang_of_one_needs_nobody(tmp_path: Path) -> None:
    with scene(tmp_path, 1) as gang:
        assert gang.say(0, "hello") == (200, {**GO[1], "addresses": ["10.0.0.1"]})


def test_large_gangs_come_back_less_often(tmp_path: Path) -> None:
    with scene(tmp_path, 400) as gang:
        assert gang.say(0, "hello")[1]["retry_seconds"] == 4.0


def test_a_rank_may_move_until_they_met(pair: Scene) -> None:
    pair.say(0, "hello")
    pair.say(0, "hello", address="10.0.0.9", master_port=4000)
    where = {"master_address": "10.0.0.9", "master_port": 4000, "addresses": ["10.0.0.9", "10.0.0.2"]}
    moved = (200, {"go": True, **where})
    assert pair.say(1, "hello") == moved
    assert pair.say(0, "hello", address="10.0.0.7") == moved
    assert pair.say(1, "hello") == moved


def test_where_rank_0_is_may_be_known_beforehand(pair: Scene) -> None:
    pair.say(0, "hello", master_port=None)
    where = {"master_address": "10.0.0.1", "master_port": None, "addresses": ["10.0.0.1", "10.0.0.2"]}
    assert pair.say(1, "hello") == (200, {"go": True, **where})


def test_a_heartbeat_before_hello_does_not_count_as_hello(pair: Scene) -> None:
    assert pair.say(0, "heartbeat", state="waiting") == CONTINUE
    assert pair.say(1, "hello") == WAIT
    assert pair.records[0].agent == "waiting"


@pytest.mark.parametrize("message", ["hello", "heartbeat", "logs", "ended"])
def test_refusals_of_every_message(pair: Scene, message: str) -> None:
    answer, body = pair.attendance.answer, pair.body(0, message)
    assert answer("attempt-2", 0, message, f"Bearer {TOKEN}", body) == (404, {"error": "attempt_unknown"})
    assert answer("../etc", 0, message, f"Bearer {TOKEN}", body) == (404, {"error": "attempt_unknown"})
    for wrong in ("", "Bearer ", f"bearer {TOKEN}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \udcff"):
        assert answer(ATTEMPT, 0, message, wrong, body) == (401, {"error": "token"})
    for rank in (-1, 2, 10**9):
        assert answer(ATTEMPT, rank, message, f"Bearer {TOKEN}", body) == (409, {"error": "shape"})
    pair.phase(Phase.FAILED)
    assert pair.say(0, message) == (410, {"error": "attempt_over"})
    assert answer(ATTEMPT, 0, message, "Bearer x", body) == (401, {"error": "token"})
    assert all(node.agent == "" and node.heard_at is None for node in pair.records)
    assert pair.log(0) == ""


def test_the_hash_of_a_token_is_no_token(pair: Scene) -> None:
    assert pair.say(0, "hello", token=pair.attempt.token_hash) == (401, {"error": "token"})


def test_an_attempt_without_a_token_lets_nobody_in(pair: Scene) -> None:
    pair.store.attempts.add(*gang_records(1, name="attempt-0"))
    pair.store.attempts.update("attempt-0", lambda attempt: replace(attempt, token_hash=""))
    assert pair.attendance.answer("attempt-0", 0, "hello", "Bearer ", {}) == (401, {"error": "token"})
    assert pair.attendance.answer("attempt-0", 0, "hello", "", {}) == (401, {"error": "token"})


def test_a_token_is_worth_one_attempt(pair: Scene) -> None:
    pair.store.attempts.add(*gang_records(2, name="attempt-2", token="token-canary-of-another"))
    body = pair.body(0, "hello")
    assert pair.attendance.answer("attempt-2", 0, "hello", f"Bearer {TOKEN}", body) == (401, {"error": "token"})


def test_an_unknown_message(pair: Scene) -> None:
    answer = pair.attendance.answer(ATTEMPT, 0, "farewell", f"Bearer {TOKEN}", {})
    assert answer == (404, {"error": "message"})


def test_another_number_of_nodes_is_another_gang(pair: Scene) -> None:
    assert pair.say(0, "hello", nodes=3) == (409, {"error": "shape"})


def test_a_rank_belongs_to_the_first_life_that_speaks_for_it(pair: Scene) -> None:
    pair.say(0, "heartbeat", state="starting")
    for message in ("hello", "heartbeat", "ended"):
        assert pair.say(0, message, incarnation="life-2") == (409, {"error": "rank_taken"})
    assert pair.say(0, "hello") == WAIT
    assert pair.records[0].incarnation == "life-0"
    assert pair.records[0].ended_reason == ""


def test_what_a_heartbeat_says_only_goes_forward(pair: Scene) -> None:
    for said, known in (("running", "running"), ("starting", "running"), ("ended", "running"), ("failed", "running")):
        assert pair.say(0, "heartbeat", state=said) == CONTINUE
        assert pair.records[0].agent == known
    pair.say(0, "ended")
    pair.say(0, "heartbeat")
    assert pair.records[0].agent == "ended"


@pytest.mark.parametrize("reason", ["crashed", "no_code", "no_gang", "refused", "not_started", "unfit", "stopped"])
def test_one_that_does_not_finish_stops_the_rest(pair: Scene, clock: Clock, reason: str) -> None:
    _met(pair)
    assert pair.say(0, "heartbeat") == CONTINUE
    clock.move(5)
    assert pair.failed(1, reason, message="why\x1b[31m\nreally") == (200, {})
    assert pair.say(0, "heartbeat") == STOP
    assert pair.say(0, "hello")[1]["go"] is False
    assert (pair.attempt.result, pair.attempt.result_at) == (reason, clock.now)
    node = pair.records[1]
    state = "ended" if reason == "stopped" else "failed"
    assert (node.agent, node.ended_reason, node.exit_code) == (state, reason, 7)
    assert node.ended_message == "why [31m really"
    assert pair.failed(0, "stopped") == (200, {})
    assert pair.attempt.result == reason
    (who, then) = pair.journal("ended")
    assert (who["rank"], who["reason"], who["result"], who["ordered"]) == (1, reason, reason, False)
    assert (then["rank"], then["reason"], then["result"], then["ordered"]) == (0, "stopped", reason, True)


def test_a_gang_is_finished_when_its_last_rank_is(pair: Scene) -> None:
    _met(pair)
    pair.say(0, "ended")
    assert pair.attempt.result == ""
    assert pair.say(1, "heartbeat") == CONTINUE
    pair.say(1, "ended")
    assert (pair.attempt.result, pair.attempt.result_at) == ("finished", NOW)


def test_how_a_rank_went_is_taken_once(pair: Scene) -> None:
    _met(pair)
    for _ in range(3):
        assert pair.failed(1) == (200, {})
    assert pair.say(1, "ended") == (200, {})
    assert pair.records[1].ended_reason == "crashed"
    assert len(pair.journal("ended")) == 1


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_the_leaders_result_is_the_gangs(tmp_path: Path, engine: str) -> None:
    with scene(tmp_path, 3, engine=engine, fresh_seconds=0) as gang:
        for rank in range(3):
            gang.say(rank, "hello")
        gang.say(2, "ended")
        assert gang.attempt.result == ""
        gang.say(0, "ended")
        assert gang.attempt.result == "finished"
        assert gang.say(1, "heartbeat") == STOP
        gang.failed(1)
        assert gang.attempt.result == "finished"


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_a_worker_that_fails_before_its_leader_ends_the_gang(tmp_path: Path, engine: str) -> None:
    with scene(tmp_path, 2, engine=engine, fresh_seconds=0) as gang:
        _ = [gang.say(rank, "hello") for rank in range(2)]
        gang.failed(1)
        assert gang.say(0, "heartbeat") == STOP
        assert gang.attempt.result == "crashed"


def test_a_release_stops_all_and_makes_no_failure(pair: Scene) -> None:
    _met(pair)
    pair.phase(Phase.RELEASING)
    assert pair.say(0, "heartbeat") == STOP
    assert pair.say(0, "hello")[1]["go"] is False
    pair.failed(0, "stopped")
    assert pair.attempt.result == ""
    pair.failed(1, "stopped")
    assert pair.attempt.result == "stopped"
    assert [note["ordered"] for note in pair.journal("ended")] == [True, True]


def test_a_release_is_known_when_a_rank_says_that_it_stopped(tmp_path: Path, clock: Clock) -> None:
    with scene(tmp_path, 2, clock=clock, fresh_seconds=60) as gang:
        _met(gang)
        gang.phase(Phase.RELEASING)
        gang.failed(0, "stopped")
        assert gang.attempt.result == ""


def test_a_gang_in_release_does_not_meet_any_more(pair: Scene) -> None:
    pair.say(0, "hello")
    pair.phase(Phase.RELEASING)
    assert pair.say(1, "hello") == WAIT
    assert pair.attempt.met_at is None


def test_nor_does_one_that_has_failed(pair: Scene) -> None:
    pair.say(0, "hello")
    pair.failed(0, "no_gang")
    assert pair.say(1, "hello") == WAIT
    assert pair.attempt.met_at is None


def test_heartbeats_reach_the_database_every_few_seconds_and_changes_at_once(tmp_path: Path, clock: Clock) -> None:
    with scene(tmp_path, 2, clock=clock, write_seconds=5) as gang:
        gang.say(0, "heartbeat")
        assert (gang.records[0].agent, gang.records[0].heard_at) == ("running", NOW)
        clock.move(4)
        gang.say(0, "heartbeat")
        assert gang.records[0].heard_at == NOW
        clock.move(2)
        gang.say(1, "heartbeat", state="starting")
        assert [(clock.now - (node.heard_at or NOW)).total_seconds() for node in gang.records] == [2, 0]
        gang.say(0, "heartbeat")
        gang.attendance.flush()
        assert gang.records[0].heard_at == clock.now


def test_a_change_by_others_is_seen_in_time(tmp_path: Path, clock: Clock) -> None:
    with scene(tmp_path, 1, clock=clock, fresh_seconds=1) as gang:
        gang.say(0, "heartbeat")
        gang.phase(Phase.RELEASING)
        assert gang.say(0, "heartbeat") == CONTINUE
        clock.move(1)
        assert gang.say(0, "heartbeat") == STOP
        gang.phase(Phase.FAILED)
        clock.move(1)
        assert gang.say(0, "heartbeat") == (410, {"error": "attempt_over"})


def test_a_time_of_day_that_stands_still_or_jumps_changes_no_duration(tmp_path: Path) -> None:
    with scene(tmp_path, 1, clock=lambda: NOW, fresh_seconds=0.01, write_seconds=0) as gang:
        gang.say(0, "heartbeat")
        gang.phase(Phase.RELEASING)
        time.sleep(0.02)
        assert gang.say(0, "heartbeat") == STOP


def test_one_that_starts_anew_goes_on_from_the_database(pair: Scene) -> None:
    _met(pair)
    pair.say(0, "heartbeat")
    pair.say(0, "logs")
    pair.failed(1)
    pair.attendance = pair.fresh()
    assert pair.say(0, "heartbeat", incarnation="other") == (409, {"error": "rank_taken"})
    assert pair.say(0, "heartbeat") == STOP
    assert pair.say(0, "logs") == (200, {})
    assert pair.log(0) == "step\n"


def test_a_result_that_was_not_written_is_when_the_rank_says_it_again(pair: Scene) -> None:
    """Killed between the rank's end and the gang's."""
    with patch.object(pair.store.attempts, "update", side_effect=BusyError("locked")):
        assert pair.failed(1) == (503, {})
    pair.attendance = pair.fresh()
    assert pair.failed(1) == (200, {})
    assert pair.attempt.result == "crashed"
    assert len(pair.journal("ended")) == 1


def test_a_database_that_is_away_is_no_refusal(pair: Scene) -> None:
    _met(pair)
    pair.store.close()
    for message in ("hello", "heartbeat", "logs", "ended"):
        assert pair.say(0, message) == (503, {})


def test_attempts_that_are_over_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    with scene(tmp_path, 1, clock=clock) as gang:
        gang.say(0, "heartbeat")
        gang.store.attempts.add(*gang_records(1, name="attempt-2"))
        gang.phase(Phase.FINISHED)
        clock.move(3600)
        body = gang.body(0, "heartbeat")
        assert gang.attendance.answer("attempt-2", 0, "heartbeat", f"Bearer {TOKEN}", body) == CONTINUE
        assert set(gang.attendance._sessions._sessions) == {"attempt-2"}


ALL = ("", "finished", "stopped", "crashed", "no_gang")


def _verdict(engine: str, reasons: tuple[str, ...], ordered: bool) -> str:
    nodes = gang_records(len(reasons))[1]
    ended = [replace(node, ended_reason=reason) for node, reason in zip(nodes, reasons, strict=True)]
    return gang_result(engine, ended, ordered=ordered)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("engine", ["command", "torchrun", "ray", "slurm"])
def test_every_combination(engine: str, ordered: bool) -> None:
    for reasons in product(ALL, repeat=3):
        result = _verdict(engine, reasons, ordered)
        failed = {"crashed", "no_gang", *([] if ordered else ["stopped"])} & set(reasons)
        if engine in ("ray", "slurm") and reasons[0]:
            assert result == reasons[0]
        elif failed:
            assert result in failed
            assert result != "stopped" or failed == {"stopped"}
        elif engine in ("ray", "slurm") or "" in reasons:
            assert result == ""
        else:
            assert result == ("stopped" if "stopped" in reasons else "finished")


KEPT = NoticeRecord(ATTEMPT, 1, "n-1", "interruption", "sandbox", 30.0, "preempted", NOW)


def test_it_is_in_the_database_before_it_is_taken_and_once(pair: Scene, clock: Clock) -> None:
    assert pair.say(1, "notice") == (200, {})
    clock.move(5)
    assert pair.say(1, "notice", seconds=25.0) == (200, {})
    assert pair.store.notices.find(ATTEMPT) == (KEPT,)
    assert pair.say(0, "notice") == (200, {})
    assert [notice.rank for notice in pair.store.notices.find()] == [1, 0]


def test_it_comes_from_the_life_that_speaks_for_the_rank(pair: Scene) -> None:
    pair.say(1, "hello")
    assert pair.say(1, "notice", incarnation="another") == (409, {"error": "rank_taken"})
    assert pair.say(5, "notice") == (409, {"error": "shape"})
    assert pair.say(1, "notice", token="wrong") == (401, {"error": "token"})
    assert pair.say(1, "notice", kind="lunch") == (400, {"error": "body"})
    assert pair.store.notices.find() == ()


def test_an_unknown_time_stays_unknown_and_the_token_is_not_kept(pair: Scene) -> None:
    pair.say(1, "notice", seconds=None, what=f"with {TOKEN}\n", id=f"n-{TOKEN}")
    (kept,) = pair.store.notices.find()
    assert (kept.seconds, kept.what, kept.id) == (None, "with *** ", "n-***")


def test_it_is_a_sign_of_life(pair: Scene, clock: Clock) -> None:
    pair.say(1, "hello")
    clock.move(7)
    pair.say(1, "notice")
    pair.attendance.flush()
    heard = pair.records[1].heard_at
    assert heard is not None
    assert (heard - NOW).total_seconds() == 7


def test_after_the_end_nothing_is_taken(pair: Scene) -> None:
    pair.phase(Phase.FAILED)
    assert pair.say(1, "notice") == (410, {"error": "attempt_over"})
