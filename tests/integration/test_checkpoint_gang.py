"""Agents and the demo's trainer with the helper that the agents bring along: what is confirmed is never lost."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from router.agent.helper.stepfare_checkpoint import Checkpoints, Good
from tests.support.agents import Rank, agents
from tests.support.coordinator import Coordinator
from tests.support.training import TRAINER, losses, train

TOKEN = "token-of-the-attempt-5f3a"
STEPS = 150


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a training that nobody disturbs."""
    folder = tmp_path_factory.mktemp("plain")
    train("--steps", STEPS, "--checkpoint-dir", folder)
    return losses(folder)


def _command(folder: Path, *options: object) -> str:
    words = ["--steps", STEPS, "--checkpoint-dir", folder, "--checkpoint-every", 10_000, *options]
    return "exec " + shlex.join(map(str, [sys.executable, TRAINER, *words]))


@contextmanager
def _gang(tmp_path: Path, attempt: str, command: str, **more: Any) -> Iterator[tuple[Coordinator, list[Rank]]]:
    with (
        Coordinator(2, TOKEN, attempt=attempt).running() as coordinator,
        agents(tmp_path / attempt, coordinator, command, **more) as ranks,
    ):
        yield coordinator, ranks


def _steps(coordinator: Coordinator, least: int) -> None:
    coordinator.wait(lambda c: any(beat.get("step", 0) >= least for beat in c.messages("heartbeat")))


def _answers(coordinator: Coordinator, name: str) -> list[dict[str, Any]]:
    return [body for body in coordinator.messages("saved") if body["id"] == name]


def _newest(folder: Path) -> Good:
    good = Checkpoints(folder, attempt="look").newest()
    assert good is not None
    return good


def _kill(ranks: list[Rank]) -> None:
    """Agents, and by their guards all that they started, at once."""
    for rank in ranks:
        rank.process.send_signal(signal.SIGKILL)
    for rank in ranks:
        rank.process.wait(10)
    time.sleep(0.5)


