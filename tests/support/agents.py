"""The packed node agent as real processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.controller.workspace.bootstrap import pack_agent
from tests.support.busy import on_a_busy_machine
from tests.support.coordinator import Coordinator

QUICK = {"heartbeat_seconds": 0.05, "gang_seconds": 30.0, "grace_seconds": 10.0, "farewell_seconds": 20.0}


@dataclass
class Rank:
    """One agent process and its folder."""

    folder: Path
    process: subprocess.Popen[bytes]

    def end(self, seconds: float = 30) -> int:
        return self.process.wait(on_a_busy_machine(seconds))

    def log(self, name: str = "train.log") -> str:
        """A file of its log folder; empty while there is none."""
        path = self.folder / "log" / name
        return path.read_text() if path.exists() else ""


def configuration(folder: Path, coordinator: Coordinator, rank: int, command: str, **more: Any) -> Path:
    """The files that cloud-init would write, for one rank; the path of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = more.pop("environment", {})
    _private(folder / "token", coordinator.token)
    _private(folder / "env.json", json.dumps(environment))
    content = {
        "attempt": coordinator.attempt, "job": "job-1", "rank": rank, "nodes": coordinator.nodes, "command": command,
        "workdir": str(folder / "work"), "coordinator": coordinator.url, "token_file": str(folder / "token"),
        "env_file": str(folder / "env.json"), "log_folder": str(folder / "log"), "engine": "command", "master_port": 0,
        "spool_folder": str(folder / "spool"), **QUICK, **more,
    }  # fmt: skip
    _private(folder / "agent.json", json.dumps(content))
    return folder / "agent.json"


@contextmanager
def agents(
    folder: Path, coordinator: Coordinator, command: str, *, path: str = "", only: Sequence[int] = (), **more: Any
) -> Iterator[list[Rank]]:
    """All ranks of the coordinator's attempt, or ``only`` some; ``more`` goes into their configuration. What still runs
    at the end of the block is killed. ``path`` goes before the machine's own PATH."""
    zipapp = folder / "agent.pyz"
    folder.mkdir(parents=True, exist_ok=True)
    zipapp.write_bytes(pack_agent())
    environment = {"PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"], "HOME": str(folder)}
    ranks = []
    try:
        for rank in only or range(coordinator.nodes):
            home = folder / f"rank-{rank}"
            config = configuration(home, coordinator, rank, command, **more)
            with (home / "stderr").open("wb") as stderr:
                process = subprocess.Popen([sys.executable, zipapp, config], env=environment, stderr=stderr, cwd="/")
            ranks.append(Rank(home, process))
        yield ranks
    finally:
        for rank_ in ranks:
            if rank_.process.poll() is None:
                rank_.process.send_signal(signal.SIGKILL)
            rank_.process.wait(10)


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
