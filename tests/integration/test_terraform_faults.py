"""Terraform stopped, killed, locked out and lied to: what the caller learns, and what is left."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from terraform.errors import (
    ApplyFailedError,
    DestroyFailedError,
    EngineMissingError,
    InitFailedError,
    PreviewFailedError,
    ReadFailedError,
    RunDirectoryError,
    StateLockedError,
    StateLostError,
    StoppedError,
    TimedOutError,
)
from terraform.events import TerraformEvent
from terraform.process import StopTimeouts, run_process
from terraform.runner import CommandLimits, Runner
from terraform.workdir import PluginSources, forget_state, prepare
from tests.support import terraform_runs as support
from tests.support.busy import in_time
from tests.support.gangs import sandbox

pytestmark = support.needs_engine

CANARY = "canary-7c1e-token"
SHORT = CommandLimits(60, 60, 1.5, 60, 60, StopTimeouts(20, 5))


def _started(directory: Path) -> bool:
    return (directory / "started").exists()


def _tainted(directory: Path) -> list[str]:
    state = json.loads((directory / "terraform.tfstate").read_text())
    return [i.get("status", "") for r in state["resources"] for i in r["instances"]]


def test_the_time_limit_asks_first_and_the_state_knows_what_was_begun(tmp_path: Path) -> None:
    root = support.slow_root(tmp_path / "run", "touch started; sleep 300")
    runner = support.runner(SHORT)
    began = time.monotonic()
    with pytest.raises(TimedOutError, match=r"stopped after 1\.5 s") as stopped:
        runner.apply(root)
    assert in_time(began, 15)
    assert not stopped.value.killed
    assert stopped.value.diagnostics
    assert _tainted(root) == ["tainted"]
    support.runner().destroy(root)
    assert support.runner().state(root) == ()


def test_one_that_does_not_listen_is_killed_with_its_children(tmp_path: Path) -> None:
    """An engine that ignores SIGINT and SIGTERM; the same steps, to their end."""
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\ntrap '' INT TERM\nsleep 300 &\necho $! >child\nwait\nsleep 300\n")
    deaf.chmod(0o755)
    root = support.write_root(tmp_path / "run", {})
    engine = support.embedded()
    limits = CommandLimits(60, 60, 0.5, 60, 60, StopTimeouts(0.3, 0.3))
    runner = Runner(type(engine)(deaf, engine.kind, engine.version), {"PATH": os.environ["PATH"]}, limits)
    with pytest.raises(TimedOutError, match="had to be killed") as stopped:
        runner.apply(root)
    assert stopped.value.killed
    child = int((root / "child").read_text())
    support.wait_for(lambda: not support.lives(child))


def test_stopping_when_asked(tmp_path: Path) -> None:
    root = support.slow_root(tmp_path / "run", "touch started; sleep 300")
    runner, stop = support.runner(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(runner.apply, root, stop=stop)
        support.wait_for(lambda: _started(root))
        stop.set()
        with pytest.raises(StoppedError, match="stopped as asked"):
            run.result(30)
    assert _tainted(root) == ["tainted"]
    runner.destroy(root)


def test_what_is_said_as_errors_after_the_end_of_output_is_read(tmp_path: Path) -> None:
    """Standard output ends at once, the error comes a moment later, from a process that the engine left."""
    words = ["sh", "-c", "(exec 1>&-; sleep 0.3; echo late >&2) & exit 1"]
    environment = {"PATH": os.environ["PATH"]}
    found = run_process(
        words,
        folder=tmp_path,
        environment=environment,
        limit_s=60,
        patience=StopTimeouts(20, 5),
        on_line=lambda _: None,
    )
    assert (found.code, found.stderr) == (1, "late\n")


def test_one_that_is_stopped_before_it_listens_shows_nothing_of_its_inside(tmp_path: Path) -> None:
    """As the interpreter of the embedded engine does; an error that it names as such is told."""
    says = "echo 'Traceback (most recent call last):' >&2; echo KeyboardInterrupt >&2"
    for more, told in (("", ""), ("; printf 'Error: No lock\\n\\nof 3\\n' >&2", "; No lock: of 3")):
        young, root = tmp_path / "young", support.write_root(tmp_path / "run", {})
        young.write_text(f'#!/bin/sh\ntrap "{says}{more}; exit 1" INT\ntouch started\nwhile :; do sleep 0.1; done\n')
        young.chmod(0o755)
        engine, stop = support.embedded(), threading.Event()
        runner = Runner(type(engine)(young, engine.kind, engine.version), {"PATH": os.environ["PATH"]}, support.QUICK)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(runner.preview, root, stop=stop)
            support.wait_for(lambda root=root: _started(root))  # type: ignore[misc]
            stop.set()
            with pytest.raises(StoppedError) as stopped:
                run.result(30)
        assert str(stopped.value) == f"terraform plan in {root} was stopped as asked{told}"
        (root / "started").unlink()


def test_a_caller_that_fails_stops_terraform_and_gets_its_own_error(tmp_path: Path) -> None:
    root = support.slow_root(tmp_path / "run", "touch started; sleep 300")

    def journal(event: TerraformEvent) -> None:
        support.wait_for(lambda: _started(root))
        raise OSError(28, "No space left on device", "journal")

    with pytest.raises(OSError, match="journal"):
        support.runner().apply(root, journal)
    assert _tainted(root) == ["tainted"]


def test_ctrl_c_stops_terraform_first(tmp_path: Path) -> None:
    root = support.slow_root(tmp_path / "run", "touch started; sleep 300")

    def press() -> None:
        support.wait_for(lambda: _started(root))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        support.runner().apply(root)
    thread.join()
    assert _tainted(root) == ["tainted"]


def test_a_killed_engine_leaves_a_state_that_is_recognised_as_lost(tmp_path: Path) -> None:
    root = support.slow_root(tmp_path / "run", "touch started; sleep 5")
    runner = support.runner()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(runner.apply, root)
        support.wait_for(lambda: _started(root))
        support.engine_process(root).kill()
        with pytest.raises(StoppedError, match="ended by signal 9"):
            run.result(30)
    assert (root / "terraform.tfstate").read_bytes() == b""
    for again in (runner.preview, runner.apply, runner.destroy, runner.outputs, runner.state):
        with pytest.raises(StateLostError, match="is empty") as lost:
            again(root)
        assert "sweep" in lost.value.remedy
    # Once somebody has swept and says so.
    aside = forget_state(root)
    assert aside is not None
    assert aside.is_file()
    assert forget_state(root) is None
    assert len(runner.preview(root).creates) == 1


def test_a_state_that_was_cut_off_is_lost_too_and_a_whole_one_is_never_put_aside(tmp_path: Path) -> None:
    prepare(tmp_path / "run", sandbox(count=1))
    runner = support.runner()
    runner.apply(tmp_path / "run")
    assert forget_state(tmp_path / "run") is None
    state = tmp_path / "run" / "terraform.tfstate"
    state.write_bytes(state.read_bytes()[:-20])
    with pytest.raises(StateLostError, match="is cut off"):
        runner.destroy(tmp_path / "run")


def test_two_at_once_the_second_is_told(tmp_path: Path) -> None:
    """The first has an empty state while it works, which is not lost: it is held."""
    root = support.slow_root(tmp_path / "run", "touch started; sleep 3")
    runner = support.runner()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(runner.apply, root)
        support.wait_for(lambda: _started(root))
        for second in (runner.apply, runner.destroy, runner.preview):
            with pytest.raises(StateLockedError, match="another run is at work") as locked:
                second(root)
            assert "Operation" in locked.value.diagnostics[0].detail
        assert len(first.result(30).done) == 1
    assert len(runner.state(root)) == 1


def test_a_lock_that_cannot_be_written_is_nobody_elses(tmp_path: Path) -> None:
    """As on a full disk: whoever waits for another run to end would wait in vain."""
    prepare(tmp_path / "run", sandbox(count=1))
    runner = support.runner()
    runner.apply(tmp_path / "run")
    (tmp_path / "run" / ".terraform.tfstate.lock.info").mkdir()
    for command, failed in (
        (runner.preview, PreviewFailedError),
        (runner.apply, ApplyFailedError),
        (runner.destroy, DestroyFailedError),
    ):
        with pytest.raises(failed, match="could not write lock info"):
            command(tmp_path / "run")
    (tmp_path / "run" / ".terraform.tfstate.lock.info").rmdir()
    assert len(runner.destroy(tmp_path / "run")) == 2


def test_a_preview_is_applied_once_and_only_while_it_is_true(tmp_path: Path) -> None:
    prepare(tmp_path / "run", sandbox(count=1))
    runner = support.runner()
    preview = runner.preview(tmp_path / "run")
    runner.apply(tmp_path / "run")
    with pytest.raises(ApplyFailedError, match="stale"):
        runner.apply(tmp_path / "run", preview=preview)
    assert not preview.file.exists()
    assert len(runner.state(tmp_path / "run")) == 2


def test_a_wrong_configuration_fails_the_preview_with_its_place(tmp_path: Path) -> None:
    root = support.write_root(tmp_path / "run", {"resource": {"terraform_data": {"x": {"inptu": 1}}}})
    with pytest.raises(PreviewFailedError, match="inptu") as failed:
        support.runner().preview(root)
    assert failed.value.diagnostics[0].is_error
    assert not (root / "preview.tfplan").exists()


def test_a_provider_that_cannot_be_had_fails_init(tmp_path: Path) -> None:
    prepare(tmp_path / "run", sandbox(count=1), plugins=PluginSources(cache=tmp_path / "cache", mirror=tmp_path))
    (tmp_path / "run" / "module" / "more.tf").write_text('resource "null_resource" "x" {}\n')
    with pytest.raises(InitFailedError, match="hashicorp/null"):
        support.runner().init(tmp_path / "run")
    assert (tmp_path / "cache").is_dir()


def test_secrets_of_the_environment_and_user_data_are_masked_in_errors(tmp_path: Path) -> None:
    command = f"echo $AWS_SECRET_ACCESS_KEY; echo 'export TOKEN={CANARY}' >&2; exit 3"
    root = support.slow_root(tmp_path / "run", command)
    user_data = {"user_data": {"0": f"#!/bin/sh\nexport TOKEN={CANARY}\n"}}
    (root / "secrets.auto.tfvars.json").write_text(json.dumps(user_data))
    runner = support.runner(AWS_SECRET_ACCESS_KEY="key-5b7d-of-aws", TF_LOG="trace", TF_VAR_x="1", TF_CLI_ARGS="-bogus")
    events: list[TerraformEvent] = []
    with pytest.raises(ApplyFailedError, match="exit status 3") as failed:
        runner.apply(root, events.append)
    told = f"{failed.value} {failed.value.diagnostics!r} {runner!r} {events!r}"
    assert str(failed.value).count("(hidden)") == 3  # in the command, and twice in its output
    assert CANARY not in told
    assert "key-5b7d-of-aws" not in told


def test_an_engine_or_a_directory_that_is_gone(tmp_path: Path) -> None:
    root = support.write_root(tmp_path / "run", {})
    engine = support.embedded()
    for path in (tmp_path / "gone", tmp_path / "run" / "main.tf.json"):
        with pytest.raises(EngineMissingError):
            Runner(type(engine)(path, engine.kind, engine.version), {}).preview(root)
    with pytest.raises(RunDirectoryError, match="nothing was prepared"):
        support.runner().apply(tmp_path / "nothing")


def test_outputs_that_cannot_be_read(tmp_path: Path) -> None:
    root = support.write_root(tmp_path / "run", {})
    (root / "terraform.tfstate").write_text('{"version": 99}')
    with pytest.raises(ReadFailedError):
        support.runner().outputs(root)
    with pytest.raises(ReadFailedError):
        support.runner().state(root)


def test_the_engine_collects_less_garbage_unless_told_otherwise(tmp_path: Path) -> None:
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\nenv >environment\n")
    script.chmod(0o755)
    root = support.write_root(tmp_path / "run", {})
    engine = support.embedded()
    for given, seen in (({}, "400"), ({"GOGC": "50"}, "50")):
        Runner(type(engine)(script, engine.kind, engine.version), {"PATH": os.environ["PATH"], **given}).init(root)
        lines = (root / "environment").read_text().splitlines()
        assert f"GOGC={seen}" in lines
        assert "GOMEMLIMIT=2GiB" in lines
