"""The helper asks for a checkpoint by itself, so often as the agent's environment says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from router.agent.control import AgentControlFolder
from router.agent.helper import stepfare_checkpoint
from router.agent.helper.stepfare_checkpoint import EVERY, INTERVAL, ORDERED, STOP, Agent, Checkpoints, Request
from router.agent.messenger import Messenger, Outbox
from router.agent.output import OutputTail


class _Time:
    """Stands still until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Time:
    made = _Time()
    monkeypatch.setattr(stepfare_checkpoint, "time", made)
    monkeypatch.setenv(EVERY, "60")
    return made


def _state(text: str = "x") -> Callable[[Path], Any]:
    return lambda place: (place / "state").write_text(text)


def test_one_is_wanted_when_the_last_is_so_old(tmp_path: Path, clock: _Time) -> None:
    checkpoints = Checkpoints(tmp_path)
    clock.now += 59.9
    assert checkpoints.wanted(1) is None
    clock.now += 0.1
    assert checkpoints.wanted(2) == checkpoints.wanted(3) == Request("", INTERVAL)
    assert not checkpoints.wanted(3).ends  # type: ignore[union-attr]

    def slowly(place: Path) -> None:
        _state()(place)
        clock.now += 30

    checkpoints.save(3, slowly)
    clock.now += 59.9
    assert checkpoints.wanted(4) is None
    clock.now += 0.1
    assert checkpoints.wanted(5) == Request("", INTERVAL)


def test_one_that_somebody_else_wanted_counts_too(tmp_path: Path, clock: _Time) -> None:
    checkpoints = Checkpoints(tmp_path)
    clock.now += 50
    checkpoints.save(1, _state())
    clock.now += 50
    assert checkpoints.wanted(2) is None
    clock.now += 10
    assert checkpoints.wanted(3) == Request("", INTERVAL)


def test_one_that_fails_is_tried_again_after_as_long(tmp_path: Path, clock: _Time) -> None:
    checkpoints = Checkpoints(tmp_path)
    clock.now += 60
    with pytest.raises(OSError, match="no space"):
        checkpoints.save(1, Mock(side_effect=OSError("no space")))
    clock.now += 59
    assert checkpoints.wanted(2) is None
    clock.now += 1
    assert checkpoints.wanted(3) == Request("", INTERVAL)


def test_what_is_asked_for_comes_first_and_is_answered(tmp_path: Path, clock: _Time) -> None:
    control = tmp_path / "control"
    control.mkdir()
    checkpoints = Checkpoints(tmp_path / "run", agent=Agent(str(control)))
    clock.now += 60
    (control / "request.json").write_text(json.dumps({"id": "c-1", "reason": "interruption", "until": 1090.0}))
    assert checkpoints.wanted(1) == Request("c-1", "interruption", 1090.0)
    checkpoints.save(1, _state())
    assert json.loads((control / "saved.json").read_text())["id"] == "c-1"
    clock.now += 60
    assert checkpoints.wanted(2) == Request("", INTERVAL)
    checkpoints.save(2, _state())
    said = json.loads((control / "saved.json").read_text())
    assert (said["id"], said["step"], said["after"]) == ("", 2, "c-1")


@pytest.mark.parametrize("mine", [0, 1])
def test_ranks_whose_clocks_differ_save_after_the_same_step(tmp_path: Path, clock: _Time, mine: int) -> None:
    """One rank finds that it is time, the others have a moment left: all are told, or none is."""
    asked: list[bool] = []

    def agree(flag: bool) -> bool:
        asked.append(flag)
        # The other rank: due, and not to end.
        return flag or (mine == 1 and len(asked) == 1)

    checkpoints = Checkpoints(tmp_path, rank=0, world=1, agree=agree)
    clock.now += 60 if mine == 0 else 59
    found = checkpoints.wanted(1)
    assert found == Request("", INTERVAL if mine == 0 else ORDERED)
    assert asked == [mine == 0, False]


def test_only_steps_at_which_ranks_agree_count(tmp_path: Path, clock: _Time) -> None:
    checkpoints = Checkpoints(tmp_path, agree=lambda flag: flag, agree_every=10)
    clock.now += 60
    assert [step for step in range(1, 31) if checkpoints.wanted(step)] == [10, 20, 30]


def test_sigterm_ends_it_all_the_same(tmp_path: Path, clock: _Time) -> None:
    checkpoints = Checkpoints(tmp_path)
    clock.now += 60
    checkpoints.agent._stopped = True
    assert checkpoints.wanted(1) == Request("", STOP)


def test_without_the_variable_nothing_is_wanted(tmp_path: Path, clock: _Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EVERY)
    checkpoints = Checkpoints(tmp_path)
    clock.now += 1e9
    assert checkpoints.wanted(1) is None


def test_the_agent_may_say_another_interval_while_it_runs(tmp_path: Path, clock: _Time) -> None:
    control = AgentControlFolder(tmp_path / "control", signals=False)
    checkpoints = Checkpoints(tmp_path / "run", agent=Agent(str(control.folder)))
    control.tell_interval(20.0)  # before the folder is there: it is told again
    control.prepare()
    clock.now += 30
    assert checkpoints.wanted(1) is None
    control.tell_interval(20.0)
    assert checkpoints.wanted(2) is None  # it looks once a second
    clock.now += 1
    assert checkpoints.wanted(3) == Request("", INTERVAL)
    control.tell_interval(None)  # an older coordinator says nothing
    control.tell_interval(40.0)
    clock.now += 1
    assert checkpoints.wanted(4) is None
    clock.now += 8
    assert checkpoints.wanted(5) == Request("", INTERVAL)
    for text in ("{", "[1]", '{"seconds": -1}', '{"seconds": "soon"}'):
        (control.folder / "interval.json").write_text(text)
        clock.now += 1
        assert checkpoints.wanted(6) == Request("", INTERVAL)
    checkpoints.save(6, _state())
    clock.now += 39
    assert checkpoints.wanted(7) is None
    control.prepare()
    assert not (control.folder / "interval.json").exists()


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ({"order": "continue", "checkpoint_seconds": 900}, 900.0),
        ({"order": "continue"}, None),
        ({"order": "continue", "checkpoint_seconds": "900"}, None),
        ({"order": "continue", "checkpoint_seconds": 0}, None),
        ({"order": "continue", "checkpoint_seconds": 1e9}, None),
    ],
)
def test_an_agent_takes_it_from_the_answer_to_a_heartbeat(
    tmp_path: Path, answer: dict[str, Any], known: float | None
) -> None:
    class Answers:
        def post(self, message: str, body: dict[str, Any]) -> dict[str, Any]:
            assert (message, body) == ("heartbeat", {})
            return answer

    coordinator: Any = Answers()
    messenger = Messenger(
        coordinator,
        Outbox(tmp_path, 1000),
        OutputTail(1000),
        every=1.0,
        status=dict,
        order=lambda *_: pytest.fail("nothing was ordered"),
        note=lambda _: None,
    )
    messenger._send_heartbeat()
    assert messenger.checkpoint_seconds == known
