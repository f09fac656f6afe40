"""The sandbox's fleet held to the contract, on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from providers.registry import open_fleet
from providers.sandbox import processes
from providers.session import Settings
from tests.contract.fleet_contract import FleetContract, World, session
from tests.support import sandbox_nodes

SECRET = "canary-of-a-nodes-environment"


class Processes(World):
    def __init__(self, folder: Path) -> None:
        super().__init__(open_fleet("sandbox", session("sandbox", Settings())), ())
        self._folder = folder
        self.ids: set[str] = set()

    def make(self, attempt: str, state: str, machines: int) -> list[str]:
        nodes = [sandbox_nodes.start(self._folder, attempt, rank, state, TOKEN=SECRET) for rank in range(machines)]
        self.ids |= {node.id for node in nodes}
        return [node.id for node in nodes]

    def make_foreign(self) -> str:
        """It has an id, and no attempt."""
        node = sandbox_nodes.start(self._folder, "foreign", 0, "", STEPFARE_ATTEMPT="")
        self.ids.add(node.id)
        return node.id

    def lose(self, machine_id: str) -> None:
        sandbox_nodes.kill(machine_id)

    def alive(self) -> set[str]:
        return {node_id for node_id in self.ids if sandbox_nodes.pids_of(node_id)}


class TestSandboxFleet(FleetContract):
    cloud: ClassVar[str] = "sandbox"
    canary: ClassVar[str] = SECRET

    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
        """Nodes of other tests, or of whoever uses this machine, are not of this world."""
        world = Processes(tmp_path)
        everybody = processes.members
        monkeypatch.setattr(processes, "members", lambda: [one for one in everybody() if one.key.node_id in world.ids])
        yield world
        for node_id in world.ids:
            sandbox_nodes.kill(node_id)
