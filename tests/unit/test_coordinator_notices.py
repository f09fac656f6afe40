"""What the coordinator does with what a machine was told of its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from router.state.records import NoticeRecord, Phase
from tests.support.coordinations import ATTEMPT, NOW, TOKEN, Clock, Scene, scene

KEPT = NoticeRecord(ATTEMPT, 1, "n-1", "interruption", "sandbox", 30.0, "preempted", NOW)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(tmp_path: Path, clock: Clock) -> Iterator[Scene]:
    with scene(tmp_path, 2, clock=clock, fresh_seconds=0) as made:
        yield made


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
