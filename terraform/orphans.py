"""Orphaned local processes of a run directory, found whatever became of Terraform's state.

This concerns modules whose machines are local processes; their scripts list and end them. Directories of other modules
know of none: their machines are found by tag, in the cloud.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from terraform.errors import OrphansLeftError
from terraform.workdir import MODULE

_NODES: Final = "nodes"
_RUNNING: Final = "running.sh"
_STOP: Final = "stop.sh"
_AT_ONCE: Final = 16
# This is longer than a node that ignores the request to stop may take.
_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, order=True)
class OrphanProcess:
    """A node that runs on this machine: its name and the number of its process group."""

    name: str
    group: int


def list_orphans(directory: Path) -> tuple[OrphanProcess, ...]:
    """Return the nodes of ``directory`` that run on this machine, sorted by name; none when nothing was started there.

    A number that another process has by now is not a node. A node that is being started at this moment may be missing,
    if the process that starts it lives.
    """
    scripts = directory / MODULE
    if not (scripts / _RUNNING).is_file():
        return ()
    folders = _folders(directory)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda folder: _sh(directory, _RUNNING, folder).stdout.strip(), folders)
        return tuple(
            OrphanProcess(folder.name, int(answer))
            for folder, answer in zip(folders, answers, strict=True)
            if answer.isdigit()
        )


def stop_orphans(directory: Path) -> tuple[OrphanProcess, ...]:
    """Stop the nodes of ``directory``, and whatever a killed Terraform was just about to start.

    Each is asked first and forced after ten seconds. Returns those that ran before. Nothing to stop is no error.
    OrphansLeftError when one still runs.

    Call it only for a directory in which no Terraform is running. The state is not touched: what it lists still counts
    as existing.
    """
    if not (directory / MODULE / _RUNNING).is_file():
        return ()
    before = list_orphans(directory)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda folder: _sh(directory, _STOP, folder), _folders(directory)))
    remaining = list_orphans(directory)
    if remaining or any(answer.returncode != 0 for answer in answers):
        why = " ".join(answer.stderr.strip() for answer in answers if answer.returncode != 0)
        raise OrphansLeftError(f"nodes of {directory} still run: {_names(remaining) or why}", remedy="end them by hand")
    return before


def _folders(directory: Path) -> list[Path]:
    nodes = directory / _NODES
    return sorted(path for path in nodes.iterdir() if path.is_dir()) if nodes.is_dir() else []


def _sh(directory: Path, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["sh", f"{MODULE}/{script}", f"{_NODES}/{folder.name}"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OrphansLeftError(f"{script} of {directory} cannot be run: {error}") from error


def _names(orphans: Iterable[OrphanProcess]) -> str:
    return ", ".join(f"{orphan.name} (process group {orphan.group})" for orphan in orphans)
