"""No cloud of the registry goes without the contract."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from providers.registry import CLOUDS
from tests.contract.provider_contract import ProviderContract

HERE = Path(__file__).parent


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


def covered() -> set[str]:
    """Clouds named by subclasses that pytest collects and that give a provider of their own."""
    clouds: set[str] = set()
    for module in modules():
        for name, value in vars(module).items():
            collected = name.startswith("Test") and isinstance(value, type) and issubclass(value, ProviderContract)
            if collected and value.provider is not ProviderContract.provider:
                clouds |= set(value.clouds)
    return clouds


def test_every_cloud_is_held_to_the_contract() -> None:
    assert set(CLOUDS) - covered() == set()


def test_only_clouds_of_the_registry_are() -> None:
    assert covered() - set(CLOUDS) == set()
