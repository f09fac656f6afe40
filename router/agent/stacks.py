"""Stacks of a training that stands still, so that somebody can see afterwards where its ranks waited.

No process gets a signal that it did not ask for: py-spy reads the memory of Python processes, and a training that
wants to write its stacks itself says so in its control folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

# A training writes a file of this name and its process id once SIGUSR2 makes it write its stacks (faulthandler).
OFFERED = "wants-stacks-"
_DUMP_SECONDS, _MOST_PROCESSES, _LARGEST_DUMP = 10.0, 16, 64 * 1024


def keep_stacks(group: int, control: Path, write: Callable[[bytes], None], *, signals: bool) -> None:
    """Write the stacks of the processes of a group. Never raises for what a process does.

    ``control``: the folder in which trainings offer their own stacks, which follow in their output. ``signals``:
    whether process ids there are those of this machine.
    """
    pids = list(_members(group))
    write(f"[stepfare: the training stands still; stacks of {len(pids)} processes]\n".encode())
    spy = shutil.which("py-spy")
    for pid in pids[:_MOST_PROCESSES]:
        name = _read(pid, "comm")
        write(f"[stepfare: process {pid} {name}, waits in {_read(pid, 'wchan') or '?'}]\n".encode())
        if spy is not None and "python" in name:
            write(_dump(spy, pid))
    offered = _ask_for_stacks(control, set(pids)) if signals else 0
    if spy is None and not offered:
        write(b"[stepfare: no py-spy on this machine, and the training offers no stacks (docs/checkpoints.md)]\n")


def _members(group: int) -> Iterator[int]:
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if os.getpgid(int(entry.name)) == group:
                yield int(entry.name)
        except (ProcessLookupError, PermissionError):
            continue


def _read(pid: int, name: str) -> str:
    try:
        text = (Path("/proc") / str(pid) / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return "" if text == "0" else "".join(c if c.isprintable() else " " for c in text[:100])


def _dump(spy: str, pid: int) -> bytes:
    try:
        done = subprocess.run(
            [spy, "dump", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DUMP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"[stepfare: py-spy: {type(error).__name__}]\n".encode()
    return done.stdout[:_LARGEST_DUMP]


def _ask_for_stacks(control: Path, pids: set[int]) -> int:
    """Send SIGUSR2 to the processes of the group that offer their stacks, and return their number."""
    count = 0
    for offer in control.glob(f"{OFFERED}*"):
        pid = offer.name[len(OFFERED) :]
        if pid.isdigit() and int(pid) in pids:
            try:
                os.kill(int(pid), signal.SIGUSR2)
                count += 1
            except (ProcessLookupError, PermissionError):
                continue
    return count
