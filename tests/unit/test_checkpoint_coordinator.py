"""What the coordinator does with what a training says of its steps and of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from router.state.errors import BusyError
from tests.support.coordinations import NOW, TOKEN, Clock, Scene, scene

TAKEN: tuple[int, dict[str, Any]] = (200, {})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(tmp_path: Path, clock: Clock) -> Iterator[Scene]:
    with scene(tmp_path, 2, clock=clock, fresh_seconds=0) as made:
        yield made


def _saved(gang: Scene, rank: int = 0) -> tuple[Any, ...]:
    found = gang.records[rank]
    return found.saved_step, found.saved_manifest, found.saved_at


def test_a_checkpoint_is_in_the_database_before_it_is_taken_and_noted_once(pair: Scene, clock: Clock) -> None:
    clock.move(5)
    for _ in range(2):
        assert pair.say(0, "saved") == TAKEN
    assert _saved(pair) == (120, "/b/120.json", clock())
    assert _saved(pair, 1) == (None, None, None)
    note = {"rank": 0, "id": "c-1", "seconds": 3.5, "saved_step": 120, "saved_manifest": "/b/120.json"}
    assert pair.journal("saved") == [note]
    pair.say(0, "saved", id="c-2")
    pair.say(0, "saved", id="", step=150, manifest="s3://b/150.json", seconds=None)
    assert [entry["id"] for entry in pair.journal("saved")] == ["c-1", "c-2", ""]
    assert _saved(pair)[:2] == (150, "s3://b/150.json")


def test_one_that_did_not_come_about_changes_nothing_and_is_noted(pair: Scene) -> None:
    pair.say(0, "saved")
    for _ in range(2):
        assert pair.say(0, "saved", id="c-2", failed=f"late\n{TOKEN}") == TAKEN
    assert _saved(pair)[0] == 120
    assert pair.journal("not_saved") == [{"rank": 0, "id": "c-2", "failed": "late ***"}]


def test_heartbeats_tell_how_far_it_is_without_a_write_each(pair: Scene, clock: Clock) -> None:
    pair.say(0, "heartbeat")
    heard = pair.records[0].heard_at
    clock.move(1)
    pair.say(0, "heartbeat", step=10, steps=600, step_seconds=0.5, saved_step=8, saved_manifest="/b/8.json")
    assert (pair.records[0].step, pair.records[0].heard_at) == (None, heard)
    clock.move(9)
    pair.say(1, "heartbeat")
    pair.attendance.flush()
    found = pair.records[0]
    assert (found.step, found.step_seconds, found.saved_step, found.saved_manifest) == (10, 0.5, 8, "/b/8.json")
    assert (found.saved_at, found.heard_at) == (found.heard_at, found.heard_at)
    pair.say(0, "heartbeat", step=11, step_seconds=0.5)
    pair.attendance.flush()
    assert (pair.records[0].step, pair.records[0].saved_step) == (11, 8)
    assert pair.journal("saved") == []


def test_a_heartbeat_that_comes_late_does_not_take_a_checkpoint_back(pair: Scene) -> None:
    pair.say(0, "heartbeat")
    pair.say(0, "saved")
    pair.say(0, "heartbeat", saved_step=90, saved_manifest="/b/90.json")
    pair.attendance.flush()
    assert _saved(pair) == (120, "/b/120.json", NOW)


def test_what_waits_for_the_database_is_not_lost_by_what_does_not(pair: Scene, clock: Clock) -> None:
    pair.say(0, "heartbeat")
    pair.say(0, "heartbeat", step=10, saved_step=8, saved_manifest="/b/8.json")
    clock.move(1)
    pair.say(0, "saved")
    pair.attendance.flush()
    found = pair.records[0]
    assert (found.step, found.saved_step, found.heard_at) == (10, 120, clock())
    fresh = pair.fresh()
    pair.attendance = fresh
    pair.say(0, "heartbeat", step=9, saved_step=100, saved_manifest="/b/100.json")
    pair.attendance.flush()
    assert (pair.records[0].step, pair.records[0].saved_step) == (9, 120)


def test_a_database_that_takes_nothing_is_tried_again(pair: Scene) -> None:
    with patch.object(pair.store.joint, "note", side_effect=BusyError("locked")):
        assert pair.say(0, "saved") == (503, {})
    assert pair.say(0, "saved") == TAKEN
    assert _saved(pair)[0] == 120
    assert len(pair.journal("saved")) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": -1},
        {"step": 1.5},
        {"step": True},
        {"step": None},
        {"manifest": ""},
        {"manifest": 7},
        {"manifest": "/a\nb"},
        {"manifest": "x" * 5000},
        {"seconds": -1},
        {"seconds": "3"},
        {"id": None},
        {"failed": None},
        {"protocol": 2},
        {"incarnation": ""},
    ],
)
def test_what_is_not_whole_is_refused(pair: Scene, wrong: dict[str, Any]) -> None:
    assert pair.say(0, "saved", **wrong) == (400, {"error": "body"})
    assert _saved(pair) == (None, None, None)


@pytest.mark.parametrize(
    "wrong", [{"step": -1}, {"step": "1"}, {"step_seconds": -0.5}, {"saved_step": 3}, {"saved_step": None}]
)
def test_so_is_a_heartbeat(pair: Scene, wrong: dict[str, Any]) -> None:
    assert pair.say(0, "heartbeat", **wrong) == (400, {"error": "body"})


def test_it_comes_from_the_life_that_speaks_for_the_rank(pair: Scene) -> None:
    pair.say(0, "hello")
    assert pair.say(0, "saved", incarnation="another") == (409, {"error": "rank_taken"})
    assert pair.say(0, "saved", token="wrong") == (401, {"error": "token"})
    assert pair.say(0, "saved", manifest=f"/b/{TOKEN}.json") == TAKEN
    assert _saved(pair)[1] == "/b/***.json"


def test_heartbeats_say_how_often_to_save_once_that_is_known(pair: Scene) -> None:
    assert pair.say(0, "heartbeat")[1] == {"order": "continue"}
    pair.store.attempts.change(pair.attempt, checkpoint_seconds=900.5)
    for rank in (0, 1):
        assert pair.say(rank, "heartbeat")[1] == {"order": "continue", "checkpoint_seconds": 900.5}