@pytest.mark.slow
def test_an_ordered_checkpoint_is_one_step_of_all_ranks_and_outlives_the_death_of_all(
    plain: dict[int, float], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    with _gang(tmp_path, "one", _command(folder, "--step-seconds", 0.03)) as (coordinator, ranks):
        _steps(coordinator, 5)
        coordinator.checkpoint = {"id": "c-1", "seconds": 60.0, "reason": "rebalance"}
        coordinator.wait(lambda c: len(_answers(c, "c-1")) >= 2)
        _kill(ranks)
    answers = _answers(coordinator, "c-1")
    assert len({(body["step"], body["manifest"]) for body in answers}) == 1
    assert len({body["incarnation"] for body in answers}) == 2
    good = _newest(folder)
    assert (good.step, str(good.manifest), good.attempt) == (answers[0]["step"], answers[0]["manifest"], "one")
    assert json.loads(good.manifest.read_text())["answers"] == ["c-1"]
    done = max(losses(folder))
    assert good.step <= done < STEPS
    with _gang(tmp_path, "two", _command(folder)) as (coordinator, ranks):
        assert [rank.end() for rank in ranks] == [0, 0]
    resumed = re.search(r"resumed at step (\d+) from ", coordinator.text(0))
    # A rank that outlives the others by an instant saves once more by itself, which nobody confirmed.
    assert resumed is not None
    assert good.step <= int(resumed[1]) <= done
    assert losses(folder) == plain
    assert _newest(folder).step == STEPS


def test_each_rank_told_at_another_moment_still_makes_one_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with _gang(tmp_path, "one", _command(folder, "--step-seconds", 0.1), heartbeat_seconds=1.0) as (coordinator, _):
        _steps(coordinator, 5)
        coordinator.checkpoint = {"id": "c-1", "seconds": 60.0}
        coordinator.wait(lambda c: len(_answers(c, "c-1")) >= 2)
    assert len({body["step"] for body in _answers(coordinator, "c-1")}) == 1
    assert len(list(folder.glob("*.manifest.json"))) == 1


def test_heartbeats_tell_how_far_it_is_and_what_is_saved(tmp_path: Path) -> None:
    command = _command(tmp_path / "checkpoints", "--step-seconds", 0.05, "--checkpoint-every", 20)
    with _gang(tmp_path, "one", command) as (coordinator, _):
        coordinator.wait(lambda c: any(beat.get("saved_step", 0) >= 40 for beat in c.messages("heartbeat", 0)))
        beat = [body for body in coordinator.messages("heartbeat", 0) if "saved_step" in body][-1]
    assert beat["saved_manifest"] == str(tmp_path / "checkpoints" / f"step-{beat['saved_step']:08d}.manifest.json")
    assert 0.04 < beat["step_seconds"] < 5
    assert (beat["steps"], coordinator.messages("saved", 1)) == (STEPS, [])


@pytest.mark.slow
def test_a_stop_is_a_request_and_what_it_saved_is_said_before_the_end(plain: dict[int, float], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with _gang(tmp_path, "one", _command(folder, "--step-seconds", 0.03)) as (coordinator, ranks):
        _steps(coordinator, 5)
        coordinator.stops = {0, 1}
        assert [rank.end() for rank in ranks] == [143, 143]
    (ended,) = coordinator.messages("ended", 0)
    step = max(losses(folder))
    assert coordinator.messages("saved", 0)[-1]["step"] == ended["saved_step"] == _newest(folder).step == step
    kinds = [heard.what for heard in coordinator.heard if heard.rank == 0]
    assert len(kinds) - kinds[::-1].index("saved") - 1 < kinds.index("ended")
    with _gang(tmp_path, "two", _command(folder)) as (coordinator, ranks):
        assert [rank.end() for rank in ranks] == [0, 0]
    assert losses(folder) == plain


TOO_LARGE = """
import pathlib, sys, time
import stepfare_checkpoint
folder = pathlib.Path(sys.argv[1])
checkpoints = stepfare_checkpoint.Checkpoints(folder)
def slowly(place):
    for piece in range(100):
        with (place / "state").open("ab") as stream:
            stream.write(b"x" * 1000)
        time.sleep(0.1)
checkpoints.save(1, lambda place: (place / "state").write_bytes(b"small"))
for step in range(2, 10_000):
    time.sleep(0.02)
    if checkpoints.wanted(step):
        print("saving", flush=True)
        checkpoints.save(step, slowly)
"""


def test_a_checkpoint_too_large_for_the_notice_is_late_and_the_last_good_one_counts(tmp_path: Path) -> None:
    folder, program = tmp_path / "checkpoints", tmp_path / "program.py"
    program.write_text(TOO_LARGE)
    command = f'exec {shlex.quote(sys.executable)} {shlex.quote(str(program))} "{folder}"'
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, command, grace_seconds=0.5) as (rank,),
    ):
        coordinator.wait(lambda c: any(body.get("step") == 1 for body in c.messages("saved")))
        coordinator.checkpoint = {"id": "c-1", "seconds": 0.7, "reason": "interruption"}
        began = time.monotonic()
        coordinator.wait(lambda c: bool(_answers(c, "c-1")))
        assert 0.6 < time.monotonic() - began < 10
        assert [body.get("failed") for body in _answers(coordinator, "c-1")] == ["late"]
        assert "saving" in rank.log()
        rank.process.terminate()
        assert rank.end() == 143
    assert coordinator.messages("ended")[0]["saved_step"] == 1
    good = _newest(folder)
    assert (good.step, [path.read_bytes() for path in good.files]) == (1, [b"small"])


@pytest.mark.parametrize("python", ["", "/elsewhere"])
def test_the_helper_is_importable_and_comes_before_what_the_job_has(tmp_path: Path, python: str) -> None:
    command = "python3 -c 'import stepfare_checkpoint, sys; print(stepfare_checkpoint.__file__, sys.path[1:3])'"
    given = {"plain": {"PYTHONPATH": python}} if python else {}
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, command, environment=given) as (rank,),
    ):
        assert rank.end() == 0
    folder = rank.folder / "control" / "python"
    assert rank.log().startswith(f"{folder}/stepfare_checkpoint.py ['{folder}', ")
    assert (f"['{folder}', '{python}']" in rank.log()) == bool(python)
    assert (rank.folder / "control").stat().st_mode & 0o777 == 0o700
