"""The command run in this process, and the small folder of jobs that its tests plan."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from typer.testing import CliRunner, Result

from router.cli.main import app


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


NOW = "2026-11-21T18:00:00Z"
JOB = """\
name: {name}
team: research
steps: {steps}
deadline: {deadline}
workload: {{profile: [{{accelerator: H100, count: 8, steps_per_hour: 900}}]}}
gang: {{accelerators: H100:8}}
checkpoint: {{size_gib: 80}}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments])


def plan(*arguments: object) -> Result:
    """``stepfare plan`` at a fixed moment."""
    return run("plan", *arguments, "--now", NOW)


def write_job(folder: Path, name: str, *, steps: int = 1000, deadline: str = "+18h", more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(JOB.format(name=name, steps=steps, deadline=deadline) + more, encoding="utf-8")
    return path
