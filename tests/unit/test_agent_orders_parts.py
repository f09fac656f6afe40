"""The thread that asks for orders, and the parts around it: what it makes of every answer, and when it asks again."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.agent import messenger as module
from router.agent.calls import CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError
from router.agent.config import AgentConfig, AgentConfigError, parse_config
from router.agent.control import AgentControlFolder
from router.agent.imds import MachineNotice
from router.agent.messenger import OrderPoller, UrgentSender
from router.agent.notice_listener import NoticeListener
from router.agent.protocol import LONGEST_ID
from router.agent.starters import gang_environment

WHO = {"protocol": 1, "incarnation": "life-1"}
CHECKPOINT = {"order": "checkpoint", "id": "c-1", "seconds": 20.0, "reason": "interruption"}
Answers = list[dict[str, Any] | Exception]


class _Calls(CoordinatorClient):
    """Gives these answers, then holds the question for ever."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.asked, self.at = answers, list[dict[str, Any]](), list[float]()
        self.out = threading.Event()

    def post(self, what: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
        assert (what, wait) == ("orders", body["wait"])
        self.asked.append(body)
        self.at.append(time.monotonic())
        if not self.answers:
            self.out.set()
            threading.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(module, "FIRST_POLL_WAIT", 0.05)


def _ran(*answers: dict[str, Any] | Exception, ends: bool = False) -> tuple[_Calls, list[tuple[str, dict[str, Any]]]]:
    """What was asked and what was ordered, once all was answered; ``ends``: the thread ends by itself then."""
    calls, orders = _Calls([*answers]), list[tuple[str, dict[str, Any]]]()
    thread = OrderPoller(calls, who=WHO, order=lambda order, answer: orders.append((order, answer)))
    thread.start()
    if ends:
        thread.join(10)
        assert not thread.is_alive()
    else:
        assert calls.out.wait(10)
    thread.finish()
    return calls, orders


def test_a_question_says_who_asks_what_was_seen_and_how_long_it_can_wait() -> None:
    calls, orders = _ran({"order": "continue"}, CHECKPOINT, {"order": "continue"})
    assert [body["seen"] for body in calls.asked] == ["", "", "c-1", "c-1"]
    assert calls.asked[0] == {**WHO, "seen": "", "wait": 25.0}
    assert orders == [("checkpoint", CHECKPOINT)]


def test_the_same_order_again_is_none() -> None:
    assert _ran(CHECKPOINT, CHECKPOINT, CHECKPOINT)[1] == [("checkpoint", CHECKPOINT)]


def test_after_an_order_to_stop_nothing_is_asked() -> None:
    calls, orders = _ran({"order": "stop"}, CHECKPOINT, ends=True)
    assert (len(calls.asked), orders) == (1, [("stop", {"order": "stop"})])


def test_an_attempt_that_is_over_is_to_stop() -> None:
    assert _ran(CoordinatorRefusalError("attempt_over"), ends=True)[1] == [("stop", {})]


def test_a_coordinator_that_does_not_know_the_question_is_left_alone() -> None:
    calls, orders = _ran(CoordinatorRefusalError("message"), CHECKPOINT, ends=True)
    assert (len(calls.asked), orders) == (1, [])


def test_other_refusals_and_silence_are_tried_again_later_and_later() -> None:
    calls, orders = _ran(
        CoordinatorAwayError("no"),
        CoordinatorRefusalError("token"),
        CoordinatorAwayError("HTTP 503", wait=0.3),
        CHECKPOINT,
    )
    waits = [after - before for before, after in zip(calls.at, calls.at[1:], strict=False)]
    assert waits[0] >= 0.02
    assert waits[1] >= 0.05
    assert waits[2] >= 0.3
    assert orders == [("checkpoint", CHECKPOINT)]


def test_a_coordinator_that_cannot_hold_it_says_when_to_come_again() -> None:
    answers: Answers = [{"order": "continue", "retry_seconds": s} for s in (0.3, "soon", -5)]
    calls, _ = _ran(*answers)
    waits = [after - before for before, after in zip(calls.at, calls.at[1:], strict=False)]
    assert waits[0] >= 0.3
    assert all(0.01 <= wait < 5.0 for wait in waits[1:])


@pytest.mark.parametrize("odd", [{}, {"order": None}, {"order": "dance"}, {"order": "checkpoint"}])
def test_what_is_no_order_does_no_harm(odd: dict[str, Any]) -> None:
    _, orders = _ran(odd, {"order": "stop"}, ends=True)
    assert orders[-1] == ("stop", {"order": "stop"})


def test_nobody_is_told_after_the_end() -> None:
    heard: list[str] = []
    release = threading.Event()

    class Held(_Calls):
        def post(self, what: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
            self.out.set()
            release.wait(10)
            return CHECKPOINT

    calls = Held([])
    thread = OrderPoller(calls, who=WHO, order=lambda order, _: heard.append(order))
    thread.start()
    assert calls.out.wait(10)
    thread.finish()
    release.set()
    thread.join(10)
    assert (thread.is_alive(), heard) == (False, [])


def _said(*answers: Exception | None) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    """(what was done because a message was taken, the messages that nobody took)."""
    done: list[str] = []

    class Calls(CoordinatorClient):
        def __init__(self) -> None:
            self.answers = list(answers)

        def post(self, what: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
            answer = self.answers.pop(0) if self.answers else CoordinatorAwayError("no")
            if answer is not None:
                raise answer
            return {}

    urgent = UrgentSender(Calls(), lambda _: None)
    urgent.start()
    for number in range(len(answers)):
        then: Callable[[], None] = lambda number=number: done.append(f"m-{number}")  # type: ignore[misc]  # noqa: E731
        urgent.put("saved", {"n": number}, then)
        time.sleep(0.05)
    left = urgent.finish()
    time.sleep(0.1)
    return done, left


def test_what_follows_a_message_follows_only_if_it_was_taken() -> None:
    assert _said(None, CoordinatorRefusalError("attempt_over"), None) == (["m-0", "m-2"], [])
    assert _said(CoordinatorAwayError("no")) == ([], [("saved", {"n": 0})])


def _config(**more: Any) -> AgentConfig:
    least = {
        "attempt": "a", "job": "j", "rank": 0, "nodes": 1, "command": "true", "workdir": "w",
        "coordinator": "http://127.0.0.1:1", "token_file": "t", "log_folder": "l", "spool_folder": "s",
    }  # fmt: skip
    return parse_config({**least, **more})


def test_the_training_is_told_what_it_goes_on_from_and_how_often_to_save() -> None:
    plain = gang_environment(_config())
    told = gang_environment(_config(resume_step=0, resume_manifest="/m", checkpoint_seconds=1234.5))
    assert {name: told[name] for name in set(told) - set(plain)} == {
        "STEPFARE_RESUME_STEP": "0",
        "STEPFARE_RESUME_MANIFEST": "/m",
        "STEPFARE_CHECKPOINT_SECONDS": "1234.5",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resume_step", -1),
        ("resume_step", "1"),
        ("resume_step", None),
        ("resume_manifest", None),
        ("checkpoint_seconds", 0),
        ("checkpoint_seconds", -1.0),
        ("checkpoint_seconds", 1e8),
        ("checkpoint_seconds", "1"),
    ],
)
def test_what_it_is_told_makes_sense(name: str, value: object) -> None:
    with pytest.raises(AgentConfigError, match=name):
        _config(**{name: value})


def test_a_notice_and_the_order_that_comes_of_it_are_one_request(tmp_path: Path) -> None:
    control = AgentControlFolder(tmp_path / "control", signals=True)
    control.prepare()
    long = "n" * 500
    control.announced(MachineNotice(long, "interruption", "sandbox", 30.0, "it ends"))
    first = (control.folder / "request.json").stat().st_mtime_ns
    control.ordered({"id": long[:LONGEST_ID], "seconds": 5.0, "reason": "interruption"})
    assert (control.folder / "request.json").stat().st_mtime_ns == first
    assert [answer["id"] for answer in control.close()] == [long[:LONGEST_ID]]


def test_only_what_waits_for_this_machine_is_told_to_begin(tmp_path: Path) -> None:
    config = _config(spool_folder=str(tmp_path / "spool"), metadata="files")
    notices = NoticeListener(
        config, _Calls([]), who=WHO, events=queue.SimpleQueue(), note=lambda _: None, environment={"PATH": "/nowhere"}
    )
    for notice in (
        MachineNotice("n-1", "interruption", "azure", 30.0, "", waits=True),
        MachineNotice("n-2", "interruption", "azure", 30.0, ""),
    ):
        notices.tell(notice)
    assert notices.once_saved("n-1") is not None
    assert notices.once_saved("n-2") is notices.once_saved("n-3") is notices.once_saved("") is None
