"""What tests of apply, watch and recovery begin with: plans that are made once, sites that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.deployed import NewSite, Site, Template


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a test run, below which plans are made once."""
    return tmp_path_factory.getbasetemp()


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[NewSite]:
    """A function that copies a template into the test's folder; what runs there ends with the test."""
    with ExitStack() as ends:

        def copy(template: Template) -> Site:
            site = template.site(tmp_path / "site")
            ends.callback(site.end)
            return site

        yield copy
