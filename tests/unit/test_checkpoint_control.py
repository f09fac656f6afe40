"""The agent's side of the control folder: requests out, what the training says in, whatever lies there."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from router.agent.control import UNPRESSED_SECONDS, AgentControlFolder
from router.agent.imds import MachineNotice
from router.agent.protocol import HELPER, REPORTING_SECONDS, SHORTEST_SECONDS, STOP
from tests.support.repository import ROOT


class _Ticks:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> _Ticks:
    return _Ticks()


@pytest.fixture
def control(tmp_path: Path, ticks: _Ticks) -> AgentControlFolder:
    made = AgentControlFolder(tmp_path / "deep" / "control", signals=True, ticks=ticks)
    made.prepare()
    return made


def _request(control: AgentControlFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((control.folder / "request.json").read_text())
    return found


def _say(control: AgentControlFolder, name: str = "saved.json", **body: Any) -> None:
    part = control.folder / f".{name}"
    part.write_text(json.dumps({"version": 1, **body}))
    part.replace(control.folder / name)


def test_the_folder_is_private_whole_and_new(control: AgentControlFolder) -> None:
    assert stat.S_IMODE(control.folder.stat().st_mode) == 0o700
    source = ROOT / "router" / "agent" / "helper" / HELPER
    assert (control.folder / "python" / HELPER).read_bytes() == source.read_bytes()
    for name in ("request.json", "saved.json", "progress.json", "wants-signal"):
        (control.folder / name).write_text('{"step": 7, "manifest": "/m"}')
    control.prepare()
    assert [path.name for path in control.folder.iterdir()] == ["python"]
    assert control.environment({}) == {
        "STEPFARE_CONTROL": str(control.folder),
        "PYTHONPATH": str(control.folder / "python"),
    }
    assert control.environment({"PYTHONPATH": "/a:/b"})["PYTHONPATH"] == f"{control.folder}/python:/a:/b"


def test_an_order_is_written_whole_and_once(control: AgentControlFolder, ticks: _Ticks) -> None:
    for _ in range(3):
        control.ordered({"id": "c-1", "seconds": 95, "reason": "maintenance", "order": "checkpoint"})
        assert _request(control) == {
            "version": 1,
            "id": "c-1",
            "reason": "maintenance",
            "seconds": 95,
            "until": 1095.0,
        }
        ticks.now += 1
    _say(control, id="c-1", step=12, manifest="/b/step-12.json", seconds=3.25)
    assert control.look() == [{"id": "c-1", "step": 12, "manifest": "/b/step-12.json", "seconds": 3.25}]
    assert control.look() == []
    control.ordered({"id": "c-1", "seconds": 95})
    assert control.close() == []


@pytest.mark.parametrize("said", [{}, {"id": 3, "seconds": "x", "reason": "fun"}, {"id": "", "seconds": float("nan")}])
def test_an_order_that_is_not_whole_is_an_order_all_the_same(control: AgentControlFolder, said: dict[str, Any]) -> None:
    control.ordered(said)
    found = _request(control)
    assert (found["reason"], found["seconds"], len(found["id"])) == ("ordered", UNPRESSED_SECONDS, 8)


@pytest.mark.parametrize(
    ("kind", "seconds", "reason", "given"),
    [
        ("interruption", 120.0, "interruption", 120.0 - REPORTING_SECONDS),
        ("interruption", 1.0, "interruption", 0.5),
        ("interruption", None, "interruption", SHORTEST_SECONDS),
        ("rebalance", None, "rebalance", UNPRESSED_SECONDS),
        ("maintenance", 600.0, "maintenance", 600.0 - REPORTING_SECONDS),
        ("health", None, "maintenance", UNPRESSED_SECONDS),
    ],
)
def test_a_notice_leaves_time_to_say_that_it_is_saved(
    control: AgentControlFolder, kind: str, seconds: float | None, reason: str, given: float
) -> None:
    control.announced(MachineNotice("n-1", kind, "aws", seconds, "it ends"))
    found = _request(control)
    assert (found["id"], found["reason"]) == ("n-1", reason)
    assert found["seconds"] == pytest.approx(given, abs=0.2)


def test_what_is_not_answered_in_time_is_late_and_the_last_good_one_counts(
    control: AgentControlFolder, ticks: _Ticks
) -> None:
    _say(control, id="", step=100, manifest="/b/100", seconds=1)
    assert control.look() == [{"id": "", "step": 100, "manifest": "/b/100", "seconds": 1}]
    control.ordered({"id": "c-1", "seconds": 30})
    ticks.now += 29
    assert control.look() == []
    assert control.pause < 0.1
    ticks.now += 1
    assert control.look() == [{"id": "c-1", "failed": "late"}]
    assert control.look() == []
    assert control.pause > 0.1
    assert control.known() == {"saved_step": 100, "saved_manifest": "/b/100"}
    # The machine is still there, and so is the checkpoint in the end.
    _say(control, id="c-1", step=130, manifest="/b/130", seconds=44)
    assert control.look() == [{"id": "c-1", "step": 130, "manifest": "/b/130", "seconds": 44}]


def test_a_checkpoint_answers_what_its_request_replaced_and_nothing_later(control: AgentControlFolder) -> None:
    for name in ("a", "b", "c"):
        control.ordered({"id": name, "seconds": 60})
    _say(control, id="b", step=5, manifest="/m", seconds=1)
    assert [(body["id"], body["step"]) for body in control.look()] == [("a", 5), ("b", 5)]
    _say(control, id="c", failed="no room")
    assert control.look() == [{"id": "c", "failed": "no room"}]


def test_a_training_that_saves_faster_than_it_is_looked_at_has_answered(control: AgentControlFolder) -> None:
    control.ordered({"id": "a", "seconds": 60})
    _say(control, id="a", step=5, manifest="/5", seconds=1)
    _say(control, id="", step=6, manifest="/6", seconds=1, after="a")
    assert [(body["id"], body["step"]) for body in control.look()] == [("a", 6)]
    _say(control, id="", step=7, manifest="/7", seconds=1, after="a")
    assert [(body["id"], body["step"]) for body in control.look()] == [("", 7)]


def test_a_training_that_ends_will_not_answer(control: AgentControlFolder) -> None:
    control.ordered({"id": "a", "seconds": 60})
    control.request("s", STOP, 60)
    assert control.close() == [{"id": "a", "failed": "ended"}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"step": 1}',
        '{"step": -1, "manifest": "/m"}',
        '{"step": true, "manifest": "/m"}',
        '{"step": 1, "manifest": ""}',
        '{"step": 1.5, "manifest": "/m"}',
        "[" * 70000,
        "x" * 100000,
        json.dumps({"step": 1, "manifest": "x" * 5000}),
        '{"id": ["a"], "failed": {}}',
    ],
)
def test_whatever_lies_there_is_read_without_harm(control: AgentControlFolder, text: str) -> None:
    control.ordered({"id": "a", "seconds": 60})
    (control.folder / "saved.json").write_text(text)
    (control.folder / "progress.json").write_text(text.replace("-1", "1").replace("true", "null"))
    assert control.look() == []
    assert set(control.known()) <= {"step"}


def test_a_pipe_under_the_name_holds_nobody_up(control: AgentControlFolder) -> None:
    for name in ("saved.json", "progress.json"):
        os.mkfifo(control.folder / name)
    assert control.look() == []
    assert control.known() == {}


def test_progress_is_told_as_far_as_it_makes_sense(control: AgentControlFolder) -> None:
    _say(control, "progress.json", step=12, steps=100, step_seconds=0.41)
    assert control.known() == {"step": 12, "steps": 100, "step_seconds": 0.41}
    _say(control, "progress.json", step=13, steps=None, step_seconds=float("inf"))
    assert control.known() == {"step": 13}
    _say(control, "progress.json", step="13", steps=5)
    assert control.known() == {}


def test_who_wants_a_signal_gets_one(control: AgentControlFolder, tmp_path: Path) -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: caught.append(number))
    try:
        control.ordered({"id": "a"})
        assert caught == []
        wants = control.folder / "wants-signal"
        wants.write_text(f"{os.getpid()}\n")
        control.ordered({"id": "b"})
        assert caught == [signal.SIGUSR1]
        for text in ("", "x", "0", "1", "-1", "99999999999999999999999"):
            wants.write_text(text)
            control.ordered({"id": f"c{text}"})
        apart = AgentControlFolder(tmp_path / "apart", signals=False)
        apart.prepare()
        (apart.folder / "wants-signal").write_text(str(os.getpid()))
        apart.ordered({"id": "a"})
        assert caught == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_folder_that_is_gone_costs_the_request_alone(control: AgentControlFolder, ticks: _Ticks) -> None:
    for path in sorted(control.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    control.folder.rmdir()
    control.ordered({"id": "a", "seconds": 1})
    assert control.look() == []
    ticks.now += 1
    assert control.look() == [{"id": "a", "failed": "late"}]
