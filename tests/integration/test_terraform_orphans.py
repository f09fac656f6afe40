"""Terraform killed at any moment of an apply: what it started is known to the run directory, and can be ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from terraform.errors import OrphansLeftError, StateLostError, StoppedError
from terraform.events import TerraformEvent
from terraform.orphans import OrphanProcess, list_orphans, stop_orphans
from terraform.render import parse_nodes
from terraform.workdir import MODULES, STATE, check_state, forget_state, prepare
from tests.support import terraform_runs as support
from tests.support.busy import eventually
from tests.support.gangs import examples, sandbox

pytestmark = support.needs_engine

SLEEP = "exec sleep 300"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "run"
    support.end_nodes(tmp_path / "run")


def _processes(directory: Path) -> list[int]:
    """Every process of this machine that was started for a node of ``directory``, whether its pid is known or not."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("STEPFARE_NODE_FOLDER", "").startswith(str(directory)):
                found.append(process.pid)
        except psutil.Error:
            continue
    return [pid for pid in found if support.lives(pid)]


def _lost(directory: Path) -> bool:
    try:
        check_state(directory)
    except StateLostError:
        return True
    return False


class Killer:
    """Kills the group of the engine at the ``count``-th event of a kind, ``after`` seconds later, if it still runs."""

    def __init__(self, directory: Path, kind: str, count: int, after: float) -> None:
        self.directory, self.kind, self.left, self.after = directory, kind, count, after

    def __call__(self, event: TerraformEvent) -> None:
        self.left -= event.kind == self.kind
        if self.left == 0:
            self.left = -1
            time.sleep(self.after)
            with suppress(support.NoEngineError):
                os.killpg(support.engine_process(self.directory).pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "count", "after", "cut"),
    [
        pytest.param(*("apply_start", 1, 0.0, 0), marks=pytest.mark.slow),
        ("apply_complete", 1, 0.0, 0),
        pytest.param(*("apply_complete", 5, 0.0, 0), marks=pytest.mark.slow),
        pytest.param(*("apply_start", 6, 0.0, 0), marks=pytest.mark.slow),
        pytest.param(*("apply_start", 6, 0.01, 0), marks=pytest.mark.slow),
        pytest.param(*("apply_start", 6, 0.03, 0), marks=pytest.mark.slow),
        pytest.param(*("apply_start", 7, 0.06, 0), marks=pytest.mark.slow),
        pytest.param(*("apply_complete", 6, 0.0, 0), marks=pytest.mark.slow),
        ("apply_complete", 7, 0.05, 0),
        pytest.param(*("apply_complete", 8, 0.0, 0), marks=pytest.mark.slow),
        ("apply_start", 6, 0.03, 100),
        pytest.param(*("apply_complete", 8, 0.0, 300), marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment_of_an_apply(directory: Path, kind: str, count: int, after: float, cut: int) -> None:
    prepare(directory, sandbox(scripts=dict.fromkeys(range(4), SLEEP)))
    runner = replace(support.runner(), parallelism=2)
    stopped = ""
    try:
        runner.apply(directory, Killer(directory, kind, count, after))
    except StoppedError as error:
        stopped = str(error)
    # After the last node comes the end, and on a busy machine that may be there before the kill.
    assert "ended by signal 9" in stopped or (not stopped and kind == "apply_complete" and count > 6)
    # A kill in the middle of a write is as rare as it is bad.
    if cut and (directory / STATE).read_bytes():
        (directory / STATE).write_bytes((directory / STATE).read_bytes()[:cut])
    lost = _lost(directory)
    assert lost or not cut

    known = list_orphans(directory)
    assert {stray.name for stray in known} <= {f"demo-1-{rank}" for rank in range(4)}
    assert set(stop_orphans(directory)) >= set(known)
    eventually(lambda: _processes(directory) == [], 5)
    assert list_orphans(directory) == ()
    assert (forget_state(directory) is not None) == lost

    # What a state that was merely behind still lists is released by Terraform, and the directory is as new.
    runner.destroy(directory)
    assert runner.state(directory) == ()
    assert len(parse_nodes(runner.apply(directory).outputs)) == 4
    assert [stray.name for stray in list_orphans(directory)] == [f"demo-1-{rank}" for rank in range(4)]
    assert len(_processes(directory)) == 4
    runner.destroy(directory)
    assert list_orphans(directory) == ()
    assert _processes(directory) == []


def test_a_start_that_outlives_its_terraform_is_not_wanted_any_more(directory: Path) -> None:
    """The process was begun, but had not got as far as its pid file when everything was stopped."""
    prepare(directory, sandbox(count=1))
    folder = directory / "nodes" / "demo-1-0"
    folder.mkdir(parents=True)
    (folder / "wanted").write_text("100 1\n")
    assert list_orphans(directory) == stop_orphans(directory) == ()
    environment = {"PATH": os.environ["PATH"], "STEPFARE_NODE_FOLDER": str(folder), "STEPFARE_WANTED": "100 1"}
    words = ["sh", str(directory / "module" / "node.sh"), "touch", "came-up"]
    with psutil.Popen(words, env=environment, start_new_session=True) as late:
        assert late.wait(10) == 1
    # And when another start has begun since.
    (folder / "wanted").write_text("200 1\n")
    with psutil.Popen(words, env=environment, start_new_session=True) as late:
        assert late.wait(10) == 1
    assert [path.name for path in folder.iterdir()] == ["wanted"]


def test_children_that_outlive_their_node_are_strays_and_a_number_used_again_is_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_GRACE_SECONDS", "1")
    script = "trap '' TERM\nsh -c 'trap \"\" TERM; sleep 300' &\necho $! >child; wait"
    prepare(directory, sandbox(count=1, scripts={0: script}))
    support.runner().apply(directory)
    (group,) = support.pids(directory).values()
    eventually(lambda: (directory / "nodes" / "demo-1-0" / "child").is_file())
    os.kill(group, signal.SIGKILL)
    eventually(lambda: not support.lives(group))
    assert list_orphans(directory) == (OrphanProcess("demo-1-0", group),)
    assert len(_processes(directory)) > 0

    with psutil.Popen(["sleep", "60"], start_new_session=True) as other:
        (directory / "nodes" / "demo-1-1").mkdir()
        (directory / "nodes" / "demo-1-1" / "pid").write_text(f"{other.pid}\n")
        (directory / "nodes" / "demo-1-1" / "born").write_text("1\n")
        assert list_orphans(directory) == (OrphanProcess("demo-1-0", group),)
        assert stop_orphans(directory) == (OrphanProcess("demo-1-0", group),)
        assert _processes(directory) == []
        assert support.lives(other.pid)
        other.kill()


def test_what_cannot_be_ended_is_said(directory: Path) -> None:
    prepare(directory, sandbox(count=1))
    folder = directory / "nodes" / "demo-1-0"
    folder.mkdir(parents=True)
    (folder / "pid").write_text("nonsense\n")
    assert list_orphans(directory) == ()
    with pytest.raises(OrphansLeftError, match="demo-1-0/pid holds no process id"):
        stop_orphans(directory)
    (folder / "pid").unlink()


@pytest.mark.parametrize("cloud", [folder.name for folder in sorted(MODULES.iterdir())])
def test_where_nothing_was_started_there_are_none(directory: Path, cloud: str) -> None:
    assert list_orphans(directory) == stop_orphans(directory) == ()
    prepare(directory, examples()[cloud])
    assert list_orphans(directory) == stop_orphans(directory) == ()
