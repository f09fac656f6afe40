"""Processes of this user that carry the marks of a sandbox node, and the signals that end them.

A node is everything with the same ``STEPFARE_NODE_ID`` in its environment: its agent, the training in a group of its
own, the agent's guard. A process whose environment cannot be read is nobody's. A pid is taken for a process only
together with the moment of that process's birth.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil

ATTEMPT, NODE_ID = "STEPFARE_ATTEMPT", "STEPFARE_NODE_ID"
STATE, RANK, NODE = "STEPFARE_STATE", "STEPFARE_RANK", "STEPFARE_NODE"
# The node's own folder; what a node has until it is up; and what only its training has.
FOLDER, WANTED, CONTROL = "STEPFARE_NODE_FOLDER", "STEPFARE_WANTED", "STEPFARE_CONTROL"
_LOOKS, _BLINK_S = 3, 0.001
_MARKS = (ATTEMPT, NODE_ID, STATE, RANK, NODE, FOLDER, WANTED, CONTROL)


@dataclass(frozen=True, slots=True)
class NodeKey:
    """Which node."""

    node_id: str
    attempt: str


@dataclass(frozen=True)
class Member:
    """A living process of a node. ``born`` in seconds since 1970, as the system counts them."""

    process: psutil.Process
    pid: int
    born: float
    group: int
    marks: Mapping[str, str]

    @property
    def key(self) -> NodeKey:
        """Which node it is of."""
        return NodeKey(self.marks[NODE_ID], self.marks[ATTEMPT])

    @property
    def since(self) -> datetime:
        """When it began."""
        return datetime.fromtimestamp(self.born, UTC)


def members() -> list[Member]:
    """Every process of a node, of any attempt; those that only wait to be reaped are not."""
    me = psutil.Process().uids().real
    return [one for pid in psutil.pids() if (one := _member(pid, me)) is not None]


def _member(pid: int, user: int) -> Member | None:
    try:
        process = psutil.Process(pid)  # not process_iter's: that one may still be of an earlier process
        with process.oneshot():
            if process.uids().real != user or process.status() == psutil.STATUS_ZOMBIE:
                return None
            environment = _environment(process)
            if not (environment.get(ATTEMPT) and environment.get(NODE_ID)):
                return None
            marks = {name: environment[name] for name in _MARKS if name in environment}
            return Member(process, process.pid, process.create_time(), os.getpgid(process.pid), marks)
    except (psutil.Error, OSError):
        return None


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """Empty for a process that has none, and for a moment while one becomes another program: it is asked again."""
    environment: Mapping[str, str] = {}
    for _ in range(_LOOKS):
        environment = process.environ()
        if environment:
            break
        time.sleep(_BLINK_S)
    return environment


def signal_groups(mine: Iterable[Member], everybody: Iterable[Member], number: signal.Signals) -> None:
    """Sends ``number`` to the processes ``mine`` of one node: to their whole group where the group is the node's, else
    to each by itself. Never to this process; one that is gone is left alone."""
    by_group: dict[int, list[Member]] = {}
    for member in mine:
        by_group.setdefault(member.group, []).append(member)
    known = {member.pid: member for member in everybody}
    for group, some in by_group.items():
        if _belongs(group, some, known):
            _send_group(group, some, number)
        else:
            for member in some:
                _send(member, number)


def _belongs(group: int, some: list[Member], known: Mapping[int, Member]) -> bool:
    """Whether everything in a process group is of the node of ``some``. A script of Terraform's has the node's marks
    too, in Terraform's own group: that one is not the node's."""
    node = some[0].key
    leader = known.get(group)
    if group == os.getpgid(0):
        return False
    if leader is not None:
        return leader.key == node
    if psutil.pid_exists(group) and not _is_dead(group):
        return False
    return all(pid in known and known[pid].key == node for pid in _pids_of(group))


def _pids_of(group: int) -> Iterator[int]:
    """Living processes of a group."""
    for pid in psutil.pids():
        try:
            if os.getpgid(pid) == group and not _is_dead(pid):
                yield pid
        except OSError:
            continue


def _is_dead(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _send_group(group: int, some: list[Member], number: signal.Signals) -> None:
    """As long as one member whose birth is known lives in it, the number of the group is that group's."""
    try:
        if any(member.process.is_running() and os.getpgid(member.pid) == group for member in some):
            os.killpg(group, number)
    except (psutil.Error, OSError):
        return


def _send(member: Member, number: signal.Signals) -> None:
    if member.pid == os.getpid():
        return
    try:
        member.process.send_signal(number)  # psutil looks at the birth first
    except (psutil.Error, OSError):
        return
