"""Workers of one process: they share the apply lock and give it up while none of them needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.controller.context import Workers
from router.state.errors import LeaseHeldError
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from tests.support.new_state import open_state
from tests.support.scenes import NOW

MOST_S = 60


class World:
    """A state with the lock "apply", as two processes see it."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    @contextmanager
    def lock(self) -> Iterator[None]:
        with self._store.lease("apply", LockOwner.of_this_process(), lambda: NOW):
            yield

    def is_free(self) -> bool:
        return not self._store.lease_holders("apply", lambda: NOW)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_state(tmp_path / "state.db", NOW) as store:
        yield World(store)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


class Waiting:
    """A worker that waits for its data until it may go on, and then works until it may end."""

    def __init__(self, workers: Workers, stop: threading.Event | None = None) -> None:
        self._workers, self._stop = workers, stop or threading.Event()
        self.waits, self.may_go_on, self.works, self.may_end = (threading.Event() for _ in range(4))

    def __call__(self) -> None:
        with self._workers.waiting(self._stop):
            self.waits.set()
            assert self.may_go_on.wait(MOST_S)
        self.works.set()
        assert self.may_end.wait(MOST_S)


def test_the_lock_is_free_while_all_workers_wait_and_taken_before_one_goes_on(
    world: World, pool: ThreadPoolExecutor
) -> None:
    workers = Workers(4)
    first, second, third = (Waiting(workers) for _ in range(3))
    third.may_go_on.set()
    with workers.held(world.lock(), world.lock):
        ended = [workers.submit(pool, each) for each in (first, second, third)]
        assert first.waits.wait(MOST_S)
        assert second.waits.wait(MOST_S)
        assert third.works.wait(MOST_S)
        assert not world.is_free(), "one of them works"
        third.may_end.set()
        ended[2].result(MOST_S)
        workers.rest()
        with world.lock():
            first.may_go_on.set()
            assert not first.works.wait(0.5), "another process has the lock"
        assert first.works.wait(MOST_S)
        assert workers.holds_lock
        assert not world.is_free()
        for event in (first.may_end, second.may_go_on, second.may_end):
            event.set()
        for each in ended:
            each.result(MOST_S)
    assert world.is_free()


def test_a_worker_that_waits_leaves_its_slot_to_another(world: World, pool: ThreadPoolExecutor) -> None:
    workers = Workers(1)
    first, second = Waiting(workers), Waiting(workers)
    second.may_go_on.set()
    with workers.held(world.lock(), world.lock):
        ended = [workers.submit(pool, first)]
        assert first.waits.wait(MOST_S)
        assert workers.try_hold(world.lock)
        ended.append(workers.submit(pool, second))
        assert second.works.wait(MOST_S)
        first.may_go_on.set()
        assert not first.works.wait(0.3), "there is one slot"
        for event in (second.may_end, first.may_end):
            event.set()
        for each in ended:
            each.result(MOST_S)
    assert world.is_free()


def test_a_worker_that_is_stopped_while_another_process_has_the_lock_does_not_go_on(
    world: World, pool: ThreadPoolExecutor
) -> None:
    workers, stop = Workers(2), threading.Event()
    waiting = Waiting(workers, stop)
    with workers.held(world.lock(), world.lock):
        ended = workers.submit(pool, waiting)
        assert waiting.waits.wait(MOST_S)
        with world.lock():
            stop.set()
            waiting.may_go_on.set()
            with pytest.raises(LeaseHeldError):
                ended.result(MOST_S)
        assert not waiting.works.is_set()
        assert workers.try_hold(world.lock)


def test_nothing_is_given_up_by_who_is_no_worker(world: World) -> None:
    workers = Workers(1)
    with workers.held(world.lock(), world.lock), workers.waiting(threading.Event()):
        assert not world.is_free()
