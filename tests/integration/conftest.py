"""Fixtures of tests: plans that are made once, sites that end with the test, states on every database."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.state.store import StateStore
from tests.support.deployed import NewSite, Site, Template
from tests.support.new_state import write_new_state
from tests.support.postgres_here import PostgresHere, postgres_here
from tests.support.state_values import NOW, NewUrl
from tests.support.terraform_standin import Engine

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from tests.support.terraform_moto import Cloud


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresHere]:
    """A PostgreSQL server of this process."""
    with postgres_here() as server:
        yield server


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewUrl:
    """A function that returns the URL of a database that does not exist yet: of each kind in turn."""
    if request.param == "postgresql":
        server: PostgresHere = request.getfixturevalue("postgres")
        return server.url_of_new_schema
    folder, numbers = tmp_path_factory.mktemp("states"), itertools.count()
    return lambda: f"sqlite:///{folder}/{next(numbers)}/state.db"


@pytest.fixture(scope="module")
def ready_url(new_url: NewUrl) -> NewUrl:
    """A function that returns the URL of a state in which nothing was written."""

    def make() -> str:
        url = new_url()
        if url.startswith("sqlite"):
            write_new_state(Path(url.removeprefix("sqlite:///")), NOW)
        else:
            StateStore.open(url, now=NOW).close()
        return url

    return make


@pytest.fixture
def url(new_url: NewUrl) -> str:
    """The URL of a database that does not exist yet."""
    return new_url()


@pytest.fixture
def store(url: str) -> Iterator[StateStore]:
    with StateStore.open(url, now=NOW) as store:
        yield store


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Terraform with stand-ins in the place of the providers."""
    return Engine.beside(tmp_path_factory.mktemp("standin"))


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """An account on moto, which takes long to import."""
    from tests.support.terraform_moto import cloud

    with cloud(tmp_path_factory.mktemp("aws")) as served:
        yield served


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A console that is asked nothing that it would do."""
    from tests.support.console import console_client, query_context

    with query_context(tmp_path_factory.mktemp("idle")) as opened:
        yield console_client(opened)
