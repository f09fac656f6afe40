"""Between what a watcher does, others make and release: it keeps the lock no longer than it needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.controller.context import ControllerContext
from router.controller.history.attempt_history import give_up, history_of
from router.controller.supervise.replanner import PlacementDeferred
from router.controller.supervise.supervisor import Supervisor
from router.state.records import Phase
from tests.support.state_values import NOW
from tests.support.watched import QUIET, Places, noticed, now, patient_site, saved, settle, stopped_clock, up


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    with patient_site(tmp_path) as made:
        yield made


@pytest.fixture
def places(site: ControllerContext) -> Places:
    return Places(site)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return stopped_clock(monkeypatch)


def test_while_one_waits_others_may_make_and_release(
    site: ControllerContext, places: Places, clock: list[float]
) -> None:
    """A job without a place keeps nobody from the lock between its attempts to find one."""
    held, taken = list[bool](), 0

    @contextmanager
    def lock() -> Iterator[None]:
        nonlocal taken
        taken += 1
        held.append(True)
        try:
            yield
        finally:
            held.pop()

    watcher = Supervisor(site, places, QUIET, lock)  # type: ignore[arg-type]
    one = up(site)
    noticed(site, one, phase=Phase.CHECKPOINTING)
    saved(site, one, 5)
    places.answer = PlacementDeferred("all is short")
    try:
        settle(watcher, clock)
        before = taken
        for _ in range(10):
            clock[0] += 0.05
            assert watcher.reconcile(), "it is waited for"
            assert held == []
        assert taken - before <= 1
    finally:
        watcher.close()


def test_one_that_was_given_up_while_another_had_the_lock_is_not_made_again(
    site: ControllerContext, places: Places, clock: list[float]
) -> None:
    """As `destroy` does, between a look at who waits and the lock."""
    one = up(site)
    noticed(site, one, phase=Phase.CHECKPOINTING)
    saved(site, one, 5)
    places.answer = PlacementDeferred("all is short")
    destroys = False

    @contextmanager
    def lock() -> Iterator[None]:
        if destroys:
            give_up(site.store, history_of(site.store, one), "stopped", "destroyed on request", NOW)
        yield

    watcher = Supervisor(site, places, QUIET, lock)  # type: ignore[arg-type]
    try:
        settle(watcher, clock)
        places.answer, destroys = None, True
        settle(watcher, clock)
    finally:
        watcher.close()
    assert places.made == []
    assert now(site, one.id).reason == "stopped"
