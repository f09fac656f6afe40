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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.busy import eventually
from tests.support.deployed import LONGEST_S, Running, Site, environments
from tests.support.seen_machines import SeenMachines

MACHINES = 3
# The job that waits until it is told to stop, one of which only the first rank to be told then goes while this hold is
# there, and one that fails at once.
WAITING, LINGERING, FAILING = "waiting", "lingering", "failing"
LINGER = "linger"


class StageMissedError(AssertionError):
    """The command ended before anybody saw it at the stage, as on a busy machine it may."""


@dataclass(frozen=True)
class Stage:
    """``command`` is stopped at ``places`` (held), or watched until so many machines are ``up`` (None: not looked at).

    ``terraform``: it runs then, and can be killed by itself. ``job``: which is made. ``made``: the gang stands before
    the command begins.
    """

    name: str
    command: tuple[str, ...] = ("apply", "--yes")
    place: str = ""
    up: int | None = None
    terraform: bool = False
    job: str = WAITING
    made: bool = False
    in_stepfare: bool = False


_FOLLOW = ("apply", "--yes", "--follow")
_DESTROY = ("destroy", "--all", "--yes")
STAGES = (
    Stage("accepted, no attempt", place="before-attempt", in_stepfare=True),
    Stage("PLANNED", place="after-attempt", in_stepfare=True),
    Stage("PROVISIONING, before Terraform", place="provisioning", in_stepfare=True),
    Stage("init", place="init", terraform=True),
    Stage("preview", place="plan", terraform=True),
    Stage("before apply locks the state", place="apply", terraform=True),
    Stage("apply, 0 of 3 machines", up=0, terraform=True),
    Stage("apply, 1 of 3 machines", up=1, terraform=True),
    Stage("apply, 2 of 3 machines", up=2, terraform=True),
    Stage("apply, 3 of 3 machines", place="after-apply", up=3, terraform=True),
    Stage("made, before the count", place="before-count", in_stepfare=True),
    Stage("waiting for ranks", place="before-hello", in_stepfare=True),
    Stage("waiting for ranks, followed", command=_FOLLOW, place="before-hello", in_stepfare=True),
    Stage("met, before READY", place="before-ready", in_stepfare=True),
    Stage("READY", place="ready", in_stepfare=True),
    Stage("RUNNING, followed", command=_FOLLOW),
    Stage("RELEASING, before destroy", command=_FOLLOW, place="releasing", job=FAILING, in_stepfare=True),
    Stage("RELEASING, in destroy", command=_FOLLOW, place="destroy", job=FAILING, terraform=True),
    Stage("RELEASING, destroyed", command=_FOLLOW, place="after-destroy", job=FAILING, terraform=True),
    Stage("RELEASING, before the ledger", command=_FOLLOW, place="before-ledger", job=FAILING, in_stepfare=True),
    Stage("RELEASING, after the ledger", command=_FOLLOW, place="after-ledger", job=FAILING, in_stepfare=True),
    Stage("destroy: RELEASING", command=_DESTROY, place="releasing", made=True, in_stepfare=True),
    Stage("destroy: before it locks", command=_DESTROY, place="destroy", made=True, terraform=True),
    Stage("destroy: 2 of 3 left", command=_DESTROY, up=2, made=True, terraform=True, job=LINGERING),
    Stage("destroy: all gone", command=_DESTROY, place="after-destroy", made=True, terraform=True),
    Stage("destroy: before the ledger", command=_DESTROY, place="before-ledger", made=True, in_stepfare=True),
    Stage("destroy: after the ledger", command=_DESTROY, place="after-ledger", made=True, in_stepfare=True),
)


BY_NAME = {stage.name: stage for stage in STAGES}


def begin(stage: Stage, site: Site, seen_machines: SeenMachines) -> Running:
    """Starts the command and comes back when it stands at the stage. StageMissedError where it ends before."""
    if stage.made:
        made = site.apply()
        assert made.code == 0, made.err
    if stage.job == LINGERING:
        site.holds.put(LINGER)
    if stage.up is not None and not stage.made:
        # Those that come after so many wait until the fault takes the line away.
        site.stock(f"delay {LONGEST_S * 2:g} {stage.up}")
        if stage.up:
            site.holds.put("one-at-a-time")
    if stage.place:
        site.holds.put(stage.place)
    words = stage.command if stage.command[0] != "apply" else (stage.command[0], str(site.plan), *stage.command[1:])
    running = site.start(*words, held=stage.in_stepfare)

    def there() -> bool:
        if running.process.poll() is not None:
            raise StageMissedError(f"it ended before: {running.err}")
        return _is_there(stage, site, seen_machines)

    # Each look goes through all processes: more of them would take the time of what is waited for.
    eventually(there, LONGEST_S, why=f"for {stage.name}", pause=0.05)
    return running


def _is_there(stage: Stage, site: Site, seen_machines: SeenMachines) -> bool:
    if stage.place and not site.holds.reached(stage.place):
        return False
    # Ranks may be told to stop before Terraform comes to them.
    if stage.terraform and not engines(site):
        return False
    if stage.up is not None:
        # Without any that is up, all of them are being started.
        coming = seen_machines.starting(site.state)
        return len(seen_machines.up(site.state)) == stage.up and len(coming) >= (1 if stage.up else MACHINES)
    return bool(stage.place) or phase(site.home) == "running"


def phase(home: Path) -> str:
    """The phase of the newest attempt, "" while there is none."""
    return _newest(home, "phase")


def directory(site: Site) -> Path:
    """The run directory of the newest attempt; AssertionError when there is none."""
    found = _newest(site.home, "directory")
    assert found, "no attempt"
    return site.home / "runs" / found


def _newest(home: Path, column: str) -> str:
    return _one(home, f"SELECT {column} FROM attempts ORDER BY created_at DESC, id DESC LIMIT 1")


def _one(home: Path, query: str) -> str:
    """As an onlooker who never holds anybody up."""
    try:
        connection = sqlite3.connect(f"file:{home / 'state.db'}?mode=ro", uri=True, timeout=0.1)
        try:
            row = connection.execute(query).fetchone()
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return ""
    return str(row[0]) if row else ""


def engines(site: Site) -> list[int]:
    """Terraform at work in the newest run directory: pids, each leads a process group."""
    try:
        folder = directory(site)
    except AssertionError:
        return []
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                pid = int(process.name)
                if (process / "cwd").readlink() == folder and os.getsid(pid) == pid:
                    found.append(pid)
    return found


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
