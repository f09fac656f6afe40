"""Fleet of the sandbox: nodes that are processes of this user on this machine.

A node is released as a machine is switched off with notice: its agent gets SIGTERM and ends its training; the processes
that remain get SIGTERM themselves; and those that still remain after the grace period are killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from providers.errors import ProviderError
from providers.fleet import CloudResource, Fleet, FleetListing, ResourceKind, sort_resources
from providers.sandbox import processes
from providers.sandbox.processes import NodeKey, NodeProcess, find_eldest, find_eldest_group
from providers.session import Session

GRACE_S = 10.0
Remaining = Mapping[NodeKey, list[NodeProcess]]

# The guard outlives a killed agent to end the processes that it watched and remove its containers.
_GUARD_S = 2.0
# A kill takes effect at once, except for a process in the middle of a write to a disk.
_KILL_S = 5.0
_PAUSE_S = 0.05
_LOOKS = 3


class SandboxFleet(Fleet):
    """Find and release the sandbox's nodes; see :class:`providers.fleet.Fleet`.

    Regions mean nothing here: all of them are this machine, and ``region`` of what is found is "".
    """

    def __init__(self, cloud: str, session: Session, *, grace_s: float = GRACE_S) -> None:
        self.cloud = cloud
        self._session = session
        self._grace_s = grace_s

    def found(self, regions: Sequence[str]) -> FleetListing:  # noqa: ARG002
        return FleetListing(sort_resources(self._machine(node) for node in _by_node(processes.members()).values()))

    def release(self, resources: Sequence[CloudResource]) -> tuple[ProviderError | None, ...]:
        keys = {NodeKey(one.machine_id, one.attempt) for one in resources}
        here = {member.key for member in processes.members() if member.pid == os.getpid()}
        shutdown = _Shutdown(keys - here)
        remaining = shutdown.ask(self._grace_s) and shutdown.kill()
        return tuple(self._answer(NodeKey(one.machine_id, one.attempt), here, remaining) for one in resources)

    def _answer(self, key: NodeKey, here: Iterable[NodeKey], remaining: Remaining) -> ProviderError | None:
        if key in here:
            return ProviderError(self.cloud, f"node {key.node_id}: this very command runs on it")
        if key not in remaining:
            return None
        pids = " ".join(str(member.pid) for member in sorted(remaining[key], key=lambda member: member.age))
        return ProviderError(self.cloud, f"node {key.node_id} cannot be ended", remedy=f"kill -KILL {pids}")

    def _machine(self, node: Sequence[NodeProcess]) -> CloudResource:
        eldest = find_eldest(node)
        count = f"{len(node)} process" + ("es" if len(node) > 1 else "")
        return CloudResource(
            cloud=self.cloud,
            region="",
            zone=None,
            machine_id=eldest.key.node_id,
            attempt=eldest.key.attempt,
            state_id=eldest.marks.get(processes.STATE, ""),
            rank=eldest.rank,
            kind=ResourceKind.MACHINE,
            what=f"node {eldest.marks.get(processes.NODE, eldest.key.node_id)}, {count}",
            since=eldest.since,
            billed=True,
        )


class _Shutdown:
    """End nodes. Their processes are listed anew each time, because they come and go."""

    def __init__(self, nodes: Collection[NodeKey]) -> None:
        self._nodes = nodes
        self._processes: Sequence[NodeProcess] = ()

    def look(self) -> Remaining:
        """Return the nodes that still exist.

        Several looks are needed to count a node as gone: a process that is born during a look, by one that dies during
        it, is only seen by the next.
        """
        for _ in range(_LOOKS if self._nodes else 0):
            self._processes = processes.members()
            remaining = {key: node for key, node in _by_node(self._processes).items() if key in self._nodes}
            if remaining:
                return remaining
            time.sleep(_PAUSE_S)
        return {}

    def ask(self, grace_s: float) -> Remaining:
        """Send SIGTERM to the eldest group of each node, and once it is gone to the next; return what remains.

        It ends when all are gone or the grace period is over.
        """
        until = time.monotonic() + grace_s
        asked: set[tuple[int, float]] = set()
        while (remaining := self.look()) and time.monotonic() < until:
            for node in remaining.values():
                first = find_eldest_group(node)
                pids = {(member.pid, member.born) for member in first}
                if asked.isdisjoint(pids):
                    processes.signal_groups(first, self._processes, signal.SIGTERM)
                asked |= pids
            time.sleep(_PAUSE_S)
        return remaining

    def kill(self) -> Remaining:
        """Send SIGKILL to the eldest group of each node, a moment later to all; return what cannot be killed.

        The moment lets the node's guard do its work.
        """
        began = time.monotonic()
        first: dict[NodeKey, int] = {}
        while (remaining := self.look()) and time.monotonic() < began + _GUARD_S + _KILL_S:
            late = time.monotonic() >= began + _GUARD_S
            for key, node in remaining.items():
                group = first.setdefault(key, find_eldest_group(node)[0].group)
                some = [member for member in node if late or member.group == group]
                processes.signal_groups(some, self._processes, signal.SIGKILL)
            time.sleep(_PAUSE_S)
        return remaining


def _by_node(everybody: Iterable[NodeProcess]) -> Mapping[NodeKey, list[NodeProcess]]:
    nodes: dict[NodeKey, list[NodeProcess]] = {}
    for member in everybody:
        nodes.setdefault(member.key, []).append(member)
    return nodes
