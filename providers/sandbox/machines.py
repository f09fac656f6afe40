"""Control of the sandbox's machines by the simulated cloud: notices of their end, and preemption.

Only machines of one state database are handled: those of another installation are ignored.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pricing.atomic_file import write_atomic
from providers.sandbox import processes
from providers.sandbox.processes import NodeProcess, find_eldest, find_eldest_group

NOTICE = "notice.json"
_TAKEN = "taken"
_KILL_S, _PAUSE_S, _LOOKS = 10.0, 0.02, 3


@dataclass(frozen=True, slots=True)
class SandboxMachine:
    """One machine that is up. ``id`` is what Terraform made of it, ``folder`` its disk."""

    id: str
    attempt: str
    rank: int
    folder: Path


@dataclass(frozen=True, slots=True)
class SandboxNotice:
    """A notice to a machine.

    ``kind`` is a word of :mod:`router.agent.protocol`, ``seconds`` how long it has, None when not stated.
    """

    id: str
    kind: str
    seconds: float | None
    what: str


class SandboxMachines:
    """The machines that ``state_id`` made.

    Nothing here sleeps but :meth:`switch_off`, for moments. OSError where a disk does not take a file.
    """

    def __init__(self, state_id: str) -> None:
        self._state = state_id

    def up(self) -> tuple[SandboxMachine, ...]:
        """Return all machines that run, by attempt and rank. One that is being started is not up yet."""
        found = []
        for node in self._nodes().values():
            eldest = find_eldest(node)
            if eldest.rank is not None:
                folder = Path(eldest.marks[processes.FOLDER])
                found.append(SandboxMachine(eldest.key.node_id, eldest.key.attempt, eldest.rank, folder))
        return tuple(sorted(found, key=lambda machine: (machine.attempt, machine.rank, machine.id)))

    def announce(self, machine: SandboxMachine, notice: SandboxNotice) -> None:
        """Make the machine's metadata service state the notice from now on."""
        body = {"kind": notice.kind, "id": notice.id, "what": notice.what, "seconds": notice.seconds}
        write_atomic(machine.folder / NOTICE, json.dumps(body), durable=False)

    def withdraw(self, machine: SandboxMachine) -> None:
        """Make the machine's metadata service state no notice; an agent that heard it is not told."""
        (machine.folder / NOTICE).unlink(missing_ok=True)

    def switch_off(self, machines: Sequence[SandboxMachine], mark: str) -> tuple[SandboxMachine, ...]:
        """End all processes of these machines at once, without notice; return those that could not be ended.

        ``mark`` is new each time: by it Terraform sees that the machine it made is gone.
        """
        for machine in machines:
            if machine.folder.is_dir():
                write_atomic(machine.folder / _TAKEN, f"{mark}\n", durable=False)
        wanted = {machine.id for machine in machines}
        remaining = self._kill_all(wanted)
        return tuple(machine for machine in machines if machine.id in remaining)

    def trainings(self, machines: Collection[SandboxMachine]) -> tuple[Sequence[NodeProcess], Sequence[NodeProcess]]:
        """Return the processes of their trainings, without the agents; and all processes that were examined."""
        wanted, everybody = {machine.id for machine in machines}, processes.members()
        mine = [one for one in everybody if self._is_ours(one) and one.key.node_id in wanted]
        return [one for one in mine if processes.CONTROL in one.marks], everybody

    def _kill_all(self, node_ids: Collection[str]) -> Collection[str]:
        until, quiet, remaining = time.monotonic() + _KILL_S, 0, set(node_ids)
        while quiet < _LOOKS and time.monotonic() < until:
            everybody = processes.members()
            nodes = {name: node for name, node in self._nodes(everybody).items() if name in node_ids}
            remaining = set(nodes)
            quiet = 0 if remaining else quiet + 1
            # Agents are killed first: one that sees its training die would report it, and a vanished machine does not.
            for node in nodes.values():
                processes.signal_groups(find_eldest_group(node), everybody, signal.SIGKILL)
            for node in nodes.values():
                processes.signal_groups(node, everybody, signal.SIGKILL)
            time.sleep(_PAUSE_S)
        return remaining

    def _nodes(self, everybody: Sequence[NodeProcess] | None = None) -> Mapping[str, list[NodeProcess]]:
        nodes: dict[str, list[NodeProcess]] = {}
        for one in processes.members() if everybody is None else everybody:
            if self._is_ours(one):
                nodes.setdefault(one.key.node_id, []).append(one)
        return nodes

    def _is_ours(self, process: NodeProcess) -> bool:
        marks = process.marks
        up = processes.FOLDER in marks and processes.WANTED not in marks
        return up and marks.get(processes.STATE) == self._state and process.pid != os.getpid()
