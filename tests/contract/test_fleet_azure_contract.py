"""The Azure fleet held to the contract: the real SDK's pipeline on a service of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from providers.azure.fleet import AzureFleet
from providers.session import Settings
from tests.contract.fleet_contract import FleetContract, World, session
from tests.contract.test_azure_contract import CANARY, Signed
from tests.support.azure_estate import SUBSCRIPTION, Subscription, subscription, tags_of


class Account(World):
    def __init__(self, app: Subscription, url: str) -> None:
        self._app = app
        settings = Settings(endpoints={"management": url}, options={"subscription": SUBSCRIPTION})
        super().__init__(AzureFleet("azure", session("azure", settings), Signed()), ("eastus",))

    def make(self, attempt: str, state: str, machines: int) -> list[str]:
        name = f"stepfare-{attempt}"
        self._app.group(name, tags_of(attempt, state))
        return [self._app.machine(name, f"{name}-{rank}", tags_of(attempt, state, rank)) for rank in range(machines)]

    def make_foreign(self) -> str:
        self._app.group("databases", {"team": "research"})
        return self._app.machine("databases", "database-1", {"team": "research"})

    def lose(self, machine_id: str) -> None:
        self._app.remove(machine_id)

    def alive(self) -> set[str]:
        return self._app.machines()


class TestAzureFleet(FleetContract):
    cloud: ClassVar[str] = "azure"
    canary: ClassVar[str] = CANARY

    @pytest.fixture
    def world(self) -> Iterator[Account]:
        with subscription() as (app, url):
            yield Account(app, url)
