"""Machines of the sandbox that are only written down, for drills without processes."""

from __future__ import annotations

from collections.abc import Sequence

from providers.sandbox.machines import SandboxMachine, SandboxMachines, SandboxNotice


class Hand(SandboxMachines):
    """What is done to the machines is written down. ``stubborn`` ones cannot be ended."""

    def __init__(self, *machines: SandboxMachine) -> None:
        super().__init__("state")
        self.machines = list(machines)
        self.told: dict[str, SandboxNotice] = {}
        self.taken: list[tuple[str, str]] = []
        self.stubborn: set[str] = set()

    def up(self) -> tuple[SandboxMachine, ...]:
        return tuple(self.machines)

    def announce(self, machine: SandboxMachine, notice: SandboxNotice) -> None:
        if not machine.folder.exists():
            raise FileNotFoundError(machine.folder)
        self.told[machine.id] = notice

    def withdraw(self, machine: SandboxMachine) -> None:
        self.told.pop(machine.id, None)

    def switch_off(self, machines: Sequence[SandboxMachine], mark: str) -> tuple[SandboxMachine, ...]:
        self.taken += [(machine.id, mark) for machine in machines]
        left = tuple(machine for machine in machines if machine.id in self.stubborn)
        self.machines = [one for one in self.machines if one not in machines or one in left]
        return left


class Ticks:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
