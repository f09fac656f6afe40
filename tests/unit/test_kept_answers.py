"""Answers that take long are made once, kept until their version changes, and made again behind their readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from router.console.kept_answers import MOST_WAITING, STALE_SECONDS, KeptAnswers, ManyQuestionsError


class World:
    """A version, a clock, and a maker that counts and can be held."""

    def __init__(self) -> None:
        self.version, self.now, self.made = 1, 0.0, 0
        self.free = threading.Event()
        self.free.set()
        self.kept = KeptAnswers(lambda: self.version, lambda: self.now)

    def make(self) -> int:
        assert self.free.wait(10)
        self.made += 1
        return self.made

    def get(self, question: str = "month") -> int:
        value: int = asyncio.run(self.kept.get(question, self.make)).value
        return value

    def settle(self, question: str = "month") -> None:
        """Wait until nothing is being made."""
        for making in list(self.kept._making.values()):
            making.result(10)


@pytest.fixture
def world() -> Iterator[World]:
    opened = World()
    yield opened
    opened.free.set()
    opened.kept.close()


def test_one_answer_serves_all_until_the_version_changes(world: World) -> None:
    assert [world.get() for _ in range(3)] == [1, 1, 1]
    assert world.get("other") == 2


def test_the_old_one_is_given_while_the_new_one_is_made(world: World) -> None:
    world.get()
    world.free.clear()
    world.version, world.now = 2, 2.0
    assert [world.get() for _ in range(3)] == [1, 1, 1]
    world.free.set()
    world.settle()
    assert world.get() == 2
    assert world.made == 2


def test_the_version_is_read_once_a_second(world: World) -> None:
    world.get()
    world.version = 2
    assert world.get() == 1
    assert world.made == 1
    world.now = 1.0
    world.get()
    world.settle()
    assert world.made == 2


def test_one_that_is_too_old_is_waited_for(world: World) -> None:
    world.get()
    world.version, world.now = 2, STALE_SECONDS + 1
    assert world.get() == 2


def test_many_readers_at_once_let_it_be_made_once(world: World) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(world.kept.get("month", world.make) for _ in range(50)))

    assert {answer.value for answer in asyncio.run(ask())} == {1}
    assert world.made == 1


def test_a_failure_is_told_to_who_waits_and_not_kept(world: World) -> None:
    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(world.kept.get("month", fail))
    assert world.get() == 1


def test_a_failure_behind_readers_leaves_the_old_one(world: World) -> None:
    world.get()
    world.version, world.now = 2, 2.0
    world.free.clear()
    make: Callable[[], int] = lambda: world.free.wait(10) // 0  # noqa: E731
    assert asyncio.run(world.kept.get("month", make)).value == 1
    (making,) = world.kept._making.values()
    world.free.set()
    with pytest.raises(ZeroDivisionError):
        making.result(10)
    assert world.get() == 1


def test_too_many_questions_are_refused_and_kept_ones_are_not(world: World) -> None:
    world.get()
    world.free.clear()
    for number in range(MOST_WAITING):
        world.kept.begin(number, world.make)
    with pytest.raises(ManyQuestionsError):
        world.get("one more")
    world.version, world.now = 2, 2.0
    assert world.get() == 1


def test_refresh_makes_what_was_last_asked_for(world: World) -> None:
    world.get()
    world.kept.refresh()
    assert world.made == 1
    world.version = 2
    world.kept.refresh()
    world.settle()
    assert world.made == 2
