"""The Google Cloud fleet held to the contract: the real SDK on a service of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from providers.registry import open_fleet
from providers.session import Settings
from tests.contract.fleet_contract import FleetContract, World, session
from tests.support.gcp_estate import PROJECT, Project, labels_of, project


class Account(World):
    def __init__(self, app: Project, url: str) -> None:
        self._app = app
        settings = Settings(endpoints={"compute": url, "billing": url}, options={"project": PROJECT})
        super().__init__(open_fleet("gcp", session("gcp", settings)), ("us-central1",))

    def make(self, attempt: str, state: str, machines: int) -> list[str]:
        return [
            self._app.machine(f"stepfare-{attempt}-{rank}", labels_of(attempt, state, rank)) for rank in range(machines)
        ]

    def make_foreign(self) -> str:
        return self._app.machine("database-1", {"team": "research"})

    def lose(self, machine_id: str) -> None:
        self._app.remove(machine_id)

    def alive(self) -> set[str]:
        return self._app.machines()


class TestGcpFleet(FleetContract):
    cloud: ClassVar[str] = "gcp"

    @pytest.fixture
    def world(self) -> Iterator[Account]:
        with project() as (app, url):
            app.polls = 0  # gone at once
            yield Account(app, url)
