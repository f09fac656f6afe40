"""The sandbox's machines: nodes that are processes of this user on this machine.

A node is released as a machine is switched off with notice: its agent gets SIGTERM and ends its training; what is
left of the node after that gets SIGTERM itself; and what is still there after the grace is killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from providers.errors import ProviderError
from providers.fleet import Findings, Fleet, Found, Kind, in_order
from providers.sandbox import processes
from providers.sandbox.processes import Member, NodeKey
from providers.session import Session

GRACE_S = 10.0
Left = Mapping[NodeKey, list[Member]]

# For the guard, which outlives a killed agent to end what it watched and remove its containers.
_GUARD_S = 2.0
# A kill takes effect at once, but for a process in the middle of a write to a disk.
_KILL_S = 5.0
_PAUSE_S = 0.05
_LOOKS = 3


def make(cloud: str, session: Session) -> Fleet:
    """The fleet of this machine."""
    return SandboxFleet(cloud, session)


class SandboxFleet:
    """See :class:`providers.fleet.Fleet`. Regions mean nothing here: all of them are this machine, and ``region`` of
    what is found is ""."""

    def __init__(self, cloud: str, session: Session, *, grace_s: float = GRACE_S) -> None:
        self._cloud = cloud
        self._session = session
        self._grace_s = grace_s

    @property
    def cloud(self) -> str:
        return self._cloud

    def found(self, regions: Sequence[str]) -> Findings:  # noqa: ARG002
        return Findings(in_order(self._machine(node) for node in _by_node(processes.members()).values()))

    def release(self, found: Sequence[Found]) -> tuple[ProviderError | None, ...]:
        mine = {NodeKey(one.machine_id, one.attempt) for one in found}
        here = {member.key for member in processes.members() if member.pid == os.getpid()}
        ending = _Ending(mine - here)
        left = ending.ask(self._grace_s) and ending.kill()
        return tuple(self._answer(NodeKey(one.machine_id, one.attempt), here, left) for one in found)

    def _answer(self, key: NodeKey, here: Iterable[NodeKey], left: Left) -> ProviderError | None:
        if key in here:
            return ProviderError(self._cloud, f"node {key.node_id}: this very command runs on it")
        if key not in left:
            return None
        pids = " ".join(str(member.pid) for member in sorted(left[key], key=_age))
        return ProviderError(self._cloud, f"node {key.node_id} cannot be ended", remedy=f"kill -KILL {pids}")

    def _machine(self, node: Sequence[Member]) -> Found:
        eldest = min(node, key=_age)
        rank = eldest.marks.get(processes.RANK, "")
        count = f"{len(node)} process" + ("es" if len(node) > 1 else "")
        return Found(
            cloud=self._cloud,
            region="",
            zone=None,
            machine_id=eldest.key.node_id,
            attempt=eldest.key.attempt,
            state_id=eldest.marks.get(processes.STATE, ""),
            rank=int(rank) if rank.isascii() and rank.isdecimal() else None,
            kind=Kind.MACHINE,
            what=f"node {eldest.marks.get(processes.NODE, eldest.key.node_id)}, {count}",
            since=eldest.since,
            billed=True,
        )


class _Ending:
    """Nodes on their way out. Their processes are looked up anew each time: they come and go."""

    def __init__(self, nodes: Collection[NodeKey]) -> None:
        self._nodes = nodes
        self._everybody: Sequence[Member] = ()

    def look(self) -> Left:
        """Those that are still there. Nobody counts as gone at the first look: a process that is born during it by one
        that dies during it is seen by the next."""
        for _ in range(_LOOKS if self._nodes else 0):
            self._everybody = processes.members()
            left = {key: node for key, node in _by_node(self._everybody).items() if key in self._nodes}
            if left:
                return left
            time.sleep(_PAUSE_S)
        return {}

    def ask(self, grace_s: float) -> Left:
        """SIGTERM to the eldest group of each node, and once it is gone to the next, until all are or the grace is
        over; what is left then."""
        until = time.monotonic() + grace_s
        asked: set[tuple[int, float]] = set()
        while (left := self.look()) and time.monotonic() < until:
            for node in left.values():
                first = _eldest_group(node)
                who = {(member.pid, member.born) for member in first}
                if asked.isdisjoint(who):
                    processes.signal_groups(first, self._everybody, signal.SIGTERM)
                asked |= who
            time.sleep(_PAUSE_S)
        return left

    def kill(self) -> Left:
        """SIGKILL to the eldest group of each node, a moment for its guard, then to all; what cannot be killed."""
        began = time.monotonic()
        first: dict[NodeKey, int] = {}
        while (left := self.look()) and time.monotonic() < began + _GUARD_S + _KILL_S:
            late = time.monotonic() >= began + _GUARD_S
            for key, node in left.items():
                group = first.setdefault(key, _eldest_group(node)[0].group)
                some = [member for member in node if late or member.group == group]
                processes.signal_groups(some, self._everybody, signal.SIGKILL)
            time.sleep(_PAUSE_S)
        return left


def _eldest_group(node: Sequence[Member]) -> list[Member]:
    group = min(node, key=_age).group
    return [member for member in node if member.group == group]


def _age(member: Member) -> tuple[float, int]:
    return member.born, member.pid


def _by_node(everybody: Iterable[Member]) -> Mapping[NodeKey, list[Member]]:
    nodes: dict[NodeKey, list[Member]] = {}
    for member in everybody:
        nodes.setdefault(member.key, []).append(member)
    return nodes
