"""The moments of an apply and of a destroy at which a fault may come, and how a test stops exactly there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.deployed import LONGEST_S, Running, Site, eventually
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
