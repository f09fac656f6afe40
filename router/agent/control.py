"""The control folder: the agent's requests to the training process, and its answers.

docs/checkpoints.md has the contract. The job writes some of these files, so the agent trusts none of them, and nothing
that the job does there stops the agent.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import router.agent
from router.agent.imds import MachineNotice
from router.agent.output import write_atomic
from router.agent.protocol import (
    HELPERS,
    INTERRUPTION,
    LONGEST_ID,
    MAINTENANCE,
    ORDERED,
    REBALANCE,
    REPORTING_SECONDS,
    REQUEST_REASONS,
    SHORTEST_SECONDS,
    STOP,
)

if TYPE_CHECKING:
    from typing import TypeGuard  # 3.10

VERSION = 1
LARGEST_FILE = 65536
LARGEST_NUMBER = 2**62
LONGEST_TEXT = 4096
# The seconds to assume where a notice that is not pressing gave none.
UNPRESSED_SECONDS = 300.0
# How often the folder is read, in seconds: while an answer is due, and otherwise.
WATCHED, UNWATCHED = 0.05, 0.5
CONTROL = "STEPFARE_CONTROL"
_FILES = ("request.json", "saved.json", "written.json", "progress.json", "wants-signal", "interval.json")


@dataclass(frozen=True)
class PendingRequest:
    """A request that was not answered yet. ``until`` is a moment of ``time.monotonic``."""

    id: str
    reason: str
    until: float


class AgentControlFolder:
    """The control folder of one training process; it need not exist before :meth:`prepare`.

    One thread sends requests and reads answers; any thread may call :meth:`known`. ``signals``: whether processes that
    want a signal can be reached by their id from here.
    """

    def __init__(self, folder: Path, *, signals: bool, ticks: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._signals, self._ticks = folder, signals, ticks
        self._pending: list[PendingRequest] = []
        self._ids: set[str] = set()
        self._seen: tuple[int, int, int] | None = None
        self._saved: dict[str, Any] = {}
        self._interval: float | None = None

    def prepare(self) -> None:
        """Create the folder with the helpers and remove the files of an earlier agent. OSError."""
        modules = self.folder / "python"
        modules.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.folder, modules):
            folder.chmod(0o700)
        for name in (*_FILES, *(offer.name for offer in self.folder.glob(f"{OFFERED}*"))):
            (self.folder / name).unlink(missing_ok=True)
        for name in HELPERS:
            write_atomic(modules / name, _read_helper(name))

    def environment(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to add to those of the training, ``before``."""
        path = [str(self.folder / "python"), *filter(None, [before.get("PYTHONPATH")])]
        return {CONTROL: str(self.folder), "PYTHONPATH": os.pathsep.join(path)}

    def announced(self, notice: MachineNotice) -> None:
        """Request a checkpoint in time for the event that a notice announces."""
        left = notice.left()
        reason = notice.kind if notice.kind in (INTERRUPTION, REBALANCE) else MAINTENANCE
        if left is None:
            left = SHORTEST_SECONDS if reason == INTERRUPTION else UNPRESSED_SECONDS
        else:
            left = max(left / 2, left - REPORTING_SECONDS)
        self.request(notice.id[:LONGEST_ID], reason, left)

    def ordered(self, said: Mapping[str, Any]) -> None:
        """Request a checkpoint that the coordinator's answer orders: ``id``, ``seconds``, ``reason``."""
        name, seconds, reason = said.get("id"), said.get("seconds"), said.get("reason")
        name = name[:LONGEST_ID] if isinstance(name, str) and name else os.urandom(4).hex()
        reason = reason if reason in REQUEST_REASONS else ORDERED
        self.request(name, reason, seconds if _is_number(seconds, 1e7) else UNPRESSED_SECONDS)

    def request(self, request: str, reason: str, seconds: float) -> None:
        """Request a checkpoint within ``seconds``. A second request with the same id changes nothing.

        If the disk does not take it, the request is lost.
        """
        if request in self._ids:
            return
        self._ids.add(request)
        asked = PendingRequest(request, reason, self._ticks() + seconds)
        self._pending.append(asked)
        body = {"version": VERSION, "id": request, "reason": reason, "seconds": seconds, "until": asked.until}
        try:
            write_atomic(self.folder / "request.json", json.dumps(body).encode())
            if self._signals:
                self._send_signal()
        except OSError:
            return

    def tell_interval(self, seconds: float | None) -> None:
        """Tell the training how often to save from now on, if that is news. If the disk does not take it, ask again."""
        if seconds is None or seconds == self._interval:
            return
        try:
            body = {"version": VERSION, "seconds": seconds}
            write_atomic(self.folder / "interval.json", json.dumps(body).encode())
        except OSError:
            return
        self._interval = seconds

    def look(self) -> list[dict[str, Any]]:
        """Return the news since the last call as bodies of `saved`.

        These are checkpoints, failures, and requests whose time ran out.
        """
        said = self._read_answer()
        bodies = [] if said is None else self._handle_answer(said)
        late = [asked for asked in self._pending if asked.until <= self._ticks()]
        return bodies + [self._failed(asked, "late") for asked in late]

    def close(self) -> list[dict[str, Any]]:
        """Return the last news once the process is gone: it will not answer what is still open.

        A process that was stopped before it saved has failed no request, because only the agent asked.
        """
        bodies = self.look()
        return bodies + [self._failed(asked, "ended") for asked in list(self._pending) if asked.reason != STOP]

    @property
    def is_open(self) -> bool:
        return bool(self._pending)

    @property
    def pause(self) -> float:
        """Seconds until the next :meth:`look`."""
        return WATCHED if self._pending else UNWATCHED

    def known(self) -> dict[str, Any]:
        """Return the progress of the training for a heartbeat, with only the values that make sense."""
        said, progress = self.read("progress.json") or {}, dict(self._saved)
        if _is_whole(said.get("step")):
            progress["step"] = said["step"]
            if _is_whole(said.get("steps")):
                progress["steps"] = said["steps"]
            if _is_number(said.get("step_seconds"), 1e9):
                progress["step_seconds"] = said["step_seconds"]
        return progress

    def _read_answer(self) -> dict[str, Any] | None:
        try:
            found = (self.folder / "saved.json").stat()
        except OSError:
            return None
        now = (found.st_ino, found.st_mtime_ns, found.st_size)
        if now == self._seen:
            return None
        self._seen = now
        return self.read("saved.json")

    def _handle_answer(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        # `after` is the last request answered before, in case the process saved twice between two calls.
        ids = [asked.id for asked in self._pending]
        request = next((said[name] for name in ("id", "after") if said.get(name) in ids), None)
        if "failed" in said:
            failed = [asked for asked in self._pending if asked.id == request]
            return [self._failed(asked, str(said["failed"])[:500]) for asked in failed]
        step, manifest, seconds = said.get("step"), said.get("manifest"), said.get("seconds")
        if not _is_whole(step) or not isinstance(manifest, str) or not 0 < len(manifest) <= LONGEST_TEXT:
            return []
        self._saved = {"saved_step": step, "saved_manifest": manifest}
        # A checkpoint answers its own request and the earlier ones that it replaced.
        count = 0 if request is None else ids.index(request) + 1
        del self._pending[:count]
        saved = {"step": step, "manifest": manifest, "seconds": seconds if _is_number(seconds, 1e9) else None}
        own = said["id"] if isinstance(said.get("id"), str) else ""
        return [{"id": name, **saved} for name in ids[:count] or [own[:LONGEST_ID]]]

    def _failed(self, request: PendingRequest, why: str) -> dict[str, Any]:
        self._pending.remove(request)
        return {"id": request.id, "failed": why}

    def _send_signal(self) -> None:
        try:
            pid = int((self.folder / "wants-signal").read_bytes()[:20])
            if pid > 1:
                os.kill(pid, signal.SIGUSR1)
        except (OSError, ValueError, OverflowError):
            return

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the object in a file, or None.

        A pipe or a device of that name is not read: it would block the agent.
        """
        try:
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123
                plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
                content = json.loads(file.read(LARGEST_FILE)) if plain else None
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None


def _read_helper(name: str) -> bytes:
    """Return a helper's source, from the zipapp or from this tree."""
    loader: Any = router.agent.__loader__
    source: bytes = loader.get_data(str(Path(router.agent.__file__).with_name("helper") / name))
    return source


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_NUMBER


def _is_number(value: Any, highest: float) -> TypeGuard[float]:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= highest


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
