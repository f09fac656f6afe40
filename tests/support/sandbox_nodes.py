"""Sandbox nodes as Terraform starts them: through the module's own start.sh, detached, with their marks."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.busy import eventually
from tests.support.repository import ROOT

MODULE = ROOT / "terraform" / "modules" / "sandbox"

# As the node agent does: the training and a guard, each in a session of its own; the training ends with the agent.
NODE = """\
setsid sleep 300 & train=$!
setsid sleep 301 & guard=$!
trap 'kill -s TERM -- "-$train" "-$guard"; wait; exit 143' TERM
touch begun
wait
"""


@dataclass(frozen=True)
class Node:
    """A node that was started."""

    id: str
    folder: Path

    @property
    def pid(self) -> int:
        """Of its first process, the leader of its group."""
        return int((self.folder / "pid").read_text())

    @property
    def pids(self) -> set[int]:
        """Of all its living processes, by what marks them."""
        return pids_of(self.id)

    @property
    def groups(self) -> dict[int, int]:
        """The group of each living process, by pid; one that ends while it is looked at is left out."""
        groups = {}
        for pid in self.pids:
            try:
                groups[pid] = os.getpgid(pid)
            except ProcessLookupError:
                continue
        return groups


def start(folder: Path, attempt: str, rank: int, state: str, script: str = NODE, **more: str) -> Node:
    """Starts a node and waits until it has ``begun``, where its script does."""
    name, node_id = f"{attempt}-{rank}", str(uuid.uuid4())
    environment = {
        "PATH": os.environ["PATH"], "STEPFARE_SCRIPT": script, "STEPFARE_ATTEMPT": attempt, "STEPFARE_RANK": str(rank),
        "STEPFARE_NODE": name, "STEPFARE_NODE_ID": node_id, "STEPFARE_STATE": state, **more,
    }  # fmt: skip
    place = folder / name
    subprocess.run(["sh", MODULE / "start.sh", place], env=environment, check=True, timeout=30)
    if "touch begun" in script:
        eventually((place / "begun").exists)
    return Node(node_id, place)


def pids_of(node_id: str) -> set[int]:
    """Living processes with this STEPFARE_NODE_ID."""
    return {pid for pid, marks in marked().items() if marks["STEPFARE_NODE_ID"] == node_id}


def marked() -> Mapping[int, Mapping[str, str]]:
    """The environments of all living processes of a sandbox node, by pid."""
    found = {}
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)  # process_iter leaves out what it takes for a number used again
            environment = process.environ()
            if "STEPFARE_NODE_ID" in environment and process.status() != psutil.STATUS_ZOMBIE:
                found[pid] = environment
        except psutil.Error:
            continue
    return found


def kill(node_id: str) -> None:
    """Ends what is left of a node, without ceremony."""
    while pids := pids_of(node_id):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
