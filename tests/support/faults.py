"""What can come between: processes killed or asked to stop, a full disk, a lost state, a locked database."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.support.deployed import LONGEST_S, Running, Site, environments, eventually
from tests.support.fault_stages import directory, engines, phase

_SMALL_DISK = "32m"
_FILLER = "filler"
KILLED = frozenset({-signal.SIGKILL})


class NotHereError(Exception):
    """This fault cannot be had on this machine; the message says why."""


def _nothing(_: Site) -> None:
    return


def _nowhere(_: Path) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Fault:
    """``strike`` brings it about and lets whatever is held go on; the command then ends with one of ``codes``.
    ``mend``: what the user does before the next command. ``around``: what the site's folder has to lie on. ``mute``:
    meanwhile nothing can be written down, so that a machine which was refused counts as one that was."""

    name: str
    strike: Callable[[Site, Running], None]
    codes: frozenset[int] = KILLED
    mend: Callable[[Site], None] = _nothing
    around: Callable[[Path], AbstractContextManager[None]] = _nowhere
    mute: bool = False


def _let_go(site: Site) -> None:
    site.holds.free_all()
    site.stock()


def _kill_stepfare(site: Site, running: Running) -> None:
    running.signal(signal.SIGKILL)
    running.process.wait()
    _let_go(site)


def _kill_stepfare_alone(site: Site, running: Running) -> None:
    running.signal(signal.SIGKILL)
    running.process.wait()
    site.stock()


def _kill_both(site: Site, running: Running) -> None:
    groups = engines(site)
    assert groups, "no Terraform to kill"
    running.signal(signal.SIGKILL)
    for group in groups:
        os.killpg(group, signal.SIGKILL)
    running.process.wait()
    _let_go(site)


def _kill_terraform(site: Site, _: Running) -> None:
    found = engines(site)
    assert found, "no Terraform to kill"
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    _let_go(site)


def _kill_agent(site: Site, running: Running) -> None:
    """The first process of a machine; its guard ends the training."""
    first = directory(site)
    os.kill(int((_some_node(site) / "pid").read_text()), signal.SIGKILL)
    _let_go(site)
    _come_to_rest(site, running, first)


def _kill_node(site: Site, running: Running) -> None:
    first = directory(site)
    mark = f"STEPFARE_NODE_FOLDER={_some_node(site)}\0".encode()
    for pid, environment in environments():
        if mark in environment:
            os.kill(pid, signal.SIGKILL)
    _let_go(site)
    _come_to_rest(site, running, first)


def _come_to_rest(site: Site, running: Running, first: Path) -> None:
    """Until the command has ended by itself, or follows the next gang; then that is enough."""

    def rests() -> bool:
        return running.process.poll() is not None or (directory(site) != first and phase(site.home) == "running")

    eventually(rests, LONGEST_S)
    if running.process.poll() is None:
        running.signal(signal.SIGINT)


def _some_node(site: Site) -> Path:
    return sorted(directory(site).glob("nodes/*/up"))[0].parent


def _asked(*numbers: signal.Signals) -> Callable[[Site, Running], None]:
    def strike(site: Site, running: Running) -> None:
        for number in numbers:
            running.signal(number)
            time.sleep(0.5)
        _let_go(site)

    return strike


def _fill(site: Site, _: Running) -> None:
    with (site.folder / _FILLER).open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(1 << 16))
        except OSError:
            pass
        try:
            while True:
                filler.write(bytes(512))
        except OSError:
            pass
    _let_go(site)


def _make_room(site: Site) -> None:
    (site.folder / _FILLER).unlink()


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        raise NotHereError("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _lose_state(before: Callable[[Site, Running], None]) -> Callable[[Site, Running], None]:
    def strike(site: Site, running: Running) -> None:
        before(site, running)
        (directory(site) / "terraform.tfstate").write_bytes(b"")

    return strike


def _remove_directory(site: Site, running: Running) -> None:
    _kill_both(site, running)
    folder = directory(site)

    def is_gone() -> bool:
        # A provider that the killed Terraform had started may write once more.
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    eventually(is_gone)


def _runs_is_a_file(site: Site, _: Running) -> None:
    """What no right to write comes to, for root as well."""
    (site.home / "runs").write_text("")
    _let_go(site)


def _runs_is_a_folder_again(site: Site) -> None:
    (site.home / "runs").unlink()


def _locked(seconds: float) -> Callable[[Site, Running], None]:
    def strike(site: Site, _: Running) -> None:
        held = threading.Event()

        def hold() -> None:
            connection = sqlite3.connect(site.home / "state.db", timeout=30, isolation_level=None)
            connection.execute("BEGIN EXCLUSIVE")
            held.set()
            time.sleep(seconds)
            connection.execute("ROLLBACK")
            connection.close()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        _let_go(site)
        thread.join()

    return strike


STEPFARE_KILLED = Fault("kill -9 stepfare", _kill_stepfare)
BOTH_KILLED = Fault("kill -9 stepfare and Terraform", _kill_both)
STALLED = Fault("kill -9 stepfare, Terraform stalls", _kill_stepfare_alone)
# stepfare goes on by itself and releases; so 5 where it was making, 0 where it was releasing.
TERRAFORM_KILLED = Fault("kill -9 Terraform", _kill_terraform, frozenset({0, 5}))
AGENT_KILLED = Fault("kill -9 an agent", _kill_agent, frozenset({0, 5, 130}))
NODE_KILLED = Fault("kill -9 a whole node", _kill_node, frozenset({0, 5, 130}))
INTERRUPTED = Fault("SIGINT", _asked(signal.SIGINT), frozenset({130}))
TERMINATED = Fault("SIGTERM", _asked(signal.SIGTERM), frozenset({130}))
INTERRUPTED_TWICE = Fault("SIGINT twice", _asked(signal.SIGINT, signal.SIGINT), frozenset({130}))
DISK_FULL = Fault("disk full", _fill, frozenset({0, 1, 5}), _make_room, _small_disk, mute=True)
STATE_LOST = Fault("both killed, state of 0 bytes", _lose_state(_kill_both))
STATE_LOST_LATER = Fault("killed, state of 0 bytes", _lose_state(_kill_stepfare))
DIRECTORY_REMOVED = Fault("both killed, run directory removed", _remove_directory)
UNWRITABLE = Fault("runs/ cannot be written", _runs_is_a_file, frozenset({5}), _runs_is_a_folder_again)
LOCKED = Fault("database locked for 3 s", _locked(3), frozenset({0}))
LOCKED_LONG = Fault("database locked for 40 s", _locked(40), frozenset({1}))
