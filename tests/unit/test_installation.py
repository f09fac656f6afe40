"""The four short package names are ours alone in this environment (docs/design/conventions.md)."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from tests.support.repository import PACKAGES, ROOT


def _origin(name: str) -> Path:
    module = importlib.import_module(name)
    assert module.__file__ is not None, f"{name} is a namespace package: its __init__.py is missing"
    return Path(module.__file__).resolve()


def _strangers(claims: Iterable[str]) -> set[str]:
    return set(claims) - {"stepfare"}


def test_the_four_packages_lie_side_by_side() -> None:
    assert {_origin(name).parent.parent for name in PACKAGES} == {ROOT}


def test_no_other_distribution_claims_their_names() -> None:
    claims = packages_distributions()
    assert {name: _strangers(claims.get(name, [])) for name in PACKAGES} == {name: set() for name in PACKAGES}


def test_the_tests_are_not_shadowed_by_a_stranger() -> None:
    """Some distributions install a top-level ``tests``; ours has no ``__init__.py`` and would lose to it."""
    module = importlib.import_module("tests.support.repository")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == ROOT / "tests" / "support" / "repository.py"


def test_the_commands_are_installed() -> None:
    scripts = {e.name: e.value for e in distribution("stepfare").entry_points if e.group == "console_scripts"}
    assert scripts == {"stepfare": "router.cli.main:main", "stepfare-terraform": "terraform.shim:main"}
