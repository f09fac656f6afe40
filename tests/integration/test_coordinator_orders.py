"""Orders over HTTP: a question that waits, who wakes it, and how it ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from router.coordinator import app as waiting_module
from router.coordinator.app import LongPoll
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.busy import in_time, on_a_busy_machine
from tests.support.coordinations import ATTEMPT, TOKEN, Scene, scene

CONTINUE = {"order": "continue"}


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, 4) as made:
        for rank in range(4):
            made.say(rank, "hello")
        made.phase(Phase.RUNNING)
        yield made


def _ask(gang: Scene, rank: int, wait: float = 20.0, seen: str = "") -> tuple[float, dict[str, Any]]:
    """(when, what was answered)."""
    request = Request(
        f"{gang.url}/v1/attempts/{ATTEMPT}/ranks/{rank}/orders",
        json.dumps(gang.body(rank, "orders", wait=wait, seen=seen)).encode(),
        {"Authorization": f"Bearer {TOKEN}"},
    )
    with urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return time.monotonic(), found


@contextmanager
def _all_ask(gang: Scene) -> Iterator[list[Future[tuple[float, dict[str, Any]]]]]:
    with ThreadPoolExecutor(gang.nodes) as pool:
        asked = [pool.submit(_ask, gang, rank) for rank in range(gang.nodes)]
        time.sleep(0.5)
        assert not any(one.done() for one in asked)
        yield asked


def test_a_notice_to_one_wakes_all_at_once(gang: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, seldom = LongPoll.__init__, 15.0
    monkeypatch.setattr(LongPoll, "__init__", lambda self, look: plain(self, look, every=seldom))
    with gang.serving(), _all_ask(gang) as asked:
        began = time.monotonic()
        assert gang.say(2, "notice", seconds=30.0) == (200, {})
        answers = [one.result() for one in asked]
    assert max(at for at, _ in answers) - began < seldom / 3
    for _, said in answers:
        assert (said["order"], said["id"], said["reason"]) == ("checkpoint", "n-1", "interruption")
        assert 26.0 < said["seconds"] <= 28.0


def test_what_another_process_writes_arrives_within_a_second(gang: Scene, tmp_path: Path) -> None:
    order: dict[str, Any] = {
        "order_id": "w-1",
        "order_reason": "rebalance",
        "order_seconds": 60.0,
        "ordered_at": datetime.now(UTC),
    }
    with gang.serving(), StateStore.open(f"sqlite:///{tmp_path / 'state.db'}", now=datetime.now(UTC)) as other:
        with _all_ask(gang) as asked:
            began = time.monotonic()
            other.attempts.update(ATTEMPT, lambda attempt: replace(attempt, phase=Phase.CHECKPOINTING, **order))
            answers = [one.result() for one in asked]
        assert {said["id"] for _, said in answers} == {"w-1"}
        assert max(at for at, _ in answers) - began < on_a_busy_machine(1.0)
        with ThreadPoolExecutor(1) as pool:
            asked_again = pool.submit(_ask, gang, 0, seen="w-1")
            time.sleep(0.3)
            began = time.monotonic()
            other.attempts.update(ATTEMPT, lambda attempt: replace(attempt, phase=Phase.RELEASING))
            at, said = asked_again.result()
        assert said == {"order": "stop"}
        assert at - began < on_a_busy_machine(1.0)


def test_where_nothing_happens_it_ends_when_it_was_to(gang: Scene) -> None:
    with gang.serving():
        for wait in (0.0, 0.7):
            began = time.monotonic()
            at, said = _ask(gang, 0, wait=wait)
            assert said == CONTINUE
            assert wait <= at - began < wait + on_a_busy_machine(0.6)


def test_what_changes_nothing_for_a_rank_does_not_end_its_waiting(gang: Scene) -> None:
    gang.say(2, "notice")
    with gang.serving():
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(_ask, gang, 0, wait=1.5, seen="n-1")
            time.sleep(0.2)
            gang.phase(Phase.CHECKPOINTING)
            at, said = asked.result()
    assert said == CONTINUE
    assert at - began >= 1.5


def test_the_end_of_serving_does_not_wait_for_those_who_wait(gang: Scene) -> None:
    with ThreadPoolExecutor(4) as pool:
        with gang.serving():
            asked = [pool.submit(_ask, gang, rank) for rank in range(4)]
            time.sleep(0.5)
            began = time.monotonic()
        assert in_time(began, 0.8)
        assert [one.result()[1] for one in asked] == [CONTINUE] * 4


def test_where_no_more_can_be_held_the_answer_comes_at_once(gang: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LongPoll.__init__
    monkeypatch.setattr(LongPoll, "__init__", lambda self, look: plain(self, look, max_held=1))
    with gang.serving(), ThreadPoolExecutor(1) as pool:
        held = pool.submit(_ask, gang, 0, wait=1.5)
        time.sleep(0.3)
        began = time.monotonic()
        at, said = _ask(gang, 1)
        assert said == {"order": "continue", "retry_seconds": waiting_module.RETRY_SECONDS}
        assert at - began < on_a_busy_machine(0.5)
        assert held.result()[1] == CONTINUE
        assert _ask(gang, 1, wait=0.1)[1] == CONTINUE


@pytest.mark.slow
def test_heartbeats_are_answered_while_hundreds_wait(tmp_path: Path) -> None:
    with scene(tmp_path, 300) as gang, gang.serving():
        for rank in range(gang.nodes):
            gang.say(rank, "hello")
        gang.phase(Phase.RUNNING)
        answers: list[dict[str, Any]] = []
        threads = [threading.Thread(target=lambda r=r: answers.append(_ask(gang, r)[1])) for r in range(gang.nodes)]
        for thread in threads:
            thread.start()
        time.sleep(3.0)
        assert answers == []
        began = time.monotonic()
        for rank in range(20):
            assert gang.say(rank, "heartbeat")[0] == 200
            assert _ask(gang, rank, wait=0.0)[1] == CONTINUE
        assert in_time(began, 5.0)
        gang.say(7, "notice")
        for thread in threads:
            thread.join(10)
    assert [said["order"] for said in answers] == ["checkpoint"] * gang.nodes
