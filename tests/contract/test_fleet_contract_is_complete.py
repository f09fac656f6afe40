"""No fleet of the registry goes without the contract."""

from __future__ import annotations

from providers.registry import CLOUDS
from tests.contract.fleet_contract import FleetContract
from tests.contract.test_contract_is_complete import modules


def test_every_fleet_is_held_to_the_contract() -> None:
    held = {
        value.cloud
        for module in modules()
        for name, value in vars(module).items()
        if name.startswith("Test") and isinstance(value, type) and issubclass(value, FleetContract)
        if value.world is not FleetContract.world
    }
    assert held == {cloud for cloud, entry in CLOUDS.items() if entry.fleet}
