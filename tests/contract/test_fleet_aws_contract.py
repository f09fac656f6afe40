"""The AWS fleet held to the contract: the real SDK on moto over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from providers.fleet import CloudResource
from providers.registry import open_fleet
from tests.contract.fleet_contract import FleetContract, World, session
from tests.support.aws_estate import Estate, estate
from tests.support.aws_service_session import CANARY, settings, somebody


class Account(World):
    def __init__(self, app: Estate) -> None:
        self._app = app
        endpoints = {"ec2": app.url, "tag": app.url}
        super().__init__(open_fleet("aws", session("aws", settings(app.url, endpoints=endpoints))), ("us-east-1",))

    def make(self, attempt: str, state: str, machines: int) -> list[str]:
        return self._app.machines(attempt, state, range(machines))

    def make_foreign(self) -> str:
        return self._app.machine({})

    def lose(self, machine_id: str) -> None:
        self._app.ec2().terminate_instances(InstanceIds=[machine_id])

    def alive(self) -> set[str]:
        return self._app.running()


class TestAwsFleet(FleetContract):
    cloud: ClassVar[str] = "aws"
    canary: ClassVar[str] = CANARY

    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
        somebody(monkeypatch)
        with estate() as app:
            yield Account(app)

    def renamed(self, found: CloudResource) -> str:
        """EC2 uses an id once."""
        return "i-0000000000000dead"
