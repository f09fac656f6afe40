"""No cloud of the registry goes without the contracts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from providers.registry import CLOUDS
from tests.contract.fleet_contract import FleetContract
from tests.contract.provider_contract import ProviderContract

HERE = Path(__file__).parent
T = TypeVar("T")


def modules() -> Iterator[ModuleType]:
    for path in sorted(HERE.glob("test_*_contract.py")):
        name = f"tests.contract.{path.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        yield sys.modules[name]


def contracts(kind: type[T]) -> Iterator[type[T]]:
    """Subclasses that pytest collects."""
    for module in modules():
        for name, value in vars(module).items():
            if name.startswith("Test") and isinstance(value, type) and issubclass(value, kind):
                yield value


def test_every_cloud_of_the_registry_and_no_other_is_held_to_the_contract() -> None:
    own = (kind for kind in contracts(ProviderContract) if kind.provider is not ProviderContract.provider)
    assert {cloud for kind in own for cloud in kind.clouds} == set(CLOUDS)


def test_every_fleet_is_held_to_the_contract() -> None:
    held = {kind.cloud for kind in contracts(FleetContract) if kind.world is not FleetContract.world}
    assert held == {cloud for cloud, entry in CLOUDS.items() if entry.fleet}
