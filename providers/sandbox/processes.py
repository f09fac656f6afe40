"""Processes of this user that carry the marks of a sandbox node, and the signals that end them.

A node is everything with the same ``STEPFARE_NODE_ID`` in its environment: its agent, the training in a group of its
own, the agent's guard. A process whose environment cannot be read is ignored. A pid identifies a process only together
with the moment of that process's birth.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil

from providers.fleet import parse_rank

ATTEMPT, NODE_ID = "STEPFARE_ATTEMPT", "STEPFARE_NODE_ID"
STATE, RANK, NODE = "STEPFARE_STATE", "STEPFARE_RANK", "STEPFARE_NODE"
# The node's own folder; a mark of nodes that are not up yet; and a mark of trainings.
FOLDER, WANTED, CONTROL = "STEPFARE_NODE_FOLDER", "STEPFARE_WANTED", "STEPFARE_CONTROL"
_LOOKS, _BLINK_S = 3, 0.001
_MARKS = (ATTEMPT, NODE_ID, STATE, RANK, NODE, FOLDER, WANTED, CONTROL)


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The key of a node."""

    node_id: str
    attempt: str


@dataclass(frozen=True)
class NodeProcess:
    """A living process of a node. ``born`` is in seconds since 1970, as the system counts them."""

    process: psutil.Process
    pid: int
    born: float
    group: int
    marks: Mapping[str, str]

    @property
    def key(self) -> NodeKey:
        """Return the key of its node."""
        return NodeKey(self.marks[NODE_ID], self.marks[ATTEMPT])

    @property
    def rank(self) -> int | None:
        """Return the rank of its node; None where its mark is no number."""
        return parse_rank(self.marks.get(RANK, ""))

    @property
    def age(self) -> tuple[float, int]:
        """Return what sorts the eldest first."""
        return self.born, self.pid

    @property
    def since(self) -> datetime:
        """Return the moment at which it began."""
        return datetime.fromtimestamp(self.born, UTC)


def find_eldest(node: Sequence[NodeProcess]) -> NodeProcess:
    """Return the process of a node that was born first."""
    return min(node, key=lambda member: member.age)


def find_eldest_group(node: Sequence[NodeProcess]) -> list[NodeProcess]:
    """Return the processes of a node that are in the group of its eldest."""
    group = find_eldest(node).group
    return [member for member in node if member.group == group]


def members() -> list[NodeProcess]:
    """Return every process of a node, of any attempt; processes that only wait to be reaped are left out."""
    me = psutil.Process().uids().real
    return [one for pid in psutil.pids() if (one := _member(pid, me)) is not None]


def _member(pid: int, user: int) -> NodeProcess | None:
    try:
        process = psutil.Process(pid)  # A process_iter object may still be of an earlier process.
        with process.oneshot():
            if process.uids().real != user or process.status() == psutil.STATUS_ZOMBIE:
                return None
            environment = _environment(process)
            if not (environment.get(ATTEMPT) and environment.get(NODE_ID)):
                return None
            marks = {name: environment[name] for name in _MARKS if name in environment}
            return NodeProcess(process, process.pid, process.create_time(), os.getpgid(process.pid), marks)
    except (psutil.Error, OSError):
        return None


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """Return the environment; empty for a process that has none.

    It is also empty for a moment while a process becomes another program, so it is read again.
    """
    environment: Mapping[str, str] = {}
    for _ in range(_LOOKS):
        environment = process.environ()
        if environment:
            break
        time.sleep(_BLINK_S)
    return environment


def signal_groups(mine: Iterable[NodeProcess], everybody: Iterable[NodeProcess], number: signal.Signals) -> None:
    """Send ``number`` to the processes ``mine`` of one node.

    It goes to their whole group where the group is the node's, else to each by itself. Never to this process; one that
    is gone is skipped.
    """
    by_group: dict[int, list[NodeProcess]] = {}
    for member in mine:
        by_group.setdefault(member.group, []).append(member)
    known = {member.pid: member for member in everybody}
    for group, some in by_group.items():
        if _belongs(group, some, known):
            _send_group(group, some, number)
        else:
            for member in some:
                _send(member, number)


def _belongs(group: int, some: list[NodeProcess], processes_by_id: Mapping[int, NodeProcess]) -> bool:
    """Return whether everything in a process group is of the node of ``some``.

    A script of Terraform's has the node's marks too, in Terraform's own group: that one is not the node's.
    """
    node = some[0].key
    leader = processes_by_id.get(group)
    if group == os.getpgid(0):
        return False
    if leader is not None:
        return leader.key == node
    if psutil.pid_exists(group) and not _is_dead(group):
        return False
    return all(pid in processes_by_id and processes_by_id[pid].key == node for pid in _pids_of(group))


def _pids_of(group: int) -> Iterator[int]:
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


def _send_group(group: int, some: list[NodeProcess], number: signal.Signals) -> None:
    """Signal a group.

    As long as one member whose birth is known lives in it, the number of the group is that group's.
    """
    try:
        if any(member.process.is_running() and os.getpgid(member.pid) == group for member in some):
            os.killpg(group, number)
    except (psutil.Error, OSError):
        return


def _send(member: NodeProcess, number: signal.Signals) -> None:
    if member.pid == os.getpid():
        return
    try:
        member.process.send_signal(number)  # psutil checks the birth first.
    except (psutil.Error, OSError):
        return
